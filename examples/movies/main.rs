//! Films by genre and title, with indexes by actor and by year: the use of a composite primary key, an index
//! over the elements of a collection, and a covering index.
//!
//! ```text
//! cargo run --release --example movies                # a small table of well-known films
//! cargo run --release --example movies -- FILE.jsonl  # your own, one JSON object a line
//! ```
//!
//! A line has the film's `title`, its `year`, and, if they are known, `cast` and `genres`, two
//! arrays of strings:
//!
//! ```json
//! {"title": "Casablanca", "year": 1942, "cast": ["Humphrey Bogart"], "genres": ["Drama"]}
//! ```
//!
//! All films are loaded in one write transaction, into a store in a temporary directory. Then four queries
//! run, each in its own read transaction, which counts its entries and look-ups of facts:
//!
//! 1. the films of a genre with titles in a range: the fact table has this order;
//! 2. the films of an actor with the other actors: the index covers the query;
//! 3. the same actor's films by year: another covered query;
//! 4. the films of a year with their casts: the index has only references, which are followed.
//!
//! The genre, the actor and the year with the most films are found by means of the indexes.
//!
//! # Untidy lines
//!
//! The number of each kind is printed after the load.
//!
//! | line | handling |
//! |---|---|
//! | several genres | the first is the film's partition |
//! | no genre, or blank ones only | the partition is `Unclassified` |
//! | a title that the genre already has | the year is appended: `Scarface (1983)`; then a number: `Scarface (1983, 2)` |
//! | no cast | stored; in no index by actor |
//! | an actor twice in a cast | stored as it is; one entry in each index by actor |
//! | a blank name in a cast | left out of the cast |
//! | not a JSON object, or an object without a title or a year from 0 to 65535 | skipped, with the number of the line and the reason |
//! | a name or title too long for a key | skipped in the same way |
//! | an empty line | ignored, not counted |

mod load;

use std::{
    env,
    error::Error,
    ffi::OsString,
    fs::File,
    io::{self, BufReader, Write},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use index_table::{IndexTable, ReadTxn, Store};
use serde::{Deserialize, Serialize};

use load::Report;

/// A film. The genre is the partition, and the title identifies the film in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[indexes(
    // An entry for each actor of a film, which carries the whole cast.
    (each(cast), strategy = "partial", include = [cast]),
    (each(cast), year),
    (year),
)]
struct Film {
    #[primary_key]
    genre: String,
    #[primary_key]
    title: String,
    year: u16,
    cast: Vec<String>,
}

/// The films that are loaded when no file is given.
const WELL_KNOWN: &str = include_str!("films.jsonl");

/// The number of printed lines of a result.
const SHOWN: usize = 10;

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path())?;
    let films = FilmRepository::open(&store)?;

    let start = Instant::now();
    let report = match arguments.as_slice() {
        [] => load::load(&store, &films, WELL_KNOWN.as_bytes())?,
        [file] => load_file(&store, &films, Path::new(file))?,
        _ => return Err("too many arguments; usage: movies [FILE.jsonl]".into()),
    };
    let seconds = start.elapsed().as_secs_f64();
    print_report(out, &report, seconds)?;

    titles_in_a_range(out, &store, &films)?;
    let txn = store.read()?;
    // The entries of an actor are adjacent, so the actor with the most films has the longest run of entries.
    let actors = films.by_cast_year(&txn).entries().map(|entry| Ok(entry?.cast));
    if let Some(actor) = most_frequent(actors)? {
        an_actor_and_others(out, &store, &films, actor)?;
        an_actor_by_year(out, &store, &films, actor)?;
    }
    let years = films.by_year(&txn).entries().map(|entry| Ok(entry?.year));
    if let Some(year) = most_frequent(years)? {
        casts_of_a_year(out, &store, &films, year)?;
    }
    Ok(())
}

fn load_file(store: &Store, films: &FilmRepository, path: &Path) -> Result<Report, Box<dyn Error>> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let report = load::load(store, films, BufReader::new(file))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(report)
}

fn print_report(out: &mut impl Write, report: &Report, seconds: f64) -> io::Result<()> {
    let counts = &report.counts;
    #[expect(clippy::cast_precision_loss, reason = "the rate is printed without its last digits")]
    let rate = counts.films as f64 / seconds;
    writeln!(
        out,
        "Loaded {} rows in {:.1} ms, {rate:.0} rows/s, in one write transaction",
        counts.films,
        seconds * 1000.0
    )?;
    for (count, what) in [
        (counts.several_genres, "with several genres: stored under the first"),
        (counts.no_genre, "without a genre: stored under Unclassified"),
        (counts.renamed, "with a title that the genre already has: stored with the year in it"),
        (counts.no_cast, "without a cast: in no index by actor"),
        (counts.repeated_actor, "with an actor more than once: one entry for each actor"),
        (counts.blank_actor, "with a blank name in the cast: left out"),
    ] {
        writeln!(out, "{count:>7} {what}")?;
    }
    writeln!(out, "{:>7} lines skipped", report.skipped.len())?;
    for skipped in &report.skipped {
        writeln!(out, "        line {}: {}", skipped.line, skipped.reason)?;
    }
    Ok(())
}

