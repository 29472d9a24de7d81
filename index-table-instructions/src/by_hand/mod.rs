//! The same table with the same bytes, written by hand with heed for this struct.
//! `docs/FORMAT.md` has the layout. The code does only the necessary work: it is specific
//! to these types, has no catalog, checks no lengths beyond LMDB's own checks, and its errors name no keys.
//! It has everything that correctness requires: keys are escaped, text is checked to be UTF-8, unique keys
//! and primary keys are looked up before anything is written, and only changed entries are written.

mod blocks;
mod bytes;

use std::ops::Bound;

use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, PutFlags, RoTxn, RwTxn,
    WithoutTls, types::Bytes,
};
use tempfile::TempDir;

use self::{
    blocks::{Scratch, ids, offset_of, whole, zeros},
    bytes::{Entry, Image, append, decode, escape, refill},
};

use super::{NAME, PAGE, Result, Side};
use crate::data::Customer;

type Table = Database<'static, Bytes, Bytes>;

const VERSION: u8 = 1;

pub(crate) struct ByHand {
    /// The environment, which is never closed because the databases borrow from it.
    env: &'static Env<WithoutTls>,
    facts: Table,
    by_town: Table,
    by_town_last_name: Table,
    by_last_name: Table,
    by_email: Table,
    _directory: TempDir,
}

const EMAIL_TAKEN: &str = "another row has the email";

/// Writes an entry whose key must not exist.
fn put_new(
    table: &Table,
    txn: &mut RwTxn<'_>,
    key: &[u8],
    value: &[u8],
    taken: &'static str,
) -> Result<()> {
    match table.put_with_flags(txn, PutFlags::NO_OVERWRITE, key, value) {
        Err(heed::Error::Mdb(MdbError::KeyExist)) => Err(taken.into()),
        written => Ok(written?),
    }
}

/// Returns a primary key without the zeros that it does not need.
fn short(id: &[u8; 8]) -> &[u8] {
    &id[zeros(*id)..]
}

impl ByHand {
    /// Writes all entries except the email's. `None` for the old row: the row is new.
    fn put_entries(
        &self,
        txn: &mut RwTxn<'_>,
        old: Option<&Image>,
        new: &Image,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if old.is_none_or(|old| old.town != new.town) {
            if let Some(old) = old {
                self.unpack(txn, &old.town, old.id, scratch)?;
            }
            self.pack(txn, &new.town, new.id, scratch)?;
        }
        if old.is_none_or(|old| old.town_last_name != new.town_last_name) {
            if let Some(old) = old {
                self.by_town_last_name.delete(txn, &old.town_last_name)?;
            }
            self.by_town_last_name.put(txn, &new.town_last_name, &new.phone)?;
        } else if old.is_none_or(|old| old.phone != new.phone) {
            self.by_town_last_name.put(txn, &new.town_last_name, &new.phone)?;
        }
        if let Some(old) = old.filter(|old| old.last_name != new.last_name) {
            self.by_last_name.delete(txn, &old.last_name)?;
        }
        self.by_last_name.put(txn, &new.last_name, &new.fact)?;
        if let Some(old) = old.filter(|old| old.email != new.email) {
            self.by_email.delete(txn, &old.email)?;
            self.by_email.put(txn, &new.email, short(&new.id))?;
        }
        Ok(())
    }

    fn insert_row(
        &self,
        txn: &mut RwTxn<'_>,
        row: &Customer,
        (image, scratch): &mut (Image, Scratch),
    ) -> Result<()> {
        image.load(row)?;
        put_new(&self.by_email, txn, &image.email, short(&image.id), EMAIL_TAKEN)?;
        put_new(&self.facts, txn, &image.id, &image.fact, "another row has the primary key")?;
        self.put_entries(txn, None, image, scratch)
    }
}

type Page = (Vec<Customer>, Option<[u8; 8]>);

