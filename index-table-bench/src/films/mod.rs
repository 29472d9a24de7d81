//! Real data: films of a file of JSON lines, with an index over the elements of a collection.

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
    contender::{Answer, Failure, Outcome},
    median,
    random::Random,
    run::{SEED, files},
};

/// A film. The index by actor and year has an entry for each actor, and covers the titles; the one
/// by year is normalized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[index(each(cast), year, include = [title])]
#[index(year)]
pub struct Film {
    /// The number of the line.
    #[primary_key]
    pub id: u32,
    /// Not unique.
    pub title: String,
    /// Of its release.
    pub year: u16,
    /// May be empty, and may have a name twice.
    pub cast: Vec<String>,
    /// May be empty.
    pub genres: Vec<String>,
    /// The beginning of an article.
    pub extract: String,
}

impl Film {
    /// Each actor once.
    fn actors(&self) -> BTreeSet<&str> {
        self.cast.iter().map(String::as_str).collect()
    }
}

/// Reads the films of a file: one JSON object a line, with `title`, `year`, and, if they are known,
/// `cast`, `genres` and `extract`.
///
/// # Errors
///
/// If the file can't be read, or a line is something else.
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

/// As [`crate::contender::Contender`], for films.
trait Contender {
    /// Inserts all in one transaction.
    fn load(&mut self, films: &[Film]) -> Outcome;
    /// The films of each year, by primary key.
    fn rows_of_year(&mut self, years: &[u16], answer: &mut Answer) -> Outcome;
    /// The films of each actor, by year and primary key.
    fn rows_of_actor(&mut self, actors: &[String], answer: &mut Answer) -> Outcome;
    /// Year, primary key and title of them, without a look at the rows.
    fn titles_of_actor(&mut self, actors: &[String], answer: &mut Answer) -> Outcome;
    /// How many they are.
    fn count_of_actor(&mut self, actors: &[String], answer: &mut Answer) -> Outcome;
    /// As there.
    fn settle(&mut self) -> Outcome {
        Ok(())
    }
}

impl Answer {
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

/// In the order of [`crate::contenders::ALL`], with its names.
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

/// The last of them, which is no time.
const SPACE: usize = MEASURES.len() - 1;

/// The figures: times in nanoseconds, space in bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// How many films there were.
    pub films: usize,
    /// The contenders, and for each of [`MEASURES`] the median of the rounds; `None`: `N/A`.
    pub contenders: Vec<(String, Vec<Option<f64>>)>,
}

/// Measures loads, and rounds of queries after each.
///
/// # Errors
///
/// The errors of a contender, or that the results of two contenders differ.
pub fn run(films: &[Film], rounds: usize, directory: &Path) -> Result<Results, String> {
    let (actors, years) = query_values(films);
    let mut samples: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        eprintln!("films, round {} of {rounds}", round + 1);
        let mut answers: BTreeMap<usize, (&str, Answer)> = BTreeMap::new();
        for turn in 0..ALL.len() {
            let place = (turn + round) % ALL.len();
            let (name, open) = ALL[place];
            let say = |failure| match failure {
                Failure::Lacks => format!("{name} lacks what it can't do without"),
                Failure::Failed(error) => format!("{name}: {error}"),
            };
            let path = directory.join(format!("films-{place}"));
            let mut contender = open(&path).map_err(say)?;
            for (measure, title) in MEASURES[..SPACE].iter().enumerate() {
                let mut answer = Answer::default();
                let start = Instant::now();
                let outcome = match measure {
                    0 => contender.load(films),
                    1 => contender.rows_of_year(&years, &mut answer),
                    2 => contender.rows_of_actor(&actors, &mut answer),
                    3 => contender.titles_of_actor(&actors, &mut answer),
                    _ => contender.count_of_actor(&actors, &mut answer),
                };
                let time = start.elapsed().as_nanos() as f64;
                match outcome {
                    Ok(()) => {}
                    Err(Failure::Lacks) => continue,
                    Err(failure) => return Err(say(failure)),
                }
                let units = if measure == 0 { films.len() as f64 } else { answer.found as f64 };
                samples.entry((place, measure)).or_default().push(time / units);
                let (other, expected) = *answers.entry(measure).or_insert((name, answer));
                if answer != expected {
                    return Err(format!("{name} and {other} don't answer alike: {title}"));
                }
            }
            contender.settle().map_err(say)?;
            let space = files(&path).map_err(|error| error.to_string())? as f64;
            samples.entry((place, SPACE)).or_default().push(space / films.len() as f64);
            drop(contender);
            fs::remove_dir_all(path).map_err(|error| error.to_string())?;
        }
    }
    let figure = |place, measure| {
        samples.get(&(place, measure)).map(|samples| median(samples.iter().copied()))
    };
    let contenders = ALL.iter().enumerate().map(|(place, (name, _))| {
        let figures = (0..MEASURES.len()).map(|measure| figure(place, measure)).collect();
        ((*name).to_owned(), figures)
    });
    Ok(Results { films: films.len(), contenders: contenders.collect() })
}

/// Actors with at least three films, and all years, in random order.
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
