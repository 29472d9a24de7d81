//! A store with a table that has every kind of index, and a model of its contents.
//!
//! A store is written in steps, each of them one transaction. The number of a step determines its operations. The store
//! has the number of completed steps, which determines all of its rows.

use std::collections::BTreeMap;

use index_table::{Error, IndexTable, Result, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// The rows, with each layout, each strategy and each form of an index key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items")]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(group)]
#[index(group, name, include = [amount])]
#[index(name, strategy = "full")]
#[index(code, unique)]
#[index(each(tags))]
#[index(note, sparse, include = [group], name = "noted")]
#[index(desc(amount), filter = is_dear, name = "dear")]
#[index(hash(url), unique, name = "once")]
pub(crate) struct Item {
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) group: u8,
    pub(crate) name: String,
    pub(crate) amount: i32,
    pub(crate) code: u64,
    pub(crate) tags: Vec<String>,
    pub(crate) note: Option<String>,
    pub(crate) url: String,
}

impl Item {
    fn is_dear(&self) -> bool {
        self.amount > 500
    }
}

/// The items with two more indexes.
pub(crate) mod indexed {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    #[index(group)]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(name, group, strategy = "full", name = "whole")]
    #[index(each(tags), name = "tagged", include = [note])]
    pub(crate) struct Item {
        #[primary_key]
        id: u32,
        group: u8,
        name: String,
        amount: i32,
        code: u64,
        tags: Vec<String>,
        note: Option<String>,
        url: String,
    }
}

/// The number of completed steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
pub(crate) struct Progress {
    #[primary_key]
    id: u8,
    steps: u64,
}

/// The number of primary keys.
const IDS: u64 = 400;

/// The names of the items' indexes on disk.
pub(crate) const INDEXES: [&str; 8] =
    ["group", "group_name", "name", "code", "tags", "noted", "dear", "once"];

pub(crate) type Rows = BTreeMap<u32, Item>;

pub(crate) struct Shop {
    pub(crate) store: Store,
    pub(crate) items: ItemRepository,
    progress: ProgressRepository,
}

/// An operation of a step.
enum Operation {
    Insert(Item),
    Put(Item),
    Rename(u32, String),
    Move(u32, u32),
    Delete(u32),
}

/// The result of an operation.
#[derive(Debug, PartialEq)]
enum Outcome {
    Done(bool),
    Taken,
}

/// The state after a number of steps.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) steps: u64,
    pub(crate) rows: Rows,
}

pub(crate) fn item(id: u32, random: &mut Random) -> Item {
    let name = ["Li", "Smith", "S\0", "Ærø", ""][random.below(5) as usize];
    // Some rows need pages of their own.
    let len = [0, 3, 40, 40, 300, 2500, 9000][random.below(7) as usize];
    // With so few versions, a row that was moved can have the unique key of another row.
    let version = random.below(8);
    Item {
        id,
        group: random.below(6) as u8,
        name: format!("{name}{}", random.below(20)),
        amount: random.below(1000) as i32 - 200,
        code: u64::from(id) << 20 | version,
        tags: (0..random.below(4)).map(|tag| format!("tag {}", tag * random.below(3))).collect(),
        note: (random.below(2) == 0).then(|| format!("note {}", random.below(9))),
        url: format!("https://example.com/{id}/{version}/{}", "x".repeat(len)),
    }
}

fn operations(step: u64) -> Vec<Operation> {
    let mut random = Random(step);
    // Most transactions are small.
    let count = if step % 16 == 9 { 150 } else { 1 + random.below(25) };
    (0..count)
        .map(|_| {
            let id = random.below(IDS) as u32;
            match random.below(8) {
                0..3 => Operation::Put(item(id, &mut random)),
                3 => Operation::Insert(item(id, &mut random)),
                4 => Operation::Rename(id, format!("new {}", random.below(30))),
                5 => Operation::Move(id, random.below(IDS) as u32),
                _ => Operation::Delete(id),
            }
        })
        .collect()
}

