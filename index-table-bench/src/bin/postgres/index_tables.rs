//! The operations with index tables.

use std::ops::Range;

use index_table::{__private::run_sql, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{Outcome, Values, inserted, scattered, values};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(town)]
#[index(town, last_name, include = [phone])]
#[index(email, unique)]
pub(crate) struct Customer {
    #[primary_key]
    id: i64,
    last_name: String,
    town: String,
    phone: String,
    email: String,
}

fn customer(of: Values) -> Customer {
    let Values { id, last_name, town, phone, email } = of;
    Customer { id, last_name, town, phone, email }
}

pub(crate) struct IndexTables {
    store: Store,
    customers: CustomerRepository,
}

impl IndexTables {
    pub(crate) fn connect(url: &str) -> Outcome<Self> {
        let options = Store::options().schema("bench").connections(1);
        let store = options.connect(url)?;
        run_sql(&store, "DROP SCHEMA bench CASCADE")?;
        drop(store);
        let store = options.connect(url)?;
        let customers = CustomerRepository::open(&store)?;
        Ok(Self { store, customers })
    }

    pub(crate) fn load(&self, ids: Range<i64>) -> Outcome {
        let rows: Vec<Customer> = ids.map(|id| customer(values(id))).collect();
        self.customers.bulk_load(&self.store, rows).run()?;
        Ok(())
    }

    /// Vacuums all tables, as those of the hand-written SQL are after the load.
    pub(crate) fn vacuum(&self) -> Outcome {
        for table in ["customers", "customers.town", "customers.town_last_name", "customers.email"]
        {
            run_sql(&self.store, &format!("VACUUM ANALYZE bench.\"{table}\""))?;
        }
        Ok(())
    }

    pub(crate) fn gets(&self, round: i64, count: i64) -> Outcome<usize> {
        let mut found = 0;
        for step in 0..count {
            let txn = self.store.read()?;
            found += usize::from(
                self.customers.get(&txn, scattered(round, step, super::BIG.1))?.is_some(),
            );
        }
        Ok(found)
    }

    pub(crate) fn get_many(&self, round: i64, count: i64) -> Outcome<usize> {
        let mut found = 0;
        for step in 0..count {
            let txn = self.store.read()?;
            let ids = (0..100).map(|at| scattered(round + step, at, super::BIG.1));
            for row in self.customers.get_many(&txn, ids) {
                found += usize::from(row?.is_some());
            }
        }
        Ok(found)
    }

    pub(crate) fn gets_by_email(&self, round: i64, count: i64) -> Outcome<usize> {
        let mut found = 0;
        for step in 0..count {
            let email = values(scattered(round, step, super::BIG.1)).email;
            let txn = self.store.read()?;
            found += usize::from(self.customers.get_by_email(&txn, &email)?.is_some());
        }
        Ok(found)
    }

    pub(crate) fn rows_of_town(&self, town: &str, count: i64) -> Outcome<usize> {
        let mut bytes = 0;
        for _ in 0..count {
            let txn = self.store.read()?;
            for row in self.customers.find_by_town(&txn, town).rows() {
                bytes += row?.phone.len();
            }
        }
        Ok(bytes)
    }

    pub(crate) fn pages(&self, town: &str, count: i64) -> Outcome<usize> {
        let mut found = 0;
        for _ in 0..count {
            let txn = self.store.read()?;
            found += self.customers.find_by_town(&txn, town).page(20)?.items.len();
        }
        Ok(found)
    }

    pub(crate) fn phones(&self, town: &str, name: &str, count: i64) -> Outcome<usize> {
        let mut bytes = 0;
        for _ in 0..count {
            let txn = self.store.read()?;
            for entry in self.customers.find_by_town_last_name(&txn, town, name).entries() {
                bytes += entry?.phone.len();
            }
        }
        Ok(bytes)
    }

    pub(crate) fn count(&self, town: &str, count: i64) -> Outcome<usize> {
        let mut found = 0;
        for _ in 0..count {
            let counted = self.customers.find_by_town(&self.store.read()?, town).count()?;
            found += usize::try_from(counted)?;
        }
        Ok(found)
    }

    pub(crate) fn all(&self) -> Outcome<usize> {
        let txn = self.store.read()?;
        let mut bytes = 0;
        for row in self.customers.all(&txn).rows() {
            bytes += row?.phone.len();
        }
        Ok(bytes)
    }

    pub(crate) fn inserts(&self, round: i64, count: i64) -> Outcome<usize> {
        let mut each = self.store.autocommit()?;
        for step in 0..count {
            self.customers.insert(&mut each, &customer(values(inserted(round) + step)))?;
        }
        Ok(usize::try_from(count)?)
    }

    /// Replaces rows by rows with another town.
    pub(crate) fn changes(&self, round: i64, count: i64) -> Outcome<usize> {
        let mut each = self.store.autocommit()?;
        for step in 0..count {
            let row = values(inserted(round) + step);
            let town = format!("{} {round}", row.town);
            self.customers.put(&mut each, &customer(Values { town, ..row }))?;
        }
        Ok(usize::try_from(count)?)
    }
}

/// A client of the comparison of writers.
pub(crate) struct Client {
    store: Store,
    customers: CustomerRepository,
}

impl Client {
    pub(crate) fn connect(url: &str) -> Result<Self> {
        let store = Store::options().schema("bench").connections(1).connect(url)?;
        let customers = CustomerRepository::open(&store)?;
        Ok(Self { store, customers })
    }

    /// Changes the phone of a row.
    pub(crate) fn change(&self, id: i64, phone: &str) -> Result<()> {
        let change = |row: &mut Customer| phone.clone_into(&mut row.phone);
        self.store.transaction(|txn| self.customers.update(txn, id, change).map(drop))
    }
}
