//! The customers, and the operations that every contender runs, generated from a seed.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

use crate::random::{Random, Zipf};

/// A customer with three indexes. The other contenders have the same indexes.
/// Most queries are about a town: its rows (from the normalized index), its names and phone numbers (from the
/// partial index, which covers them), and its rows with names in a range (from the same). The unique index on
/// `email` is for point lookups. `first_name` is in no index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[indexes((town), (town, last_name, include = [phone]), (email, unique))]
pub struct Customer {
    /// The number in the order of the load, from 1.
    #[primary_key]
    pub id: u64,
    /// The first name, which is in no index.
    pub first_name: String,
    /// The last name. One row in nine has the most frequent name.
    pub last_name: String,
    /// The town. One row in seven has the most frequent town.
    pub town: String,
    /// The phone number, which the index on town and last name carries.
    pub phone: String,
    /// The email address, which is unique.
    pub email: String,
}

/// A range of last names in a town.
#[derive(Debug, Clone)]
pub struct NameRange {
    /// The town.
    pub town: String,
    /// The inclusive lower bound.
    pub from: String,
    /// The exclusive upper bound.
    pub to: String,
}

/// A position between the rows of a town, in the order of their primary keys.
#[derive(Debug, Clone)]
pub struct Position {
    /// The town.
    pub town: String,
    /// The primary key of the last row before the page.
    pub after: u64,
    /// The number of rows before the page, for contenders that have to count them.
    pub depth: usize,
}

/// An operation, which is repeated for each element.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Changes all rows in one transaction.
    Insert(Vec<Customer>),
    /// Loads all rows into an empty table by the library's bulk load.
    BulkLoad(Vec<Customer>),
    /// Inserts each row in its own transaction.
    InsertOneByOne(Vec<Customer>),
    /// Reads rows by primary key.
    Get(Vec<u64>),
    /// Reads rows by primary key, each in its own transaction.
    GetOneByOne(Vec<u64>),
    /// Reads rows by the unique index.
    GetByEmail(Vec<String>),
    /// Reads the rows of each town, in the order of the primary key.
    RowsOfTown(Vec<String>),
    /// Reads primary key, last name and phone number of all customers in each town, in the order of last
    /// name and primary key.
    EntriesOfTown(Vec<String>),
    /// Reads the rows of a town with last names in a range, in the same order.
    RowsInRange(Vec<NameRange>),
    /// Reads twenty rows of a town after a position.
    Page(Vec<Position>),
    /// Counts the rows of each town.
    Count(Vec<String>),
    /// Changes first names in one transaction.
    SetFirstName(Vec<(u64, String)>),
    /// Changes towns in one transaction.
    SetTown(Vec<(u64, String)>),
    /// Changes all rows in one transaction.
    Delete(Vec<u64>),
}

impl Operation {
    /// Returns the name of the operation, as programs accept it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Insert(_) => "insert",
            Self::BulkLoad(_) => "bulk-load",
            Self::InsertOneByOne(_) => "insert-one-by-one",
            Self::Get(_) => "get",
            Self::GetOneByOne(_) => "get-one-by-one",
            Self::GetByEmail(_) => "get-by-email",
            Self::RowsOfTown(_) => "rows-of-town",
            Self::EntriesOfTown(_) => "entries-of-town",
            Self::RowsInRange(_) => "rows-in-range",
            Self::Page(_) => "page",
            Self::Count(_) => "count",
            Self::SetFirstName(_) => "set-first-name",
            Self::SetTown(_) => "set-town",
            Self::Delete(_) => "delete",
        }
    }

    /// Whether the operation changes the table.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Self::Insert(_)
            | Self::BulkLoad(_)
            | Self::InsertOneByOne(_)
            | Self::SetFirstName(_)
            | Self::SetTown(_)
            | Self::Delete(_) => true,
            Self::Get(_)
            | Self::GetOneByOne(_)
            | Self::GetByEmail(_)
            | Self::RowsOfTown(_)
            | Self::EntriesOfTown(_)
            | Self::RowsInRange(_)
            | Self::Page(_)
            | Self::Count(_) => false,
        }
    }
}

