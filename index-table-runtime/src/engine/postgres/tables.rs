//! The SQL tables of one table.

use std::borrow::Cow;

use super::{
    names::{CATALOG, Form, Relation, SEQUENCES},
    queue::Queue,
    stripes::Striped,
};
use crate::{
    engine::{Links, Space},
    model::{
        reference::Referrer,
        schema::{AggregateSchema, IndexSchema, Parts, QUEUE, Source, TableSchema},
        stream::STREAM,
    },
};

/// The SQL tables of one table.
pub(crate) struct Tables {
    pub(super) schema: &'static TableSchema,
    pub(super) facts: Relation,
    pub(super) indexes: Vec<Relation>,
    pub(super) aggregates: Vec<Striped>,
    pub(super) changes: Option<Relation>,
    pub(super) queue: Option<Queue>,
    catalog: Relation,
    sequences: Relation,
    /// The prefix of its keys in the tables of all tables.
    prefix: Vec<u8>,
    /// The fact tables to which the references of the table refer, with the names of their tables.
    pub(super) referred: Vec<(&'static str, Relation)>,
    /// The references to the table.
    pub(super) referrers: Links<Relation>,
}

impl Tables {
    pub(super) fn new(in_schema: &str, schema: &'static TableSchema, parts: Parts) -> Self {
        let table = schema.name;
        let relation = |name: &str, form| Relation::new(in_schema, name, form);
        let index = |index: &IndexSchema| {
            let is_unique = index.has_one_entry_per_key();
            let form = if is_unique { Form::Unique } else { Form::Entries };
            relation(&format!("{table}.{}", index.name), form)
        };
        let aggregate = |declared: &'static AggregateSchema| {
            let relation = relation(&format!("{table}.{}", declared.name), Form::Pairs);
            Striped { relation, declared }
        };
        Self {
            schema,
            facts: relation(table, Form::Pairs),
            indexes: schema.indexes.iter().map(index).collect(),
            aggregates: parts.aggregates.iter().map(aggregate).collect(),
            changes: parts.has_changes.then(|| relation(&format!("{table}.{STREAM}"), Form::Pairs)),
            queue: schema
                .has_eventual()
                .then(|| Queue::new(relation(&format!("{QUEUE}{table}"), Form::Pairs))),
            catalog: relation(CATALOG, Form::Pairs),
            sequences: relation(SEQUENCES, Form::Pairs),
            prefix: prefix_of(table),
            referred: parts
                .references
                .iter()
                .map(|reference| (reference.to.name, relation(reference.to.name, Form::Pairs)))
                .collect(),
            referrers: Links::default(),
        }
    }

    /// Adds a reference of the table `of` to this table.
    pub(crate) fn link(&self, by: Referrer, of: &Self, source: Source) {
        if let Some(relation) = of.relation(source) {
            self.referrers.add(by, relation.clone());
        }
    }

    /// Adds a reference to this table that the catalog records.
    pub(super) fn add_referrer(&self, in_schema: &str, by: Referrer) {
        // The form of an index is not needed to find a key.
        self.referrers.add(by, Relation::new(in_schema, &by.database(), Form::Entries));
    }

    /// Returns the SQL tables that have to exist, each once.
    pub(super) fn needed(&self) -> Vec<&Relation> {
        let mut needed: Vec<_> = self.own().collect();
        for (_, facts) in &self.referred {
            if needed.iter().all(|other| other.name != facts.name) {
                needed.push(facts);
            }
        }
        needed
    }

    /// Returns the SQL tables that belong to this table alone.
    pub(super) fn own(&self) -> impl Iterator<Item = &Relation> {
        let aggregates = self.aggregates.iter().map(|aggregate| &aggregate.relation);
        let own = [&self.facts].into_iter().chain(&self.indexes).chain(aggregates);
        own.chain(&self.changes).chain(self.queue.as_ref().map(|queue| &queue.relation))
    }

    /// Whether the table has a change stream.
    pub(super) const fn has_changes(&self) -> bool {
        self.changes.is_some()
    }

    pub(super) fn relation(&self, source: Source) -> Option<&Relation> {
        match source {
            Source::Facts => Some(&self.facts),
            Source::Index(index) => self.indexes.get(index),
        }
    }

    /// Returns the SQL table of a space, and the prefix of its keys; `None` if the table has no such space.
    pub(super) fn space(&self, space: Space) -> Option<(&Relation, Cow<'_, [u8]>)> {
        let relation = match space {
            Space::Catalog => return Some((&self.catalog, self.prefix.as_slice().into())),
            Space::CatalogOf(table) => return Some((&self.catalog, prefix_of(table).into())),
            Space::Sequence => return Some((&self.sequences, self.prefix.as_slice().into())),
            Space::Queue => self.queue.as_ref().map(|queue| &queue.relation),
            Space::Aggregate(aggregate) => self.aggregates.get(aggregate).map(|it| &it.relation),
            Space::Referred(at) => self.referred.get(at).map(|(_, facts)| facts),
            Space::Referring(at) => self.referrers.get(at).map(|link| &link.database),
            Space::Changes => self.changes.as_ref(),
            Space::ListCopies => None,
        };
        relation.map(|relation| (relation, Cow::Borrowed(&[][..])))
    }
}

/// Returns the prefix of the keys of a table in the tables of all tables.
pub(super) fn prefix_of(table: &str) -> Vec<u8> {
    [table.as_bytes(), &[0]].concat()
}
