//! The Index Table pattern, figure by figure: customers by ID, and index tables over them by town,
//! by last name, and by both, in each of the three strategies.
//!
//! ```text
//! cargo run --release --example customers
//! ```
//!
//! It prints
//!
//! 1. the fact table, in the order of the customer ID;
//! 2. three index tables by town: **full** entries carry the whole row, **normalized** entries refer to it by
//!    its ID, and **partial** entries refer to it and carry the most used columns;
//! 3. the same three by last name;
//! 4. the composite index by town, then last name;
//! 5. a query for all customers in Redmond named Smith through each of these indexes, with its number of
//!    look-ups. The numbers are measured: a read transaction counts its reads, and each query has its own
//!    transaction.
//!
//! The store is in a temporary directory that is removed at the end.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use index_table::{IndexTable, ReadTxn, Store};
use serde::{Deserialize, Serialize};

/// A customer. Indexes are named after their fields. Here, several have the same fields, to compare the
/// strategies, so they need different names, and the warnings about the waste are suppressed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[indexes(
    (town, allow(redundant)),
    (town, include = [last_name], name = "town_partial", allow(redundant)),
    (town, strategy = "full", name = "town_full", allow(redundant)),
    (last_name),
    (last_name, include = [town], name = "last_name_partial"),
    (last_name, strategy = "full", name = "last_name_full"),
    (town, last_name),
    (town, last_name, include = [first_name, phone], name = "town_last_name_partial"),
    (town, last_name, strategy = "full", name = "town_last_name_full", allow(doubled_full)),
)]
struct Customer {
    #[primary_key]
    id: u64,
    first_name: String,
    last_name: String,
    town: String,
    phone: String,
}

/// First name, last name, town, phone number. The IDs are 1, 2, 3, … in this order.
const CUSTOMERS: [[&str; 4]; 14] = [
    ["Alice", "Smith", "Redmond", "555-0101"],
    ["Bruno", "Jones", "Seattle", "555-0102"],
    ["Clara", "Robinson", "Portland", "555-0103"],
    ["David", "Brown", "Redmond", "555-0104"],
    ["Emma", "Smith", "Chicago", "555-0105"],
    ["Felix", "Green", "Redmond", "555-0106"],
    ["Grace", "Clarke", "Portland", "555-0107"],
    ["Henry", "Smith", "Redmond", "555-0108"],
    ["Irene", "Jones", "Chicago", "555-0109"],
    ["James", "Smith", "Portland", "555-0110"],
    ["Karen", "Clarke", "Redmond", "555-0111"],
    ["Louis", "Brown", "Chicago", "555-0112"],
    ["Maria", "Jones", "Redmond", "555-0113"],
    ["Nadia", "Green", "Seattle", "555-0114"],
];

const TOWN: &str = "Redmond";
const LAST_NAME: &str = "Smith";

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
    let customers = CustomerRepository::open(&store)?;

    // The rows and the entries of all nine indexes are written together or not at all.
    store.transaction(|txn| {
        (1..).zip(CUSTOMERS).try_for_each(|(id, [first_name, last_name, town, phone])| {
            let customer = Customer {
                id,
                first_name: first_name.to_owned(),
                last_name: last_name.to_owned(),
                town: town.to_owned(),
                phone: phone.to_owned(),
            };
            customers.insert(txn, &customer)
        })
    })?;

    let txn = store.read()?;
    print_facts(out, &customers, &txn)?;
    print_indexes_by_town(out, &customers, &txn)?;
    print_indexes_by_last_name(out, &customers, &txn)?;
    print_composite_index(out, &customers, &txn)?;
    print_query_costs(out, &customers, &store)
}