/// The number of rows in a page.
pub const PAGE: usize = 20;

const TOWNS: usize = 1_000;
const LAST_NAMES: usize = 5_000;
const FIRST_NAMES: usize = 400;

/// A generator of customers and operations. The same seed gives the same customers and operations.
pub struct Workload {
    random: Random,
    towns: (Vec<String>, Zipf),
    last_names: (Vec<String>, Zipf),
    first_names: (Vec<String>, Zipf),
    /// The rows of the table between two rounds.
    rows: Vec<Customer>,
}

impl Workload {
    /// Returns a workload with this number of rows.
    #[must_use]
    pub fn new(seed: u64, rows: usize) -> Self {
        let mut random = Random(seed);
        let mut names = |count| (made_up(&mut random, count), Zipf::new(count));
        let (towns, last_names) = (names(TOWNS), names(LAST_NAMES));
        let first_names = names(FIRST_NAMES);
        let mut workload = Self { random, towns, last_names, first_names, rows: Vec::new() };
        for _ in 0..rows {
            workload.add();
        }
        workload
    }

    /// Returns the rows to load.
    #[must_use]
    pub fn rows(&self) -> &[Customer] {
        &self.rows
    }

    /// Returns new rows after the existing rows.
    pub fn more(&mut self, rows: usize) -> Vec<Customer> {
        (0..rows).map(|_| self.add()).collect()
    }

    fn add(&mut self) -> Customer {
        let id = self.rows.len() as u64 + 1;
        let mut draw = |(names, skew): &(Vec<String>, Zipf)| {
            names.get(skew.draw(&mut self.random)).cloned().unwrap_or_default()
        };
        let (first_name, last_name) = (draw(&self.first_names), draw(&self.last_names));
        let town = draw(&self.towns);
        let phone = format!("555-{:07}", self.random.below(10_000_000));
        let email = format!("{first_name}.{last_name}.{id}@example.com").to_lowercase();
        let customer = Customer { id, first_name, last_name, town, phone, email };
        self.rows.push(customer.clone());
        customer
    }

    /// Returns the operations of a round in their order. `units` is the approximate number of repetitions
    /// of each operation. Each write is a transaction that changes a fiftieth of the table, but no more
    /// than `units` rows.
    #[must_use]
    pub fn round(&mut self, units: usize, durable: usize) -> Vec<Operation> {
        let changed = (self.rows.len() / 50).clamp(1, units);
        let ids = self.some_ids(units);
        let emails = self.some_ids(units);
        let emails =
            emails.into_iter().filter_map(|id| Some(self.row(id)?.email.clone())).collect();
        let towns = self.some_towns(units);
        // A few counts would end before the caches are warm.
        let counted = towns.iter().cycle().take(towns.len().max(units / 50)).cloned().collect();
        let ranges = towns
            .iter()
            .map(|town| NameRange { town: town.clone(), from: "D".into(), to: "M".into() })
            .collect();
        let positions = self.some_positions(units.div_ceil(PAGE));
        let new_rows = (0..durable).map(|_| self.add()).collect();
        let first_names = self.some_ids(changed).into_iter().map(|id| {
            let name = format!("New{}", self.random.below(1_000));
            if let Some(row) = self.row_mut(id) {
                row.first_name.clone_from(&name);
            }
            (id, name)
        });
        let first_names = first_names.collect();
        let moved = self.some_ids(changed).into_iter().map(|id| {
            let town = self.towns.1.draw(&mut self.random);
            let town = self.towns.0.get(town).cloned().unwrap_or_default();
            if let Some(row) = self.row_mut(id) {
                row.town.clone_from(&town);
            }
            (id, town)
        });
        let moved = moved.collect();
        let deleted = self.some_ids(changed);
        let again = deleted.iter().filter_map(|id| self.row(*id).cloned()).collect();
        vec![
            Operation::Get(ids.clone()),
            Operation::GetOneByOne(ids),
            Operation::GetByEmail(emails),
            Operation::RowsOfTown(towns.clone()),
            Operation::EntriesOfTown(towns.clone()),
            Operation::RowsInRange(ranges),
            Operation::Page(positions),
            Operation::Count(counted),
            Operation::InsertOneByOne(new_rows),
            Operation::SetFirstName(first_names),
            Operation::SetTown(moved),
            Operation::Delete(deleted),
            Operation::Insert(again),
        ]
    }

