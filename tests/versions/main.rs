//! Rows of several versions in one table: read, changed and queried as if all had the current version, and
//! rewritten by `upgrade`.

mod fallible;
mod from;
mod golden;
mod killed;
#[path = "../support/killed.rs"]
mod killing;
mod opening;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod processes;
mod random;
mod reading;
mod staying;
mod upgrade;
mod writing;

use std::path::Path;

use index_table::{IndexTable, RowVersion, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The table as the first release declares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", view, repository = Customers1)]
#[index(name)]
#[index(town, strategy = "full")]
#[index(email, unique)]
struct Customer1 {
    #[primary_key]
    id: u32,
    name: String,
    town: String,
    age: u8,
    email: String,
    url: String,
}

/// The table as the second release declares it, with the first release's struct as the previous version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", version = 2, previous = Customer1, view, repository = Customers2)]
#[index(last_name, strategy = "full")]
#[index(email, unique)]
struct Customer2 {
    #[primary_key]
    id: u32,
    first_name: String,
    last_name: String,
    age: u8,
    town: String,
    email: String,
    phone: String,
    url: String,
}

/// The table as the third release declares it, with every form of key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", version = 3, previous = Older2, view)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town)]
#[index(town, last_name, include = [phone])]
#[index(last_name, strategy = "full")]
#[index(email, unique)]
#[index(each(tags), include = [town])]
#[index(nick, sparse, include = [town], name = "nicked")]
#[index(desc(age), filter = is_adult, name = "adults")]
#[index(computed(initials: String), name = "initials")]
#[index(hash(url), unique, name = "once")]
#[index(hash(url), strategy = "full", name = "linked", allow(doubled_full))]
struct Customer {
    tags: Vec<String>,
    #[primary_key]
    id: u32,
    town: String,
    first_name: String,
    last_name: String,
    age: u16,
    email: String,
    phone: Option<String>,
    nick: Option<String>,
    url: String,
}

/// The first version, as the third release keeps it.
#[derive(Deserialize, RowVersion)]
struct Older1 {
    #[primary_key]
    id: u32,
    name: String,
    town: String,
    age: u8,
    email: String,
    url: String,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 2, previous = Older1)]
struct Older2 {
    id: u32,
    first_name: String,
    last_name: String,
    age: u8,
    town: String,
    email: String,
    phone: String,
    url: String,
}

fn split(name: &str) -> (String, String) {
    let (first, last) = name.split_once(' ').unwrap_or(("", name));
    (first.to_owned(), last.to_owned())
}

impl From<Customer1> for Customer2 {
    fn from(Customer1 { id, name, town, age, email, url }: Customer1) -> Self {
        let (first_name, last_name) = split(&name);
        Self { id, first_name, last_name, age, town, email, phone: String::new(), url }
    }
}

impl From<Older1> for Older2 {
    fn from(Older1 { id, name, town, age, email, url }: Older1) -> Self {
        let (first_name, last_name) = split(&name);
        Self { id, first_name, last_name, age, town, email, phone: String::new(), url }
    }
}

impl From<Older2> for Customer {
    fn from(old: Older2) -> Self {
        Self {
            tags: vec!["old".to_owned(), old.town.to_lowercase(), "old".to_owned()],
            nick: old.first_name.starts_with('A').then(|| old.first_name.to_uppercase()),
            phone: Some(old.phone).filter(|phone| !phone.is_empty()),
            age: old.age.into(),
            id: old.id,
            town: old.town,
            first_name: old.first_name,
            last_name: old.last_name,
            email: old.email,
            url: old.url,
        }
    }
}

impl Customer {
    fn is_adult(&self) -> bool {
        self.age >= 18
    }

    fn initials(&self) -> String {
        [&self.first_name, &self.last_name].iter().filter_map(|name| name.chars().next()).collect()
    }
}

fn customer1(id: u32) -> Customer1 {
    let first = ["Ada", "Bob", "Alan", "\0Cy"][id as usize % 4];
    let last = ["Byron", "Li", "Turing\u{1}"][id as usize % 3];
    Customer1 {
        id,
        name: format!("{first} {last}"),
        town: ["Rome", "Oslo"][id as usize % 2].to_owned(),
        age: (id % 40) as u8,
        email: format!("{id}@x"),
        url: format!("https://example.com/{id}/{}", "long/".repeat(20)),
    }
}

fn customer2(id: u32) -> Customer2 {
    Customer2 { phone: format!("555-{id}"), ..customer1(id).into() }
}

/// Returns the current version of a row that was written in this version.
fn customer(id: u32, version: u32) -> Customer {
    let Customer2 { id, first_name, last_name, age, town, email, phone, url } = match version {
        1 => customer1(id).into(),
        _ => customer2(id),
    };
    Older2 { id, first_name, last_name, age, town, email, phone, url }.into()
}

/// Returns the version in which [`fill`] writes a row.
fn version_of(id: u32) -> u32 {
    id % 3 + 1
}

fn expected(rows: u32) -> Vec<Customer> {
    (0..rows).map(|id| customer(id, version_of(id))).collect()
}

fn store(path: &Path) -> index_table::Result<Store> {
    Store::options().map_size(1 << 26).open(path)
}

/// Writes rows in each version, with the declaration of that version.
fn fill(store: &Store, rows: u32) -> index_table::Result<CustomerRepository> {
    fill_older(store, rows)?;
    let customers = CustomerRepository::open(store)?;
    store.transaction(|txn| {
        let ids = (0..rows).filter(|id| version_of(*id) == 3);
        ids.clone().try_for_each(|id| customers.insert(txn, &customer(id, 3)))
    })?;
    Ok(customers)
}

/// Writes the rows of [`fill`] that have version 1 or 2.
fn fill_older(store: &Store, rows: u32) -> index_table::Result<()> {
    let first = Customers1::open(store)?;
    store.transaction(|txn| {
        let mut ids = (0..rows).filter(|id| version_of(*id) == 1);
        ids.try_for_each(|id| first.insert(txn, &customer1(id)))
    })?;
    drop(first);
    let second = Customers2::open(store)?;
    store.transaction(|txn| {
        let mut ids = (0..rows).filter(|id| version_of(*id) == 2);
        ids.try_for_each(|id| second.insert(txn, &customer2(id)))
    })
}

/// Runs `check` on a store of each kind.
fn on_both_engines(check: impl Fn(&Store) -> TestResult) -> TestResult {
    #[cfg(feature = "postgres")]
    if let Some(schema) = postgres::Schema::new() {
        check(&schema.open()?)?;
    }
    on_local_engines(check)
}

/// Runs `check` on a store of each kind except a server.
fn on_local_engines(check: impl Fn(&Store) -> TestResult) -> TestResult {
    let dir = tempfile::tempdir()?;
    check(&store(dir.path())?)?;
    check(&killing::journal(Store::options()).open(dir.path().join("journal"))?)?;
    check(&Store::in_memory())
}

fn is_clean(customers: &CustomerRepository, store: &Store) -> TestResult {
    let report = customers.verify(&store.read()?).run()?;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}