/// Queries a range of the primary key: the first field is equal, the second in a range.
fn titles_in_a_range(
    out: &mut impl Write,
    store: &Store,
    films: &FilmRepository,
) -> Result<(), Box<dyn Error>> {
    let keys = store.read()?;
    let genres = films.all(&keys).keys().map(|key| key.map(|(genre, _)| genre));
    let Some(genre) = most_frequent(genres)? else { return Ok(()) };

    let txn = store.read()?;
    let rows = films.find_by_genre_title_range(&txn, &genre, "A".."D").rows();
    let lines = rows.map(|film| {
        let film = film?;
        Ok(format!("{}, {}", film.title, film.year))
    });
    print_result(out, &format!("{genre}, titles from A to C"), lines, &txn)
}

/// Reads the entries only, which carry the casts.
fn an_actor_and_others(
    out: &mut impl Write,
    store: &Store,
    films: &FilmRepository,
    actor: &str,
) -> Result<(), Box<dyn Error>> {
    let txn = store.read()?;
    let entries = films.find_by_cast(&txn, actor).entries();
    let lines = entries.map(|entry| {
        let entry = entry?;
        let others: Vec<&str> =
            entry.all_cast.iter().map(String::as_str).filter(|other| *other != actor).collect();
        let others = if others.is_empty() { "nobody".to_owned() } else { others.join(", ") };
        Ok(format!("{}: {}, with {others}", entry.genre, entry.title))
    });
    print_result(out, &format!("{actor}'s films and who else is in them"), lines, &txn)
}

/// Reads the entries only, in the order of the year, which is in the key.
fn an_actor_by_year(
    out: &mut impl Write,
    store: &Store,
    films: &FilmRepository,
    actor: &str,
) -> Result<(), Box<dyn Error>> {
    let txn = store.read()?;
    let entries = films.find_by_cast_year_range(&txn, actor, ..).entries();
    let lines = entries.map(|entry| {
        let entry = entry?;
        Ok(format!("{}: {}", entry.year, entry.title))
    });
    print_result(out, &format!("{actor}'s films by year"), lines, &txn)
}

/// Reads rows: `rows` follows the reference of each entry to get the cast.
fn casts_of_a_year(
    out: &mut impl Write,
    store: &Store,
    films: &FilmRepository,
    year: u16,
) -> Result<(), Box<dyn Error>> {
    let txn = store.read()?;
    let lines = films.find_by_year(&txn, year).rows().map(|film| {
        let film = film?;
        Ok(format!("{}: {}", film.title, film.cast.join(", ")))
    });
    print_result(out, &format!("Films of {year} and their casts"), lines, &txn)
}

/// Reads the whole result, and prints its first lines and the reads of `txn`.
fn print_result(
    out: &mut impl Write,
    title: &str,
    lines: impl Iterator<Item = index_table::Result<String>>,
    txn: &ReadTxn<'_>,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "\n{title}\n")?;
    let mut count = 0;
    for line in lines {
        let line = line?;
        if count < SHOWN {
            writeln!(out, "  {line}")?;
        }
        count += 1;
    }
    if count > SHOWN {
        writeln!(out, "  … and {} more", count - SHOWN)?;
    }
    let stats = txn.stats();
    writeln!(
        out,
        "\n  films: {count}, entries read: {}, facts looked up: {}",
        stats.entries, stats.facts
    )?;
    Ok(())
}

/// Returns the most frequent of sorted values; the first if there are several.
fn most_frequent<T: PartialEq>(
    values: impl Iterator<Item = index_table::Result<T>>,
) -> index_table::Result<Option<T>> {
    let mut best: Option<(T, u64)> = None;
    let mut run: Option<(T, u64)> = None;
    for value in values {
        let value = value?;
        match &mut run {
            Some((current, count)) if *current == value => *count += 1,
            _ => best = longer(best, run.replace((value, 1))),
        }
    }
    Ok(longer(best, run).map(|(value, _)| value))
}

fn longer<T>(best: Option<(T, u64)>, run: Option<(T, u64)>) -> Option<(T, u64)> {
    match (best, run) {
        (Some(best), Some(run)) => Some(if run.1 > best.1 { run } else { best }),
        (best, run) => best.or(run),
    }
}
