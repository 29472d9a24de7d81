//! Real data: films from a file of JSON lines, with an index on the elements of a collection.

mod fjall;
mod heed;
mod index_table;
mod native_db;
mod redb;
mod sqlite;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Instant,
};

use ::index_table::IndexTable;
use serde::{Deserialize, Serialize};

use crate::{
    contender::{Digest, Failure, Outcome},
    median,
    random::Random,
    run::{SEED, files},
};

/// A film. The index by actor and year has an entry for each actor, and covers the titles. The index by year
/// is normalized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[index(each(cast), year, include = [title])]
#[index(year)]
pub struct Film {
    /// The number of the line.
    #[primary_key]
    pub id: u32,
    /// The title, which is not unique.
    pub title: String,
    /// The year of the release.
    pub year: u16,
    /// The actors. The list may be empty, and may have a name twice.
    pub cast: Vec<String>,
    /// The genres. The list may be empty.
    pub genres: Vec<String>,
    /// The start of an article about the film.
    pub extract: String,
}

impl Film {
    /// Returns each actor once.
    fn actors(&self) -> BTreeSet<&str> {
        self.cast.iter().map(String::as_str).collect()
    }
}

/// Reads the films of a file: one JSON object a line, with `title`, `year`, and, if they are known,
/// `cast`, `genres` and `extract`.
///
/// # Errors
///
/// If the file can't be read, or if a line is not a film.
pub fn read(file: &Path) -> Result<Vec<Film>, String> {
    #[derive(Deserialize)]
    struct Line {
        title: String,
        year: u16,
        cast: Option<Vec<String>>,
        genres: Option<Vec<String>>,
        extract: Option<String>,
    }
    let text = fs::read_to_string(file).map_err(|error| format!("the films: {error}"))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let parse = |(id, line): (u32, &str)| {
        let Line { title, year, cast, genres, extract } =
            serde_json::from_str(line).map_err(|error| format!("film {id}: {error}"))?;
        let (cast, genres) = (cast.unwrap_or_default(), genres.unwrap_or_default());
        Ok(Film { id, title, year, cast, genres, extract: extract.unwrap_or_default() })
    };
    lines.map(parse).collect()
}

/// A contender for films, as [`crate::contender::Contender`] for customers.
trait Contender {
    /// Inserts all films in one transaction.
    fn load(&mut self, films: &[Film]) -> Outcome;
    /// Reads the films of each year, in the order of the primary key.
    fn rows_of_year(&mut self, years: &[u16], digest: &mut Digest) -> Outcome;
    /// Reads the films of each actor, in the order of year and primary key.
    fn rows_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome;
    /// Reads year, primary key and title of these films, without look-ups of rows.
    fn titles_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome;
    /// Counts these films.
    fn count_of_actor(&mut self, actors: &[String], digest: &mut Digest) -> Outcome;
    /// See [`crate::contender::Contender::settle`].
    fn settle(&mut self) -> Outcome {
        Ok(())
    }
}

impl Digest {
    fn film(&mut self, film: &Film) {
        self.found += 1;
        self.mix(u64::from(film.id));
        self.mix(u64::from(film.year));
        self.text(&film.title);
        self.text(&film.extract);
        for names in [&film.cast, &film.genres] {
            self.mix(names.len() as u64);
            for name in names {
                self.text(name);
            }
        }
    }

    fn title(&mut self, year: u16, id: u32, title: &str) {
        self.found += 1;
        self.mix(u64::from(year));
        self.mix(u64::from(id));
        self.text(title);
    }
}

type Open = fn(&Path) -> Outcome<Box<dyn Contender>>;

/// The contenders, with the names and the order of [`crate::contenders::ALL`].
const ALL: [(&str, Open); 6] = [
    ("index-table", index_table::open),
    ("heed, plain keys", heed::open),
    ("native_db", native_db::open),
    ("SQLite", sqlite::open),
    ("redb", redb::open),
    ("fjall", fjall::open),
];

