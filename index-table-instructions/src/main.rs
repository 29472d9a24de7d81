//! `index-table-instructions generated|by-hand OPERATION` runs an operation many times on a small table,
//! inside of [`measured`], whose instructions callgrind counts. `scripts/instructions` runs both sides and
//! compares the counts. `index-table-instructions shard|plain shard-OPERATION` does the same for a
//! transaction of one shard and for a plain store. `index-table-instructions beside|alone OPERATION` does the same for a
//! table of a store with other tables that declare revisions, expiry, references, parts, aggregates and changes, and for
//! the table alone. These stores have the default durability; `index-table-instructions unjournalled OPERATION` has no journal.

use std::error::Error;

use data::Customer;

mod beside;
mod by_hand;
mod data;
mod generated;
mod merged;
mod shards;

/// The number of rows in the table before the operation.
const ROWS: u64 = 4_000;
/// The number of rows that are inserted, changed, read or deleted one by one.
const SOME: u64 = 500;
/// The number of rows in a page.
const PAGE: usize = 20;
/// The new name of renamed rows.
const NAME: &str = "Newly Named";
/// The number of queries for many rows.
const QUERIES: usize = 20;
/// The number of queries for about 20 covered entries each: one for every last name in every town.
const COVERED: usize = 200;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One side of the comparison.
trait Side: Sized {
    /// Writes new rows in one transaction.
    fn insert(&self, rows: &[Customer]) -> Result<()>;
    /// Writes new rows, each in its own transaction.
    fn insert_in_transactions(&self, rows: &[Customer]) -> Result<()>;
    /// Writes new rows or replaces rows, in one transaction.
    fn put(&self, rows: &[Customer]) -> Result<()>;
    /// Gives rows the first name [`NAME`] in one transaction, and returns their number. The field is in no
    /// key.
    fn update(&self, ids: &[u64]) -> Result<usize>;
    /// Deletes rows in one transaction, and returns their number.
    fn delete(&self, ids: &[u64]) -> Result<usize>;
    /// Reads rows by primary key, and returns the total length of their last names.
    fn get(&self, ids: &[u64]) -> Result<usize>;
    /// Reads rows by email, and returns the same as [`get`](Side::get).
    fn get_by_email(&self, emails: &[String]) -> Result<usize>;
    /// Reads the rows of towns by their references, and returns the same as [`get`](Side::get).
    fn find_rows(&self, towns: &[&str]) -> Result<usize>;
    /// Reads the rows of last names from the full index, and returns the same as [`get`](Side::get).
    fn find_full_rows(&self, last_names: &[&str]) -> Result<usize>;
    /// Does the same as [`get`](Side::get), with each row in its own transaction.
    fn get_in_transactions(&self, ids: &[u64]) -> Result<usize>;
    /// Reads the rows of towns page by page, and returns the same as [`get`](Side::get).
    fn pages(&self, towns: &[&str]) -> Result<usize>;
    /// Counts the rows of towns.
    fn count(&self, towns: &[&str]) -> Result<usize>;
    /// Reads the covered entries of each last name and town, and returns a sum over their fields.
    fn find_entries(&self, names: &[(&str, &str)]) -> Result<usize>;
}

/// Runs the measured operation.
#[inline(never)]
fn measured<T>(operation: impl FnOnce() -> T) -> T {
    operation()
}

/// Runs an operation on a table that `new_side` creates.
fn run<S: Side>(operation: &str, new_side: fn(&[Customer]) -> Result<S>) -> Result<usize> {
    let before: Vec<Customer> = (0..ROWS).map(Customer::number).collect();
    let some: Vec<Customer> = before.iter().step_by((ROWS / SOME) as usize).cloned().collect();
    let new: Vec<Customer> = (ROWS..ROWS + SOME).map(Customer::number).collect();
    let ids: Vec<u64> = some.iter().map(|row| row.id).collect();
    let towns: Vec<&str> = (0..QUERIES).map(|round| Customer::names(round * 10).1).collect();
    let last_names: Vec<&str> = (0..QUERIES).map(|round| Customer::names(round).0).collect();
    let names: Vec<(&str, &str)> = (0..COVERED).map(Customer::names).collect();
    let changed = |change: fn(&mut Customer)| {
        let mut rows = some.clone();
        rows.iter_mut().for_each(change);
        rows
    };
    let side = new_side(&before)?;
    match operation {
        "insert" => measured(|| side.insert(&new))?,
        "insert-in-transactions" => measured(|| side.insert_in_transactions(&new))?,
        "put-unchanged" => measured(|| side.put(&some))?,
        "put-changed" => {
            let rows = changed(|row| row.phone.replace_range(4.., "9999"));
            measured(|| side.put(&rows))?;
        }
        "put-moved" => {
            let rows = changed(|row| "Walla Walla".clone_into(&mut row.town));
            measured(|| side.put(&rows))?;
        }
        "update" => {
            measured(|| side.update(&ids))?;
            return side.get(&ids);
        }
        "delete" => return measured(|| side.delete(&ids)),
        "get" => return measured(|| side.get(&ids)),
        "get-unique" => {
            let emails: Vec<String> = some.iter().map(|row| row.email.clone()).collect();
            return measured(|| side.get_by_email(&emails));
        }
        "get-in-transactions" => return measured(|| side.get_in_transactions(&ids)),
        "pages" => return measured(|| side.pages(&towns)),
        "count" => return measured(|| side.count(&towns)),
        "find-rows" => return measured(|| side.find_rows(&towns)),
        "find-full-rows" => return measured(|| side.find_full_rows(&last_names)),
        "find-entries" => return measured(|| side.find_entries(&names)),
        _ => return Err(format!("unknown operation `{operation}`").into()),
    }
    side.find_entries(&names)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (side, operation) = (arguments.next(), arguments.next().unwrap_or_default());
    let prefixes = ["beside-", "unjournalled-"];
    let operation = prefixes.iter().find_map(|it| operation.strip_prefix(it)).unwrap_or(&operation);
    let sum = match side.as_deref() {
        Some("generated" | "alone") => run(operation, generated::Generated::alone)?,
        Some("unjournalled") => run(operation, generated::Generated::unjournalled)?,
        Some("beside") => run(operation, generated::Generated::beside)?,
        Some("by-hand") => run(operation, by_hand::ByHand::new)?,
        Some("shard") => shards::run(operation, true)?,
        Some("plain") => shards::run(operation, false)?,
        _ => {
            return Err(
                "index-table-instructions generated|by-hand|unjournalled|shard|plain|beside|alone OPERATION"
                    .into(),
            );
        }
    };
    println!("{sum}");
    Ok(())
}
