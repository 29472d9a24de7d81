//! The position of a walk, and its cursors.

use crate::{
    model::{
        entity::Entity,
        entry::{Position, RawEntry},
        error::{Error, Result},
        schema::Source,
    },
    query::{Cursor, hash_of},
};

/// The stages of a walk, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The queue, if some indexes are eventual.
    Queue,
    /// An index as the engine stores it.
    Pieces(usize),
    /// The entries of an index.
    Entries(usize),
    /// The rows.
    Facts,
}

/// The position to continue from: behind this place in this stage, or at the start of the stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResumePoint {
    pub(super) stage: Stage,
    pub(super) behind: Option<Position>,
}

impl ResumePoint {
    pub(super) fn first<R: Entity>() -> Self {
        let stage = Stage::Queue;
        if R::TABLE.has_eventual() {
            Self { stage, behind: None }
        } else {
            Self::behind_queue::<R>()
        }
    }

    pub(super) fn behind_queue<R: Entity>() -> Self {
        let stage = if R::TABLE.indexes.is_empty() { Stage::Facts } else { Stage::Pieces(0) };
        Self { stage, behind: None }
    }

    /// The owner of the cursors of a stage.
    fn question<R: Entity>(stage: Stage) -> u64 {
        let (kind, source) = match stage {
            Stage::Queue => ("queue", Source::Facts),
            Stage::Pieces(index) => ("pieces", Source::Index(index)),
            Stage::Entries(index) => ("entries", Source::Index(index)),
            Stage::Facts => ("facts", Source::Facts),
        };
        let index = R::TABLE.index_name(source).unwrap_or_default();
        let parts = ["verify", R::TABLE.name, index, kind];
        hash_of(&parts.map(str::as_bytes))
    }

    pub(super) fn cursor<R: Entity>(self) -> Cursor {
        let Self { stage, behind } = self;
        let nowhere = || Position { key: Vec::new(), primary_key: Vec::new() };
        let Position { key, primary_key } = behind.unwrap_or_else(nowhere);
        let entry = RawEntry { key: &key, primary_key: &primary_key, data: &[] };
        Cursor::new(Self::question::<R>(stage), entry)
    }

    pub(super) fn of<R: Entity>(cursor: Cursor) -> Result<Self> {
        let (question, position) = cursor.into_parts();
        let mut stages = (0..R::TABLE.indexes.len())
            .flat_map(|index| [Stage::Pieces(index), Stage::Entries(index)])
            .chain([Stage::Queue, Stage::Facts]);
        let stage = stages.find(|stage| Self::question::<R>(*stage) == question);
        let stage = stage.ok_or(Error::InvalidCursor {
            reason: "it was not made by a verification of this table; start without a cursor",
        })?;
        let nowhere = position.key.is_empty() && position.primary_key.is_empty();
        Ok(Self { stage, behind: (!nowhere).then_some(position) })
    }
}
