//! fjall with index keyspaces written by hand.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    Snapshot,
};

use super::{Contender, Film};
use crate::{
    contender::{Digest, Outcome},
    contenders::keys::{self, films},
};

struct Fjall {
    database: SingleWriterTxDatabase,
    facts: SingleWriterTxKeyspace,
    by_actor: SingleWriterTxKeyspace,
    by_year: SingleWriterTxKeyspace,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    let database = SingleWriterTxDatabase::builder(directory).cache_size(1 << 30).open()?;
    let keyspace = |name| database.keyspace(name, KeyspaceCreateOptions::default);
    let (facts, by_actor) = (keyspace("films")?, keyspace("films.cast_year")?);
    let by_year = keyspace("films.year")?;
    Ok(Box::new(Fjall { database, facts, by_actor, by_year }))
}

impl Fjall {
    fn film(&self, txn: &Snapshot, key: &[u8]) -> Outcome<Film> {
        let (_, id) = films::split(key)?;
        let fact = txn.get(&self.facts, id.to_be_bytes())?;
        films::read_fact(&fact.ok_or("an entry without a row")?)
    }
}

impl Contender for Fjall {
    fn load(&mut self, films: &[Film]) -> Outcome {
        let mut txn = self.database.write_tx().durability(Some(PersistMode::SyncAll));
        let [mut key, mut value] = [Vec::new(), Vec::new()];
        for film in films {
            let id = film.id.to_be_bytes();
            if txn.contains_key(&self.facts, id)? {
                return Err("another row has the primary key".into());
            }
            txn.insert(&self.facts, id, films::fact(&mut value, film)?);
            let title = keys::carried(&mut value, &film.title)?;
            for actor in film.actors() {
                let key = films::by_actor(&mut key, actor, film.year, film.id);
                txn.insert(&self.by_actor, key, title);
            }
            txn.insert(&self.by_year, films::by_year(film.year, film.id), []);
        }
        Ok(txn.commit()?)
    }

    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        for year in years {
            for entry in txn.prefix(&self.by_year, year.to_be_bytes()) {
                digest.film(&self.film(&txn, &entry.key()?)?);
            }
        }
        Ok(())
    }

    fn rows_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for actor in actors {
            for entry in txn.prefix(&self.by_actor, keys::one_text(&mut key, actor)) {
                digest.film(&self.film(&txn, &entry.key()?)?);
            }
        }
        Ok(())
    }

    fn titles_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for actor in actors {
            for entry in txn.prefix(&self.by_actor, keys::one_text(&mut key, actor)) {
                let (key, title) = entry.into_inner()?;
                let (year, id) = films::split(&key)?;
                digest.title(year, id, keys::read_carried(&title)?);
            }
        }
        Ok(())
    }

    fn count_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.database.read_tx();
        let mut key = Vec::new();
        for actor in actors {
            let mut count = 0;
            for entry in txn.prefix(&self.by_actor, keys::one_text(&mut key, actor)) {
                entry.key()?;
                count += 1;
            }
            digest.number(count);
        }
        Ok(())
    }

    fn settle(&mut self) -> Outcome {
        for keyspace in [&self.facts, &self.by_actor, &self.by_year] {
            keyspace.inner().rotate_memtable_and_wait()?;
        }
        Ok(())
    }
}
