//! redb with index tables written by hand.

use std::path::Path;

use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Contender, Film};
use crate::{
    contender::{Digest, Outcome},
    contenders::keys::{self, films},
};

const FACTS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("films");
const BY_ACTOR: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("films.cast_year");
const BY_YEAR: TableDefinition<'_, (u16, u32), ()> = TableDefinition::new("films.year");

struct Redb {
    database: Database,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    std::fs::create_dir_all(directory)?;
    Ok(Box::new(Redb { database: Database::create(directory.join("films.redb"))? }))
}

fn follow(facts: &ReadOnlyTable<u32, &'static [u8]>, id: u32) -> Outcome<Film> {
    films::read_fact(facts.get(id)?.ok_or("an entry without a row")?.value())
}

impl Redb {
    /// Calls a function with the key and the value of each film of the actors.
    fn each(
        &self,
        actors: &[String],
        mut work: impl FnMut(&ReadOnlyTable<u32, &'static [u8]>, &[u8], &[u8]) -> Outcome,
        mut end: impl FnMut(),
    ) -> Outcome {
        let txn = self.database.begin_read()?;
        let (facts, by_actor) = (txn.open_table(FACTS)?, txn.open_table(BY_ACTOR)?);
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for actor in actors {
            let low = keys::one_text(&mut low, actor);
            for entry in by_actor.range(low..keys::after_text(&mut high, actor))? {
                let (key, title) = entry?;
                work(&facts, key.value(), title.value())?;
            }
            end();
        }
        Ok(())
    }
}

impl Contender for Redb {
    fn load(&mut self, films: &[Film]) -> Outcome {
        let txn = self.database.begin_write()?;
        let mut facts = txn.open_table(FACTS)?;
        let mut by_actor = txn.open_table(BY_ACTOR)?;
        let mut by_year = txn.open_table(BY_YEAR)?;
        let [mut key, mut value] = [Vec::new(), Vec::new()];
        for film in films {
            if facts.insert(film.id, films::fact(&mut value, film)?)?.is_some() {
                return Err("another row has the primary key".into());
            }
            let title = keys::carried(&mut value, &film.title)?;
            for actor in film.actors() {
                by_actor.insert(films::by_actor(&mut key, actor, film.year, film.id), title)?;
            }
            by_year.insert((film.year, film.id), ())?;
        }
        drop((facts, by_actor, by_year));
        Ok(txn.commit()?)
    }

    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome {
        let txn = self.database.begin_read()?;
        let (facts, by_year) = (txn.open_table(FACTS)?, txn.open_table(BY_YEAR)?);
        for year in years {
            for entry in by_year.range((*year, 0)..=(*year, u32::MAX))? {
                digest.film(&follow(&facts, entry?.0.value().1)?);
            }
        }
        Ok(())
    }

    fn rows_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let row = |facts: &ReadOnlyTable<u32, &'static [u8]>, key: &[u8], _: &[u8]| {
            digest.film(&follow(facts, films::split(key)?.1)?);
            Ok(())
        };
        self.each(actors, row, || ())
    }

    fn titles_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let title = |_: &ReadOnlyTable<u32, &'static [u8]>, key: &[u8], title: &[u8]| {
            let (year, id) = films::split(key)?;
            digest.title(year, id, keys::read_carried(title)?);
            Ok(())
        };
        self.each(actors, title, || ())
    }

    fn count_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let count = std::cell::Cell::new(0);
        let one = |_: &ReadOnlyTable<u32, &'static [u8]>, _: &[u8], _: &[u8]| {
            count.set(count.get() + 1);
            Ok(())
        };
        self.each(actors, one, || digest.number(count.take()))
    }
}
