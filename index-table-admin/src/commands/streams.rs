//! Pending work: the lags of consumers of change streams and of eventual indexes, and unfinished moves between shards.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use index_table::{
    __private::admin::PlainKey,
    report::{ChangeConsumer, MoveState},
};
use serde_json::{Value, json};

use super::shards::boundary_of;
use crate::{
    failure::Failure,
    open::Opened,
    output::{Align, Grid, Output, bytes},
    value::printable,
};

/// Lists the consumers of the change streams.
pub(crate) fn consumers(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
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

/// Lists the queues of eventual indexes, and the lags of consumers and of a follower.
pub(crate) fn lag(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
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
    drop(txn);
    let follower = opened.store.follower_lag()?;
    let value = follower.as_ref().map(|lag| {
        json!({
            "commits": lag.commits,
            "bytes": lag.bytes,
            "seconds": lag.time.as_secs_f64(),
            "error": lag.error,
        })
    });
    Ok(out.put(&json!({ "lag": values, "follower": value }), |text| {
        let Some(lag) = &follower else { return out.grid(text, &mut grid) };
        let (commits, size, time) = (lag.commits, bytes(lag.bytes), lag.time);
        writeln!(text, "follower: {commits} commits ({size}, {time:.1?}) behind its archive")?;
        lag.error.iter().try_for_each(|error| writeln!(text, "  {}", printable(error)))?;
        if values.is_empty() { Ok(()) } else { out.grid(text, &mut grid) }
    })?)
}

/// Lists the unfinished moves.
pub(crate) fn moves(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
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
        let boundary = boundary_of(sharded, &info.map);
        let (start, end) = (info.start.map(&boundary), info.end.map(&boundary));
        let offline = if info.offline { ", offline" } else { "" };
        grid.row([
            info.id.to_string(),
            info.map.clone(),
            start.clone().unwrap_or_default(),
            end.clone().unwrap_or_default(),
            info.from.clone(),
            info.to.clone(),
            format!("{state}{offline}"),
            shown(info.begun),
        ]);
        values.push(json!({
            // A number of 64 bits is not exact in all programs.
            "move": info.id.to_string(),
            "map": info.map,
            "is_table": info.is_table,
            "start": start,
            "end": end,
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
pub(crate) fn shown(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let parts = vec![PlainKey::Signed(seconds.into()), PlainKey::Unsigned(0)];
    PlainKey::Tuple(parts).show_as("instant").unwrap_or_default()
}

/// Returns the seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
