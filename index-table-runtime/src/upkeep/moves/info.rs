//! The unfinished moves, for operators.

use std::{
    fmt,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use crate::{
    model::{error::Result, shard::placed_table},
    store::{Store, shards_of},
};

/// An unfinished move. From [`Store::moves`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MoveInfo {
    /// The number of the move, for [`resume_move`](Store::resume_move) and
    /// [`cancel_move`](Store::cancel_move).
    pub id: u64,
    /// The shard map, or the table of a [`move_table`](Store::move_table).
    pub map: String,
    /// Whether all rows of the table `map` move, which has no `shard_by`.
    pub is_table: bool,
    /// The first key of the range, or the first slot; `None` if the range has no lower end, or if no repository of
    /// a table with this map is open.
    pub start: Option<String>,
    /// The first key after the range; `None` if the range has no upper end, or if no repository of a table with
    /// this map is open.
    pub end: Option<String>,
    /// The shard from which the rows move.
    pub from: String,
    /// The shard to which the rows move.
    pub to: String,
    /// The current step of the move.
    pub state: MoveState,
    /// Whether the keys can't be written until the switch.
    pub offline: bool,
    /// The number of rows that this process has copied; of a global index, the number of entries.
    pub rows: u64,
    /// The bytes of these rows with their primary keys, or of these entries.
    pub bytes: u64,
    /// The number of rows to copy, counted before the copy; estimated in a hash map. `None` if this process copies no rows, and
    /// for a global index.
    pub total: Option<u64>,
    /// When the move began.
    pub begun: SystemTime,
}

/// The state of an unfinished move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum MoveState {
    /// The rows are being copied. The source shard has the keys, and the move can be cancelled.
    Copying,
    /// The target shard has the keys. The copies are being removed from the source shard.
    CleaningUp,
}

impl fmt::Display for MoveInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, map, is_table, start, end, from, to, state, offline, rows, bytes, .. } =
            self;
        let unit = if map.contains('.') { "entries" } else { "rows" };
        let (start, end) = (start.as_deref().unwrap_or(""), end.as_deref().unwrap_or(""));
        let kind = if *offline { ", offline" } else { "" };
        let state = match state {
            MoveState::Copying => "is being copied",
            MoveState::CleaningUp => "is being cleaned up",
        };
        let what =
            if *is_table { format!("table `{map}`") } else { format!("{start}..{end} of `{map}`") };
        write!(
            f,
            "move {id}: {what} from `{from}` to `{to}` {state}{kind}, {rows} {unit} ({bytes} bytes) copied"
        )
    }
}

pub(super) fn of(store: &Store) -> Result<Vec<MoveInfo>> {
    let Some(engine) = shards_of(store)? else { return Ok(Vec::new()) };
    let tables = store.inner.tables_in_use();
    let mut moves = Vec::new();
    for moving in engine.moves() {
        let record = &moving.record;
        let shown = |key: &[u8]| {
            tables.iter().find_map(|table| {
                let tables = table.tables.several()?;
                tables.routing().show_boundary_of(&record.map, key)
            })
        };
        let name = |shard| Ok::<_, crate::Error>(engine.shard(shard)?.name().to_string());
        moves.push(MoveInfo {
            id: record.id,
            map: placed_table(&record.map).unwrap_or(&record.map).to_owned(),
            is_table: placed_table(&record.map).is_some(),
            start: if record.start.is_empty() { None } else { shown(&record.start) },
            end: record.end.as_deref().and_then(shown),
            from: name(record.from)?,
            to: name(record.to)?,
            state: if record.is_switched { MoveState::CleaningUp } else { MoveState::Copying },
            offline: record.is_offline,
            rows: moving.rows.load(Relaxed),
            bytes: moving.bytes.load(Relaxed),
            total: Some(moving.total.load(Relaxed)).filter(|total| *total > 0),
            begun: SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_secs(record.begun))
                .unwrap_or(SystemTime::UNIX_EPOCH),
        });
    }
    Ok(moves)
}
