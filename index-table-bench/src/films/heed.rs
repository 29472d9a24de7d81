//! Code written by hand on heed, with an entry for each film of a year.

use std::path::Path;

use heed::{CommitOrAbort, Env, EnvOpenOptions, RoTxn, WithoutTls, types::Bytes};

use super::{Contender, Film};
use crate::{
    contender::{Digest, Outcome},
    contenders::keys::{self, films},
};

type Database = heed::Database<'static, Bytes, Bytes>;

struct Heed {
    env: Env<WithoutTls>,
    facts: Database,
    by_actor: Database,
    by_year: Database,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    std::fs::create_dir_all(directory)?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(64 << 30).max_dbs(3);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other process uses the directory.
    let env = unsafe { options.open(directory)? };
    let databases = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let mut database = |name| opener.create_database(txn, Some(name));
        let databases = [database("films")?, database("films.cast_year")?, database("films.year")?];
        heed::Result::Ok(CommitOrAbort::<_, ()>::Commit(databases))
    })?;
    let [facts, by_actor, by_year] = databases.unwrap_commit();
    Ok(Box::new(Heed { env, facts, by_actor, by_year }))
}

impl Heed {
    fn film(&self, txn: &RoTxn<'_, WithoutTls>, key: &[u8]) -> Outcome<Film> {
        let (_, id) = films::split(key)?;
        let fact = self.facts.get(txn, &id.to_be_bytes())?;
        films::read_fact(fact.ok_or("an entry without a row")?)
    }

    /// Calls a function with the key and the value of each film of the actors.
    fn each(
        &self,
        actors: &[String],
        mut work: impl FnMut(&RoTxn<'_, WithoutTls>, &[u8], &[u8]) -> Outcome,
        mut end: impl FnMut(),
    ) -> Outcome {
        let txn = self.env.read_txn()?;
        let mut key = Vec::new();
        for actor in actors {
            for entry in self.by_actor.prefix_iter(&txn, keys::one_text(&mut key, actor))? {
                let (key, title) = entry?;
                work(&txn, key, title)?;
            }
            end();
        }
        Ok(())
    }
}

impl Contender for Heed {
    fn load(&mut self, films: &[Film]) -> Outcome {
        let mut txn = self.env.write_txn()?;
        let [mut key, mut value] = [Vec::new(), Vec::new()];
        for film in films {
            let (id, fact) = (film.id.to_be_bytes(), films::fact(&mut value, film)?);
            if self.facts.get_or_put(&mut txn, &id, fact)?.is_some() {
                return Err("another row has the primary key".into());
            }
            let title = keys::carried(&mut value, &film.title)?;
            for actor in film.actors() {
                let key = films::by_actor(&mut key, actor, film.year, film.id);
                self.by_actor.put(&mut txn, key, title)?;
            }
            self.by_year.put(&mut txn, &films::by_year(film.year, film.id), &[])?;
        }
        Ok(txn.commit()?)
    }

    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome {
        let txn = self.env.read_txn()?;
        for year in years {
            for entry in self.by_year.prefix_iter(&txn, &year.to_be_bytes())? {
                digest.film(&self.film(&txn, entry?.0)?);
            }
        }
        Ok(())
    }

    fn rows_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let row = |txn: &RoTxn<'_, WithoutTls>, key: &[u8], _: &[u8]| {
            digest.film(&self.film(txn, key)?);
            Ok(())
        };
        self.each(actors, row, || ())
    }

    fn titles_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let title = |_: &RoTxn<'_, WithoutTls>, key: &[u8], title: &[u8]| {
            let (year, id) = films::split(key)?;
            digest.title(year, id, keys::read_carried(title)?);
            Ok(())
        };
        self.each(actors, title, || ())
    }

    fn count_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let count = std::cell::Cell::new(0);
        let one = |_: &RoTxn<'_, WithoutTls>, _: &[u8], _: &[u8]| {
            count.set(count.get() + 1);
            Ok(())
        };
        self.each(actors, one, || digest.number(count.take()))
    }
}