impl ByHand {
    /// Returns a page of a town's rows after a primary key, and the last primary key of the page if there are
    /// further rows.
    fn page(
        &self,
        txn: &RoTxn<'_, WithoutTls>,
        town: &[u8],
        after: Option<[u8; 8]>,
        at: &mut Vec<u8>,
    ) -> Result<Page> {
        refill(at, town);
        let mut rows = Vec::with_capacity(PAGE);
        let mut last = None;
        let mut blocks;
        let mut offset = 1;
        if let Some(after) = after {
            // The primary key belongs in the last block whose key is not greater.
            at.extend_from_slice(&after);
            let (key, block) =
                self.by_town.get_lower_than_or_equal_to(txn, at)?.ok_or("the town has no rows")?;
            let width = 8 - block.first().map_or(0, |zeros| usize::from(*zeros));
            offset = offset_of(block, after).map_or_else(|at| at, |at| at + width);
            refill(at, key);
        }
        blocks = self.by_town.range(txn, &(Bound::Included(at.as_slice()), Bound::Unbounded))?;
        while let Some((key, block)) = blocks.next().transpose()? {
            if !key.starts_with(town) {
                break;
            }
            for id in ids(block, std::mem::replace(&mut offset, 1)) {
                if rows.len() == PAGE {
                    return Ok((rows, last));
                }
                let fact = self.facts.get(txn, &id)?.ok_or("an entry without a row")?;
                rows.push(decode(fact)?);
                last = Some(id);
            }
        }
        Ok((rows, None))
    }
}

impl ByHand {
    /// Creates a table with these rows.
    pub(crate) fn new(rows: &[Customer]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(1 << 28).max_dbs(64);
        #[expect(unsafe_code, reason = "mapping a file is unsafe")]
        // SAFETY: the directory is new and not shared.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(directory.path())? };
        let env: &'static Env<WithoutTls> = Box::leak(Box::new(env));
        let created = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
            let mut table = |name| opener.create_database(txn, Some(name));
            let tables: [Table; 5] = [
                table("customers")?,
                table("customers.town")?,
                table("customers.town_last_name")?,
                table("customers.last_name")?,
                table("customers.email")?,
            ];
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
        });
        let Ok(CommitOrAbort::Commit(tables)) = created else {
            return Err("the tables were not created".into());
        };
        let [facts, by_town, by_town_last_name, by_last_name, by_email] = tables;
        let side = Self {
            env,
            facts,
            by_town,
            by_town_last_name,
            by_last_name,
            by_email,
            _directory: directory,
        };
        side.insert(rows)?;
        Ok(side)
    }
}

impl Side for ByHand {
    fn insert(&self, rows: &[Customer]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        let mut buffers = (Image::default(), Scratch::default());
        rows.iter().try_for_each(|row| self.insert_row(&mut txn, row, &mut buffers))?;
        Ok(txn.commit()?)
    }

    fn insert_in_transactions(&self, rows: &[Customer]) -> Result<()> {
        let mut buffers = (Image::default(), Scratch::default());
        for row in rows {
            let mut txn = self.env.write_txn()?;
            self.insert_row(&mut txn, row, &mut buffers)?;
            txn.commit()?;
        }
        Ok(())
    }

    fn put(&self, rows: &[Customer]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        let (mut old, mut new) = (Image::default(), Image::default());
        let mut scratch = Scratch::default();
        for row in rows {
            new.load(row)?;
            let stored = match self.facts.get(&txn, &new.id)? {
                Some(fact) if fact == new.fact => continue,
                Some(fact) => {
                    old.load_stored(&decode(fact)?, fact)?;
                    Some(&old)
                }
                None => None,
            };
            match stored {
                Some(old) if old.email == new.email => {}
                Some(_) if self.by_email.get(&txn, &new.email)?.is_none() => {}
                Some(_) => return Err(EMAIL_TAKEN.into()),
                None => put_new(&self.by_email, &mut txn, &new.email, short(&new.id), EMAIL_TAKEN)?,
            }
            self.facts.put(&mut txn, &new.id, &new.fact)?;
            self.put_entries(&mut txn, stored, &new, &mut scratch)?;
        }
        Ok(txn.commit()?)
    }

    fn update(&self, ids: &[u64]) -> Result<usize> {
        let mut txn = self.env.write_txn()?;
        let mut image = Image::default();
        let mut updated = 0;
        for id in ids {
            let id = id.to_be_bytes();
            let Some(fact) = self.facts.get(&txn, &id)? else { continue };
            let mut row = decode(fact)?;
            NAME.clone_into(&mut row.first_name);
            // The field is in no key, but the full index on last names has the whole row.
            image.fact.clear();
            image.fact.push(VERSION);
            append(&row, &mut image.fact)?;
            image.last_name.clear();
            escape(&row.last_name, &mut image.last_name);
            image.last_name.extend_from_slice(&id);
            self.facts.put(&mut txn, &id, &image.fact)?;
            self.by_last_name.put(&mut txn, &image.last_name, &image.fact)?;
            updated += 1;
        }
        txn.commit()?;
        Ok(updated)
    }

