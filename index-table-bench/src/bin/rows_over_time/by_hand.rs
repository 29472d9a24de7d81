//! The same by hand on heed: keys are big-endian numbers, and rows are in postcard.

use std::{ops::Range, path::Path};

use heed::{
    CommitOrAbort, Env, EnvFlags, EnvOpenOptions, PutFlags, RwTxn, WithoutTls, types::Bytes,
};

use crate::{CUSTOMERS, Contender, Feature, Outcome, Row};

type Database = heed::Database<'static, Bytes, Bytes>;

pub(crate) struct ByHand {
    env: Env<WithoutTls>,
    tables: Tables,
}

struct Tables {
    feature: Feature,
    facts: Database,
    /// Customer and number.
    by_customer: Database,
    /// Time and number.
    by_expiry: Database,
    customers: Database,
    totals: Database,
}

fn pair(first: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn decode_totals(record: Option<&[u8]>) -> (u64, i128) {
    let Some(record) = record else { return (0, 0) };
    let count = record[..8].try_into().map(u64::from_be_bytes).unwrap_or_default();
    (count, record[8..].try_into().map(i128::from_be_bytes).unwrap_or_default())
}

impl ByHand {
    pub(crate) fn open(dir: &Path, feature: Feature) -> Outcome<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(4 << 30).max_dbs(5);
        #[expect(unsafe_code, reason = "heed marks the flags and the whole environment unsafe")]
        // SAFETY: no other process uses the directory, and a crash may lose it.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(dir)? };
        let databases = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
            let mut database = |name| opener.create_database(txn, Some(name));
            heed::Result::Ok(CommitOrAbort::<_, ()>::Commit([
                database("facts")?,
                database("by_customer")?,
                database("by_expiry")?,
                database("customers")?,
                database("totals")?,
            ]))
        })?;
        let [facts, by_customer, by_expiry, customers, totals] = databases.unwrap_commit();
        let tables = Tables { feature, facts, by_customer, by_expiry, customers, totals };
        let mut txn = env.write_txn()?;
        for id in 0..CUSTOMERS {
            tables.customers.put(&mut txn, &id.to_be_bytes(), &[])?;
        }
        txn.commit()?;
        Ok(Self { env, tables })
    }

    fn write(
        &mut self,
        numbers: Range<u64>,
        mut each: impl FnMut(&Tables, &mut RwTxn<'_>, u64) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut txn = self.env.write_txn()?;
        for number in numbers {
            each(&self.tables, &mut txn, number)?;
        }
        txn.commit()?;
        Ok(())
    }
}

impl Tables {
    fn get(&self, txn: &RwTxn<'_>, number: u64) -> Outcome<Option<Row>> {
        let fact = self.facts.get(txn, &number.to_be_bytes())?;
        Ok(fact.map(postcard::from_bytes).transpose()?)
    }

    fn check_customer(&self, txn: &RwTxn<'_>, customer: u64) -> Outcome<()> {
        if self.feature == Feature::References
            && self.customers.get(txn, &customer.to_be_bytes())?.is_none()
        {
            return Err("there is no such customer".into());
        }
        Ok(())
    }

    fn add(&self, txn: &mut RwTxn<'_>, customer: u64, count: i64, amount: i64) -> Outcome<()> {
        let key = customer.to_be_bytes();
        let (own, sum) = decode_totals(self.totals.get(txn, &key)?);
        let (own, sum) = (own.saturating_add_signed(count), sum + i128::from(amount));
        if own == 0 {
            self.totals.delete(txn, &key)?;
        } else {
            let record = [&own.to_be_bytes()[..], &sum.to_be_bytes()].concat();
            self.totals.put(txn, &key, &record)?;
        }
        Ok(())
    }

