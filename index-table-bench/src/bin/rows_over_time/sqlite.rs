//! The same in `SQLite`: an index for the expiry, a foreign key for the reference, triggers for the totals, and a
//! condition on the revision.

use std::{hint::black_box, ops::Range, path::Path};

use rusqlite::{Connection, params};

use crate::{CUSTOMERS, Contender, Feature, Outcome, Row};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    PRAGMA foreign_keys = ON;
    PRAGMA mmap_size = 2147418112;
    PRAGMA cache_size = -1048576;
    CREATE TABLE customers (id INTEGER PRIMARY KEY);
";

const INVOICES: &str = "
    CREATE TABLE invoices (
        number INTEGER PRIMARY KEY,
        revision INTEGER NOT NULL,
        customer INTEGER NOT NULL REFERENCE,
        amount INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        text TEXT NOT NULL
    );
    CREATE INDEX by_customer ON invoices (customer);
";

const TOTALS: &str = "
    CREATE TABLE totals (customer INTEGER PRIMARY KEY, count INTEGER NOT NULL, sum INTEGER NOT NULL);
    CREATE TRIGGER inserted AFTER INSERT ON invoices BEGIN
        INSERT INTO totals VALUES (new.customer, 1, new.amount)
            ON CONFLICT (customer) DO UPDATE SET count = count + 1, sum = sum + new.amount;
    END;
    CREATE TRIGGER deleted AFTER DELETE ON invoices BEGIN
        UPDATE totals SET count = count - 1, sum = sum - old.amount WHERE customer = old.customer;
    END;
    CREATE TRIGGER updated AFTER UPDATE ON invoices
    WHEN new.customer = old.customer AND new.amount <> old.amount BEGIN
        UPDATE totals SET sum = sum + new.amount - old.amount WHERE customer = old.customer;
    END;
    CREATE TRIGGER moved AFTER UPDATE ON invoices WHEN new.customer <> old.customer BEGIN
        UPDATE totals SET count = count - 1, sum = sum - old.amount WHERE customer = old.customer;
        INSERT INTO totals VALUES (new.customer, 1, new.amount)
            ON CONFLICT (customer) DO UPDATE SET count = count + 1, sum = sum + new.amount;
    END;
";

pub(crate) struct Sqlite {
    connection: Connection,
    feature: Feature,
}

impl Sqlite {
    pub(crate) fn open(dir: &Path, feature: Feature) -> Outcome<Self> {
        let connection = Connection::open(dir.join("db"))?;
        connection.execute_batch(SCHEMA)?;
        let reference =
            if feature == Feature::References { "REFERENCES customers (id)" } else { "" };
        connection.execute_batch(&INVOICES.replace("REFERENCE,", &format!("{reference},")))?;
        match feature {
            Feature::Expiry => {
                connection.execute_batch("CREATE INDEX by_expiry ON invoices (expires_at)")?;
            }
            Feature::Aggregate => connection.execute_batch(TOTALS)?,
            Feature::Plain | Feature::Revision | Feature::References => {}
        }
        connection.execute_batch("BEGIN")?;
        for id in 0..CUSTOMERS {
            connection.execute("INSERT INTO customers VALUES (?1)", [id.cast_signed()])?;
        }
        connection.execute_batch("COMMIT")?;
        Ok(Self { connection, feature })
    }

    fn write(
        &mut self,
        numbers: Range<u64>,
        mut each: impl FnMut(&Connection, i64) -> Outcome<()>,
    ) -> Outcome<()> {
        let txn = self.connection.transaction()?;
        for number in numbers {
            each(&txn, number.cast_signed())?;
        }
        txn.commit()?;
        Ok(())
    }
}

impl Contender for Sqlite {
    fn insert(&mut self, numbers: Range<u64>) -> Outcome<()> {
        self.write(numbers, |connection, number| {
            let Row { customer, amount, expires_at, text, .. } = Row::new(number.cast_unsigned());
            let (customer, expires_at) = (customer.cast_signed(), expires_at.cast_signed());
            let mut insert =
                connection.prepare_cached("INSERT INTO invoices VALUES (?1, 1, ?2, ?3, ?4, ?5)")?;
            insert.execute(params![number, customer, amount, expires_at, text])?;
            Ok(())
        })
    }

    fn edit(&mut self, numbers: Range<u64>) -> Outcome<()> {
        let is_checked = self.feature == Feature::Revision;
        self.write(numbers, |connection, number| {
            let mut get = connection.prepare_cached("SELECT * FROM invoices WHERE number = ?1")?;
            let (revision, amount) = get.query_row([number], |row| {
                black_box((row.get::<_, i64>(2)?, row.get::<_, i64>(4)?, row.get::<_, String>(5)?));
                Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(3)?))
            })?;
            let sql = if is_checked {
                "UPDATE invoices SET revision = revision + 1, amount = ?2 WHERE number = ?1 AND revision = ?3"
            } else {
                "UPDATE invoices SET revision = ?3, amount = ?2 WHERE number = ?1"
            };
            let mut put = connection.prepare_cached(sql)?;
            let changed = put.execute(params![number, amount + 1, revision])?;
            if changed == 1 { Ok(()) } else { Err("the row has changed".into()) }
        })
    }

    fn delete(&mut self, numbers: Range<u64>) -> Outcome<()> {
        self.write(numbers, |connection, number| {
            let mut delete = connection.prepare_cached("DELETE FROM invoices WHERE number = ?1")?;
            delete.execute([number])?;
            Ok(())
        })
    }

    fn scan(&mut self, customer: u64) -> Outcome<(u64, i64)> {
        let sql = "SELECT count(*), sum(amount) FROM invoices WHERE customer = ?1";
        let mut scan = self.connection.prepare_cached(sql)?;
        Ok(scan.query_row([customer.cast_signed()], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?))
        })?)
    }

    fn look_up(&mut self, customer: u64) -> Outcome<(u64, i64)> {
        let sql = "SELECT count, sum FROM totals WHERE customer = ?1";
        let mut look_up = self.connection.prepare_cached(sql)?;
        Ok(look_up.query_row([customer.cast_signed()], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?))
        })?)
    }
}
