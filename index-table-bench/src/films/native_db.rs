//! `native_db`, which has no index on the elements of a collection.

use std::{path::Path, sync::OnceLock};

use native_db::{Builder, Database, Models, ToKey, native_db};
use native_model::{Model, native_model};
use serde::{Deserialize, Serialize};

use super::{Contender, Film};
use crate::contender::{Digest, Failure, Outcome};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[native_model(id = 2, version = 1)]
#[native_db]
struct Record {
    #[primary_key]
    id: u32,
    title: String,
    #[secondary_key]
    year: u16,
    cast: Vec<String>,
    genres: Vec<String>,
    extract: String,
}

struct NativeDb {
    database: Database<'static>,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    static MODELS: OnceLock<Models> = OnceLock::new();
    if MODELS.get().is_none() {
        let mut models = Models::new();
        models.define::<Record>()?;
        MODELS.get_or_init(|| models);
    }
    let models = MODELS.get().ok_or("no models")?;
    std::fs::create_dir_all(directory)?;
    let file = directory.join("films.redb");
    let database = Builder::new().set_cache_size(1 << 30).create(models, file)?;
    Ok(Box::new(NativeDb { database }))
}

impl Contender for NativeDb {
    fn load(&mut self, films: &[Film]) -> Outcome {
        let txn = self.database.rw_transaction()?;
        for film in films {
            let Film { id, title, year, cast, genres, extract } = film.clone();
            txn.insert(Record { id, title, year, cast, genres, extract })?;
        }
        Ok(txn.commit()?)
    }

    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome {
        let txn = self.database.r_transaction()?;
        let scan = txn.scan();
        let by_year = scan.secondary::<Record>(RecordKey::year)?;
        for year in years {
            for record in by_year.range(*year..=*year)? {
                let Record { id, title, year, cast, genres, extract } = record?;
                digest.film(&Film { id, title, year, cast, genres, extract });
            }
        }
        Ok(())
    }

    fn rows_of_actor(&mut self, _actors: &[String], _digest: &mut Digest) -> Outcome {
        Err(Failure::Lacks)
    }

    fn titles_of_actor(&mut self, _actors: &[String], _digest: &mut Digest) -> Outcome {
        Err(Failure::Lacks)
    }

    fn count_of_actor(&mut self, _actors: &[String], _digest: &mut Digest) -> Outcome {
        Err(Failure::Lacks)
    }
}