    fn insert(&self, txn: &mut RwTxn<'_>, mut row: Row) -> Outcome<()> {
        self.check_customer(txn, row.customer)?;
        if self.feature == Feature::Revision {
            row.revision = 1;
        }
        let bytes = postcard::to_stdvec(&row)?;
        self.facts.put_with_flags(
            txn,
            PutFlags::NO_OVERWRITE,
            &row.number.to_be_bytes(),
            &bytes,
        )?;
        self.by_customer.put(txn, &pair(row.customer, row.number), &[])?;
        match self.feature {
            Feature::Expiry => self.by_expiry.put(txn, &pair(row.expires_at, row.number), &[])?,
            Feature::Aggregate => self.add(txn, row.customer, 1, row.amount)?,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, txn: &mut RwTxn<'_>, mut row: Row) -> Outcome<()> {
        let old = self.get(txn, row.number)?.ok_or("there is no such row")?;
        if self.feature == Feature::Revision {
            if old.revision != row.revision {
                return Err("the row has changed".into());
            }
            row.revision += 1;
        }
        if old.customer != row.customer {
            self.check_customer(txn, row.customer)?;
            self.by_customer.delete(txn, &pair(old.customer, row.number))?;
            self.by_customer.put(txn, &pair(row.customer, row.number), &[])?;
        }
        if self.feature == Feature::Expiry && old.expires_at != row.expires_at {
            self.by_expiry.delete(txn, &pair(old.expires_at, row.number))?;
            self.by_expiry.put(txn, &pair(row.expires_at, row.number), &[])?;
        }
        if self.feature == Feature::Aggregate {
            if old.customer == row.customer {
                self.add(txn, row.customer, 0, row.amount - old.amount)?;
            } else {
                self.add(txn, old.customer, -1, -old.amount)?;
                self.add(txn, row.customer, 1, row.amount)?;
            }
        }
        let bytes = postcard::to_stdvec(&row)?;
        Ok(self.facts.put(txn, &row.number.to_be_bytes(), &bytes)?)
    }

    fn delete(&self, txn: &mut RwTxn<'_>, number: u64) -> Outcome<()> {
        let Some(old) = self.get(txn, number)? else { return Ok(()) };
        self.facts.delete(txn, &number.to_be_bytes())?;
        self.by_customer.delete(txn, &pair(old.customer, number))?;
        match self.feature {
            Feature::Expiry => {
                self.by_expiry.delete(txn, &pair(old.expires_at, number))?;
            }
            Feature::Aggregate => self.add(txn, old.customer, -1, -old.amount)?,
            _ => {}
        }
        Ok(())
    }
}

impl Contender for ByHand {
    fn insert(&mut self, numbers: Range<u64>) -> Outcome<()> {
        self.write(numbers, |tables, txn, number| tables.insert(txn, Row::new(number)))
    }

    fn edit(&mut self, numbers: Range<u64>) -> Outcome<()> {
        self.write(numbers, |tables, txn, number| {
            let Some(mut row) = tables.get(txn, number)? else { return Ok(()) };
            row.amount += 1;
            tables.put(txn, row)
        })
    }

    fn delete(&mut self, numbers: Range<u64>) -> Outcome<()> {
        self.write(numbers, Tables::delete)
    }

    fn scan(&mut self, customer: u64) -> Outcome<(u64, i64)> {
        let txn = self.env.read_txn()?;
        let (mut count, mut sum) = (0, 0);
        for entry in self.tables.by_customer.prefix_iter(&txn, &customer.to_be_bytes())? {
            let (key, _) = entry?;
            let fact = self.tables.facts.get(&txn, &key[8..])?.ok_or("an entry without a row")?;
            count += 1;
            sum += postcard::from_bytes::<Row>(fact)?.amount;
        }
        Ok((count, sum))
    }

    fn look_up(&mut self, customer: u64) -> Outcome<(u64, i64)> {
        let txn = self.env.read_txn()?;
        let (count, sum) = decode_totals(self.tables.totals.get(&txn, &customer.to_be_bytes())?);
        Ok((count, sum.try_into()?))
    }
}
