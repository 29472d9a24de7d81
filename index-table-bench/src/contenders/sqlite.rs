//! `SQLite` through rusqlite, compiled in.
//!
//! The database has a WAL with `synchronous = FULL`, so commits are durable. The file is memory-mapped, and
//! the cache is as large as the caches of the other contenders. Statements are prepared once and cached. The
//! index on towns and last names also has the primary key, for the order of the query, and the phone number,
//! to cover the query. A test checks the query plan of each statement.

use std::{path::Path, time::Duration};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::{
    contender::{Contender, Digest, Failure, Outcome},
    workload::{Customer, NameRange, PAGE, Position},
    writers::Insert,
};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA mmap_size = 2147418112;
    PRAGMA cache_size = -1048576;
    CREATE TABLE IF NOT EXISTS customers (
        id INTEGER PRIMARY KEY,
        first_name TEXT NOT NULL,
        last_name TEXT NOT NULL,
        town TEXT NOT NULL,
        phone TEXT NOT NULL,
        email TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_town ON customers (town);
    CREATE INDEX IF NOT EXISTS by_name ON customers (town, last_name, id, phone);
    CREATE UNIQUE INDEX IF NOT EXISTS by_email ON customers (email);
";

const INSERT: &str = "INSERT INTO customers VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const GET: &str = "SELECT * FROM customers WHERE id = ?1";
const GET_BY_EMAIL: &str = "SELECT * FROM customers WHERE email = ?1";
const ROWS_OF_TOWN: &str = "SELECT * FROM customers WHERE town = ?1 ORDER BY id";
const ENTRIES_OF_TOWN: &str =
    "SELECT id, last_name, phone FROM customers WHERE town = ?1 ORDER BY last_name, id";
const ROWS_IN_RANGE: &str = "SELECT * FROM customers
    WHERE town = ?1 AND last_name >= ?2 AND last_name < ?3 ORDER BY last_name, id";
const PAGE_OF_TOWN: &str =
    "SELECT * FROM customers WHERE town = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
const COUNT: &str = "SELECT count(*) FROM customers WHERE town = ?1";
const SET_FIRST_NAME: &str = "UPDATE customers SET first_name = ?2 WHERE id = ?1";
const SET_TOWN: &str = "UPDATE customers SET town = ?2 WHERE id = ?1";
const DELETE: &str = "DELETE FROM customers WHERE id = ?1";

struct Sqlite {
    connection: Connection,
}

pub(crate) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    Ok(Box::new(Sqlite::open(directory)?))
}

/// Returns a function for each thread that inserts rows, each with its own connection and a busy timeout.
pub(crate) fn alone(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    let insert = || -> Outcome<Insert> {
        let sqlite = Sqlite::open(directory)?;
        sqlite.connection.busy_timeout(Duration::from_mins(1))?;
        Ok(Box::new(move |row| {
            let statement = sqlite.connection.prepare_cached(INSERT);
            statement
                .map_err(Failure::from)
                .and_then(|mut statement| insert(&mut statement, row))
                .map_err(|failure| match failure {
                    Failure::Lacks => "SQLite can't insert rows".to_owned(),
                    Failure::Failed(error) => error.to_string(),
                })
        }))
    };
    (0..threads).map(|_| insert()).collect()
}

impl Sqlite {
    fn open(directory: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(directory)?;
        let connection = Connection::open(directory.join("customers.sqlite"))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection })
    }

    /// Runs `work` with a statement, in one transaction.
    fn transaction(
        &mut self,
        statement: &str,
        work: impl FnOnce(&mut CachedStatement<'_>) -> Outcome,
    ) -> Outcome {
        let transaction = self.connection.transaction()?;
        work(&mut transaction.prepare_cached(statement)?)?;
        Ok(transaction.commit()?)
    }
}

fn insert(statement: &mut CachedStatement<'_>, row: &Customer) -> Outcome {
    let Customer { id, first_name, last_name, town, phone, email } = row;
    statement.execute(params![id.cast_signed(), first_name, last_name, town, phone, email])?;
    Ok(())
}

fn customer(row: &Row<'_>) -> rusqlite::Result<Customer> {
    Ok(Customer {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        first_name: row.get(1)?,
        last_name: row.get(2)?,
        town: row.get(3)?,
        phone: row.get(4)?,
        email: row.get(5)?,
    })
}

fn all(mut rows: rusqlite::Rows<'_>, digest: &mut Digest) -> Outcome {
    while let Some(row) = rows.next()? {
        digest.row(Some(&customer(row)?));
    }
    Ok(())
}

