//! The processes that read a store.

use std::{fs, path::Path};

use index_table::{__private::admin::reader_slots, Store};
use serde_json::json;

use crate::{
    failure::Failure,
    open::Opened,
    output::{Align, Grid, Output},
    server::Server,
};

pub(crate) fn readers(out: &Output, dir: &Path) -> Result<(), Failure> {
    if Server::of(dir)?.is_some() {
        return Err(Failure::other(
            "the readers of a store on a server are in the server's view `pg_stat_activity`",
        ));
    }
    let opened = Opened::to_read(out, dir)?;
    let shards = opened.sharded().map(Store::shard_directories);
    // The lock file can only be read while this process has the store closed.
    drop(opened);
    let places = match shards {
        None => vec![(None, dir.to_owned())],
        Some(shards) => shards.into_iter().map(|(name, path)| (Some(name), path)).collect(),
    };
    let mut grid = Grid::new([
        ("shard", Align::Left),
        ("process", Align::Right),
        ("program", Align::Left),
        ("snapshot", Align::Right),
        ("commits behind", Align::Right),
    ]);
    let mut values = Vec::new();
    for (shard, place) in places {
        let Ok(slots) = reader_slots(&place) else {
            out.note(&format!("the readers in `{}` can't be listed", place.display()));
            continue;
        };
        for slot in slots.readers {
            let name = fs::read_to_string(format!("/proc/{}/comm", slot.process)).ok();
            let program = name.map(|name| name.trim().to_owned());
            let behind = slot.snapshot.map(|snapshot| slots.last_commit.saturating_sub(snapshot));
            let number = |number: Option<u64>| number.map_or("-".to_owned(), |it| it.to_string());
            grid.row([
                shard.clone().unwrap_or_default(),
                slot.process.to_string(),
                program.clone().unwrap_or_else(|| "(ended)".to_owned()),
                number(slot.snapshot),
                number(behind),
            ]);
            values.push(json!({
                "shard": shard,
                "process": slot.process,
                "program": program,
                "snapshot": slot.snapshot,
                "commits_behind": behind,
            }));
        }
    }
    Ok(out.put(&json!({ "readers": values }), |text| {
        if values.is_empty() {
            writeln!(text, "no process reads")
        } else {
            out.grid(text, &mut grid)
        }
    })?)
}
