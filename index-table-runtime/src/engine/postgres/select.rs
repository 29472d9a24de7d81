//! The SQL of queries.

use std::fmt::Write as _;

use super::names::{Form, Relation};
use crate::{
    engine::Query,
    model::{entry::Position, schema::Source},
};

/// Returns the query for the row of a primary key.
pub(super) fn fact(facts: &Relation) -> String {
    format!("SELECT v FROM {} WHERE k = $1", facts.sql)
}

/// Returns a query of the first entry of a key. Only an index with violations has several entries of a key; without
/// `sorts`, the query returns two of them, in any order. A sort would cost as much as the look-up.
pub(super) fn unique(relation: &Relation, sorts: bool) -> String {
    let end = if sorts { "ORDER BY p LIMIT 1" } else { "LIMIT 2" };
    format!("SELECT k, p, v FROM {} WHERE k = $1 {end}", relation.sql)
}

/// Returns [`unique`] with the rows of the entries.
pub(super) fn unique_row(relation: &Relation, sorts: bool, facts: &Relation) -> String {
    let (entries, facts) = (unique(relation, sorts), &facts.sql);
    format!("SELECT e.k, e.p, e.v, f.v FROM ({entries}) e LEFT JOIN {facts} f ON f.k = e.p")
}

/// The conditions of a query, with their parameters.
pub(super) struct Conditions {
    sql: String,
    pub(super) parameters: Vec<Vec<u8>>,
}

/// The position from which a query reads.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// The start of its range.
    Start,
    /// At or after an entry; the flag: including this entry.
    Entry(Position, bool),
    /// At or after the only entry of a unique key; the flag: including this entry.
    Key(Vec<u8>, bool),
}

impl Conditions {
    pub(super) fn new(query: &Query, place: &Place) -> Self {
        let mut conditions = Self { sql: String::new(), parameters: Vec::new() };
        let start = query.bounds.start();
        if !start.is_empty() {
            conditions.add("k >= ", start);
        }
        if let Some(end) = query.bounds.end() {
            conditions.add("k < ", &end);
        }
        let order = |inclusive| match (query.reverse, inclusive) {
            (false, false) => ">",
            (false, true) => ">=",
            (true, false) => "<",
            (true, true) => "<=",
        };
        match place {
            Place::Start => {}
            Place::Key(key, inclusive) => {
                conditions.add(&format!("k {} ", order(*inclusive)), key);
            }
            Place::Entry(position, inclusive) => match query.source {
                Source::Facts => {
                    conditions.add(&format!("k {} ", order(*inclusive)), &position.primary_key);
                }
                Source::Index(_) => {
                    conditions.add(&format!("(k, p) {} (", order(*inclusive)), &position.key);
                    conditions.sql.push_str(", ");
                    conditions.parameter(&position.primary_key);
                    conditions.sql.push(')');
                }
            },
        }
        conditions
    }

    /// Adds a condition that ends with a parameter.
    fn add(&mut self, condition: &str, parameter: &[u8]) {
        self.sql.push_str(if self.sql.is_empty() { " WHERE " } else { " AND " });
        self.sql.push_str(condition);
        self.parameter(parameter);
    }

    fn parameter(&mut self, parameter: &[u8]) {
        self.parameters.push(parameter.to_vec());
        // Writing to a string can't fail.
        let _ = write!(self.sql, "${}", self.parameters.len());
    }

    /// Returns the number of the parameter after these.
    fn next(&self) -> usize {
        self.parameters.len() + 1
    }

    /// Returns a query of entries, with a limit as the last parameter. With `facts`, each entry has its row.
    pub(super) fn entries(
        &self,
        relation: &Relation,
        reverse: bool,
        facts: Option<&Relation>,
    ) -> String {
        let (columns, order) = match (relation.form, reverse) {
            (Form::Pairs, false) => ("k, v", "k"),
            (Form::Pairs, true) => ("k, v", "k DESC"),
            (_, false) => ("k, p, v", "k, p"),
            (_, true) => ("k, p, v", "k DESC, p DESC"),
        };
        let (table, conditions, limit) = (&relation.sql, &self.sql, self.next());
        let entries = format!(
            "SELECT {columns} FROM {table}{conditions} ORDER BY {order} LIMIT ${limit}::int8"
        );
        let Some(facts) = facts else { return entries };
        format!(
            "SELECT e.k, e.p, e.v, f.v FROM ({entries}) e LEFT JOIN {} f ON f.k = e.p ORDER BY {}",
            facts.sql,
            if reverse { "e.k DESC, e.p DESC" } else { "e.k, e.p" },
        )
    }

    /// Returns a query that counts the entries, with `limits` up to a limit in the last parameter.
    pub(super) fn count(&self, relation: &Relation, limits: bool) -> String {
        let (table, conditions, limit) = (&relation.sql, &self.sql, self.next());
        if !limits {
            return format!("SELECT count(*) FROM {table}{conditions}");
        }
        format!("SELECT count(*) FROM (SELECT 1 FROM {table}{conditions} LIMIT ${limit}::int8) e")
    }
}
