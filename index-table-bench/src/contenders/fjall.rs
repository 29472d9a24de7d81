//! fjall with index keyspaces written by hand.
//!
//! Its transactions have a single writer, which reads its own writes; a commit syncs the journal. The
//! block cache has 1 GiB, like the caches of the other contenders.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx, Snapshot,
};

use super::keys;
use crate::{
    contender::{Contender, Digest, Failure, Outcome},
    workload::{Customer, NameRange, PAGE, Position},
    writers::Insert,
};

struct Fjall {
    database: SingleWriterTxDatabase,
    tables: Tables,
}

struct Tables {
    facts: SingleWriterTxKeyspace,
    by_town: SingleWriterTxKeyspace,
    by_name: SingleWriterTxKeyspace,
    by_email: SingleWriterTxKeyspace,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Returns a function for one thread, which inserts a row in its own transaction.
pub(crate) fn alone(directory: &Path, _: usize) -> Outcome<Vec<Insert>> {
    let mut own = database(directory)?;
    Ok(vec![Box::new(move |row| {
        own.insert(std::slice::from_ref(row)).map_err(|failure| match failure {
            Failure::Lacks => "fjall can't insert rows".to_owned(),
            Failure::Failed(error) => error.to_string(),
        })
    })])
}

pub(crate) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    Ok(Box::new(database(directory)?))
}

fn database(directory: &Path) -> Outcome<Fjall> {
    let database = SingleWriterTxDatabase::builder(directory).cache_size(1 << 30).open()?;
    let keyspace = |name| database.keyspace(name, KeyspaceCreateOptions::default);
    let tables = Tables {
        facts: keyspace("customers")?,
        by_town: keyspace("customers.town")?,
        by_name: keyspace("customers.town_last_name")?,
        by_email: keyspace("customers.email")?,
        key: Vec::new(),
        value: Vec::new(),
    };
    Ok(Fjall { database, tables })
}

impl Tables {
    fn insert(&mut self, txn: &mut SingleWriterWriteTx<'_>, row: &Customer) -> Outcome {
        let Self { facts, by_town, by_name, by_email, key, value } = self;
        let id = row.id.to_be_bytes();
        let email = keys::one_text(key, &row.email);
        if txn.contains_key(&*by_email, email)? {
            return Err("another row has the email".into());
        }
        txn.insert(by_email, email, id);
        if txn.contains_key(&*facts, id)? {
            return Err("another row has the primary key".into());
        }
        txn.insert(facts, id, keys::fact(value, row)?);
        txn.insert(by_town, keys::by_town(key, &row.town, row.id), []);
        let value = keys::carried(value, &row.phone)?;
        txn.insert(by_name, keys::by_name(key, &row.town, &row.last_name, row.id), value);
        Ok(())
    }

    fn row(&self, txn: &impl Readable, id: u64) -> Outcome<Option<Customer>> {
        txn.get(&self.facts, id.to_be_bytes())?.map(|fact| keys::read_fact(&fact)).transpose()
    }

    fn follow(&self, txn: &Snapshot, id: u64) -> Outcome<Customer> {
        Ok(self.row(txn, id)?.ok_or("an entry without a row")?)
    }

    fn set_first_name(
        &mut self,
        txn: &mut SingleWriterWriteTx<'_>,
        id: u64,
        name: &str,
    ) -> Outcome<bool> {
        let Some(mut row) = self.row(txn, id)? else { return Ok(false) };
        name.clone_into(&mut row.first_name);
        txn.insert(&self.facts, id.to_be_bytes(), keys::fact(&mut self.value, &row)?);
        Ok(true)
    }

    fn set_town(
        &mut self,
        txn: &mut SingleWriterWriteTx<'_>,
        id: u64,
        town: &str,
    ) -> Outcome<bool> {
        let Some(mut row) = self.row(txn, id)? else { return Ok(false) };
        if row.town == town {
            return Ok(true);
        }
        let Self { facts, by_town, by_name, by_email: _, key, value } = self;
        txn.remove(by_town, keys::by_town(key, &row.town, id));
        txn.remove(by_name, keys::by_name(key, &row.town, &row.last_name, id));
        town.clone_into(&mut row.town);
        txn.insert(by_town, keys::by_town(key, town, id), []);
        let phone = keys::carried(value, &row.phone)?;
        txn.insert(by_name, keys::by_name(key, town, &row.last_name, id), phone);
        txn.insert(facts, id.to_be_bytes(), keys::fact(value, &row)?);
        Ok(true)
    }

