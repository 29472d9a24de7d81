//! The overview: problems, figures, tables with their indexes, and readers.

use std::collections::BTreeMap;

use index_table::{
    Error, IndexState,
    report::{CatalogTable, ShardStatus, TableSize},
};
use maud::{Markup, html};

use super::{
    Page,
    frame::{
        self, Column, View, age, badge, code, counted, figure, grouped, number, size, table,
        unknown, url,
    },
    picture::bar,
};
use crate::{failure::Failure, output::bytes};

pub(super) fn view(page: &Page) -> Markup {
    let mut failed = Failed::default();
    let catalog = failed.unless(page.catalog());
    let tables = catalog.as_ref().map_or(&[][..], |catalog| &catalog.tables);
    let sizes = failed.unless(page.sizes()).unwrap_or_default();
    for damage in &sizes.damage {
        failed.note(damage);
    }
    let moves = if page.store.has_shards() {
        page.store.moves().map_err(Failure::from)
    } else {
        Ok(Vec::new())
    };
    let moves = failed.unless(moves).map_or(0, |moves| moves.len());
    let figures = figures(page, &sizes, &mut failed);
    let mut problems = problems(page, tables, &mut failed);
    problems.extend(failed.0.iter().map(|message| frame::text(message)));
    let view = View { title: "Overview", up: "", above: Vec::new(), is_live: true };
    let body = html! {
        div data-live="problems" {
            @if !problems.is_empty() {
                section.problems role="alert" {
                    h2 { "Needs attention" }
                    ul { @for problem in &problems { li { (problem) } } }
                }
            }
            @if moves > 0 {
                section.notice {
                    a href="shards" { (moves) " unfinished move" @if moves > 1 { "s" } " between shards" }
                }
            }
        }
        (figures)
        div data-live="jobs" { (jobs(page)) }
        div data-live="tables" {
            @for own in tables { (of_table(own, sizes.iter().find(|size| size.table == own.name))) }
            @if catalog.as_ref().is_some_and(|catalog| catalog.tables.is_empty()) { p.empty { "The store has no tables." } }
        }
        (readers(page))
    };
    frame::page(page, &view, &body)
}

/// The errors of the parts that can't be shown, each once.
#[derive(Default)]
struct Failed(Vec<String>);

impl Failed {
    fn note(&mut self, message: &str) {
        if !self.0.iter().any(|noted| noted == message) {
            self.0.push(message.to_owned());
        }
    }

    /// Returns the part, or notes its error.
    fn unless<T>(&mut self, part: Result<T, Failure>) -> Option<T> {
        part.map_err(|failure| self.note(&failure.message)).ok()
    }
}

/// The maximum number of ended jobs that are shown.
const JOBS: usize = 10;