impl Contender for Sqlite {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        self.transaction(INSERT, |statement| rows.iter().try_for_each(|row| insert(statement, row)))
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        let mut statement = self.connection.prepare_cached(INSERT)?;
        rows.iter().try_for_each(|row| insert(&mut statement, row))
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        self.transaction(GET, |statement| {
            for id in ids {
                let row = statement.query_row([id.cast_signed()], customer).optional()?;
                digest.row(row.as_ref());
            }
            Ok(())
        })
    }

    /// Runs each statement in its own transaction.
    fn get_one_by_one(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        for id in ids {
            let mut statement = self.connection.prepare_cached(GET)?;
            let row = statement.query_row([id.cast_signed()], customer).optional()?;
            digest.row(row.as_ref());
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        self.transaction(GET_BY_EMAIL, |statement| {
            for email in emails {
                digest.row(statement.query_row([email], customer).optional()?.as_ref());
            }
            Ok(())
        })
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        self.transaction(ROWS_OF_TOWN, |statement| {
            towns.iter().try_for_each(|town| all(statement.query([town])?, digest))
        })
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        self.transaction(ENTRIES_OF_TOWN, |statement| {
            for town in towns {
                let mut entries = statement.query([town])?;
                while let Some(entry) = entries.next()? {
                    let id = entry.get::<_, i64>(0)?.cast_unsigned();
                    digest.entry(id, entry.get_ref(1)?.as_str()?, entry.get_ref(2)?.as_str()?);
                }
            }
            Ok(())
        })
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        self.transaction(ROWS_IN_RANGE, |statement| {
            ranges.iter().try_for_each(|NameRange { town, from, to }| {
                all(statement.query([town, from, to])?, digest)
            })
        })
    }

    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome {
        self.transaction(PAGE_OF_TOWN, |statement| {
            positions.iter().try_for_each(|Position { town, after, .. }| {
                all(
                    statement.query(params![
                        town,
                        after.cast_signed(),
                        PAGE.cast_signed() as i64
                    ])?,
                    digest,
                )
            })
        })
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        self.transaction(COUNT, |statement| {
            for town in towns {
                let count: i64 = statement.query_row([town], |row| row.get(0))?;
                digest.number(count.cast_unsigned());
            }
            Ok(())
        })
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.transaction(SET_FIRST_NAME, |statement| {
            for (id, name) in changes {
                digest.found += statement.execute(params![id.cast_signed(), name])? as u64;
            }
            Ok(())
        })
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.transaction(SET_TOWN, |statement| {
            for (id, town) in changes {
                digest.found += statement.execute(params![id.cast_signed(), town])? as u64;
            }
            Ok(())
        })
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        self.transaction(DELETE, |statement| {
            for id in ids {
                digest.found += statement.execute([id.cast_signed()])? as u64;
            }
            Ok(())
        })
    }

    /// Moves the contents of the WAL to the database file.
    fn settle(&mut self) -> Outcome {
        Ok(self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the query plan of each statement, so that `SQLite` reads no more than the other contenders.
    #[test]
    fn every_statement_uses_its_index() {
        let directory = tempfile::tempdir().unwrap();
        let Ok(sqlite) = Sqlite::open(directory.path()) else {
            panic!("the database can't be opened")
        };
        for (statement, plan) in [
            (GET, "SEARCH customers USING INTEGER PRIMARY KEY (rowid=?)"),
            (GET_BY_EMAIL, "SEARCH customers USING INDEX by_email (email=?)"),
            (ROWS_OF_TOWN, "SEARCH customers USING INDEX by_town (town=?)"),
            (ENTRIES_OF_TOWN, "SEARCH customers USING COVERING INDEX by_name (town=?)"),
            (
                ROWS_IN_RANGE,
                "SEARCH customers USING INDEX by_name (town=? AND last_name>? AND last_name<?)",
            ),
            (PAGE_OF_TOWN, "SEARCH customers USING INDEX by_town (town=? AND rowid>?)"),
            (COUNT, "SEARCH customers USING COVERING INDEX by_town (town=?)"),
            (SET_FIRST_NAME, "SEARCH customers USING INTEGER PRIMARY KEY (rowid=?)"),
            (SET_TOWN, "SEARCH customers USING INTEGER PRIMARY KEY (rowid=?)"),
            (DELETE, "SEARCH customers USING INTEGER PRIMARY KEY (rowid=?)"),
        ] {
            let explain = format!("EXPLAIN QUERY PLAN {statement}");
            let mut explain = sqlite.connection.prepare(&explain).unwrap();
            let lines = explain.raw_query().mapped(|row| row.get::<_, String>(3));
            let lines: Vec<String> = lines.map(Result::unwrap).collect();
            assert_eq!(lines, [plan], "{statement}");
        }
    }

    #[test]
    fn the_database_has_a_wal_full_syncs_and_a_memory_map() {
        let directory = tempfile::tempdir().unwrap();
        let Ok(sqlite) = Sqlite::open(directory.path()) else {
            panic!("the database can't be opened")
        };
        let setting = |name| {
            let query = format!("PRAGMA {name}");
            sqlite
                .connection
                .query_row(&query, [], |row| row.get_ref(0).map(|it| format!("{it:?}")))
        };
        assert!(setting("journal_mode").unwrap().contains("119, 97, 108"), "wal");
        assert_eq!(setting("synchronous").unwrap(), "Integer(2)");
        assert_eq!(setting("mmap_size").unwrap(), "Integer(2147418112)");
    }
}
