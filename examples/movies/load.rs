//! Reading films from JSON lines, including untidy lines.

use std::{collections::BTreeSet, error::Error, io::BufRead};

use index_table::{Error as StoreError, Store, WriteTxn};
use serde::Deserialize;

use crate::{Film, FilmRepository};

/// The partition of films without a genre.
const UNCLASSIFIED: &str = "Unclassified";

/// The fields of a line. Other members of the object are ignored.
#[derive(Deserialize)]
struct Line {
    title: String,
    year: u16,
    cast: Option<Vec<String>>,
    genres: Option<Vec<String>>,
}

/// The result of the load.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) counts: Counts,
    pub(crate) skipped: Vec<Skipped>,
}

/// The number of stored films, and of untidy lines of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) films: usize,
    pub(crate) several_genres: usize,
    pub(crate) no_genre: usize,
    pub(crate) renamed: usize,
    pub(crate) no_cast: usize,
    pub(crate) repeated_actor: usize,
    pub(crate) blank_actor: usize,
}

/// A line that was not stored.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

/// Stores the films of `input` in one write transaction. After an error, no film is stored.
pub(crate) fn load(
    store: &Store,
    films: &FilmRepository,
    input: impl BufRead,
) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::default();
    // `store.transaction` may run its closure again, but the input can be read only once.
    let mut txn = store.write()?;
    // `input.lines()` ends at invalid UTF-8. Here, only the invalid line is skipped.
    for (line, bytes) in (1..).zip(input.split(b'\n')) {
        let bytes = bytes?;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let mut counts = report.counts;
        let mut film = match parse(&bytes) {
            Ok(parsed) => tidy(parsed, &mut counts),
            Err(reason) => {
                report.skipped.push(Skipped { line, reason });
                continue;
            }
        };
        match insert(films, &mut txn, &mut film, &mut counts) {
            Ok(()) => report.counts = counts,
            // A failed operation leaves the transaction unchanged, so the load can continue.
            Err(error @ StoreError::KeyTooLong { .. }) => {
                report.skipped.push(Skipped { line, reason: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
    }
    txn.commit()?;
    Ok(report)
}

/// Returns the film of a line, or the reason why the line has none.
fn parse(line: &[u8]) -> Result<Line, String> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    // Serde would accept an array for the struct too.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is no JSON object".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| {
        // The parser treats this line as line 1, so only the column is meaningful.
        error.to_string().replace("at line 1 column", "at column")
    })
}

/// Returns the film as it is stored, unless its title is in use.
fn tidy(line: Line, counts: &mut Counts) -> Film {
    let Line { title, year, cast, genres } = line;

    let mut genres = genres.unwrap_or_default();
    genres.retain(|genre| !genre.trim().is_empty());
    counts.several_genres += usize::from(genres.len() > 1);
    counts.no_genre += usize::from(genres.is_empty());
    let genre = genres.into_iter().next().unwrap_or_else(|| UNCLASSIFIED.to_owned());

    let mut cast = cast.unwrap_or_default();
    let named = cast.len();
    cast.retain(|actor| !actor.trim().is_empty());
    counts.blank_actor += usize::from(cast.len() < named);
    counts.no_cast += usize::from(cast.is_empty());
    let distinct = cast.iter().collect::<BTreeSet<_>>().len();
    counts.repeated_actor += usize::from(distinct < cast.len());

    Film { genre, title, year, cast }
}

/// Inserts the film, with another title if its genre already has this title.
fn insert(
    films: &FilmRepository,
    txn: &mut WriteTxn<'_>,
    film: &mut Film,
    counts: &mut Counts,
) -> index_table::Result<()> {
    counts.films += 1;
    let mut result = films.insert(txn, film);
    if !matches!(result, Err(StoreError::DuplicateKey { .. })) {
        return result;
    }
    counts.renamed += 1;
    let (title, year) = (film.title.clone(), film.year);
    let mut number = 1_u32;
    while matches!(result, Err(StoreError::DuplicateKey { .. })) {
        film.title = match number {
            1 => format!("{title} ({year})"),
            _ => format!("{title} ({year}, {number})"),
        };
        number += 1;
        result = films.insert(txn, film);
    }
    result
}
