//! `index-table`.

use std::path::Path;

use index_table::Store;

use super::{Contender, Film, FilmRepository};
use crate::contender::{Answer, Outcome};

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

    fn rows_of_year(&mut self, years: &[u16], answer: &mut Answer) -> Outcome {
        let txn = self.store.read()?;
        for year in years {
            for film in self.films.find_by_year(&txn, *year).rows() {
                answer.film(&film?);
            }
        }
        Ok(())
    }

    fn rows_of_actor(&mut self, actors: &[String], answer: &mut Answer) -> Outcome {
        let txn = self.store.read()?;
        for actor in actors {
            for film in self.films.find_by_cast(&txn, actor).rows() {
                answer.film(&film?);
            }
        }
        Ok(())
    }

    fn titles_of_actor(&mut self, actors: &[String], answer: &mut Answer) -> Outcome {
        let txn = self.store.read()?;
        for actor in actors {
            for entry in self.films.find_by_cast(&txn, actor).entries() {
                let entry = entry?;
                answer.title(entry.year, entry.id, entry.title);
            }
        }
        Ok(())
    }

    fn count_of_actor(&mut self, actors: &[String], answer: &mut Answer) -> Outcome {
        let txn = self.store.read()?;
        for actor in actors {
            answer.number(self.films.find_by_cast(&txn, actor).count()?);
        }
        Ok(())
    }
}
