//! Shards: the ranges of the shard maps as a picture, the load of the shards, and moves with their progress.

use std::time::{Instant, SystemTime};

use index_table::{
    Error, Store,
    report::{MoveInfo, MoveState, ShardInfo, ShardStatus},
};
use maud::{Markup, html};

use super::{
    FRESH, Page,
    frame::{
        self, Column, View, age, badge, code, grouped, number, percent, shortened, size, table,
        unknown,
    },
    picture::{Segment, band, bar, swatch},
};
use crate::{
    commands::shards::{boundary_of, counted_or_not},
    failure::Failure,
    output::bytes,
};

/// The maximum number of listed ranges of a map.
const RANGES: usize = 200;

/// The maximum time for counting the rows of all maps. A later request counts the other maps, while the counts of these
/// maps are still kept.
const TIME: std::time::Duration = std::time::Duration::from_secs(3);

/// The maximum number of characters of a key.
const KEY: usize = 60;

pub(super) fn view(page: &Page) -> Result<Markup, Failure> {
    let sharded = &page.store;
    if !sharded.has_shards() {
        return Err(Failure::not_found("the store has no shards"));
    }
    let (shards, mut moves) = (sharded.shards()?, sharded.moves()?);
    for own in &mut moves {
        let boundary = boundary_of(sharded, &own.map);
        own.start = own.start.take().map(&boundary);
        own.end = own.end.take().map(&boundary);
    }
    let view = View { title: "Shards", up: "", above: Vec::new(), is_live: true };
    let deadline = Instant::now() + TIME;
    let mut maps = Vec::new();
    for (id, map) in sharded.map_names().into_iter().enumerate() {
        maps.push(of_map(page, sharded, (id, &map), (&shards, deadline))?);
    }
    let body = html! {
        div data-live="moves" { @if !moves.is_empty() { (unfinished(&moves)) } }
        div data-live="maps" { @for map in &maps { (map) } }
        div data-live="shards" { (loads(&shards)) }
    };
    Ok(frame::page(page, &view, &body))
}

fn colour(shards: &[ShardInfo], name: &str) -> usize {
    shards.iter().position(|shard| shard.name == name).unwrap_or(0)
}

fn span(start: Option<&str>, end: Option<&str>) -> String {
    let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
    let shown = |key: &str| shortened(&crate::value::printable(key), KEY);
    format!("{}..{}", shown(start), shown(end))
}

fn of_map(
    page: &Page,
    sharded: &Store,
    (id, map): (usize, &str),
    (shards, deadline): (&[ShardInfo], Instant),
) -> Result<Markup, Failure> {
    let found = page.ranges.get(map, FRESH, || {
        match counted_or_not(sharded, map, &mut || Instant::now() > deadline) {
            // No table has used the map yet.
            Err(Error::ShardRefused { .. }) => Ok((Vec::new(), false)),
            found => {
                let (mut ranges, is_counted) = found?;
                let boundary = boundary_of(sharded, map);
                for (range, _) in &mut ranges {
                    range.start = range.start.take().map(&boundary);
                    range.end = range.end.take().map(&boundary);
                }
                Ok((ranges, is_counted))
            }
        }
    })?;
    let (ranges, is_counted) = &*found;
    let segments: Vec<_> = ranges
        .iter()
        .map(|(range, is_moving)| {
            let keys = span(range.start.as_deref(), range.end.as_deref());
            let rows = if *is_counted {
                format!(": {} rows, {}", grouped(range.rows), bytes(range.bytes))
            } else {
                String::new()
            };
            Segment {
                name: range.shard.clone(),
                title: format!("{keys} in {}{rows}", range.shard),
                weight: if *is_counted { range.rows } else { 1 },
                colour: colour(shards, &range.shard),
                is_hatched: *is_moving,
            }
        })
        .collect();
    let all = ranges.iter().map(|(range, _)| range.rows).sum();
    let rows: Vec<_> = ranges
        .iter()
        .take(RANGES)
        .map(|(range, _)| {
            let part = if *is_counted { number(range.rows) } else { unknown() };
            vec![
                html! { (swatch(colour(shards, &range.shard))) " " (range.shard) },
                range
                    .start
                    .as_deref()
                    .map_or_else(|| frame::text("start"), |key| code(&shortened(key, KEY))),
                range
                    .end
                    .as_deref()
                    .map_or_else(|| frame::text("end"), |key| code(&shortened(key, KEY))),
                part,
                if *is_counted { size(range.bytes) } else { unknown() },
                if *is_counted {
                    bar(&[(range.rows, "")], all, &percent(range.rows, all))
                } else {
                    html! {}
                },
                number(range.reads),
                number(range.writes),
            ]
        })
        .collect();
    let columns = [
        Column::Text("shard"),
        Column::Code("from"),
        Column::Code("up to"),
        Column::Number("rows"),
        Column::Number("bytes of rows"),
        Column::Bar,
        Column::Number("reads"),
        Column::Number("writes"),
    ];
    let label = format!("The ranges of {map} in the order of their keys: {}", ranges.len());
    Ok(html! {
        section.card {
            h2 { "Map " (code(map)) }
            @if ranges.is_empty() {
                p.empty { "No table with this map is in use." }
            } @else {
                figure {
                    (band(&segments, &label, id))
                    figcaption {
                        @if *is_counted { "The width of a range is its part of the rows." }
                        @else { "The rows are not counted, because there are too many or a shard is not available. So all ranges have the same width." }
                        @if segments.iter().any(|segment| segment.is_hatched) { " Keys of hatched ranges move." }
                    }
                }
                (table(&format!("Ranges of {map}"), &columns, &rows))
                p.hint { "Reads and writes are requests of this process, estimated from samples." }
                @if ranges.len() > RANGES { p.hint { (number((ranges.len() - RANGES) as u64)) " more ranges: " code { "index-table ranges" } } }
            }
        }
    })
}