    /// Returns queries that read every row through every index, and queries for missing rows.
    #[must_use]
    pub fn check(&self) -> Vec<Operation> {
        let ids = (0..self.rows.len() as u64 + 10).collect();
        let emails = self.rows.iter().map(|row| row.email.clone());
        let towns = self.towns.0.clone();
        vec![
            Operation::Get(ids),
            Operation::GetByEmail(emails.chain(["nobody@example.com".into()]).collect()),
            Operation::RowsOfTown(towns.clone()),
            Operation::EntriesOfTown(towns.clone()),
            Operation::Count(towns),
        ]
    }

    fn row(&self, id: u64) -> Option<&Customer> {
        self.rows.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    fn row_mut(&mut self, id: u64) -> Option<&mut Customer> {
        self.rows.get_mut(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    /// Returns different ids in random order.
    fn some_ids(&mut self, count: usize) -> Vec<u64> {
        let mut ids = std::collections::BTreeSet::new();
        while ids.len() < count.min(self.rows.len()) {
            ids.insert(self.random.below(self.rows.len()) as u64 + 1);
        }
        let mut ids: Vec<u64> = ids.into_iter().collect();
        self.random.shuffle(&mut ids);
        ids
    }

    /// Returns towns of the middle ranks, which have between a hundredth and a thousandth of the rows
    /// each. Together they have about `rows` rows. There is at least one town.
    fn some_towns(&mut self, rows: usize) -> Vec<String> {
        let mut towns: Vec<String> = self.towns.0.iter().skip(10).take(120).cloned().collect();
        self.random.shuffle(&mut towns);
        // A town of these ranks has 2.9 rows in a thousand, on average.
        let wanted = rows * 1_000 / self.rows.len().max(1) * 10 / 29;
        (0..wanted.max(1)).filter_map(|at| towns.get(at % towns.len()).cloned()).collect()
    }

    /// Returns positions in the middle of the largest towns.
    fn some_positions(&mut self, count: usize) -> Vec<Position> {
        let largest: Vec<(String, Vec<u64>)> = self
            .towns
            .0
            .iter()
            .take(5)
            .map(|town| {
                let rows = self.rows.iter().filter(|row| row.town == *town);
                (town.clone(), rows.map(|row| row.id).collect())
            })
            .collect();
        let position = |number: usize| {
            let (town, ids) = largest.get(number % largest.len())?;
            let depth = ids.len() / 2 + self.random.below(ids.len() / 10 + 1);
            Some(Position { town: town.clone(), after: *ids.get(depth.checked_sub(1)?)?, depth })
        };
        (0..count).filter_map(position).collect()
    }
}

/// Returns different names of two to four syllables.
fn made_up(random: &mut Random, count: usize) -> Vec<String> {
    const ONSETS: [&str; 16] =
        ["b", "br", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "st", "w"];
    const VOWELS: [&str; 8] = ["a", "e", "i", "o", "u", "ay", "ee", "ou"];
    const CODAS: [&str; 6] = ["", "n", "r", "l", "s", "t"];
    let mut names = std::collections::HashSet::new();
    let mut ordered = Vec::new();
    while ordered.len() < count {
        let mut name = String::new();
        for _ in 0..2 + random.below(3) {
            for part in [&ONSETS[..], &VOWELS, &CODAS] {
                name.push_str(part[random.below(part.len())]);
            }
        }
        name[..1].make_ascii_uppercase();
        if names.insert(name.clone()) {
            ordered.push(name);
        }
    }
    ordered
}