impl Operation {
    fn model(self, rows: &mut Rows) -> Outcome {
        match self {
            Self::Insert(item) if rows.contains_key(&item.id) => Outcome::Taken,
            Self::Insert(item) | Self::Put(item) => {
                let is_duplicate = |other: &Item| {
                    other.id != item.id && (other.code == item.code || other.url == item.url)
                };
                if rows.values().any(is_duplicate) {
                    return Outcome::Taken;
                }
                rows.insert(item.id, item);
                Outcome::Done(true)
            }
            Self::Rename(id, name) => {
                Outcome::Done(rows.get_mut(&id).map(|item| item.name = name).is_some())
            }
            Self::Move(from, to) if from != to && rows.contains_key(&from) => {
                if rows.contains_key(&to) {
                    return Outcome::Taken;
                }
                let Some(item) = rows.remove(&from) else { return Outcome::Taken };
                rows.insert(to, Item { id: to, ..item });
                Outcome::Done(true)
            }
            Self::Move(from, _) => Outcome::Done(rows.contains_key(&from)),
            Self::Delete(id) => Outcome::Done(rows.remove(&id).is_some()),
        }
    }

    fn run(self, items: &ItemRepository, txn: &mut WriteTxn<'_>) -> Result<Outcome> {
        let done = match self {
            Self::Insert(item) => items.insert(txn, &item).map(|()| true),
            Self::Put(item) => items.put(txn, &item).map(|()| true),
            Self::Rename(id, name) => items.update(txn, id, |item| item.name = name),
            Self::Move(from, to) => items.update(txn, from, |item| item.id = to),
            Self::Delete(id) => items.delete(txn, id),
        };
        match done {
            Ok(done) => Ok(Outcome::Done(done)),
            Err(Error::DuplicateKey { .. } | Error::UniqueViolation { .. }) => Ok(Outcome::Taken),
            Err(error) => Err(error),
        }
    }
}

impl Model {
    /// Advances to the state after a number of steps.
    pub(crate) fn advance(&mut self, steps: u64) {
        if steps < self.steps {
            *self = Self::default();
        }
        while self.steps < steps {
            self.step();
        }
    }

    fn step(&mut self) -> Vec<Outcome> {
        let operations = operations(self.steps).into_iter();
        self.steps += 1;
        operations.map(|operation| operation.model(&mut self.rows)).collect()
    }
}

impl Shop {
    pub(crate) fn new(store: Store) -> Result<Self> {
        let items = ItemRepository::open(&store)?;
        let progress = ProgressRepository::open(&store)?;
        Ok(Self { store, items, progress })
    }

    /// Opens the tables without building new indexes.
    pub(crate) fn online(store: Store) -> Result<Self> {
        let items = ItemRepository::open_online(&store)?;
        let progress = ProgressRepository::open(&store)?;
        Ok(Self { store, items, progress })
    }

    /// Returns the number of completed steps.
    pub(crate) fn steps(&self) -> Result<u64> {
        self.steps_in(&self.store.read()?)
    }

    /// Returns the number of completed steps in a snapshot.
    pub(crate) fn steps_in(&self, txn: &index_table::ReadTxn<'_>) -> Result<u64> {
        Ok(self.progress.get(txn, 0)?.map_or(0, |progress| progress.steps))
    }

    /// Runs the next step of the model, first in the store, and then in the model.
    ///
    /// # Errors
    ///
    /// The inner error is an error of the store. The outer error describes a wrong result of the store.
    pub(crate) fn step(&self, model: &mut Model) -> Result<Result<()>, String> {
        let step = model.steps;
        let mut outcomes = Vec::new();
        let done = self.store.transaction(|txn| {
            let operations = operations(step).into_iter();
            outcomes = operations.map(|it| it.run(&self.items, txn)).collect::<Result<_>>()?;
            self.progress.put(txn, &Progress { id: 0, steps: step + 1 })
        });
        if let Err(error) = done {
            return Ok(Err(error));
        }
        let expected = model.step();
        if outcomes == expected {
            return Ok(Ok(()));
        }
        Err(format!("step {step} returns {outcomes:?}, and not {expected:?}"))
    }

    /// Runs the next step after the last step in the store, which other processes write too. Returns the number of completed
    /// steps.
    ///
    /// # Errors
    ///
    /// The errors of [`step`](Self::step).
    pub(crate) fn step_beside(&self, model: &mut Model) -> Result<Result<u64>, String> {
        let (mut step, mut outcomes) = (0, Vec::new());
        let done = self.store.transaction(|txn| {
            step = self.steps_in(txn)?;
            let operations = operations(step).into_iter();
            outcomes = operations.map(|it| it.run(&self.items, txn)).collect::<Result<_>>()?;
            self.progress.put(txn, &Progress { id: 0, steps: step + 1 })
        });
        if let Err(error) = done {
            return Ok(Err(error));
        }
        model.advance(step);
        let expected = model.step();
        if outcomes == expected {
            return Ok(Ok(step + 1));
        }
        Err(format!("step {step} returns {outcomes:?}, and not {expected:?}"))
    }