fn print_facts(
    out: &mut impl Write,
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> Result<(), Box<dyn Error>> {
    let rows = customers.all(txn).rows().map(|row| {
        let row = row?;
        Ok([row.id.to_string(), row.first_name, row.last_name, row.town, row.phone])
    });
    print_table(
        out,
        "The fact table, by customer ID",
        ["ID", "first name", "last name", "town", "phone"],
        rows,
    )
}

fn print_indexes_by_town(
    out: &mut impl Write,
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> Result<(), Box<dyn Error>> {
    let entries = customers.by_town_full(txn).entries().map(|entry| {
        let entry = entry?;
        Ok([entry.town, &entry.id.to_string(), entry.first_name, entry.last_name, entry.phone]
            .map(str::to_owned))
    });
    print_table(
        out,
        "Full index by town: the whole row",
        ["town", "ID", "first name", "last name", "phone"],
        entries,
    )?;

    let entries = customers.by_town(txn).entries().map(|entry| {
        let entry = entry?;
        Ok((entry.town, entry.id))
    });
    print_table(
        out,
        "Normalized index by town: references",
        ["town", "IDs"],
        by_key(entries)?.into_iter().map(Ok),
    )?;

    let entries = customers.by_town_partial(txn).entries().map(|entry| {
        let entry = entry?;
        Ok([entry.town, &entry.id.to_string(), entry.last_name].map(str::to_owned))
    });
    print_table(
        out,
        "Partial index by town: references and last names",
        ["town", "ID", "last name"],
        entries,
    )
}

fn print_indexes_by_last_name(
    out: &mut impl Write,
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> Result<(), Box<dyn Error>> {
    let entries = customers.by_last_name_full(txn).entries().map(|entry| {
        let entry = entry?;
        Ok([entry.last_name, &entry.id.to_string(), entry.first_name, entry.town, entry.phone]
            .map(str::to_owned))
    });
    print_table(
        out,
        "Full index by last name: the whole row",
        ["last name", "ID", "first name", "town", "phone"],
        entries,
    )?;

    let entries = customers.by_last_name(txn).entries().map(|entry| {
        let entry = entry?;
        Ok((entry.last_name, entry.id))
    });
    print_table(
        out,
        "Normalized index by last name: references",
        ["last name", "IDs"],
        by_key(entries)?.into_iter().map(Ok),
    )?;

    let entries = customers.by_last_name_partial(txn).entries().map(|entry| {
        let entry = entry?;
        Ok([entry.last_name, &entry.id.to_string(), entry.town].map(str::to_owned))
    });
    print_table(
        out,
        "Partial index by last name: references and towns",
        ["last name", "ID", "town"],
        entries,
    )
}

fn print_composite_index(
    out: &mut impl Write,
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> Result<(), Box<dyn Error>> {
    let entries = customers.by_town_last_name(txn).entries().map(|entry| {
        let entry = entry?;
        Ok((format!("{}, {}", entry.town, entry.last_name), entry.id))
    });
    print_table(
        out,
        "Composite index by town, then last name: references",
        ["town, last name", "IDs"],
        by_key(entries)?.into_iter().map(Ok),
    )
}

/// A query for the customers in [`TOWN`] with the last name [`LAST_NAME`].
type Strategy = fn(&CustomerRepository, &ReadTxn<'_>) -> index_table::Result<Vec<String>>;

fn print_query_costs(
    out: &mut impl Write,
    customers: &CustomerRepository,
    store: &Store,
) -> Result<(), Box<dyn Error>> {
    let strategies: [(&str, &str, Strategy); 6] = [
        ("town", "normalized", by_town_normalized),
        ("town", "partial", by_town_partial),
        ("town", "full", by_town_full),
        ("town, last name", "normalized", by_both_normalized),
        ("town, last name", "partial", by_both_partial),
        ("town, last name", "full", by_both_full),
    ];
    let rows = strategies.map(|(index, strategy, query)| {
        let txn = store.read()?;
        let result = query(customers, &txn)?.join("; ");
        let stats = txn.stats();
        let (entries, facts) = (stats.entries.to_string(), stats.facts.to_string());
        Ok([index.to_owned(), strategy.to_owned(), entries, facts, result])
    });
    print_table(
        out,
        &format!("Everyone in {TOWN} named {LAST_NAME}"),
        ["index", "strategy", "entries read", "facts looked up", "result"],
        rows,
    )
}

/// Follows each reference to read the last name.
fn by_town_normalized(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> index_table::Result<Vec<String>> {
    let mut found = Vec::new();
    for row in customers.find_by_town(txn, TOWN).rows() {
        let row = row?;
        if row.last_name == LAST_NAME {
            found.push(contact(&row.first_name, &row.last_name, &row.phone));
        }
    }
    Ok(found)
}

/// Follows only the references of matching entries, because entries have the last name.
fn by_town_partial(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> index_table::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in customers.find_by_town_partial(txn, TOWN).entries() {
        let entry = entry?;
        if entry.last_name == LAST_NAME
            && let Some(row) = customers.get(txn, entry.id)?
        {
            found.push(contact(&row.first_name, &row.last_name, &row.phone));
        }
    }
    Ok(found)
}

/// Follows no reference, because entries have all fields. Entries with other last names are still read.
fn by_town_full(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> index_table::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in customers.find_by_town_full(txn, TOWN).entries() {
        let entry = entry?;
        if entry.last_name == LAST_NAME {
            found.push(contact(entry.first_name, entry.last_name, entry.phone));
        }
    }
    Ok(found)
}

/// Reads only the matching entries, and follows their references.
fn by_both_normalized(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> index_table::Result<Vec<String>> {
    let rows = customers.find_by_town_last_name(txn, TOWN, LAST_NAME).rows();
    rows.map(|row| row.map(|row| contact(&row.first_name, &row.last_name, &row.phone))).collect()
}

/// Reads only the matching entries, which have all fields of the result.
fn by_both_partial(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> index_table::Result<Vec<String>> {
    let entries = customers.find_by_town_last_name_partial(txn, TOWN, LAST_NAME).entries();
    entries
        .map(|entry| entry.map(|entry| contact(entry.first_name, entry.last_name, entry.phone)))
        .collect()
}

/// Reads the same entries as with the partial index. The query doesn't need the other fields of full entries.
fn by_both_full(
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> index_table::Result<Vec<String>> {
    let entries = customers.find_by_town_last_name_full(txn, TOWN, LAST_NAME).entries();
    entries
        .map(|entry| entry.map(|entry| contact(entry.first_name, entry.last_name, entry.phone)))
        .collect()
}

fn contact(first_name: &str, last_name: &str, phone: &str) -> String {
    format!("{first_name} {last_name} {phone}")
}

/// Returns one line for each key with all its references, as in the figures of the pattern.
fn by_key<K: Into<String>>(
    entries: impl Iterator<Item = index_table::Result<(K, u64)>>,
) -> index_table::Result<Vec<[String; 2]>> {
    let mut lines: Vec<[String; 2]> = Vec::new();
    for entry in entries {
        let (key, id) = entry?;
        let key = key.into();
        // Entries are in key order, so the entries of a key are adjacent.
        match lines.last_mut() {
            Some([last, ids]) if *last == key => ids.extend([", ", &id.to_string()]),
            _ => lines.push([key, id.to_string()]),
        }
    }
    Ok(lines)
}

fn print_table<const N: usize>(
    out: &mut impl Write,
    title: &str,
    head: [&str; N],
    rows: impl IntoIterator<Item = index_table::Result<[String; N]>>,
) -> Result<(), Box<dyn Error>> {
    let rows = rows.into_iter().collect::<index_table::Result<Vec<_>>>()?;
    let head = head.map(str::to_owned);
    let mut widths = [0; N];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }

    let line = |cells: &[String; N]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join(" | ");
        line.trim_end().to_owned()
    };
    writeln!(out, "{title}\n")?;
    writeln!(out, "  {}", line(&head))?;
    writeln!(out, "  {}", widths.map(|width| "-".repeat(width)).join("-|-"))?;
    for row in &rows {
        writeln!(out, "  {}", line(row))?;
    }
    writeln!(out)?;
    Ok(())
}
