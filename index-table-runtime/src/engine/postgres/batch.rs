//! Changes that are sent together, as one statement.
//!
//! PostgreSQL runs the parts of a statement with the same snapshot and in no particular order, so a batch changes a row
//! at most once. If a batch has new rows, its later changes depend on these rows: if the key of a new row is taken, no
//! later change is applied.

use std::{collections::HashSet, fmt::Write as _};

use tokio_postgres::types::{ToSql, Type};

use super::{
    names::{Form, Relation},
    sql::IS_IN_TRANSACTION,
    token,
};

/// The maximum number of rows of a batch, and its approximate maximum number of bytes.
const MOST: (usize, usize) = (512, 1 << 20);

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Writes a row, and replaces the row with the same key.
    Put,
    /// Writes a row whose key must be free.
    New,
    /// Writes a row whose key is random, or has the number of the transaction. If the key is taken, the transaction runs again.
    Add,
    /// Removes the row with these keys.
    Delete,
}

/// How a batch is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode<'c> {
    /// In a transaction whose begin has been confirmed.
    Confirmed,
    /// After an unconfirmed `BEGIN`. If the transaction has not begun, the statement changes nothing.
    Begun,
    /// As a transaction of its own, with a token. With `changes`, it changes nothing unless the counter of the catalog has this
    /// value. The parameters of the token follow those of the statement. The third column of the result is the place of the token.
    Alone { changes: Option<u64>, commits: &'c Relation },
}

/// Changes of one kind of the rows of one SQL table.
#[derive(Debug)]
struct Group {
    table: String,
    form: Form,
    kind: Kind,
    /// The values of each column.
    columns: Vec<Vec<Vec<u8>>>,
}

/// Changes that are sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    groups: Vec<Group>,
    /// The rows that the batch changes.
    rows: HashSet<(String, Vec<u8>)>,
    bytes: usize,
    /// The number of new rows.
    new: usize,
}

/// A statement with its parameters.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<Parameter>,
    /// The number of new rows. If it is not 0, the first column of the result is the number of written new rows.
    pub(super) new: i64,
    /// Whether the second column of the result states that the statement ran in the right transaction and, if required,
    /// with the right counter of the catalog.
    pub(super) is_guarded: bool,
}

/// A parameter of a statement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    Bytes(Vec<u8>),
    List(Vec<Vec<u8>>),
    Text(String),
}

impl Parameter {
    const fn kind(&self) -> Type {
        match self {
            Self::Bytes(_) => Type::BYTEA,
            Self::List(_) => Type::BYTEA_ARRAY,
            Self::Text(_) => Type::TEXT,
        }
    }

    pub(super) fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::List(list) => list,
            Self::Text(text) => text,
        }
    }
}

impl Statement {
    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.parameters.iter().map(Parameter::as_sql).collect()
    }

    /// Returns the types of the parameters.
    pub(super) fn types(&self) -> Vec<Type> {
        self.parameters.iter().map(Parameter::kind).collect()
    }
}

impl Batch {
    /// Adds a change, unless the batch is full or already changes the row. Returns whether the change was added. The
    /// columns are the key and the value; for an index, the key, the primary key and the data; for a deletion, all but
    /// the last.
    pub(super) fn push(&mut self, relation: &Relation, kind: Kind, columns: &[&[u8]]) -> bool {
        if !self.groups.is_empty() && (self.rows.len() >= MOST.0 || self.bytes >= MOST.1) {
            return false;
        }
        let key: Vec<u8> = match (relation.form, columns) {
            (Form::Entries, [key, primary_key, ..]) => {
                [&(key.len() as u64).to_be_bytes(), *key, *primary_key].concat()
            }
            (_, [key, ..]) => key.to_vec(),
            _ => return false,
        };
        if !self.rows.insert((relation.sql.clone(), key)) {
            return false;
        }
        self.bytes += columns.iter().map(|column| column.len()).sum::<usize>();
        self.new += usize::from(kind == Kind::New);
        let found = self.groups.iter_mut().find(|group| {
            // Each new row is a part of its own, because the later parts depend on it.
            group.kind == kind && kind != Kind::New && group.table == relation.sql
        });
        if let Some(group) = found {
            for (values, value) in group.columns.iter_mut().zip(columns) {
                values.push(value.to_vec());
            }
            return true;
        }
        self.groups.push(Group {
            table: relation.sql.clone(),
            form: relation.form,
            kind,
            columns: columns.iter().map(|column| vec![column.to_vec()]).collect(),
        });
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) const fn has_new(&self) -> bool {
        self.new > 0
    }

