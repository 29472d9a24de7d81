//! The code that the derive generates.

use std::time::Duration;

use index_table::{Durability, Options, Store};
use tempfile::TempDir;

use super::{NAME, PAGE, Result, Side};
use crate::{
    beside::Others,
    data::{Customer, CustomerRepository},
};

/// Returns options with the default durability. A checkpoint of its thread would make the counts differ from run to run.
fn journalled() -> Options {
    Store::options().checkpoint(1 << 40, 1 << 40, Duration::from_hours(1))
}

/// The table alone, or beside other tables.
pub(crate) struct Generated {
    _others: Option<Others>,
    customers: CustomerRepository,
    store: Store,
    _directory: TempDir,
}

impl Generated {
    pub(crate) fn alone(rows: &[Customer]) -> Result<Self> {
        Self::new(rows, &journalled(), false)
    }

    pub(crate) fn unjournalled(rows: &[Customer]) -> Result<Self> {
        Self::new(rows, &Store::options().durability(Durability::None), false)
    }

    pub(crate) fn beside(rows: &[Customer]) -> Result<Self> {
        Self::new(rows, &journalled(), true)
    }

    /// Creates a table with these rows.
    fn new(rows: &[Customer], options: &Options, is_beside: bool) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let store = options.clone().map_size(1 << 28).open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let others = if is_beside { Some(Others::open(&store)?) } else { None };
        let side = Self { _others: others, customers, store, _directory: directory };
        side.insert(rows)?;
        Ok(side)
    }
}

impl Side for Generated {
    fn insert(&self, rows: &[Customer]) -> Result<()> {
        let mut txn = self.store.write()?;
        for row in rows {
            self.customers.insert(&mut txn, row)?;
        }
        Ok(txn.commit()?)
    }

    fn insert_in_transactions(&self, rows: &[Customer]) -> Result<()> {
        for row in rows {
            let mut txn = self.store.write()?;
            self.customers.insert(&mut txn, row)?;
            txn.commit()?;
        }
        Ok(())
    }

    fn put(&self, rows: &[Customer]) -> Result<()> {
        let mut txn = self.store.write()?;
        for row in rows {
            self.customers.put(&mut txn, row)?;
        }
        Ok(txn.commit()?)
    }

    fn update(&self, ids: &[u64]) -> Result<usize> {
        let mut txn = self.store.write()?;
        let mut updated = 0;
        for &id in ids {
            let change = |row: &mut Customer| NAME.clone_into(&mut row.first_name);
            updated += usize::from(self.customers.update(&mut txn, id, change)?);
        }
        txn.commit()?;
        Ok(updated)
    }

    fn delete(&self, ids: &[u64]) -> Result<usize> {
        let mut txn = self.store.write()?;
        let mut deleted = 0;
        for &id in ids {
            deleted += usize::from(self.customers.delete(&mut txn, id)?);
        }
        txn.commit()?;
        Ok(deleted)
    }

    fn get(&self, ids: &[u64]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for &id in ids {
            sum += self.customers.get(&txn, id)?.map_or(0, |row| row.last_name.len());
        }
        Ok(sum)
    }

    fn get_by_email(&self, emails: &[String]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for email in emails {
            let row = self.customers.get_by_email(&txn, email)?;
            sum += row.map_or(0, |row| row.last_name.len());
        }
        Ok(sum)
    }

    fn get_in_transactions(&self, ids: &[u64]) -> Result<usize> {
        let mut sum = 0;
        for &id in ids {
            let txn = self.store.read()?;
            sum += self.customers.get(&txn, id)?.map_or(0, |row| row.last_name.len());
        }
        Ok(sum)
    }

    fn pages(&self, towns: &[&str]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for town in towns {
            let mut page = self.customers.find_by_town(&txn, town).page(PAGE)?;
            loop {
                sum += page.items.iter().map(|row| row.last_name.len()).sum::<usize>();
                let Some(cursor) = page.next else { break };
                page = self.customers.find_by_town(&txn, town).after(&cursor).page(PAGE)?;
            }
        }
        Ok(sum)
    }

    fn count(&self, towns: &[&str]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for town in towns {
            sum += self.customers.find_by_town(&txn, town).count()? as usize;
        }
        Ok(sum)
    }

    fn find_rows(&self, towns: &[&str]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for town in towns {
            for row in self.customers.find_by_town(&txn, town).rows() {
                sum += row?.last_name.len();
            }
        }
        Ok(sum)
    }

    fn find_full_rows(&self, last_names: &[&str]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for last_name in last_names {
            for row in self.customers.find_by_last_name(&txn, last_name).rows() {
                sum += row?.last_name.len();
            }
        }
        Ok(sum)
    }

    fn find_entries(&self, names: &[(&str, &str)]) -> Result<usize> {
        let txn = self.store.read()?;
        let mut sum = 0;
        for (last_name, town) in names {
            for entry in self.customers.find_by_town_last_name(&txn, town, last_name).entries() {
                let entry = entry?;
                sum += entry.phone.len() + entry.last_name.len() + (entry.id & 1) as usize;
            }
        }
        Ok(sum)
    }
}
