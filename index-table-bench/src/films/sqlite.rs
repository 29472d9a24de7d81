//! `SQLite`, with casts and genres as JSON in the row. A table of actors, sorted by actor and year, covers
//! the titles.

use std::path::Path;

use rusqlite::{Connection, Row, params};

use super::{Contender, Film};
use crate::contender::{Digest, Outcome};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA mmap_size = 2147418112;
    PRAGMA cache_size = -1048576;
    CREATE TABLE IF NOT EXISTS films (
        id INTEGER PRIMARY KEY,
        title TEXT NOT NULL,
        year INTEGER NOT NULL,
        actors TEXT NOT NULL,
        genres TEXT NOT NULL,
        extract TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_year ON films (year);
    CREATE TABLE IF NOT EXISTS film_actors (
        actor TEXT NOT NULL,
        year INTEGER NOT NULL,
        film INTEGER NOT NULL,
        title TEXT NOT NULL,
        PRIMARY KEY (actor, year, film)
    ) WITHOUT ROWID;
";

struct Sqlite {
    connection: Connection,
}

pub(super) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    std::fs::create_dir_all(directory)?;
    let connection = Connection::open(directory.join("films.sqlite"))?;
    connection.execute_batch(SCHEMA)?;
    Ok(Box::new(Sqlite { connection }))
}

fn film(row: &Row<'_>) -> Outcome<Film> {
    Ok(Film {
        id: row.get(0)?,
        title: row.get(1)?,
        year: row.get(2)?,
        cast: serde_json::from_str(row.get_ref(3)?.as_str()?)?,
        genres: serde_json::from_str(row.get_ref(4)?.as_str()?)?,
        extract: row.get(5)?,
    })
}

impl Sqlite {
    /// Runs the statement with each parameter, in one transaction.
    fn query<P: rusqlite::ToSql>(
        &mut self,
        statement: &str,
        parameters: &[P],
        mut work: impl FnMut(&Row<'_>) -> Outcome,
    ) -> Outcome {
        let transaction = self.connection.transaction()?;
        let mut statement = transaction.prepare_cached(statement)?;
        for parameter in parameters {
            let mut rows = statement.query([parameter])?;
            while let Some(row) = rows.next()? {
                work(row)?;
            }
        }
        drop(statement);
        Ok(transaction.commit()?)
    }
}

impl Contender for Sqlite {
    fn load(&mut self, films: &[Film]) -> Outcome {
        let transaction = self.connection.transaction()?;
        let mut row = transaction.prepare_cached("INSERT INTO films VALUES (?, ?, ?, ?, ?, ?)")?;
        let mut entry =
            transaction.prepare_cached("INSERT INTO film_actors VALUES (?, ?, ?, ?)")?;
        for film in films {
            let cast = serde_json::to_string(&film.cast)?;
            let genres = serde_json::to_string(&film.genres)?;
            row.execute(params![film.id, film.title, film.year, cast, genres, film.extract])?;
            for actor in film.actors() {
                entry.execute(params![actor, film.year, film.id, film.title])?;
            }
        }
        drop((row, entry));
        Ok(transaction.commit()?)
    }

    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome {
        self.query("SELECT * FROM films WHERE year = ?1 ORDER BY id", years, |row| {
            digest.film(&film(row)?);
            Ok(())
        })
    }

    fn rows_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let statement = "SELECT films.* FROM film_actors JOIN films ON films.id = film_actors.film
            WHERE actor = ?1 ORDER BY film_actors.year, film";
        self.query(statement, actors, |row| {
            digest.film(&film(row)?);
            Ok(())
        })
    }

    fn titles_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let statement =
            "SELECT year, film, title FROM film_actors WHERE actor = ?1 ORDER BY year, film";
        self.query(statement, actors, |row| {
            digest.title(row.get(0)?, row.get(1)?, row.get_ref(2)?.as_str()?);
            Ok(())
        })
    }

    fn count_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome {
        let statement = "SELECT count(*) FROM film_actors WHERE actor = ?1";
        self.query(statement, actors, |row| {
            digest.number(row.get::<_, i64>(0)?.cast_unsigned());
            Ok(())
        })
    }

    fn settle(&mut self) -> Outcome {
        Ok(self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }
}