    /// Returns a batch that removes the first `written` new rows of this batch.
    pub(super) fn undo(&self, written: usize) -> Self {
        // With this size, the batch is full, so no other changes are added.
        let mut undo = Self { bytes: MOST.1, ..Self::default() };
        for group in self.groups.iter().filter(|group| group.kind == Kind::New).take(written) {
            let keys = group.form.keys().len();
            undo.groups.push(Group {
                table: group.table.clone(),
                form: group.form,
                kind: Kind::Delete,
                columns: group.columns.iter().take(keys).cloned().collect(),
            });
        }
        undo
    }

    /// Returns the statement of the batch. With `is_strict`, a new row with a taken key is an error, which ends the
    /// transaction.
    pub(super) fn statement(&self, mode: Mode<'_>, is_strict: bool, changes: &str) -> Statement {
        let are_entries_new = is_strict && self.has_new();
        let (parameters, gate) = (Vec::new(), None);
        let builder = Builder { mode, is_strict, are_entries_new, changes, parameters, gate };
        builder.build(&self.groups)
    }
}

/// Builds one statement.
struct Builder<'a> {
    mode: Mode<'a>,
    is_strict: bool,
    /// Whether the entries should have no place yet, because their row is new. If one has, the statement fails and the
    /// operation runs again. Such an insertion costs less than one that replaces an entry.
    are_entries_new: bool,
    /// The expression for the counter of the catalog.
    changes: &'a str,
    parameters: Vec<Parameter>,
    /// The common table expression on which the next parts depend.
    gate: Option<String>,
}

