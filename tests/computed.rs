//! `each(computed(…))` and `hash(computed(…))`: keys from the results of methods, one for each element or
//! hashed.

use index_table::{Error, IndexEntry, IndexTable, Result, Scan, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "indexes may have a method in common")]
#[index(each(computed(words: Vec<String>)))]
#[index(town, each(computed(words: Vec<String>)), sparse, include = [title], name = "town_words")]
#[index(each(computed(words: Vec<String>)), year, strategy = "full", name = "dated")]
#[index(each(computed(words: Vec<String>)), filter = is_new, name = "new_words")]
#[index(each(computed(isbn: Option<u64>)), unique, name = "isbns")]
#[index(hash(computed(lower: String)), year)]
#[index(town, hash(computed(lower: String)), strategy = "full", name = "full_hash", allow(doubled_full))]
#[index(hash(computed(lower: String)), hash(title), include = [title], filter = is_new, unique, name = "once")]
#[index(hash(computed(subtitle: Option<String>)), sparse)]
struct Book {
    #[primary_key]
    id: u32,
    title: String,
    town: Option<String>,
    year: u16,
}

impl Book {
    fn words(&self) -> Vec<String> {
        self.title.split_whitespace().map(str::to_lowercase).collect()
    }

    fn lower(&self) -> String {
        self.title.to_lowercase()
    }

    fn subtitle(&self) -> Option<String> {
        self.title.split_once(": ").map(|(_, subtitle)| subtitle.repeat(1000))
    }

    fn isbn(&self) -> Option<u64> {
        (1970..2000).contains(&self.year).then_some(self.title.len() as u64)
    }

    fn is_new(&self) -> bool {
        self.year >= 2000
    }
}

fn book(id: u32, title: &str, town: Option<&str>, year: u16) -> Book {
    Book { id, title: title.to_owned(), town: town.map(Into::into), year }
}

fn ids<'txn, E: IndexEntry<'txn, Row = Book>>(scan: Scan<'txn, E>) -> Result<Vec<u32>> {
    scan.keys().collect()
}

fn open() -> Result<(Store, BookRepository)> {
    let store = Store::in_memory();
    let books = BookRepository::open(&store)?;
    store.transaction(|txn| {
        books.insert(txn, &book(1, "The Sea the sea", Some("Oslo"), 1978))?;
        books.insert(txn, &book(2, "Sea: a tale", None, 2001))?;
        books.insert(txn, &book(3, "Land and SEA", Some("Rome"), 1950))?;
        books.insert(txn, &book(4, "", Some("Rome"), 2002))
    })?;
    Ok((store, books))
}

#[test]
fn each_element_of_a_methods_result_has_an_entry() -> Result<()> {
    let (store, books) = open()?;
    let txn = store.read()?;
    assert_eq!(ids(books.find_by_words(&txn, "sea"))?, [1, 3]);
    assert_eq!(ids(books.find_by_words_starting_with(&txn, "sea"))?, [1, 3, 2]);
    assert_eq!(ids(books.find_by_words_in(&txn, ["tale", "the", "land"]))?, [3, 2, 1]);
    let words = books.distinct_words(&txn).counts().collect::<Result<Vec<_>>>()?;
    let expected =
        [("a", 1), ("and", 1), ("land", 1), ("sea", 2), ("sea:", 1), ("tale", 1), ("the", 1)];
    assert_eq!(words, expected);

    let entries = books.find_by_town_words_town(&txn, "Oslo").entries();
    let entries = entries.map(|entry| entry.map(|it| (it.town, it.words, it.title, it.id)));
    let entries = entries.collect::<Result<Vec<_>>>()?;
    let title = "The Sea the sea";
    assert_eq!(entries, [(Some("Oslo"), "sea", title, 1), (Some("Oslo"), "the", title, 1)]);

    let mut dated = books.find_by_dated_words(&txn, "sea").entries();
    let first = dated.next().expect("two entries")?;
    assert_eq!((first.words, first.id, first.year, first.title), ("sea", 3, 1950, "Land and SEA"));
    assert_eq!(dated.count(), 1);
    assert_eq!(ids(books.find_by_dated_range(&txn, "sea", 1960..))?, [1]);
    assert_eq!(ids(books.by_new_words(&txn))?, [2, 2, 2]);
    Ok(())
}

