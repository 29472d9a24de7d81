//! `native_db` 0.8: secondary keys on town and email, and a computed secondary key of town and last name.
//! `native_db` has no covering index, so covered queries read the rows. It counts the rows of a key by
//! reading all of them. It can't start in the middle of a key, so pages are `N/A`. Rows have `native_model`'s
//! default encoding.

use std::path::Path;

use native_db::{Builder, Database, Models, ToKey, native_db, transaction::RTransaction};
use native_model::{Model, native_model};
use serde::{Deserialize, Serialize};

use crate::{
    contender::{Contender, Digest, Failure, Outcome},
    workload::{Customer, NameRange, Position},
};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[native_model(id = 1, version = 1)]
#[native_db(secondary_key(town_last_name -> String))]
struct Record {
    #[primary_key]
    id: u64,
    first_name: String,
    last_name: String,
    #[secondary_key]
    town: String,
    phone: String,
    #[secondary_key(unique)]
    email: String,
}

impl Record {
    /// Returns the key with a separator, because `native_db` encodes the tuples ("ab", "c") and ("a", "bc")
    /// to the same bytes.
    fn town_last_name(&self) -> String {
        name_key(&self.town, &self.last_name)
    }
}

fn name_key(town: &str, name: &str) -> String {
    format!("{town}\0{name}")
}

impl From<&Customer> for Record {
    fn from(row: &Customer) -> Self {
        let Customer { id, first_name, last_name, town, phone, email } = row.clone();
        Self { id, first_name, last_name, town, phone, email }
    }
}

impl From<Record> for Customer {
    fn from(record: Record) -> Self {
        let Record { id, first_name, last_name, town, phone, email } = record;
        Self { id, first_name, last_name, town, phone, email }
    }
}

struct NativeDb {
    database: Database<'static>,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    static MODELS: std::sync::OnceLock<Models> = std::sync::OnceLock::new();
    if MODELS.get().is_none() {
        let mut models = Models::new();
        models.define::<Record>()?;
        MODELS.get_or_init(|| models);
    }
    let models = MODELS.get().ok_or("no models")?;
    std::fs::create_dir_all(directory)?;
    let database =
        Builder::new().set_cache_size(1 << 30).create(models, directory.join("customers.redb"))?;
    Ok(Box::new(NativeDb { database }))
}

impl NativeDb {
    /// Calls a function with the rows of a town with last names in a range, in their order.
    fn names(
        txn: &RTransaction<'_>,
        low: String,
        high: String,
        mut work: impl FnMut(Record),
    ) -> Outcome {
        let scan = txn.scan();
        let names = scan.secondary::<Record>(RecordKey::town_last_name)?;
        for record in names.range(low..high)? {
            work(record?);
        }
        Ok(())
    }

    /// Changes rows in one transaction.
    fn change(
        &mut self,
        changes: &[(u64, String)],
        digest: &mut Digest,
        change: impl Fn(&mut Record, &str),
    ) -> Outcome {
        let txn = self.database.rw_transaction()?;
        for (id, value) in changes {
            if let Some(old) = txn.get().primary::<Record>(*id)? {
                let mut new = old.clone();
                change(&mut new, value);
                txn.update(old, new)?;
                digest.found += 1;
            }
        }
        Ok(txn.commit()?)
    }
}

impl Contender for NativeDb {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        let txn = self.database.rw_transaction()?;
        for row in rows {
            txn.insert(Record::from(row))?;
        }
        Ok(txn.commit()?)
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        rows.iter().try_for_each(|row| self.insert(std::slice::from_ref(row)))
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        for id in ids {
            digest.row(txn.get().primary::<Record>(*id)?.map(Customer::from).as_ref());
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        for email in emails {
            let record = txn.get().secondary::<Record>(RecordKey::email, email.as_str())?;
            digest.row(record.map(Customer::from).as_ref());
        }
        Ok(())
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        let scan = txn.scan();
        let by_town = scan.secondary::<Record>(RecordKey::town)?;
        for town in towns {
            for record in by_town.range(town.as_str()..=town.as_str())? {
                digest.row(Some(&record?.into()));
            }
        }
        Ok(())
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        for town in towns {
            Self::names(&txn, name_key(town, ""), format!("{town}\u{1}"), |record| {
                digest.entry(record.id, &record.last_name, &record.phone);
            })?;
        }
        Ok(())
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        for NameRange { town, from, to } in ranges {
            Self::names(&txn, name_key(town, from), name_key(town, to), |record| {
                digest.row(Some(&record.into()));
            })?;
        }
        Ok(())
    }

    fn page(&mut self, _positions: &[Position], _digest: &mut Digest) -> Outcome {
        Err(Failure::Lacks)
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        let scan = txn.scan();
        let by_town = scan.secondary::<Record>(RecordKey::town)?;
        for town in towns {
            digest.number(by_town.range(town.as_str()..=town.as_str())?.count() as u64);
        }
        Ok(())
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.change(changes, digest, |record, name| name.clone_into(&mut record.first_name))
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.change(changes, digest, |record, town| town.clone_into(&mut record.town))
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let txn = self.database.rw_transaction()?;
        for id in ids {
            if let Some(record) = txn.get().primary::<Record>(*id)? {
                txn.remove(record)?;
                digest.found += 1;
            }
        }
        Ok(txn.commit()?)
    }
}
