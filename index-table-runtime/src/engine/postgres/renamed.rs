//! Renaming the SQL tables of a table.

use super::{
    connection::column,
    names::{CATALOG, Form, Relation, SEQUENCES, quoted},
    tables::Tables,
    txn::Txn,
};
use crate::{
    engine::{Read as _, Records, Rename, Space},
    model::{
        error::Result,
        schema::{Parts, Renaming, both_exist, needs_catalog},
    },
};

/// Returns the contents of the catalog.
pub(super) fn records(txn: &Txn<'_>, in_schema: &str) -> Result<Records> {
    let catalog = Relation::new(in_schema, CATALOG, Form::Pairs);
    let mut records = Records::new();
    for row in txn.query(&format!("SELECT k, v FROM {} ORDER BY k", catalog.sql), &[])? {
        let (key, record): (&[u8], &[u8]) = (column(&row, 0)?, column(&row, 1)?);
        let key = String::from_utf8_lossy(key);
        let Some((table, part)) = key.split_once('\0').filter(|it| !it.0.is_empty()) else {
            continue;
        };
        let dot = if part.is_empty() { "" } else { "." };
        records.push((format!("{table}{dot}{part}"), record.to_vec()));
    }
    Ok(records)
}

/// Renames tables and indexes before a table is opened, in its transaction. Transactions that use a renamed table are waited for.
pub(super) fn rename(
    txn: &Txn<'_>,
    in_schema: &str,
    (tables, parts): (&Tables, Parts),
    rename: &mut Rename<'_>,
) -> Result<()> {
    let find = |table| txn.reader(tables).get(Space::CatalogOf(table), b"");
    if !needs_catalog(tables.schema, parts, find)? {
        return Ok(());
    }
    let records = records(txn, in_schema)?;
    let mut renaming = Renaming::of(&records);
    rename(&mut renaming)?;
    for (table, was) in &renaming.unused {
        let facts = Relation::new(in_schema, was, Form::Pairs);
        let rows = txn.query(&format!("SELECT k FROM {} LIMIT 1", facts.sql), &[])?;
        if !rows.is_empty() {
            return Err(both_exist(table, was));
        }
    }
    let changes = renaming.changes();
    if changes.is_empty() {
        return Ok(());
    }
    let catalog = Relation::new(in_schema, CATALOG, Form::Pairs).sql;
    for (name, record) in changes {
        let (table, part) = name.split_once('.').unwrap_or((name, ""));
        let key = [table.as_bytes(), &[0], part.as_bytes()].concat();
        txn.execute(&format!("DELETE FROM {catalog} WHERE k = $1"), &[&key])?;
        if let Some(record) = record {
            let insert = format!("INSERT INTO {catalog} (k, v) VALUES ($1, $2)");
            txn.execute(&insert, &[&key, &record])?;
        }
    }
    txn.catalog_changed()?;
    let sequences = Relation::new(in_schema, SEQUENCES, Form::Pairs).sql;
    for (from, to) in &renaming.tables {
        let [from, end, to] =
            [(from, 0), (from, 1), (to, 0)].map(|(name, end)| [name.as_bytes(), &[end]].concat());
        let moved = format!(
            "UPDATE {sequences} SET k = $3 || substr(k, {}) WHERE k >= $1 AND k < $2",
            from.len() + 1
        );
        txn.execute(&moved, &[&from, &end, &to])?;
    }
    for (from, to) in &renaming.databases {
        let [from, to] = [from, to].map(|name| Relation::new(in_schema, name, Form::Pairs));
        let renamed = format!("ALTER TABLE IF EXISTS {} RENAME TO {}", from.sql, quoted(&to.name));
        txn.simple(&renamed)?;
    }
    Ok(())
}