fn loads(shards: &[ShardInfo]) -> Markup {
    let [bytes, reads, writes] = [
        shards.iter().map(|shard| shard.bytes).sum(),
        shards.iter().map(|shard| shard.reads).sum(),
        shards.iter().map(|shard| shard.writes).sum::<u64>(),
    ];
    let part = |part: u64, all: u64| bar(&[(part, "")], all, &percent(part, all));
    let rows: Vec<_> = shards
        .iter()
        .enumerate()
        .map(|(at, shard)| {
            let is_available = shard.state == ShardStatus::Available;
            vec![
                html! { (swatch(at)) " " (shard.name) },
                badge(if is_available { "available" } else { "not available" }, is_available),
                if is_available { number(shard.rows) } else { unknown() },
                if is_available { size(shard.bytes) } else { unknown() },
                part(shard.bytes, bytes),
                number(shard.reads),
                part(shard.reads, reads),
                number(shard.writes),
                part(shard.writes, writes),
            ]
        })
        .collect();
    let columns = [
        Column::Text("shard"),
        Column::Text("state"),
        Column::Number("rows"),
        Column::Number("bytes"),
        Column::Bar,
        Column::Number("reads"),
        Column::Bar,
        Column::Number("writes"),
        Column::Bar,
    ];
    let missing = shards.iter().filter_map(|shard| match &shard.state {
        ShardStatus::Unavailable { reason } => Some((&shard.name, reason)),
        _ => None,
    });
    html! {
        section.card {
            h2 { "Load" }
            p.hint { "Reads and writes are transactions of this process since it has opened the store." }
            (table("Shards with their load", &columns, &rows))
            @for (name, reason) in missing { p.error { (code(name)) " is not available: " (reason) } }
        }
    }
}

fn unfinished(moves: &[MoveInfo]) -> Markup {
    html! {
        section.card {
            h2 { "Unfinished moves" }
            @for own in moves {
                div.move {
                    p {
                        strong { "Move " (own.id) } ": "
                        @if own.is_table { "all rows" } @else {
                            (code(&span(own.start.as_deref(), own.end.as_deref())))
                        }
                        " of " (code(&own.map)) " from " strong { (own.from) } " to " strong { (own.to) } " "
                        (badge(state(own), true))
                        @if own.offline { " " (badge("keys can't be written", false)) }
                    }
                    @match own.total {
                        Some(total) => {
                            @let total = total.max(own.rows);
                            (bar(&[(own.rows, "copied")], total, &format!("{} copied", percent(own.rows, total))))
                            p.hint {
                                (number(own.rows)) " of " (number(total)) " rows copied, " (percent(own.rows, total))
                                ", begun " (since(own.begun)) " ago"
                            }
                        }
                        None => p.hint {
                            "Begun " (since(own.begun)) " ago. No rows are being copied by this process; "
                            code { "resume_move" } " continues an interrupted move."
                        },
                    }
                }
            }
        }
    }
}

fn since(time: SystemTime) -> String {
    age(SystemTime::now().duration_since(time).unwrap_or_default())
}

const fn state(own: &MoveInfo) -> &'static str {
    match own.state {
        MoveState::Copying => "copying",
        MoveState::CleaningUp => "cleaning up",
        _ => "running",
    }
}
