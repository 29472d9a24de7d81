//! The SQL tables of the server, compared with the declared tables when a table is opened.

use std::mem;

use super::{
    connection::column,
    names::{Form, Relation},
    sql,
    tables::Tables,
    txn::Txn,
};
use crate::{
    engine::{Read as _, Space},
    model::{
        error::{Error, Result},
        schema::{IndexRecord, TableRecord, renamed_to},
        stream::STREAM,
    },
};

/// The SQL tables that differ from those of the server.
pub(super) struct Compared<'r> {
    pub(super) missing: Vec<&'r Relation>,
    /// The tables that the server has with these other columns.
    different: Vec<(&'r Relation, String)>,
}

impl<'r> Compared<'r> {
    /// Compares SQL tables with those of the server.
    pub(super) fn new(
        txn: &Txn<'_>,
        schema: &str,
        relations: impl Iterator<Item = &'r Relation>,
    ) -> Result<Self> {
        let sql = "SELECT c.relname::text, array_to_string(ARRAY(SELECT a.attname::text \
                   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 \
                   AND NOT a.attisdropped ORDER BY a.attname), ', ') \
                   FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                   WHERE n.nspname = $1 AND c.relname = ANY($2)";
        let mut compared = Self { missing: relations.collect(), different: Vec::new() };
        let names = compared.missing.iter().map(|relation| relation.name.as_str());
        let names: Vec<&str> = names.collect();
        for row in &txn.query(sql, &[&schema, &names])? {
            let (name, columns): (&str, &str) = (column(row, 0)?, column(row, 1)?);
            let found = compared.missing.iter().position(|relation| relation.name == name);
            let Some(relation) = found.map(|at| compared.missing.swap_remove(at)) else { continue };
            if columns != relation.form.sorted_columns() {
                compared.different.push((relation, columns.to_owned()));
            }
        }
        Ok(compared)
    }

    /// Returns an error if the catalog records a missing table, which another client has dropped.
    pub(super) fn refuse_lost(&self, txn: &Txn<'_>, tables: &Tables) -> Result<()> {
        for relation in &self.missing {
            if is_recorded(txn, tables, relation)? {
                return Err(Error::SchemaMismatch {
                    table: tables.schema.name,
                    difference: format!("the server lacks the SQL table {}", relation.sql),
                    way_out: "restore a backup of the server; an index can also be removed from \
                              the declaration, dropped with `drop_retired`, and declared again",
                });
            }
        }
        Ok(())
    }

    /// Changes the tables of indexes that have become unique, or are unique no longer, and removes their entries. Such an
    /// index is built again.
    pub(super) fn change(
        &mut self,
        txn: &Txn<'_>,
        (schema, tables): (&str, &Tables),
    ) -> Result<()> {
        for (relation, columns) in mem::take(&mut self.different) {
            let former = match relation.form {
                Form::Pairs => None,
                Form::Entries => Some(Form::Unique),
                Form::Unique => Some(Form::Entries),
            };
            let is_former = former.is_some_and(|form| columns == form.sorted_columns());
            if !is_former || !is_recorded(txn, tables, relation)? {
                self.different.push((relation, columns));
                continue;
            }
            let constraint = "SELECT o.conname::text FROM pg_constraint o \
                              JOIN pg_class c ON c.oid = o.conrelid \
                              JOIN pg_namespace n ON n.oid = c.relnamespace \
                              WHERE n.nspname = $1 AND c.relname = $2 AND o.contype = 'p'";
            let found = txn.query(constraint, &[&schema, &relation.name])?;
            let primary_key = found.first().map(|row| column::<&str>(row, 0)).transpose()?;
            let change = sql::change(relation, primary_key.unwrap_or_default());
            let is_kept = change.is_some();
            txn.simple(&change.unwrap_or_else(|| format!("DROP TABLE {}", relation.sql)))?;
            if !is_kept {
                self.missing.push(relation);
            }
        }
        Ok(())
    }

    /// Returns an error if a table has other columns.
    pub(super) fn refuse_different(&self, table: &'static str) -> Result<()> {
        let Some((relation, columns)) = self.different.first() else { return Ok(()) };
        Err(Error::SchemaMismatch {
            table,
            difference: format!(
                "the SQL table {} has the columns {columns}, not {}: index-table did not create it",
                relation.sql,
                relation.form.sorted_columns()
            ),
            way_out: "use another schema, or rename that SQL table",
        })
    }
}

/// Whether the catalog records one of the [needed](Tables::needed) SQL tables.
fn is_recorded(txn: &Txn<'_>, tables: &Tables, relation: &Relation) -> Result<bool> {
    let reader = txn.reader(tables);
    let is = |other: &Relation| other.name == relation.name;
    if !is(&tables.facts)
        && let Some((table, _)) = tables.referred.iter().find(|(_, facts)| is(facts))
    {
        let record = reader.get(Space::CatalogOf(table), b"")?;
        return Ok(record.is_some_and(|record| renamed_to(record).is_none()));
    }
    let Some(record) = reader.get(Space::Catalog, b"")? else { return Ok(false) };
    if is(&tables.facts) {
        return Ok(true);
    }
    // A record of another format is an error of the opening.
    let Ok(record) = TableRecord::read(record) else { return Ok(false) };
    if tables.queue.as_ref().is_some_and(|queue| is(&queue.relation)) {
        return Ok(record.indexes.iter().any(IndexRecord::is_eventual));
    }
    let mut indexes = tables.indexes.iter().zip(tables.schema.indexes);
    let index = indexes.find(|(it, _)| is(it)).map(|(_, index)| index.name);
    let mut aggregates = tables.aggregates.iter();
    let aggregate = aggregates.find(|it| is(&it.relation)).map(|it| it.declared.name);
    let changes = tables.changes.as_ref().filter(|it| is(it)).map(|_| STREAM);
    let Some(part) = index.or(aggregate).or(changes) else { return Ok(false) };
    let is_declared = record.indexes.iter().any(|index| index.name == part);
    // A retired index has a state alone.
    Ok(is_declared || reader.get(Space::Catalog, part.as_bytes())?.is_some())
}