    fn delete(&self, ids: &[u64]) -> Result<usize> {
        let mut txn = self.env.write_txn()?;
        let (mut old, mut scratch) = (Image::default(), Scratch::default());
        let mut deleted = 0;
        for id in ids {
            let Some(fact) = self.facts.get(&txn, &id.to_be_bytes())? else { continue };
            old.load_stored(&decode(fact)?, fact)?;
            self.facts.delete(&mut txn, &old.id)?;
            self.unpack(&mut txn, &old.town, old.id, &mut scratch)?;
            self.by_town_last_name.delete(&mut txn, &old.town_last_name)?;
            self.by_last_name.delete(&mut txn, &old.last_name)?;
            self.by_email.delete(&mut txn, &old.email)?;
            deleted += 1;
        }
        txn.commit()?;
        Ok(deleted)
    }

    fn get(&self, ids: &[u64]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut sum = 0;
        for id in ids {
            if let Some(fact) = self.facts.get(&txn, &id.to_be_bytes())? {
                sum += decode(fact)?.last_name.len();
            }
        }
        Ok(sum)
    }

    fn get_by_email(&self, emails: &[String]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        let mut sum = 0;
        for email in emails {
            key.clear();
            escape(email, &mut key);
            let Some(id) = self.by_email.get(&txn, &key)? else { continue };
            let zeros =
                8_usize.checked_sub(id.len()).ok_or("a primary key of more than 8 bytes")?;
            let fact = self.facts.get(&txn, &whole(zeros, id))?.ok_or("an entry without a row")?;
            sum += decode(fact)?.last_name.len();
        }
        Ok(sum)
    }

    fn get_in_transactions(&self, ids: &[u64]) -> Result<usize> {
        let mut sum = 0;
        for id in ids {
            let txn = self.env.read_txn()?;
            if let Some(fact) = self.facts.get(&txn, &id.to_be_bytes())? {
                sum += decode(fact)?.last_name.len();
            }
        }
        Ok(sum)
    }

    fn pages(&self, towns: &[&str]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let (mut key, mut at) = (Vec::new(), Vec::new());
        let mut sum = 0;
        for town in towns {
            key.clear();
            escape(town, &mut key);
            let mut page = self.page(&txn, &key, None, &mut at)?;
            loop {
                sum += page.0.iter().map(|row| row.last_name.len()).sum::<usize>();
                let Some(last) = page.1 else { break };
                page = self.page(&txn, &key, Some(last), &mut at)?;
            }
        }
        Ok(sum)
    }

    fn count(&self, towns: &[&str]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        let mut sum = 0;
        for town in towns {
            key.clear();
            escape(town, &mut key);
            for block in self.by_town.prefix_iter(&txn, &key)? {
                let (_, block) = block?;
                let width = 8 - block.first().map_or(0, |zeros| usize::from(*zeros));
                sum += (block.len() - 1) / width;
            }
        }
        Ok(sum)
    }

    fn find_rows(&self, towns: &[&str]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        let mut sum = 0;
        for town in towns {
            key.clear();
            escape(town, &mut key);
            for block in self.by_town.prefix_iter(&txn, &key)? {
                let (_, packed) = block?;
                for id in ids(packed, 1) {
                    let fact = self.facts.get(&txn, &id)?.ok_or("an entry without a row")?;
                    sum += decode(fact)?.last_name.len();
                }
            }
        }
        Ok(sum)
    }

    fn find_full_rows(&self, last_names: &[&str]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        let mut sum = 0;
        for last_name in last_names {
            key.clear();
            escape(last_name, &mut key);
            for entry in self.by_last_name.prefix_iter(&txn, &key)? {
                let (_, fact) = entry?;
                sum += decode(fact)?.last_name.len();
            }
        }
        Ok(sum)
    }

    fn find_entries(&self, names: &[(&str, &str)]) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        let mut sum = 0;
        for (last_name, town) in names {
            key.clear();
            escape(town, &mut key);
            escape(last_name, &mut key);
            for entry in self.by_town_last_name.prefix_iter(&txn, &key)? {
                let (key, phone) = entry?;
                let entry = Entry::read(key, phone)?;
                sum += entry.phone.len() + entry.last_name.len() + (entry.id & 1) as usize;
            }
        }
        Ok(sum)
    }
}
