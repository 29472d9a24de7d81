//! Code written by hand on heed for this table: the lower bound of the cost.
//! Keys, rows and values have the same bytes as in `index-table` (`docs/FORMAT.md`). The index on towns
//! has two layouts: the packed blocks of `index-table` (`Packed`), and the layout that is easier to write by
//! hand (`Plain`), with an entry for each row, the primary key in its key and an empty value.

mod towns;

use std::{ops::Bound, path::Path};

use heed::{CommitOrAbort, Env, EnvOpenOptions, RwTxn, WithoutTls, types::Bytes};

use self::towns::{Packed, Plain, Towns, short, whole};
use super::keys;
use crate::{
    contender::{Contender, Digest, Failure, Outcome},
    workload::{Customer, NameRange, PAGE, Position},
    writers::Insert,
};

type Database = heed::Database<'static, Bytes, Bytes>;

struct Heed<T> {
    env: Env<WithoutTls>,
    tables: Tables<T>,
}

struct Tables<T> {
    facts: Database,
    by_town: T,
    by_name: Database,
    by_email: Database,
    /// Buffers for a key and a value.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Opens the contender with packed blocks in the index on towns.
pub(super) fn open_packed(directory: &Path) -> Outcome<Box<dyn Contender>> {
    open::<Packed>(directory)
}

/// Opens the contender with an entry for each row in the index on towns.
pub(super) fn open_plain(directory: &Path) -> Outcome<Box<dyn Contender>> {
    open::<Plain>(directory)
}

/// Returns a function for each thread, which inserts a row in its own transaction.
pub(crate) fn alone(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    let insert = |mut contender: Heed<Packed>| -> Insert {
        Box::new(move |row| {
            contender.insert(std::slice::from_ref(row)).map_err(|failure| match failure {
                Failure::Lacks => "heed can't insert rows".to_owned(),
                Failure::Failed(error) => error.to_string(),
            })
        })
    };
    let (env, databases) = environment(directory)?;
    Ok((0..threads).map(|_| insert(Heed::new(env.clone(), databases))).collect())
}

fn open<T: Towns + 'static>(directory: &Path) -> Outcome<Box<dyn Contender>> {
    let (env, databases) = environment(directory)?;
    Ok(Box::new(Heed::<T>::new(env, databases)))
}

fn environment(directory: &Path) -> Outcome<(Env<WithoutTls>, [Database; 4])> {
    std::fs::create_dir_all(directory)?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(16 << 30).max_dbs(4);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other process uses the directory.
    let env = unsafe { options.open(directory)? };
    let databases = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let mut database = |name| opener.create_database(txn, Some(name));
        heed::Result::Ok(CommitOrAbort::<_, ()>::Commit([
            database("customers")?,
            database("customers.town")?,
            database("customers.town_last_name")?,
            database("customers.email")?,
        ]))
    })?;
    Ok((env, databases.unwrap_commit()))
}

impl<T: Towns> Heed<T> {
    fn new(env: Env<WithoutTls>, [facts, by_town, by_name, by_email]: [Database; 4]) -> Self {
        let (by_town, [key, value]) = (T::new(by_town), Default::default());
        Self { env, tables: Tables { facts, by_town, by_name, by_email, key, value } }
    }
}

impl<T: Towns> Tables<T> {
    fn insert(&mut self, txn: &mut RwTxn<'_>, row: &Customer) -> Outcome {
        let Self { facts, by_town, by_name, by_email, key, value } = self;
        let id = row.id.to_be_bytes();
        if by_email.get_or_put(txn, keys::one_text(key, &row.email), short(&id))?.is_some() {
            return Err("another row has the email".into());
        }
        if facts.get_or_put(txn, &id, keys::fact(value, row)?)?.is_some() {
            return Err("another row has the primary key".into());
        }
        by_town.insert(txn, keys::one_text(key, &row.town), id)?;
        let value = keys::carried(value, &row.phone)?;
        by_name.put(txn, keys::by_name(key, &row.town, &row.last_name, row.id), value)?;
        Ok(())
    }

    fn set_first_name(&mut self, txn: &mut RwTxn<'_>, id: u64, name: &str) -> Outcome<bool> {
        let id = id.to_be_bytes();
        let Some(fact) = self.facts.get(txn, &id)? else { return Ok(false) };
        let mut row = keys::read_fact(fact)?;
        name.clone_into(&mut row.first_name);
        self.facts.put(txn, &id, keys::fact(&mut self.value, &row)?)?;
        Ok(true)
    }

