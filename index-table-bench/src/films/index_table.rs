//! `index-table`.

use std::path::Path;

use index_table::Store;

use super::{Contender, Film, FilmRepository};
use crate::contender::{Digest, Outcome};

struct IndexTable {
    store: Store,
    films: FilmRepository,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    let store = Store::open(directory)?;
    let films = FilmRepository::open(&store)?;
    Ok(Box::new(IndexTable { store, films }))
}

impl Contender for IndexTable {
    fn load(&mut self, films: &[Film]) -> Outcome {
        self.store
            .transaction(|txn| films.iter().try_for_each(|film| self.films.insert(txn, film)))?;
        Ok(())
    }

    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for year in years {
            for film in self.films.find_by_year(&txn, *year).rows() {
                digest.film(&film?);
            }
        }
        Ok(())
    }

    fn rows_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for actor in actors {
            for film in self.films.find_by_cast(&txn, actor).rows() {
                digest.film(&film?);
            }
        }
        Ok(())
    }

    fn titles_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for actor in actors {
            for entry in self.films.find_by_cast(&txn, actor).entries() {
                let entry = entry?;
                digest.title(entry.year, entry.id, entry.title);
            }
        }
        Ok(())
    }

    fn count_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for actor in actors {
            digest.number(self.films.find_by_cast(&txn, actor).count()?);
        }
        Ok(())
    }
}