#[test]
fn entries_follow_the_results_of_methods() -> Result<()> {
    let (store, books) = open()?;
    store.transaction(|txn| {
        books.update(txn, 1, |book| book.title = "The land".to_owned())?;
        books.update(txn, 3, |book| book.year = 2020)?;
        books.delete(txn, 2)
    })?;
    let txn = store.read()?;
    assert_eq!(ids(books.find_by_words(&txn, "sea"))?, [3]);
    assert_eq!(ids(books.find_by_words(&txn, "land"))?, [1, 3]);
    assert_eq!(ids(books.by_new_words(&txn))?, [3, 3, 3]);
    assert_eq!(ids(books.find_by_lower(&txn, "the land"))?, [1]);
    assert_eq!(ids(books.find_by_lower(&txn, "the sea the sea"))?, [0; 0]);
    assert!(books.verify(&txn).run()?.findings.is_empty());
    Ok(())
}

#[test]
fn an_element_of_a_unique_index_belongs_to_one_row() -> Result<()> {
    let (store, books) = open()?;
    let mut txn = store.write()?;
    let taken = books.insert(&mut txn, &book(9, "another_tale_xx", None, 1999));
    assert!(matches!(taken, Err(Error::UniqueViolation { index: "isbns", .. })), "{taken:?}");
    books.insert(&mut txn, &book(9, "another_tale_xx", None, 1960))?;
    assert_eq!(books.get_by_isbns(&txn, 15)?.map(|book| book.id), Some(1));
    Ok(())
}

#[test]
fn results_of_methods_are_found_by_their_hashes() -> Result<()> {
    let (store, books) = open()?;
    let mut txn = store.write()?;
    let long = "Long ".repeat(500);
    books.insert(&mut txn, &book(5, &long, Some("Oslo"), 2005))?;
    let lower = long.to_lowercase();
    assert_eq!(ids(books.find_by_lower(&txn, &lower))?, [5]);
    assert_eq!(ids(books.find_by_lower(&txn, &long))?, [0; 0]);
    assert_eq!(ids(books.find_by_lower_year_range(&txn, &lower, 2000..))?, [5]);
    assert_eq!(ids(books.find_by_lower_in(&txn, ["land and sea", "x", ""]))?.len(), 2);
    assert_eq!(ids(books.find_by_subtitle(&txn, &"a tale".repeat(1000)))?, [2]);

    let mut full = books.find_by_full_hash(&txn, Some("Oslo"), &lower).entries();
    let entry = full.next().expect("an entry")?;
    assert_eq!((entry.id, entry.title, entry.year), (5, &*long, 2005));
    assert_eq!(full.stats().facts, 0, "the value was not compared with the row in the full entry");
    drop(full);
    assert_eq!(books.find_by_full_hash(&txn, Some("Oslo"), &lower).rows().count(), 1);

    let taken = books.insert(&mut txn, &book(6, &long, None, 2006));
    assert!(matches!(taken, Err(Error::UniqueViolation { index: "once", .. })), "{taken:?}");
    assert_eq!(books.get_by_once(&txn, &lower, &long)?.map(|book| book.id), Some(5));
    assert!(books.verify(&txn).run()?.findings.is_empty());
    Ok(())
}

#[test]
fn the_catalog_distinguishes_the_forms() -> Result<()> {
    let (store, _books) = open()?;
    let catalog = store.catalog()?;
    let table =
        catalog.tables.iter().find(|table| table.name == "book").expect("the table is open");
    let form = |index: &str, field: usize| {
        let index =
            table.indexes.iter().find(|it| it.name == index).expect("the index is declared");
        (index.key[field].form.clone(), index.key[field].shape.clone())
    };
    assert_eq!(form("words", 0), ("each-computed".to_owned(), "text".to_owned()));
    assert_eq!(form("lower_year", 0), ("hash-computed".to_owned(), "blake3<text>".to_owned()));
    Ok(())
}
