//! Subscribers receive all committed changes in order, and nothing else.

mod delivery;
mod filters;
#[path = "../support/killed.rs"]
mod killing;
mod lagging;
mod random;
mod streams;
#[path = "../support/threads.rs"]
mod support;
mod threads;

use std::collections::BTreeMap;

use index_table::{
    Change, ChangeKind, CommitNumber, Durability, Event, IndexTable, ReadTxn, Result, Store,
    Watcher,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

type TestResult<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town, name)]
#[index(each(tags))]
#[index(email, unique, sparse)]
#[index(hash(notes))]
#[index(age, filter = is_adult, strategy = "full", name = "adults")]
struct Person {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
    age: u8,
    tags: Vec<u8>,
    email: Option<String>,
    notes: String,
}

impl Person {
    fn is_adult(&self) -> bool {
        self.age >= 18
    }
}

fn person(id: u32) -> Person {
    let town = ["Redmond", "Seattle"][id as usize % 2].to_owned();
    let (name, age) = (format!("name {}", id % 5), id as u8);
    let (tags, notes) = (vec![id as u8 % 3, id as u8 % 4], format!("note {}", id % 2));
    Person { id, town, name, age, tags, email: None, notes }
}

/// Returns a store on disk without syncs, a store with a journal, and a store in memory.
fn stores() -> TestResult<[(Store, Option<TempDir>); 3]> {
    let dir = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).open(dir.path())?;
    let other = tempfile::tempdir()?;
    let journalled = killing::journal(Store::options()).open(other.path())?;
    Ok([(store, Some(dir)), (journalled, Some(other)), (Store::in_memory(), None)])
}

/// Runs a test on each of the stores.
fn on_each(test: impl Fn(Store, PersonRepository) -> TestResult) -> TestResult {
    for (store, _dir) in stores()? {
        let people = PersonRepository::open(&store)?;
        test(store, people)?;
    }
    Ok(())
}

/// Returns the events received so far.
fn received(watcher: &Watcher<Person>) -> Vec<Event<Person>> {
    std::iter::from_fn(|| watcher.try_recv().ok()).collect()
}

/// Returns the kind of a change and the row's primary keys before and after it.
fn summary(event: &Event<Person>) -> (ChangeKind, Option<u32>, Option<u32>) {
    let Event::Change(change) = event else { panic!("{event:?}") };
    let [before, after] =
        [change.before(), change.after()].map(|row| row.map(|row| row.key().expect("a key")));
    (change.kind(), before, after)
}

/// A copy of the watched rows.
#[derive(Debug, Default, PartialEq)]
struct Copy {
    rows: BTreeMap<u32, Person>,
    /// The last commit whose changes the copy has.
    commit: CommitNumber,
}

impl Copy {
    fn read(txn: &ReadTxn<'_>, rows: impl Iterator<Item = Result<Person>>) -> Result<Self> {
        let rows = rows.map(|row| row.map(|row| (row.id, row))).collect::<Result<_>>()?;
        Ok(Self { rows, commit: txn.commit_number() })
    }

    /// Applies a change to the copy.
    fn apply(&mut self, change: &Change<Person>) -> TestResult {
        if let Some(before) = change.before() {
            let removed = self.rows.remove(&before.key()?);
            assert_eq!(
                removed,
                Some(before.row()?),
                "the row before the change differs from the copy"
            );
        }
        if let Some(after) = change.after() {
            let replaced = self.rows.insert(after.key()?, after.row()?);
            assert_eq!(replaced, None, "an inserted row was in the copy already");
        }
        Ok(())
    }
}
