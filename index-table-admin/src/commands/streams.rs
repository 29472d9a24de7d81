//! Pending work: the lags of consumers of change streams and of eventual indexes, and unfinished moves between shards.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use index_table::report::{ChangeConsumer, MoveState};
use serde_json::{Value, json};

use crate::{
    calendar,
    failure::Failure,
    open::Opened,
    output::{Align, Grid, Output, bytes},
};

/// Lists the consumers of the change streams.
pub(crate) fn consumers(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let _tables = opened.store.open_recorded()?;
    let mut grid = Grid::new([
        ("table", Align::Left),
        ("consumer", Align::Left),
        ("position", Align::Right),
        ("lag", Align::Right),
        ("bytes", Align::Right),
        ("missed", Align::Right),
        ("last commit", Align::Left),
    ]);
    let (mut values, txn) = (Vec::new(), opened.store.read()?);
    for table in opened.store.untyped_tables() {
        for consumer in table.change_consumers(&txn)? {
            let ChangeConsumer { name, position, last_commit, lag, missed, .. } = consumer;
            grid.row([
                table.name().to_owned(),
                name.clone(),
                position.to_string(),
                lag.changes.to_string(),
                bytes(lag.bytes),
                missed.to_string(),
                shown(last_commit),
            ]);
            values.push(json!({
                "table": table.name(),
                "consumer": name,
                "position": position,
                "lag": {
                    "changes": lag.changes,
                    "bytes": lag.bytes,
                    "since": lag.since.map(seconds),
                },
                "missed": missed,
                "last_commit": seconds(last_commit),
            }));
        }
    }
    Ok(out.put(&json!({ "consumers": values }), |text| out.grid(text, &mut grid))?)
}

/// Lists the queues of eventual indexes, and the lags of consumers.
pub(crate) fn lag(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let _tables = opened.store.open_recorded()?;
    let mut grid = Grid::new([
        ("table", Align::Left),
        ("reader", Align::Left),
        ("behind", Align::Right),
        ("oldest", Align::Right),
        ("dead letters", Align::Right),
    ]);
    let (mut values, txn) = (Vec::new(), opened.store.read()?);
    for table in opened.store.untyped_tables() {
        if let Some(lag) = table.lag(&txn)? {
            grid.row([
                table.name().to_owned(),
                "index worker".to_owned(),
                lag.messages.to_string(),
                format!("{:.1?}", lag.behind),
                lag.dead_letters.to_string(),
            ]);
            values.push(json!({
                "table": table.name(),
                "reader": "index worker",
                "behind": lag.messages,
                "oldest_seconds": lag.behind.as_secs_f64(),
                "dead_letters": lag.dead_letters,
            }));
        }
        for ChangeConsumer { name, lag, .. } in table.change_consumers(&txn)? {
            let age = lag.since.and_then(|since| SystemTime::now().duration_since(since).ok());
            let age = age.unwrap_or_default();
            let reader = format!("consumer {name}");
            grid.row([
                table.name().to_owned(),
                reader.clone(),
                lag.changes.to_string(),
                format!("{age:.1?}"),
                String::new(),
            ]);
            values.push(json!({
                "table": table.name(),
                "reader": reader,
                "behind": lag.changes,
                "oldest_seconds": age.as_secs_f64(),
                "dead_letters": Value::Null,
            }));
        }
    }
    Ok(out.put(&json!({ "lag": values }), |text| out.grid(text, &mut grid))?)
}

/// Lists the unfinished moves.
pub(crate) fn moves(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let sharded = opened.shards()?;
    for shard in opened.missing_shards() {
        out.note(&format!("{shard}; its moves are left out"));
    }
    let _tables = opened.store.open_recorded()?;
    let mut grid = Grid::new([
        ("move", Align::Right),
        ("map", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("source", Align::Left),
        ("target", Align::Left),
        ("state", Align::Left),
        ("begun", Align::Left),
    ]);
    let mut values = Vec::new();
    for info in sharded.moves()? {
        let state = match info.state {
            MoveState::Copying => "copying",
            MoveState::CleaningUp => "cleaning up",
            _ => "unknown",
        };
        let offline = if info.offline { ", offline" } else { "" };
        grid.row([
            info.id.to_string(),
            info.map.clone(),
            info.start.clone().unwrap_or_default(),
            info.end.clone().unwrap_or_default(),
            info.from.clone(),
            info.to.clone(),
            format!("{state}{offline}"),
            shown(info.begun),
        ]);
        values.push(json!({
            "move": info.id,
            "map": info.map,
            "start": info.start,
            "end": info.end,
            "source": info.from,
            "target": info.to,
            "state": state,
            "offline": info.offline,
            "begun": seconds(info.begun),
        }));
    }
    Ok(out.put(&json!({ "moves": values }), |text| out.grid(text, &mut grid))?)
}

/// Shows a time with whole seconds.
fn shown(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    calendar::show_instant(seconds.into(), 0).unwrap_or_default()
}

/// Returns the seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