/// The measures, in the order of the report.
pub const MEASURES: [&str; 6] = [
    "load, one transaction, a film",
    "films of a year, a row",
    "films of an actor, a row",
    "titles of an actor, covered, an entry",
    "count of an actor's films",
    "space, a film",
];

/// The last measure, the only measure without a unit of time.
const SPACE: usize = MEASURES.len() - 1;

/// The figures: times in nanoseconds, space in bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// The number of films.
    pub films: usize,
    /// The contenders, and for each of [`MEASURES`] the median of the rounds; `None`: `N/A`.
    pub contenders: Vec<(String, Vec<Option<f64>>)>,
}

/// Measures loads, and queries after each load.
///
/// # Errors
///
/// The errors of a contender, or an error if the results of two contenders differ.
pub fn run(films: &[Film], rounds: usize, directory: &Path) -> Result<Results, String> {
    let (actors, years) = query_values(films);
    let mut samples: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        eprintln!("films, round {} of {rounds}", round + 1);
        let mut results: BTreeMap<usize, (&str, Digest)> = BTreeMap::new();
        for turn in 0..ALL.len() {
            let index = (turn + round) % ALL.len();
            let (name, open) = ALL[index];
            let say = |failure| match failure {
                Failure::Lacks => format!("{name} lacks a required operation"),
                Failure::Failed(error) => format!("{name}: {error}"),
            };
            let path = directory.join(format!("films-{index}"));
            let mut contender = open(&path).map_err(say)?;
            for (measure, title) in MEASURES[..SPACE].iter().enumerate() {
                let mut digest = Digest::default();
                let start = Instant::now();
                let outcome = match measure {
                    0 => contender.load(films),
                    1 => contender.rows_of_year(&years, &mut digest),
                    2 => contender.rows_of_actor(&actors, &mut digest),
                    3 => contender.titles_of_actor(&actors, &mut digest),
                    _ => contender.count_of_actor(&actors, &mut digest),
                };
                let time = start.elapsed().as_nanos() as f64;
                match outcome {
                    Ok(()) => {}
                    Err(Failure::Lacks) => continue,
                    Err(failure) => return Err(say(failure)),
                }
                let units = if measure == 0 { films.len() as f64 } else { digest.found as f64 };
                samples.entry((index, measure)).or_default().push(time / units);
                let (other, expected) = *results.entry(measure).or_insert((name, digest));
                if digest != expected {
                    return Err(format!("{name} and {other} have different results: {title}"));
                }
            }
            contender.settle().map_err(say)?;
            let space = files(&path).map_err(|error| error.to_string())? as f64;
            samples.entry((index, SPACE)).or_default().push(space / films.len() as f64);
            drop(contender);
            fs::remove_dir_all(path).map_err(|error| error.to_string())?;
        }
    }
    let figure = |index, measure| {
        samples.get(&(index, measure)).map(|samples| median(samples.iter().copied()))
    };
    let contenders = ALL.iter().enumerate().map(|(index, (name, _))| {
        let figures = (0..MEASURES.len()).map(|measure| figure(index, measure)).collect();
        ((*name).to_owned(), figures)
    });
    Ok(Results { films: films.len(), contenders: contenders.collect() })
}

/// Returns the actors with at least three films, and all years, in random order.
fn query_values(films: &[Film]) -> (Vec<String>, Vec<u16>) {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for actor in films.iter().flat_map(Film::actors) {
        *count.entry(actor).or_default() += 1;
    }
    let frequent = count.into_iter().filter(|(_, films)| *films >= 3);
    let mut actors: Vec<String> = frequent.map(|(actor, _)| actor.to_owned()).collect();
    let years: BTreeSet<u16> = films.iter().map(|film| film.year).collect();
    let mut years: Vec<u16> = years.into_iter().collect();
    let mut random = Random(SEED);
    random.shuffle(&mut actors);
    random.shuffle(&mut years);
    actors.truncate(2_000);
    (actors, years)
}
