//! The position from which a walk continues, and its cursor.

use crate::{
    model::{
        entry::{Position, RawEntry},
        error::{Error, Result},
        schema::{Source, TableSchema},
    },
    query::{Cursor, hash_of},
};

/// The stages of a walk, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The comparison of a copy of a reference table with the first copy.
    Copy,
    /// The queue, if some indexes are eventual.
    Queue,
    /// The physical pieces of an index.
    Pieces(usize),
    /// The entries of an index.
    Entries(usize),
    /// The rows.
    Facts,
    /// The totals of an aggregate.
    Totals(usize),
}

/// The position from which a walk continues: after `after`, or at the start of the stage if it is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResumePoint {
    pub(super) stage: Stage,
    pub(super) after: Option<Position>,
}

impl ResumePoint {
    pub(super) fn first(schema: &TableSchema) -> Self {
        let stage = Stage::Queue;
        if schema.has_eventual() { Self { stage, after: None } } else { Self::after_queue(schema) }
    }

    pub(super) fn after_queue(schema: &TableSchema) -> Self {
        let stage = if schema.indexes.is_empty() { Stage::Facts } else { Stage::Pieces(0) };
        Self { stage, after: None }
    }

    /// Returns the hash that binds a cursor to a table and a stage.
    fn owner(schema: &TableSchema, shard: Option<&str>, stage: Stage) -> u64 {
        let (kind, source) = match stage {
            Stage::Copy => ("copy", Source::Facts),
            Stage::Queue => ("queue", Source::Facts),
            Stage::Pieces(index) => ("pieces", Source::Index(index)),
            Stage::Entries(index) => ("entries", Source::Index(index)),
            Stage::Facts => ("facts", Source::Facts),
            Stage::Totals(_) => ("totals", Source::Facts),
        };
        let aggregate = match stage {
            Stage::Totals(aggregate) => aggregate.to_string(),
            _ => String::new(),
        };
        let index = schema.index_name(source).unwrap_or_default();
        let parts = ["verify", schema.name, index, kind].into_iter();
        let parts = parts.chain((!aggregate.is_empty()).then_some(aggregate.as_str())).chain(shard);
        hash_of(&parts.map(str::as_bytes).collect::<Vec<_>>())
    }

    pub(super) fn cursor(self, schema: &TableSchema, shard: Option<&str>) -> Cursor {
        let Self { stage, after } = self;
        let nowhere = || Position { key: Vec::new(), primary_key: Vec::new() };
        let Position { key, primary_key } = after.unwrap_or_else(nowhere);
        let entry = RawEntry { key: &key, primary_key: &primary_key, data: &[] };
        Cursor::new(Self::owner(schema, shard, stage), entry)
    }

    /// Returns the position of a cursor in one of these shards, and the position of the shard.
    pub(super) fn of<'s>(
        schema: &TableSchema,
        aggregates: usize,
        mut shards: impl Iterator<Item = Option<&'s str>>,
        cursor: Cursor,
    ) -> Result<(usize, Self)> {
        let (owner, position) = cursor.into_parts();
        let stages = |shard: Option<&str>| {
            let mut stages = (0..schema.indexes.len())
                .flat_map(|index| [Stage::Pieces(index), Stage::Entries(index)])
                .chain([Stage::Copy, Stage::Queue, Stage::Facts])
                .chain((0..aggregates).map(Stage::Totals));
            stages.find(|stage| Self::owner(schema, shard, *stage) == owner)
        };
        let mut at = 0;
        let stage = shards.find_map(|shard| {
            at += 1;
            stages(shard)
        });
        let stage = stage.ok_or(Error::InvalidCursor {
            reason: "it was not made by a verification of this table; start without a cursor",
        })?;
        let nowhere = position.key.is_empty() && position.primary_key.is_empty();
        Ok((at - 1, Self { stage, after: (!nowhere).then_some(position) }))
    }
}
