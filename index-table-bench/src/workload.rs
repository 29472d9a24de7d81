//! Customers, and the operations for every contender: plain values, from one seed.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

use crate::random::{Random, Zipf};

/// A row. The three indexes are declared here; the other contenders have the same three.
///
/// Most questions are about a town: its rows (the normalized index), its names and phone numbers
/// (the partial one, which covers them), its rows with names in a range (the same). The unique
/// index on `email` is for single rows. `first_name` is in no index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[indexes((town), (town, last_name, include = [phone]), (email, unique))]
pub struct Customer {
    /// From 1 on, in the order of the load.
    #[primary_key]
    pub id: u64,
    /// In no index.
    pub first_name: String,
    /// Skewed: the most frequent one is one row in nine.
    pub last_name: String,
    /// Skewed: the most frequent one is one row in seven.
    pub town: String,
    /// Carried by the index on town and last name.
    pub phone: String,
    /// Different for every row.
    pub email: String,
}

/// Last names of one town: `from` and above, below `to`.
#[derive(Debug, Clone)]
pub struct NameRange {
    /// All in this town.
    pub town: String,
    /// The lowest last name.
    pub from: String,
    /// The lowest last name that is too high.
    pub to: String,
}

/// A place among the rows of a town, which are in the order of their primary keys.
#[derive(Debug, Clone)]
pub struct Place {
    /// All rows are in this town.
    pub town: String,
    /// The primary key of the last row before the page.
    pub after: u64,
    /// The number of rows before the page, for contenders that have to count them.
    pub depth: usize,
}

/// One operation, as often as there are elements in it.
#[derive(Debug, Clone)]
pub enum Operation {
    /// All in one transaction.
    Insert(Vec<Customer>),
    /// All at once into an empty table, by the library's bulk load.
    BulkLoad(Vec<Customer>),
    /// Each in its own.
    InsertOneByOne(Vec<Customer>),
    /// Rows by primary key.
    Get(Vec<u64>),
    /// Rows by primary key, each in a transaction of its own.
    GetOneByOne(Vec<u64>),
    /// Rows by the unique index.
    GetByEmail(Vec<String>),
    /// The rows of each town, in the order of their primary keys.
    RowsOfTown(Vec<String>),
    /// Primary key, last name and phone number of everyone in each town, in the order of last names
    /// and primary keys.
    EntriesOfTown(Vec<String>),
    /// The rows of a town with last names in a range, in the same order.
    RowsInRange(Vec<NameRange>),
    /// Twenty rows of a town after a position.
    Page(Vec<Place>),
    /// How many rows each town has.
    Count(Vec<String>),
    /// New first names, all in one transaction.
    SetFirstName(Vec<(u64, String)>),
    /// New towns, all in one transaction.
    SetTown(Vec<(u64, String)>),
    /// All in one transaction.
    Delete(Vec<u64>),
}

impl Operation {
    /// Of the operation, for programs.
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

    /// Whether it leaves the table in another state.
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

/// How many rows a page has.
pub const PAGE: usize = 20;

const TOWNS: usize = 1_000;
const LAST_NAMES: usize = 5_000;
const FIRST_NAMES: usize = 400;

/// Makes customers and operations. Two of them with the same seed make the same ones.
pub struct Workload {
    random: Random,
    towns: (Vec<String>, Zipf),
    last_names: (Vec<String>, Zipf),
    first_names: (Vec<String>, Zipf),
    /// What the table holds, without regard to deletes that are made up for in the same round.
    rows: Vec<Customer>,
}

impl Workload {
    /// A workload with this number of rows.
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

    /// The rows that are loaded.
    #[must_use]
    pub fn rows(&self) -> &[Customer] {
        &self.rows
    }

    /// New rows after the existing ones.
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

    /// The operations on a table in one round, in this order. `units` is about how many single operations
    /// there are of each; writes are one transaction of a fiftieth of the table, but of no more than `units`.
    #[must_use]
    pub fn round(&mut self, units: usize, durable: usize) -> Vec<Operation> {
        let changed = (self.rows.len() / 50).clamp(1, units);
        let ids = self.some_ids(units);
        let emails = self.some_ids(units);
        let emails =
            emails.into_iter().filter_map(|id| Some(self.row(id)?.email.clone())).collect();
        let towns = self.some_towns(units);
        // A few of them would be over before the caches are warm.
        let counted = towns.iter().cycle().take(towns.len().max(units / 50)).cloned().collect();
        let ranges = towns
            .iter()
            .map(|town| NameRange { town: town.clone(), from: "D".into(), to: "M".into() })
            .collect();
        let places = self.some_places(units.div_ceil(PAGE));
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
            Operation::Page(places),
            Operation::Count(counted),
            Operation::InsertOneByOne(new_rows),
            Operation::SetFirstName(first_names),
            Operation::SetTown(moved),
            Operation::Delete(deleted),
            Operation::Insert(again),
        ]
    }

    /// Questions that come upon every row through every index, and upon some that are not there.
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

    /// Different ones, in random order.
    fn some_ids(&mut self, count: usize) -> Vec<u64> {
        let mut ids = std::collections::BTreeSet::new();
        while ids.len() < count.min(self.rows.len()) {
            ids.insert(self.random.below(self.rows.len()) as u64 + 1);
        }
        let mut ids: Vec<u64> = ids.into_iter().collect();
        self.random.shuffle(&mut ids);
        ids
    }

    /// Of the middle ranks, where a town has between a hundredth and a thousandth of the rows; so
    /// many that they have some `rows` together, but at least one town.
    fn some_towns(&mut self, rows: usize) -> Vec<String> {
        let mut towns: Vec<String> = self.towns.0.iter().skip(10).take(120).cloned().collect();
        self.random.shuffle(&mut towns);
        // A town of these ranks has 2.9 rows in a thousand, on average.
        let wanted = rows * 1_000 / self.rows.len().max(1) * 10 / 29;
        (0..wanted.max(1)).filter_map(|at| towns.get(at % towns.len()).cloned()).collect()
    }

    /// In the middle of the largest towns.
    fn some_places(&mut self, count: usize) -> Vec<Place> {
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
        let place = |number: usize| {
            let (town, ids) = largest.get(number % largest.len())?;
            let depth = ids.len() / 2 + self.random.below(ids.len() / 10 + 1);
            Some(Place { town: town.clone(), after: *ids.get(depth.checked_sub(1)?)?, depth })
        };
        (0..count).filter_map(place).collect()
    }
}

/// Different names of two to four syllables.
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
