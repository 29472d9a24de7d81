//! The bytes of a file, which heed reads and damages without this crate.

mod bytes;
mod damage;

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};
use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

/// The entries of each database, by its name.
type Dump = BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", view)]
#[index(town)]
#[index(town, name = "town_with_age", include = [age])]
#[index(age, strategy = "full")]
#[index(email, unique)]
#[index(each(tags), unique, include = [town])]
struct Person {
    #[primary_key]
    id: u16,
    town: String,
    age: Option<i8>,
    email: String,
    tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", version = 300, view)]
#[index(author)]
struct Note {
    #[primary_key]
    folder: String,
    #[primary_key]
    number: u8,
    author: char,
}

const NAMES: [&str; 10] = [
    ".catalog",
    ".lists",
    "people",
    "people.town",
    "people.town_with_age",
    "people.age",
    "people.email",
    "people.tags",
    "notes",
    "notes.author",
];

/// Returns all existing databases with all their entries.
fn dump(path: &Path) -> Result<Dump, Box<dyn std::error::Error>> {
    let mut dump = BTreeMap::new();
    raw(path, |name, database, txn| {
        let entries = database.iter(txn)?.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())));
        dump.insert(name.to_owned(), entries.collect::<heed::Result<_>>()?);
        Ok(())
    })?;
    Ok(dump)
}

/// Runs `work` on each database in a write transaction.
fn raw(
    path: &Path,
    mut work: impl FnMut(&str, Database<'_, Bytes, Bytes>, &mut heed::RwTxn<'_>) -> heed::Result<()>,
) -> TestResult {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(20).map_size(1 << 24).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        for name in NAMES {
            if let Some(database) = opener.open_database(txn, Some(name))? {
                work(name, database, txn)?;
            }
        }
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn store(path: &Path) -> index_table::Result<Store> {
    Store::options().map_size(1 << 24).open(path)
}

fn write(path: &Path) -> index_table::Result<()> {
    let store = store(path)?;
    let people = PersonRepository::open(&store)?;
    let notes = NoteRepository::open(&store)?;
    let person = |id, town: &str, age, tags: &[&str]| Person {
        id,
        town: town.to_owned(),
        age,
        email: format!("{id}@x"),
        tags: tags.iter().map(ToString::to_string).collect(),
    };
    store.transaction(|txn| {
        people.insert(txn, &person(1, "Rome", Some(-1), &["b", "a", "b"]))?;
        people.insert(txn, &person(0x0203, "Rome", None, &[]))?;
        people.insert(txn, &person(2, "\0\u{1}", Some(5), &[]))?;
        notes.insert(txn, &Note { folder: "in".into(), number: 9, author: 'é' })
    })
}

fn open(path: &Path) -> index_table::Result<(Store, PersonRepository, NoteRepository)> {
    let store = store(path)?;
    let people = PersonRepository::open(&store)?;
    let notes = NoteRepository::open(&store)?;
    Ok((store, people, notes))
}