/// The running jobs of operations, and the last ended ones.
fn jobs(page: &Page) -> Markup {
    let Some(operations) = &page.operations else { return html! {} };
    let (running, ended) = operations.jobs();
    let jobs: Vec<_> = running.iter().chain(ended.iter().take(JOBS)).collect();
    let columns = [
        Column::Text("job"),
        Column::Text("operation"),
        Column::Text("state"),
        Column::Text("by"),
        Column::Number("duration"),
        Column::Wide("progress or result"),
    ];
    let rows = jobs.iter().map(|job| {
        let state = job.state();
        let now = job.ended().unwrap_or_else(std::time::SystemTime::now);
        let last = if job.ended().is_some() { Some(job.outcome()) } else { job.progress() };
        vec![
            html! { (job.id) },
            html! { (job.kind) },
            html! { (state.name()) },
            html! { (frame::text(&job.by)) },
            html! { (age(now.duration_since(job.started).unwrap_or_default())) },
            html! { (frame::text(&last.unwrap_or_default())) },
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! { @if !rows.is_empty() { (table("Operations", &columns, &rows)) } }
}

fn figures(page: &Page, sizes: &[TableSize], failed: &mut Failed) -> Markup {
    let rows = sizes.iter().map(|size| size.rows).sum();
    let is_exact = sizes.iter().all(|size| size.rows_exact);
    let total = sizes.iter().map(TableSize::total_bytes).sum();
    let of_indexes = sizes.iter().flat_map(|size| &size.indexes).map(|index| index.bytes).sum();
    let readers = page.store.readers();
    let oldest =
        readers.oldest.map_or_else(String::new, |oldest| format!("oldest {}", age(oldest)));
    let commits = page.store.commit_latency();
    let lags = lags(page, failed);
    html! {
        dl.figures data-live="figures" {
            (figure("rows", &counted(rows, is_exact), &format!("{} tables", sizes.len())))
            (figure("bytes in use", &bytes(total), &format!("{} of indexes", bytes(of_indexes))))
            (figure("open snapshots of this process", &readers.count.to_string(), &oldest))
            @if let Some(median) = commits.percentile(50) {
                @let tail = commits.percentile(99).map_or_else(String::new, |it| format!("99 %: {}", age(it)));
                (figure("half of the commits take at most", &age(median), &tail))
            }
            @for (name, value, note) in &lags { (figure(name, &grouped(*value), note)) }
        }
    }
}

/// Returns the lags of the slowest consumer, the eventual indexes, the archive and the follower, with names and notes.
fn lags(page: &Page, failed: &mut Failed) -> Vec<(&'static str, u64, String)> {
    let (mut slowest, mut pending) = (None, None);
    let txn = failed.unless(page.store.read().map_err(Failure::from));
    for own in page.store.untyped_tables() {
        let Some(txn) = &txn else { break };
        match own.lag(txn) {
            Ok(lag) => pending = pending.max(lag.map(|lag| lag.messages)),
            Err(Error::ShardUnavailable { .. }) => continue,
            Err(error) => failed.note(&error.to_string()),
        }
        match own.change_consumers(txn) {
            Ok(found) => {
                let found = found.into_iter().map(|it| (it.lag.changes, it.name));
                slowest = slowest.max(found.max());
            }
            Err(Error::ShardUnavailable { .. }) => {}
            Err(error) => failed.note(&error.to_string()),
        }
    }
    drop(txn);
    let mut lags = Vec::new();
    if let Some((changes, consumer)) = slowest {
        lags.push(("changes behind, of the slowest consumer", changes, consumer));
    }
    if let Some(messages) = pending {
        lags.push(("pending messages of eventual indexes", messages, String::new()));
    }
    if let Some(lag) = page.store.archive_lag() {
        lags.push(("commits that the archive lacks", lag.commits, bytes(lag.bytes)));
    }
    if let Some(lag) = failed.unless(page.follower_lag()).as_deref().and_then(Option::as_ref) {
        lags.push(("commits behind its archive", lag.commits, bytes(lag.bytes)));
    }
    lags
}

fn of_table(own: &CatalogTable, size: Option<&TableSize>) -> Markup {
    let path = format!("table/{}", url(&own.name));
    let total = size.map_or(0, TableSize::total_bytes);
    let rows: Vec<_> = own
        .indexes
        .iter()
        .filter(|index| index.strategy != "changes")
        .map(|index| {
            let of_index = size.into_iter().flat_map(|size| &size.indexes);
            let mut of_index = of_index.filter(|it| it.name == index.name);
            let is_index = of_index.clone().next().is_some();
            let of_index = of_index.next().map(|it| (counted(it.entries, it.entries_exact), it.bytes));
            let totals = size.into_iter().flat_map(|size| &size.aggregates);
            let mut totals = totals.filter(|it| it.name == index.name);
            let found =
                of_index.or_else(|| totals.next().map(|it| (grouped(it.groups), it.bytes)));
            let found = found.filter(|_| index.state != IndexState::Retired);
            let key: Vec<_> = index.key.iter().map(|field| field.name.as_str()).collect();
            let options: Vec<_> = [index.strategy]
                .into_iter()
                .chain(index.options.iter().map(String::as_str))
                .collect();
            let (label, view) = (&index.name, format!("{path}/{}", url(&index.name)));
            vec![
                html! { @if is_index && found.is_some() { a href=(view) { (label) } } @else { (label) } },
                code(&key.join(", ")),
                frame::text(&options.join(", ")),
                badge(&index.state.to_string(), index.state == IndexState::Readable),
                found.as_ref().map_or_else(unknown, |(entries, _)| frame::text(entries)),
                found.as_ref().map_or_else(unknown, |(_, bytes)| self::size(*bytes)),
                found.as_ref().map_or_else(
                    || html! {},
                    |(_, bytes)| {
                        bar(&[(*bytes, &index.name)], total, "part of the bytes of the table")
                    },
                ),
            ]
        })
        .collect();
    let columns = [
        Column::Text("index"),
        Column::Wide("key"),
        Column::Wide("kind"),
        Column::Text("state"),
        Column::Number("entries"),
        Column::Number("bytes"),
        Column::Bar,
    ];
    html! {
        section.card {
            h2 { @if size.is_some() { a href=(path) { (own.name) } } @else { (own.name) } }
            p.summary {
                @match (size, &own.unreadable) {
                    (_, Some(reason)) => span.error { (reason) },
                    (Some(size), None) => {
                        strong { (counted(size.rows, size.rows_exact)) } " rows, " strong { (bytes(total)) } ": " (bytes(size.bytes)) " of rows, " (bytes(total - size.bytes)) " of indexes"
                        @if own.version > 1 { ", row version " (own.version) }
                    }
                    (None, None) => "No repository of this table is in use here, so its size is not known.",
                }
            }
            @if let Some(size) = size {
                @let rows = format!("rows: {}", bytes(size.bytes));
                @let parts: Vec<_> = size.indexes.iter().map(|index| (index.bytes, format!("{}: {}", index.name, bytes(index.bytes)))).collect();
                @let parts: Vec<_> = [(size.bytes, rows.as_str())].into_iter().chain(parts.iter().map(|(part, title)| (*part, title.as_str()))).collect();
                (bar(&parts, total, &format!("{} of rows, {} of indexes", bytes(size.bytes), bytes(total - size.bytes))))
            }
            @if !rows.is_empty() { (table(&format!("Indexes of {}", own.name), &columns, &rows)) }
        }
    }
}

/// The processes with reader slots.
fn readers(page: &Page) -> Markup {
    let mut processes: BTreeMap<u32, (u64, Option<u64>)> = BTreeMap::new();
    let mut is_known = false;
    for (_, slots) in page.store.reader_slots() {
        let Ok(slots) = slots else { continue };
        is_known = true;
        for slot in slots.readers {
            let (count, behind) = processes.entry(slot.process).or_default();
            if let Some(snapshot) = slot.snapshot {
                *count += 1;
                *behind = (*behind).max(Some(slots.last_commit.saturating_sub(snapshot)));
            }
        }
    }
    let own = std::process::id();
    let rows: Vec<_> = processes
        .into_iter()
        .map(|(process, (count, behind))| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok();
            let name = name.map_or_else(|| "ended".to_owned(), |name| name.trim().to_owned());
            vec![
                frame::text(&process.to_string()),
                html! { (name) @if process == own { " (this process)" } },
                number(count),
                behind.map_or_else(|| frame::text("–"), number),
            ]
        })
        .collect();
    let columns = [
        Column::Number("process"),
        Column::Text("program"),
        Column::Number("open snapshots"),
        Column::Number("commits behind"),
    ];
    html! {
        section data-live="readers" {
            @if is_known {
                h2 { "Readers" }
                @if rows.is_empty() { p.empty { "No process reads the store." } }
                @else {
                    p.hint { "A snapshot that is many commits behind keeps the file from reusing pages, so it grows. A store with a journal keeps one for its last checkpoint." }
                    (table("Processes that read", &columns, &rows))
                }
            }
        }
    }
}

/// Returns the problems that need the operator's attention.
fn problems(page: &Page, tables: &[CatalogTable], failed: &mut Failed) -> Vec<Markup> {
    let mut problems: Vec<_> = page.notes.iter().map(|note| frame::text(note)).collect();
    for own in tables {
        if own.unreadable.is_some() {
            problems.push(html! { "Table " (code(&own.name)) " can't be read by this release." });
        }
        for index in &own.indexes {
            if !matches!(index.state, IndexState::Readable | IndexState::Retired) {
                problems.push(html! {
                    "Index " (code(&format!("{}.{}", own.name, index.name))) " is " (index.state.to_string()) ": queries of it fail."
                });
            }
        }
    }
    if page.store.has_shards() {
        for shard in failed.unless(page.store.shards().map_err(Failure::from)).unwrap_or_default() {
            if let ShardStatus::Unavailable { reason } = &shard.state {
                problems
                    .push(html! { "Shard " (code(&shard.name)) " is not available: " (reason) });
            }
        }
    }
    let txn = failed.unless(page.store.read().map_err(Failure::from));
    for own in page.store.untyped_tables() {
        let Some(txn) = &txn else { break };
        let lag = match own.lag(txn) {
            Err(Error::ShardUnavailable { .. }) => continue,
            lag => failed.unless(lag.map_err(Failure::from)),
        };
        if let Some(lag) = lag.flatten().filter(|lag| lag.dead_letters > 0) {
            problems.push(html! {
                a href="streams" { (number(lag.dead_letters)) " messages of " (code(own.name())) " could not be applied" }
            });
        }
        let consumers = match own.change_consumers(txn) {
            Err(Error::ShardUnavailable { .. }) => continue,
            consumers => failed.unless(consumers.map_err(Failure::from)),
        };
        for consumer in consumers.unwrap_or_default() {
            if consumer.missed > 0 {
                problems.push(html! {
                    a href="streams" { "Consumer " (code(&consumer.name)) " has missed " (number(consumer.missed)) " changes" }
                });
            }
        }
    }
    drop(txn);
    let archive = page.store.archive_lag().and_then(|lag| lag.error);
    let follower = failed.unless(page.follower_lag());
    let follower = follower.as_deref().and_then(Option::as_ref).and_then(|lag| lag.error.clone());
    for (what, error) in [("archive", archive), ("follower", follower)] {
        if let Some(error) = error {
            problems.push(html! { a href="streams" { "The " (what) " is stopped: " (error) } });
        }
    }
    problems
}