impl Builder<'_> {
    fn parameter(&mut self, parameter: Parameter) -> String {
        self.parameters.push(parameter);
        format!("${}", self.parameters.len())
    }

    /// Returns `word` and the condition for a part that depends on an earlier part; an empty text if it depends on
    /// none.
    fn gated(&self, word: &str) -> String {
        let gate = self.gate.as_ref();
        gate.map(|gate| format!(" {word} EXISTS (SELECT 1 FROM {gate})")).unwrap_or_default()
    }

    /// Returns the condition that prevents changes outside of the right transaction.
    fn guard(&mut self) -> Option<String> {
        match self.mode {
            Mode::Confirmed => None,
            Mode::Begun => Some(IS_IN_TRANSACTION.to_owned()),
            Mode::Alone { changes: None, .. } => Some(format!("NOT {IS_IN_TRANSACTION}")),
            Mode::Alone { changes: Some(changes), .. } => {
                let parameter = self.parameter(Parameter::Text(changes.to_string()));
                let current = self.changes;
                Some(format!("NOT {IS_IN_TRANSACTION} AND {current} = {parameter}::text"))
            }
        }
    }

    fn build(mut self, groups: &[Group]) -> Statement {
        let guard = self.guard();
        let new = groups.iter().filter(|group| group.kind == Kind::New).count();
        let counts = new > 0 && !self.is_strict;
        if let ([group], None, false) = (groups, &guard, counts) {
            let sql = self.part(group);
            return Statement { sql, parameters: self.parameters, new: 0, is_guarded: false };
        }
        let (mut parts, mut counted) = (Vec::new(), Vec::new());
        let is_guarded = guard.is_some();
        if let Some(guard) = guard {
            parts.push(format!("g AS MATERIALIZED (SELECT 1 WHERE {guard})"));
            self.gate = Some("g".to_owned());
        }
        for (number, group) in groups.iter().enumerate() {
            let name = format!("c{number}");
            let mut sql = self.part(group);
            if counts && group.kind == Kind::New {
                sql.push_str(" RETURNING 1");
                counted.push(format!("(SELECT count(*) FROM {name})"));
                self.gate = Some(name.clone());
            }
            parts.push(format!("{name} AS ({sql})"));
        }
        let mut columns = Vec::new();
        columns.push(if counts { counted.join(" + ") } else { "0::int8".to_owned() });
        if is_guarded {
            columns.push("EXISTS (SELECT 1 FROM g)".to_owned());
        }
        if let Mode::Alone { commits, .. } = self.mode {
            let [insert, delete] = token::parts(commits, self.parameters.len() + 1, Some("g"));
            parts.extend([format!("t AS ({insert})"), format!("d AS ({delete})")]);
            columns.push("(SELECT place FROM t)".to_owned());
        }
        let sql = format!("WITH {} SELECT {}", parts.join(", "), columns.join(", "));
        let new = if counts { i64::try_from(new).unwrap_or(i64::MAX) } else { 0 };
        Statement { sql, parameters: self.parameters, new, is_guarded }
    }

    /// Returns the statement of one group.
    fn part(&mut self, group: &Group) -> String {
        let is_list = group.columns.first().is_some_and(|values| values.len() > 1);
        let mut names = Vec::new();
        for values in &group.columns {
            let parameter = match values.as_slice() {
                [value] => Parameter::Bytes(value.clone()),
                _ => Parameter::List(values.clone()),
            };
            names.push(self.parameter(parameter));
        }
        if group.kind == Kind::Delete {
            return self.delete(group, &names, is_list);
        }
        self.insert(group, &names, is_list)
    }

    fn delete(&self, group: &Group, names: &[String], is_list: bool) -> String {
        let table = &group.table;
        let columns = if group.form == Form::Pairs { &["k"][..] } else { &["k", "p"] };
        if is_list {
            let lists = names.iter().map(|name| format!("{name}::bytea[]"));
            let lists = lists.collect::<Vec<_>>().join(", ");
            let equal = columns.iter().map(|column| format!("t.{column} = n.{column}"));
            let equal = equal.collect::<Vec<_>>().join(" AND ");
            let all = columns.join(", ");
            return format!(
                "DELETE FROM {table} t USING unnest({lists}) AS n ({all}) WHERE {equal}{}",
                self.gated("AND")
            );
        }
        let equal = columns.iter().zip(names).map(|(column, name)| format!("{column} = {name}"));
        let equal = equal.collect::<Vec<_>>().join(" AND ");
        format!("DELETE FROM {table} WHERE {equal}{}", self.gated("AND"))
    }

    fn insert(&self, group: &Group, names: &[String], is_list: bool) -> String {
        let table = &group.table;
        let columns = group.form.columns();
        let keys = group.form.keys().join(", ");
        // The only entry of a unique key has an empty `s`.
        let with_marker = |mut values: Vec<String>| {
            if group.form == Form::Unique {
                values.insert(1, "''::bytea".to_owned());
            }
            values.join(", ")
        };
        let values = if is_list {
            let all = ["a", "b", "c"].iter().take(names.len()).map(|it| (*it).to_owned());
            let all: Vec<_> = all.collect();
            let lists = names.iter().map(|name| format!("{name}::bytea[]"));
            let lists = lists.collect::<Vec<_>>().join(", ");
            format!(
                "SELECT {} FROM unnest({lists}) AS n ({}){}",
                with_marker(all.clone()),
                all.join(", "),
                self.gated("WHERE")
            )
        } else {
            let casts = names.iter().map(|name| format!("{name}::bytea")).collect();
            // The earlier part has one row, or none.
            match &self.gate {
                Some(gate) => format!("SELECT {} FROM {gate}", with_marker(casts)),
                None => format!("VALUES ({})", with_marker(casts)),
            }
        };
        let mut sql = format!("INSERT INTO {table} ({columns}) {values}");
        let changed = if group.form == Form::Unique {
            "p = EXCLUDED.p, v = EXCLUDED.v"
        } else {
            "v = EXCLUDED.v"
        };
        match (group.kind, self.is_strict) {
            (Kind::New, true) | (Kind::Add, _) => {}
            (Kind::Put, _) if self.are_entries_new && group.form == Form::Entries => {}
            (Kind::New, false) => {
                let _ = write!(sql, " ON CONFLICT ({keys}) DO NOTHING");
            }
            _ => {
                let _ = write!(sql, " ON CONFLICT ({keys}) DO UPDATE SET {changed}");
            }
        }
        sql
    }
}
