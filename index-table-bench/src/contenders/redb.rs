//! redb with index tables written by hand.
//! The cache has its default size, 1 GiB. Keys are bytes in `memcmp` order, as for the other engines, because
//! redb compares bytes faster than tuples of strings. A transaction opens each table once.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::keys;
use crate::{
    contender::{Contender, Digest, Outcome},
    workload::{Customer, NameRange, PAGE, Position},
};

const FACTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("customers");
const BY_TOWN: TableDefinition<'_, &[u8], ()> = TableDefinition::new("customers.town");
const BY_NAME: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("customers.town_last_name");
const BY_EMAIL: TableDefinition<'_, &[u8], u64> = TableDefinition::new("customers.email");

struct Redb {
    database: Database,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    std::fs::create_dir_all(directory)?;
    let database = Database::create(directory.join("customers.redb"))?;
    let txn = database.begin_write()?;
    Tables::open(&txn)?;
    txn.commit()?;
    Ok(Box::new(Redb { database }))
}

struct Tables<'t> {
    facts: Table<'t, u64, &'static [u8]>,
    by_town: Table<'t, &'static [u8], ()>,
    by_name: Table<'t, &'static [u8], &'static [u8]>,
    by_email: Table<'t, &'static [u8], u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'t> Tables<'t> {
    fn open(txn: &'t WriteTransaction) -> Outcome<Self> {
        Ok(Self {
            facts: txn.open_table(FACTS)?,
            by_town: txn.open_table(BY_TOWN)?,
            by_name: txn.open_table(BY_NAME)?,
            by_email: txn.open_table(BY_EMAIL)?,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    fn row(&self, id: u64) -> Outcome<Option<Customer>> {
        self.facts.get(id)?.map(|fact| keys::read_fact(fact.value())).transpose()
    }

    fn insert(&mut self, row: &Customer) -> Outcome {
        let Self { facts, by_town, by_name, by_email, key, value } = self;
        // redb returns the value that an insert replaces, which shows that the key existed; the transaction
        // is dropped.
        if by_email.insert(keys::one_text(key, &row.email), row.id)?.is_some() {
            return Err("another row has the email".into());
        }
        if facts.insert(row.id, keys::fact(value, row)?)?.is_some() {
            return Err("another row has the primary key".into());
        }
        by_town.insert(keys::by_town(key, &row.town, row.id), ())?;
        let value = keys::carried(value, &row.phone)?;
        by_name.insert(keys::by_name(key, &row.town, &row.last_name, row.id), value)?;
        Ok(())
    }

    fn set_first_name(&mut self, id: u64, name: &str) -> Outcome<bool> {
        let Some(mut row) = self.row(id)? else { return Ok(false) };
        name.clone_into(&mut row.first_name);
        self.facts.insert(id, keys::fact(&mut self.value, &row)?)?;
        Ok(true)
    }

    fn set_town(&mut self, id: u64, town: &str) -> Outcome<bool> {
        let Some(mut row) = self.row(id)? else { return Ok(false) };
        if row.town == town {
            return Ok(true);
        }
        let Self { facts, by_town, by_name, by_email: _, key, value } = self;
        by_town.remove(keys::by_town(key, &row.town, id))?;
        by_name.remove(keys::by_name(key, &row.town, &row.last_name, id))?;
        town.clone_into(&mut row.town);
        by_town.insert(keys::by_town(key, town, id), ())?;
        let phone = keys::carried(value, &row.phone)?;
        by_name.insert(keys::by_name(key, town, &row.last_name, id), phone)?;
        facts.insert(id, keys::fact(value, &row)?)?;
        Ok(true)
    }

    fn delete(&mut self, id: u64) -> Outcome<bool> {
        let Self { facts, by_town, by_name, by_email, key, .. } = self;
        let Some(fact) = facts.remove(id)? else { return Ok(false) };
        let row = keys::read_fact(fact.value())?;
        by_town.remove(keys::by_town(key, &row.town, id))?;
        by_name.remove(keys::by_name(key, &row.town, &row.last_name, id))?;
        by_email.remove(keys::one_text(key, &row.email))?;
        Ok(true)
    }
}

impl Redb {
    fn write(&mut self, work: impl FnOnce(&mut Tables<'_>) -> Outcome) -> Outcome {
        let txn = self.database.begin_write()?;
        work(&mut Tables::open(&txn)?)?;
        Ok(txn.commit()?)
    }
}

impl Contender for Redb {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        self.write(|tables| rows.iter().try_for_each(|row| tables.insert(row)))
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        rows.iter().try_for_each(|row| self.write(|tables| tables.insert(row)))
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let facts = self.database.begin_read()?.open_table(FACTS)?;
        for id in ids {
            let row = facts.get(*id)?.map(|fact| keys::read_fact(fact.value())).transpose()?;
            digest.row(row.as_ref());
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.begin_read()?;
        let (facts, by_email) = (txn.open_table(FACTS)?, txn.open_table(BY_EMAIL)?);
        let mut key = Vec::new();
        for email in emails {
            match by_email.get(keys::one_text(&mut key, email))? {
                Some(id) => digest.row(Some(&follow(&facts, id.value())?)),
                None => digest.row(None),
            }
        }
        Ok(())
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.begin_read()?;
        let (facts, by_town) = (txn.open_table(FACTS)?, txn.open_table(BY_TOWN)?);
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for town in towns {
            let low = keys::by_town(&mut low, town, 0);
            for entry in by_town.range(low..=keys::by_town(&mut high, town, u64::MAX))? {
                digest.row(Some(&follow(&facts, keys::last_id(entry?.0.value())?)?));
            }
        }
        Ok(())
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let by_name = self.database.begin_read()?.open_table(BY_NAME)?;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for town in towns {
            let low = keys::one_text(&mut low, town);
            for entry in by_name.range(low..keys::after_text(&mut high, town))? {
                let (key, phone) = entry?;
                let (last_name, id) = keys::split_name(key.value(), low.len())?;
                digest.entry(id, &last_name, keys::read_carried(phone.value())?);
            }
        }
        Ok(())
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        let txn = self.database.begin_read()?;
        let (facts, by_name) = (txn.open_table(FACTS)?, txn.open_table(BY_NAME)?);
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for NameRange { town, from, to } in ranges {
            let low = keys::from_name(&mut low, town, from);
            for entry in by_name.range(low..keys::from_name(&mut high, town, to))? {
                digest.row(Some(&follow(&facts, keys::last_id(entry?.0.value())?)?));
            }
        }
        Ok(())
    }

    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome {
        let txn = self.database.begin_read()?;
        let (facts, by_town) = (txn.open_table(FACTS)?, txn.open_table(BY_TOWN)?);
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for Position { town, after, .. } in positions {
            let low = keys::by_town(&mut low, town, after + 1);
            let entries = by_town.range(low..=keys::by_town(&mut high, town, u64::MAX))?;
            for entry in entries.take(PAGE) {
                digest.row(Some(&follow(&facts, keys::last_id(entry?.0.value())?)?));
            }
        }
        Ok(())
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let by_town = self.database.begin_read()?.open_table(BY_TOWN)?;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for town in towns {
            let low = keys::by_town(&mut low, town, 0);
            let entries = by_town.range(low..=keys::by_town(&mut high, town, u64::MAX))?;
            digest.number(entries.count() as u64);
        }
        Ok(())
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.write(|tables| {
            for (id, name) in changes {
                digest.found += u64::from(tables.set_first_name(*id, name)?);
            }
            Ok(())
        })
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.write(|tables| {
            for (id, town) in changes {
                digest.found += u64::from(tables.set_town(*id, town)?);
            }
            Ok(())
        })
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        self.write(|tables| {
            for id in ids {
                digest.found += u64::from(tables.delete(*id)?);
            }
            Ok(())
        })
    }
}

fn follow(facts: &impl ReadableTable<u64, &'static [u8]>, id: u64) -> Outcome<Customer> {
    keys::read_fact(facts.get(id)?.ok_or("an entry without a row")?.value())
}
