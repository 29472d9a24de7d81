//! The shards of a store, and the ranges of its shard maps.

use std::path::Path;

use index_table::{
    Error, Store,
    report::{RangeInfo, ShardStatus},
};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    names::unknown,
    open::Opened,
    output::{Align, Grid, Output, bytes},
    value,
};

pub(crate) fn shards(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
    let sharded = opened.shards()?;
    let _tables = opened.store.open_recorded()?;
    let mut grid = Grid::new([
        ("shard", Align::Left),
        ("rows", Align::Right),
        ("bytes", Align::Right),
        ("state", Align::Left),
        ("directory", Align::Left),
    ]);
    let directories = sharded.shard_directories();
    let mut values = Vec::new();
    for shard in sharded.shards()? {
        let directory = directories.iter().find(|(name, _)| *name == shard.name);
        let directory = directory.map(|(_, path)| path.display().to_string()).unwrap_or_default();
        let is_available = shard.state == ShardStatus::Available;
        let number = |text: String| if is_available { text } else { "-".to_owned() };
        grid.row([
            shard.name.clone(),
            number(shard.rows.to_string()),
            number(bytes(shard.bytes)),
            shard.state.to_string(),
            directory.clone(),
        ]);
        values.push(json!({
            "shard": shard.name,
            "rows": is_available.then_some(shard.rows),
            "bytes": is_available.then_some(shard.bytes),
            "available": is_available,
            "state": shard.state.to_string(),
            "directory": directory,
        }));
    }
    Ok(out.put(&json!({ "shards": values }), |text| out.grid(text, &mut grid))?)
}

pub(crate) fn ranges(out: &Output, dir: &Path, only: Option<&str>) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
    let sharded = opened.shards()?;
    let _tables = opened.store.open_recorded()?;
    let mut maps = sharded.map_names();
    if let Some(only) = only {
        if !maps.iter().any(|map| map == only) {
            return Err(unknown("shard map", only, maps.iter().map(String::as_str)));
        }
        maps.retain(|map| map == only);
    }
    let mut grid = Grid::new([
        ("map", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("shard", Align::Left),
        ("rows", Align::Right),
        ("bytes", Align::Right),
    ]);
    let mut values: Vec<Value> = Vec::new();
    for shard in opened.missing_shards() {
        out.note(&format!("{shard}; the rows are not counted"));
    }
    for map in maps {
        let (ranges, is_counted) = match counted_or_not(sharded, &map, &mut || false) {
            // No table has used the map yet.
            Err(Error::ShardRefused { .. }) => (Vec::new(), true),
            found => found?,
        };
        let boundary = boundary_of(sharded, &map);
        for (range, _) in ranges {
            let number = |text: String| if is_counted { text } else { "-".to_owned() };
            let (start, end) = (range.start.map(&boundary), range.end.map(&boundary));
            grid.row([
                map.clone(),
                start.clone().unwrap_or_default(),
                end.clone().unwrap_or_default(),
                range.shard.clone(),
                number(range.rows.to_string()),
                number(bytes(range.bytes)),
            ]);
            values.push(json!({
                "map": map,
                "from": start,
                "to": end,
                "shard": range.shard,
                "rows": is_counted.then_some(range.rows),
                "bytes": is_counted.then_some(range.bytes),
            }));
        }
    }
    Ok(out.put(&json!({ "ranges": values }), |text| out.grid(text, &mut grid))?)
}

/// The ranges of a map, each with whether a part of it is being moved, and whether their rows are counted.
pub(crate) type Ranges = (Vec<(RangeInfo, bool)>, bool);

/// Returns the ranges of a map. The rows are not counted if a shard is missing, or if the time is over.
pub(crate) fn counted_or_not(
    store: &Store,
    map: &str,
    is_over: &mut dyn FnMut() -> bool,
) -> index_table::Result<Ranges> {
    match store.ranges_until(map, is_over) {
        Err(Error::ShardUnavailable { .. }) => store.ranges_until(map, &mut || true),
        found => found,
    }
}

/// Returns a function that shows a boundary of a shard map in the form that `move` and `split` read.
pub(crate) fn boundary_of(store: &Store, map: &str) -> impl Fn(String) -> String {
    let keys = store.keys_of_map(map).filter(|keys| !keys.is_hashed);
    let fields = keys.map(|keys| keys.fields).unwrap_or_default();
    move |shown| value::restated(&fields, &shown)
}