    fn delete(&mut self, txn: &mut SingleWriterWriteTx<'_>, id: u64) -> Outcome<bool> {
        let Some(row) = self.row(txn, id)? else { return Ok(false) };
        let Self { facts, by_town, by_name, by_email, key, .. } = self;
        txn.remove(facts, id.to_be_bytes());
        txn.remove(by_town, keys::by_town(key, &row.town, id));
        txn.remove(by_name, keys::by_name(key, &row.town, &row.last_name, id));
        txn.remove(by_email, keys::one_text(key, &row.email));
        Ok(true)
    }
}

impl Fjall {
    fn write(
        &mut self,
        work: impl FnOnce(&mut Tables, &mut SingleWriterWriteTx<'_>) -> Outcome,
    ) -> Outcome {
        let mut txn = self.database.write_tx().durability(Some(PersistMode::SyncAll));
        work(&mut self.tables, &mut txn)?;
        Ok(txn.commit()?)
    }
}

impl Contender for Fjall {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        self.write(|tables, txn| rows.iter().try_for_each(|row| tables.insert(txn, row)))
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        rows.iter().try_for_each(|row| self.write(|tables, txn| tables.insert(txn, row)))
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        for id in ids {
            digest.row(self.tables.row(&txn, *id)?.as_ref());
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for email in emails {
            match txn.get(&self.tables.by_email, keys::one_text(&mut key, email))? {
                Some(id) => digest.row(Some(&self.tables.follow(&txn, keys::id(&id)?)?)),
                None => digest.row(None),
            }
        }
        Ok(())
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for town in towns {
            for entry in txn.prefix(&self.tables.by_town, keys::one_text(&mut key, town)) {
                let id = keys::last_id(&entry.key()?)?;
                digest.row(Some(&self.tables.follow(&txn, id)?));
            }
        }
        Ok(())
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for town in towns {
            let prefix = keys::one_text(&mut key, town);
            for entry in txn.prefix(&self.tables.by_name, prefix) {
                let (key, phone) = entry.into_inner()?;
                let (last_name, id) = keys::split_name(&key, prefix.len())?;
                digest.entry(id, &last_name, keys::read_carried(&phone)?);
            }
        }
        Ok(())
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for NameRange { town, from, to } in ranges {
            let low = keys::from_name(&mut low, town, from);
            let range = low..keys::from_name(&mut high, town, to);
            for entry in txn.range(&self.tables.by_name, range) {
                let id = keys::last_id(&entry.key()?)?;
                digest.row(Some(&self.tables.follow(&txn, id)?));
            }
        }
        Ok(())
    }

    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for Position { town, after, .. } in positions {
            let low = keys::by_town(&mut low, town, after + 1);
            let range = low..=keys::by_town(&mut high, town, u64::MAX);
            for entry in txn.range(&self.tables.by_town, range).take(PAGE) {
                let id = keys::last_id(&entry.key()?)?;
                digest.row(Some(&self.tables.follow(&txn, id)?));
            }
        }
        Ok(())
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for town in towns {
            let mut count = 0;
            for entry in txn.prefix(&self.tables.by_town, keys::one_text(&mut key, town)) {
                entry.key()?;
                count += 1;
            }
            digest.number(count);
        }
        Ok(())
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.write(|tables, txn| {
            for (id, name) in changes {
                digest.found += u64::from(tables.set_first_name(txn, *id, name)?);
            }
            Ok(())
        })
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        self.write(|tables, txn| {
            for (id, town) in changes {
                digest.found += u64::from(tables.set_town(txn, *id, town)?);
            }
            Ok(())
        })
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        self.write(|tables, txn| {
            for id in ids {
                digest.found += u64::from(tables.delete(txn, *id)?);
            }
            Ok(())
        })
    }

    /// Writes the memory tables to disk.
    fn settle(&mut self) -> Outcome {
        for keyspace in
            [&self.tables.facts, &self.tables.by_town, &self.tables.by_name, &self.tables.by_email]
        {
            keyspace.inner().rotate_memtable_and_wait()?;
        }
        Ok(())
    }
}
