//! Films by the words of their titles: an index over the words that a method returns.
//!
//! ```text
//! cargo run --release --example words
//! ```
//!
//! The words are separated by the rules of Unicode (UAX #29), by the crate `unicode-segmentation`, and are in lower case.
//! Four queries run:
//!
//! 1. the films with all of some words;
//! 2. the films with any of them;
//! 3. the words that begin with the letters that a user has typed so far, and their films;
//! 4. the genres of the films with a word, and their numbers of films.

use std::{
    collections::BTreeSet,
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use index_table::{Combined, IndexTable, ReadTxn, Store};
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

/// A film. The index serves words, and the genres of a word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[index(each(computed(words: Vec<String>)), genre, include = [title])]
struct Film {
    #[primary_key]
    id: u32,
    title: String,
    genre: String,
}

impl Film {
    /// The words of the title. Queries have to use the same function.
    fn words(&self) -> Vec<String> {
        words(&self.title)
    }
}

/// Returns the words of a text in lower case.
fn words(text: &str) -> Vec<String> {
    text.unicode_words().map(str::to_lowercase).collect()
}

/// A line of the list of films.
#[derive(Deserialize)]
struct Line {
    title: String,
    #[serde(default)]
    genres: Vec<String>,
}

const FILMS: &str = include_str!("movies/films.jsonl");

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
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path())?;
    let films = FilmRepository::open(&store)?;
    let rows = FILMS.lines().zip(1..).map(|(line, id)| {
        let Line { title, genres } = serde_json::from_str(line)?;
        let genre = genres.into_iter().next().unwrap_or_else(|| "Unclassified".to_owned());
        Ok(Film { id, title, genre })
    });
    let rows = rows.collect::<Result<Vec<_>, serde_json::Error>>()?;
    films.bulk_load(&store, &rows).run()?;

    let txn = store.read()?;
    all_words(out, &films, &txn, "The Man")?;
    any_word(out, &films, &txn, "city casablanca")?;
    type_ahead(out, &films, &txn, "m")?;
    facets(out, &films, &txn, "the")?;
    Ok(())
}

/// The films that have every word, in the order of their primary keys.
fn all_words(
    out: &mut impl Write,
    films: &FilmRepository,
    txn: &ReadTxn<'_>,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let words = words(text);
    let mut queries = words.iter().map(|word| Combined::from(films.find_by_words(txn, word)));
    let Some(first) = queries.next() else { return Ok(()) };
    let found = queries.fold(first, Combined::and);
    print_titles(out, &format!("All words of `{text}`"), found)
}

/// The films that have any of the words, each film once.
fn any_word(
    out: &mut impl Write,
    films: &FilmRepository,
    txn: &ReadTxn<'_>,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let words = words(text);
    let mut queries = words.iter().map(|word| Combined::from(films.find_by_words(txn, word)));
    let Some(first) = queries.next() else { return Ok(()) };
    let found = queries.fold(first, Combined::or);
    print_titles(out, &format!("Any word of `{text}`"), found)
}

fn print_titles(
    out: &mut impl Write,
    heading: &str,
    found: Combined<'_, Film>,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "{heading}\n")?;
    for film in found.rows() {
        writeln!(out, "  {}", film?.title)?;
    }
    writeln!(out)?;
    Ok(())
}

/// The words that begin with these letters, and their films, from the entries of the index alone.
fn type_ahead(
    out: &mut impl Write,
    films: &FilmRepository,
    txn: &ReadTxn<'_>,
    letters: &str,
) -> Result<(), Box<dyn Error>> {
    let letters = letters.to_lowercase();
    let (mut words, mut titles) = (Vec::<String>::new(), BTreeSet::new());
    for entry in films.find_by_words_starting_with(txn, &letters).entries() {
        let entry = entry?;
        // The entries are in the order of the words.
        if words.last().is_none_or(|last| last != entry.words) {
            words.push(entry.words.to_owned());
        }
        titles.insert(entry.title.to_owned());
    }
    writeln!(out, "Words that begin with `{letters}`: {}\n", words.join(", "))?;
    for title in titles {
        writeln!(out, "  {title}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// The genres of the films with a word, with a seek and a count for each genre.
fn facets(
    out: &mut impl Write,
    films: &FilmRepository,
    txn: &ReadTxn<'_>,
    word: &str,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "Genres of the films with `{word}`\n")?;
    for facet in films.distinct_genre_by_words(txn, word).counts() {
        let (genre, count) = facet?;
        writeln!(out, "  {count:>2} {genre}")?;
    }
    Ok(())
}