    fn set_town(&mut self, txn: &mut RwTxn<'_>, id: u64, town: &str) -> Outcome<bool> {
        let Self { facts, by_town, by_name, by_email: _, key, value } = self;
        let primary_key = id.to_be_bytes();
        let Some(fact) = facts.get(txn, &primary_key)? else { return Ok(false) };
        let mut row = keys::read_fact(fact)?;
        if row.town == town {
            return Ok(true);
        }
        by_town.remove(txn, keys::one_text(key, &row.town), primary_key)?;
        by_name.delete(txn, keys::by_name(key, &row.town, &row.last_name, id))?;
        town.clone_into(&mut row.town);
        by_town.insert(txn, keys::one_text(key, town), primary_key)?;
        let phone = keys::carried(value, &row.phone)?;
        by_name.put(txn, keys::by_name(key, town, &row.last_name, id), phone)?;
        facts.put(txn, &primary_key, keys::fact(value, &row)?)?;
        Ok(true)
    }

    fn delete(&mut self, txn: &mut RwTxn<'_>, id: u64) -> Outcome<bool> {
        let Self { facts, by_town, by_name, by_email, key, .. } = self;
        let primary_key = id.to_be_bytes();
        let Some(fact) = facts.get(txn, &primary_key)? else { return Ok(false) };
        let row = keys::read_fact(fact)?;
        by_town.remove(txn, keys::one_text(key, &row.town), primary_key)?;
        by_name.delete(txn, keys::by_name(key, &row.town, &row.last_name, id))?;
        by_email.delete(txn, keys::one_text(key, &row.email))?;
        facts.delete(txn, &primary_key)?;
        Ok(true)
    }
}

impl<T> Heed<T> {
    /// Returns the row to which an entry refers.
    fn row(&self, txn: &heed::RoTxn<'_, heed::AnyTls>, id: [u8; 8]) -> Outcome<Customer> {
        keys::read_fact(self.tables.facts.get(txn, &id)?.ok_or("an entry without a row")?)
    }
}

impl<T: Towns> Contender for Heed<T> {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        let mut txn = self.env.write_txn()?;
        rows.iter().try_for_each(|row| self.tables.insert(&mut txn, row))?;
        Ok(txn.commit()?)
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        rows.iter().try_for_each(|row| self.insert(std::slice::from_ref(row)))
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        for id in ids {
            let fact = self.tables.facts.get(&txn, &id.to_be_bytes())?;
            digest.row(fact.map(keys::read_fact).transpose()?.as_ref());
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        for email in emails {
            match self.tables.by_email.get(&txn, keys::one_text(&mut key, email))? {
                Some(id) => {
                    let zeros = 8_usize.checked_sub(id.len()).ok_or("a long primary key")?;
                    digest.row(Some(&self.row(&txn, whole(zeros, id))?));
                }
                None => digest.row(None),
            }
        }
        Ok(())
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        for town in towns {
            let key = keys::one_text(&mut key, town);
            self.tables.by_town.each(&txn, key, |id| {
                digest.row(Some(&self.row(&txn, id)?));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        for town in towns {
            let prefix = keys::one_text(&mut key, town);
            for entry in self.tables.by_name.prefix_iter(&txn, prefix)? {
                let (key, phone) = entry?;
                let (last_name, id) = keys::split_name(key, prefix.len())?;
                digest.entry(id, &last_name, keys::read_carried(phone)?);
            }
        }
        Ok(())
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for NameRange { town, from, to } in ranges {
            let low = keys::from_name(&mut low, town, from);
            let high = keys::from_name(&mut high, town, to);
            let range = (Bound::Included(low), Bound::Excluded(high));
            for entry in self.tables.by_name.range(&txn, &range)? {
                let id = keys::last_id(entry?.0)?;
                digest.row(Some(&self.row(&txn, id.to_be_bytes())?));
            }
        }
        Ok(())
    }

    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        for Position { town, after, .. } in positions {
            let mut remaining = PAGE;
            let key = keys::one_text(&mut key, town);
            self.tables.by_town.each_after(&txn, key, *after, |id| {
                digest.row(Some(&self.row(&txn, id)?));
                remaining -= 1;
                Ok(remaining > 0)
            })?;
        }
        Ok(())
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        for town in towns {
            digest.number(self.tables.by_town.count(&txn, keys::one_text(&mut key, town))?);
        }
        Ok(())
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        let mut txn = self.env.write_txn()?;
        for (id, name) in changes {
            digest.found += u64::from(self.tables.set_first_name(&mut txn, *id, name)?);
        }
        Ok(txn.commit()?)
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        let mut txn = self.env.write_txn()?;
        for (id, town) in changes {
            digest.found += u64::from(self.tables.set_town(&mut txn, *id, town)?);
        }
        Ok(txn.commit()?)
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let mut txn = self.env.write_txn()?;
        for id in ids {
            digest.found += u64::from(self.tables.delete(&mut txn, *id)?);
        }
        Ok(txn.commit()?)
    }
}