    /// Compares all results of the store with the model.
    ///
    /// # Errors
    ///
    /// The errors of [`step`](Self::step).
    pub(crate) fn compare(&self, model: &Model) -> Result<Result<()>, String> {
        let seen = match self.steps() {
            Ok(steps) if steps != model.steps => {
                return Err(format!("{steps} steps are complete, and not {}", model.steps));
            }
            Ok(_) => self.store.read().and_then(|txn| self.differs(&txn, &model.rows)),
            Err(error) => Err(error),
        };
        match seen {
            Ok(None) => Ok(Ok(())),
            Ok(Some(difference)) => Err(difference),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Compares the results of all kinds of queries in a snapshot. Returns the first difference.
    pub(crate) fn differs(
        &self,
        txn: &index_table::ReadTxn<'_>,
        rows: &Rows,
    ) -> Result<Option<String>> {
        let items = &self.items;
        let found = items.all(txn).rows().collect::<Result<Vec<_>>>()?;
        if !found.iter().eq(rows.values()) {
            return Ok(Some(format!(
                "{} rows, which are not the {} expected",
                found.len(),
                rows.len()
            )));
        }
        let sorted = |key: &dyn Fn(&Item) -> String| {
            let mut ids: Vec<_> = rows.values().map(|item| (key(item), item.id)).collect();
            ids.sort();
            ids.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        };
        let is =
            |scan: index_table::Result<Vec<u32>>, expected: &[u32]| scan.map(|ids| ids == expected);
        for group in 0..6_u8 {
            let expected: Vec<_> =
                rows.values().filter(|item| item.group == group).map(|item| item.id).collect();
            let found = items.find_by_group(txn, group);
            let back = items.find_by_group(txn, group).rev().keys().collect::<Result<Vec<_>>>()?;
            if !is(found.keys().collect(), &expected)?
                || !back.iter().rev().eq(&expected)
                || items.find_by_group(txn, group).count()? != expected.len() as u64
            {
                return Ok(Some(format!("the rows of group {group}")));
            }
            let named = items.find_by_group_name_starting_with(txn, group, "S").entries();
            for entry in named {
                let entry = entry?;
                let row = rows.get(&entry.id);
                if row.is_none_or(|row| row.name != entry.name || row.amount != entry.amount) {
                    return Ok(Some(format!("an entry of group {group} and {}", entry.name)));
                }
            }
        }
        let by_name = sorted(&|item| item.name.clone());
        let named = items.by_name(txn).rows().collect::<Result<Vec<_>>>()?;
        if !named.iter().all(|item| rows.get(&item.id) == Some(item))
            || !named.iter().map(|item| item.id).eq(by_name)
        {
            return Ok(Some("the rows by name".to_owned()));
        }
        let tags = rows.values().map(|item| {
            let mut tags = item.tags.clone();
            tags.sort();
            tags.dedup();
            tags.len()
        });
        let counts = [
            (items.by_tags(txn).count()?, tags.sum::<usize>()),
            (
                items.by_noted(txn).count()?,
                rows.values().filter(|item| item.note.is_some()).count(),
            ),
            (items.by_dear(txn).count()?, rows.values().filter(|item| item.is_dear()).count()),
            (items.by_once(txn).count()?, rows.len()),
            (items.by_code(txn).count()?, rows.len()),
        ];
        if counts.iter().any(|(found, expected)| *found != *expected as u64) {
            return Ok(Some(format!("numbers of entries: {counts:?}")));
        }
        for (id, row) in rows {
            if items.get(txn, *id)?.as_ref() != Some(row)
                || items.get_by_code(txn, row.code)?.as_ref() != Some(row)
                || items.get_by_once(txn, &row.url)?.as_ref() != Some(row)
            {
                return Ok(Some(format!("row {id}")));
            }
        }
        Ok(None)
    }

    /// Compares with the model, verifies the table and looks at every page.
    ///
    /// # Errors
    ///
    /// The differences from the expected state.
    pub(crate) fn prove(&self, model: &Model) -> Result<(), String> {
        self.compare(model)?.map_err(|error| error.to_string())?;
        let report = self.store.read().and_then(|txn| self.items.verify(&txn).run());
        let report = report.map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(report.to_string());
        }
        self.store.check().map_err(|error| error.to_string())
    }
}
