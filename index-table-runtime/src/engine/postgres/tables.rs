//! The SQL tables of one table.

use super::names::{CATALOG, Form, Relation, SEQUENCES};
use crate::{
    engine::Space,
    model::{
        aggregate::AggregateSchema,
        schema::{IndexSchema, Source, TableSchema},
    },
};

/// The SQL tables of one table.
pub(crate) struct Tables {
    pub(super) schema: &'static TableSchema,
    pub(super) facts: Relation,
    pub(super) indexes: Vec<Relation>,
    aggregates: Vec<Relation>,
    queue: Option<Relation>,
    catalog: Relation,
    sequences: Relation,
    /// The prefix of its keys in the tables of all tables.
    prefix: Vec<u8>,
}

impl Tables {
    pub(super) fn new(
        in_schema: &str,
        schema: &'static TableSchema,
        aggregates: &[AggregateSchema],
    ) -> Self {
        let table = schema.name;
        let relation = |name: &str, form| Relation::new(in_schema, name, form);
        let index = |index: &IndexSchema| {
            let is_unique = index.has_one_entry_per_key();
            let form = if is_unique { Form::Unique } else { Form::Entries };
            relation(&format!("{table}.{}", index.name), form)
        };
        let aggregate =
            |it: &AggregateSchema| relation(&format!("{table}.{}", it.name), Form::Pairs);
        Self {
            schema,
            facts: relation(table, Form::Pairs),
            indexes: schema.indexes.iter().map(index).collect(),
            aggregates: aggregates.iter().map(aggregate).collect(),
            queue: schema.has_eventual().then(|| relation(&format!(".queue.{table}"), Form::Pairs)),
            catalog: relation(CATALOG, Form::Pairs),
            sequences: relation(SEQUENCES, Form::Pairs),
            prefix: [table.as_bytes(), &[0]].concat(),
        }
    }

    /// Returns the SQL tables that belong to this table alone.
    pub(super) fn own(&self) -> impl Iterator<Item = &Relation> {
        [&self.facts].into_iter().chain(&self.indexes).chain(&self.aggregates).chain(&self.queue)
    }

    pub(super) fn relation(&self, source: Source) -> Option<&Relation> {
        match source {
            Source::Facts => Some(&self.facts),
            Source::Index(index) => self.indexes.get(index),
        }
    }

    /// Returns the SQL table of a space, and the prefix of its keys; `None` if the table has no such space.
    pub(super) fn space(&self, space: Space) -> Option<(&Relation, &[u8])> {
        match space {
            Space::Catalog => Some((&self.catalog, &self.prefix)),
            Space::Sequence => Some((&self.sequences, &self.prefix)),
            Space::Queue => self.queue.as_ref().map(|queue| (queue, &[][..])),
            Space::Aggregate(aggregate) => {
                self.aggregates.get(aggregate).map(|relation| (relation, &[][..]))
            }
            // A table with a change stream, or with references, is refused when it is opened.
            Space::Changes | Space::Referred(_) | Space::Referring(_) | Space::CatalogOf(_) => None,
        }
    }
}
