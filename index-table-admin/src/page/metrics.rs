//! The metrics of a store in the text format of Prometheus.

use std::{
    fmt::{Display, Write as _},
    time::SystemTime,
};

use index_table::{
    __private::admin::{FORMAT, Latency, checked},
    Error, IndexState, Store,
    report::{ChangeConsumer, DataFileInfo, MoveInfo, ServerUsage, ShardStatus},
};

use super::Page;
use crate::failure::Failure;

/// Returns the metrics of an open store as Prometheus text, for a service with another server or its own path. A [`router`](crate::router)
/// has the same text under `/metrics`. The content type is `text/plain; version=0.0.4`. The guide has the
/// [metrics](index_table::guide::admin#metrics), and the directory `monitoring` of this crate has alert rules and a dashboard.
///
/// What can't be read is left out, and counted by `index_table_metrics_failed`.
///
/// Cost: that of [`Store::estimated_sizes`] and [`Store::data_files`], and reads of queues and consumers. A router counts the sizes at most every
/// 10 seconds; this function counts them in each call. It blocks its thread.
///
/// # Examples
///
/// ```
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = index_table::Store::open(dir.path())?;
/// assert!(index_table_admin::metrics(&store).contains("index_table_commits_total 0"));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn metrics(store: &Store) -> String {
    let page = Page::new(store.clone(), &[]);
    checked(|| text(&page))
}

/// The text so far.
#[derive(Default)]
struct Text(String);

/// A sample: its labels and its value.
type Sample<'s> = (Vec<(&'s str, &'s str)>, String);

impl Text {
    /// Adds a metric with its samples.
    fn metric<'s>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'s>>,
    ) {
        // Writing to a `String` can't fail.
        let _ =
            write!(self.0, "# HELP index_table_{name} {help}\n# TYPE index_table_{name} {kind}\n");
        for (labels, value) in samples {
            self.line(name, &labels, &value);
        }
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<_> =
            labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escape(text))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        // Writing to a `String` can't fail.
        let _ = writeln!(self.0, "index_table_{name}{labels} {value}");
    }

    /// Adds a histogram of durations with its samples.
    fn histogram<'s>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'s str, &'s str)>, Latency)>,
    ) {
        self.metric(name, "histogram", help, []);
        for (labels, Latency { count, sum, buckets }) in samples {
            let all = count.to_string();
            let bounds = buckets
                .iter()
                .map(|(bound, count)| (bound.as_secs_f64().to_string(), count.to_string()))
                .chain([("+Inf".to_owned(), all.clone())]);
            for (bound, count) in bounds {
                let labels: Vec<_> =
                    labels.iter().copied().chain([("le", bound.as_str())]).collect();
                self.line(&format!("{name}_bucket"), &labels, &count);
            }
            self.line(&format!("{name}_sum"), &labels, &sum.as_secs_f64().to_string());
            self.line(&format!("{name}_count"), &labels, &all);
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn sample<'s>(labels: impl Into<Vec<(&'s str, &'s str)>>, value: impl Display) -> Sample<'s> {
    (labels.into(), value.to_string())
}

pub(super) fn text(page: &Page) -> String {
    let mut text = Text::default();
    let format = FORMAT.to_string();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("format", format.as_str())];
    let help =
        "The release of this program's index-table-admin, and the file format that it writes.";
    text.metric("build_info", "gauge", help, [sample(build, 1)]);
    // A part that can't be read, for example because of a damaged page, must not hide the others.
    let mut failed = Vec::new();
    let mut part = |name: &'static str, outcome: Result<usize, Failure>| {
        failed.push((name, outcome.unwrap_or(1)));
    };
    part("sizes", sizes(&mut text, page));
    part("states", states(&mut text, page).map(|()| 0));
    part("files", files(&mut text, page).map(|()| 0));
    journal(&mut text, page);
    commits(&mut text, page);
    server(&mut text, page);
    inspections(&mut text, page);
    usage(&mut text, page);
    latencies(&mut text, page);
    part("queues", lag(&mut text, page));
    part("consumers", consumers(&mut text, page));
    part("copies", copies(&mut text, page).map(|()| 0));
    part("shards", shards(&mut text, page).map(|()| 0));
    operations(&mut text, page);
    let failed = failed.into_iter().map(|(name, count)| sample([("part", name)], count));
    text.metric(
        "metrics_failed",
        "gauge",
        "Parts that are left out because they could not be read, for example because a page is damaged.",
        failed,
    );
    let readers = page.store.readers();
    text.metric(
        "readers",
        "gauge",
        "Read transactions of this process.",
        [sample([], readers.count)],
    );
    let oldest = readers.oldest.unwrap_or_default().as_secs_f64();
    text.metric(
        "oldest_reader_seconds",
        "gauge",
        "Age of the oldest read transaction of this process.",
        [sample([], oldest)],
    );
    text.0
}

/// The data files, their disks, and the readers of other processes.
fn files(text: &mut Text, page: &Page) -> Result<(), Failure> {
    let files = page.store.data_files()?;
    let each = |value: fn(&DataFileInfo) -> Option<u64>| {
        let label = |file| move |value| sample([("shard", shard_of(file))], value);
        files.iter().filter_map(move |file| value(file).map(label(file)))
    };
    let mut gauge = |name: &str, help: &str, value: fn(&DataFileInfo) -> Option<u64>| {
        text.metric(name, "gauge", help, each(value));
    };
    gauge("data_file_bytes", "Bytes of a data file.", |file| Some(file.bytes));
    gauge("data_file_used_bytes", "Bytes of pages in use.", |file| file.used);
    gauge("data_file_free_bytes", "Bytes of pages that commits use again.", |file| file.free);
    let help = "Whether a data file was removed, renamed or replaced.";
    gauge("data_file_replaced", help, |file| Some(file.is_replaced.into()));
    gauge("map_bytes", "Bytes of the map of a data file.", |file| Some(file.map));
    gauge("map_limit_bytes", "Bytes up to which the map grows.", |file| file.map_limit);
    gauge("disk_bytes", "Bytes of the disk of a data file.", |file| file.disk);
    gauge("disk_free_bytes", "Bytes of this disk that are left.", |file| file.disk_free);
    gauge("last_commit_number", "Number of the last commit.", |file| Some(file.last_commit));
    gauge("other_readers", "Read transactions of other processes.", |file| {
        u64::try_from(file.readers.len()).ok()
    });
    let help = "Commits since the oldest snapshot of another process.";
    gauge("other_readers_commits_behind", help, |file| {
        Some(file.readers.iter().map(|reader| reader.commits_behind).max().unwrap_or(0))
    });
    let oldest = files.iter().map(|file| {
        let oldest = file.readers.iter().map(|reader| reader.age).max().unwrap_or_default();
        sample([("shard", shard_of(file))], oldest.as_secs_f64())
    });
    let help =
        "Age of the oldest read transaction of another process, since it was first seen here.";
    text.metric("oldest_other_reader_seconds", "gauge", help, oldest);
    Ok(())
}

fn shard_of(file: &DataFileInfo) -> &str {
    &file.shard
}

fn journal(text: &mut Text, page: &Page) {
    let Some(journal) = page.store.journal() else { return };
    let bytes = sample([], journal.bytes);
    text.metric("journal_bytes", "gauge", "Bytes of the files of the journal.", [bytes]);
    let age = journal.checkpoint_age.unwrap_or_default().as_secs_f64();
    let help = "Time since the last checkpoint began; 0 without later changes. It also grows while there are no commits.";
    text.metric("checkpoint_age_seconds", "gauge", help, [sample([], age)]);
    let changed = sample([], journal.changed_bytes);
    let help = "Bytes of pages that have changed since the last checkpoint began, estimated.";
    text.metric("checkpoint_changed_bytes", "gauge", help, [changed]);
    let refused = u8::from(journal.refused.is_some());
    let help = "Whether the store has to be opened again, because nothing is written any more.";
    text.metric("journal_refused", "gauge", help, [sample([], refused)]);
}

fn commits(text: &mut Text, page: &Page) {
    let commits = page.store.commits();
    let help = "Committed transactions with changed rows.";
    text.metric("commits_total", "counter", help, [sample([], commits.count)]);
    let failures = commits.failures.iter();
    let failures = failures.map(|(kind, count)| sample([("kind", *kind)], count));
    text.metric("commit_failures_total", "counter", "Commits that failed.", failures);
    let failed = u8::from(commits.failed.is_some());
    let help = "Whether the last commit has failed because of a disk, a file or the journal.";
    text.metric("last_commit_failed", "gauge", help, [sample([], failed)]);
    let last = commits.last.and_then(|last| last.duration_since(SystemTime::UNIX_EPOCH).ok());
    let last = last.map(|last| sample([], last.as_secs_f64()));
    let help = "Time of the last commit of this process, in seconds since 1970.";
    text.metric("last_commit_timestamp_seconds", "gauge", help, last);
}

/// The connections and conflicts of a store on a server.
fn server(text: &mut Text, page: &Page) {
    let usage = page.store.server_usage();
    let one =
        |value: fn(&ServerUsage) -> String| usage.as_ref().map(|usage| (Vec::new(), value(usage)));
    let open = one(|usage| usage.connections.to_string());
    text.metric("server_connections", "gauge", "Open connections to the server.", open);
    let used = one(|usage| usage.connections_in_use.to_string());
    let help = "Connections that transactions use.";
    text.metric("server_connections_in_use", "gauge", help, used);
    let most = one(|usage| usage.connections_most.to_string());
    let help = "Connections that transactions can use.";
    text.metric("server_connections_limit", "gauge", help, most);
    let waiting = one(|usage| usage.waiting.to_string());
    let help = "Threads that wait for a connection.";
    text.metric("server_connection_waiters", "gauge", help, waiting);
    let waits = one(|usage| usage.waits.to_string());
    text.metric("server_connection_waits_total", "counter", "Waits for a connection.", waits);
    let waited = one(|usage| usage.waited.as_secs_f64().to_string());
    let help = "Time of the waits for a connection that are over.";
    text.metric("server_connection_wait_seconds_total", "counter", help, waited);
    let statements = one(|usage| usage.statements.to_string());
    text.metric("server_statements_total", "counter", "Statements that were sent.", statements);
    let retries = one(|usage| usage.retries.to_string());
    text.metric("server_retries_total", "counter", "Closures that ran again.", retries);
    let unknown = one(|usage| usage.unknown_commits.to_string());
    let help = "Commits whose outcome is not known.";
    text.metric("server_unknown_commits_total", "counter", help, unknown);
    let conflicts = one(|usage| usage.conflicts.to_string());
    text.metric("server_conflicts_total", "counter", "Transactions with a conflict.", conflicts);
    let tables = usage.iter().flat_map(|usage| &usage.conflicts_by_table);
    let tables = tables.map(|(table, count)| sample([("table", *table)], count));
    let help = "Transactions with a conflict that had written a table.";
    text.metric("server_table_conflicts_total", "counter", help, tables);
}

fn inspections(text: &mut Text, page: &Page) {
    let last = page.store.inspections();
    let failed =
        last.iter().map(|own| sample([("kind", own.kind)], u8::from(own.problem.is_some())));
    let help = "Whether the last check, verification, scrub or backup of this process has found something, or has failed.";
    text.metric("last_inspection_failed", "gauge", help, failed);
    let ended = last.iter().map(|own| {
        let ended = own.ended.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        sample([("kind", own.kind)], ended.as_secs_f64())
    });
    let help = "When it ended, in seconds since 1970.";
    text.metric("last_inspection_timestamp_seconds", "gauge", help, ended);
}

/// Returns the number of parts that are left out.
fn sizes(text: &mut Text, page: &Page) -> Result<usize, Failure> {
    let sizes = page.sizes()?;
    let rows = sizes.iter().map(|size| sample([("table", size.table)], size.rows));
    let help = "Rows of a table; an estimate while keys move to another shard.";
    text.metric("rows", "gauge", help, rows);
    let bytes = sizes.iter().map(|size| sample([("table", size.table)], size.bytes));
    text.metric("table_bytes", "gauge", "Bytes of the pages of a table's rows.", bytes);
    let indexes = || {
        sizes.iter().flat_map(|size| {
            let labels = |index: &'static str| vec![("table", size.table), ("index", index)];
            size.indexes.iter().map(move |index| (labels(index.name), index))
        })
    };
    let entries = indexes().map(|(labels, index)| (labels, index.entries.to_string()));
    let help = "Entries of an index; an estimate for an index with packed primary keys.";
    text.metric("index_entries", "gauge", help, entries);
    let bytes = indexes().map(|(labels, index)| (labels, index.bytes.to_string()));
    text.metric("index_bytes", "gauge", "Bytes of the pages of an index.", bytes);
    let aggregates = || {
        sizes.iter().flat_map(|size| {
            let labels = |name: &'static str| [("table", size.table), ("aggregate", name)];
            size.aggregates.iter().map(move |aggregate| (labels(aggregate.name), aggregate))
        })
    };
    let streams = sizes.iter().filter(|size| size.change_bytes > 0);
    let streams = streams.map(|size| sample([("table", size.table)], size.change_bytes));
    text.metric("change_stream_bytes", "gauge", "Bytes of the pages of a change stream.", streams);
    let groups = aggregates().map(|(labels, aggregate)| sample(labels, aggregate.groups));
    text.metric("aggregate_groups", "gauge", "Groups of an aggregate.", groups);
    let bytes = aggregates().map(|(labels, aggregate)| sample(labels, aggregate.bytes));
    text.metric("aggregate_bytes", "gauge", "Bytes of the pages of an aggregate.", bytes);
    Ok(sizes.damage.len())
}

fn states(text: &mut Text, page: &Page) -> Result<(), Failure> {
    let catalog = page.store.catalog()?;
    let states = catalog.tables.iter().flat_map(|table| {
        let declared = table.indexes.iter().filter(|index| index.state != IndexState::Retired);
        declared.map(|index| {
            let labels = [("table", table.name.as_str()), ("index", index.name.as_str())];
            sample(labels, u8::from(index.state == IndexState::Readable))
        })
    });
    text.metric("index_readable", "gauge", "Whether an index is readable.", states);
    Ok(())
}

fn usage(text: &mut Text, page: &Page) {
    let usage = page.store.usage();
    let tables = || usage.iter().map(|own| (own.table, own));
    let gets = tables().map(|(table, own)| sample([("table", table)], own.gets));
    text.metric("gets_total", "counter", "Look-ups by the primary key.", gets);
    let scans = tables().map(|(table, own)| sample([("table", table)], own.scans));
    text.metric("scans_total", "counter", "Scans of the fact table.", scans);
    let writes = tables().flat_map(|(table, own)| {
        let kinds = [
            ("insert", own.inserts),
            ("put", own.puts),
            ("update", own.updates),
            ("delete", own.deletes),
        ];
        kinds.map(|(kind, count)| sample([("table", table), ("kind", kind)], count))
    });
    text.metric("writes_total", "counter", "Written rows.", writes);
    let refused = tables().map(|(table, own)| sample([("table", table)], own.refused_expiries));
    let help = "Expired rows that could not be deleted, each time that it was tried.";
    text.metric("refused_expiries_total", "counter", help, refused);
    let uncommitted = tables().map(|(table, own)| sample([("table", table)], own.uncommitted));
    let help = "Write transactions with changed rows that were dropped without a commit.";
    text.metric("uncommitted_transactions_total", "counter", help, uncommitted);
    let indexes =
        || usage.iter().flat_map(|own| own.indexes.iter().map(move |index| (own.table, index)));
    let labels = |table, index: &index_table::IndexUsage| [("table", table), ("index", index.name)];
    let queries = indexes().map(|(table, index)| sample(labels(table, index), index.queries));
    text.metric("index_queries_total", "counter", "Queries of an index.", queries);
    let read = indexes().map(|(table, index)| sample(labels(table, index), index.entries));
    text.metric("index_entries_read_total", "counter", "Entries read by queries.", read);
    let facts = indexes().map(|(table, index)| sample(labels(table, index), index.facts));
    text.metric("index_rows_read_total", "counter", "Rows looked up by queries.", facts);
    let written = indexes().map(|(table, index)| sample(labels(table, index), index.written));
    text.metric("index_entries_written_total", "counter", "Entries written.", written);
}

fn latencies(text: &mut Text, page: &Page) {
    let commits = page.store.commit_latency();
    let help = "Durations of commits; each 16th is timed.";
    text.histogram("commit_duration_seconds", help, [(Vec::new(), commits)]);
    let tables = page.store.untyped_tables();
    let queries = tables.iter().flat_map(|table| {
        let indexes = table.index_names().map(move |index| {
            let latency = table.latency(Some(index)).filter(|latency| latency.count > 0)?;
            Some((vec![("table", table.name()), ("index", index)], latency))
        });
        indexes.flatten()
    });
    let help =
        "Durations of queries of an index until their iterators are dropped; each 256th is timed.";
    text.histogram("query_duration_seconds", help, queries);
}

/// Returns the number of tables that are left out.
fn consumers(text: &mut Text, page: &Page) -> Result<usize, Failure> {
    let txn = page.store.read()?;
    let (mut found, mut failed) = (Vec::new(), 0);
    for table in page.store.untyped_tables() {
        match table.change_consumers(&txn) {
            Ok(all) => found.extend(all.into_iter().map(|own| (table.name(), own))),
            Err(Error::ShardUnavailable { .. }) => {}
            Err(_) => failed += 1,
        }
    }
    drop(txn);
    let each = |value: fn(&ChangeConsumer) -> f64| {
        found.iter().map(move |(table, own)| {
            sample([("table", *table), ("consumer", own.name.as_str())], value(own))
        })
    };
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has floats")]
    let whole: [fn(&ChangeConsumer) -> f64; 3] =
        [|own| own.lag.changes as f64, |own| own.lag.bytes as f64, |own| own.missed as f64];
    let [changes, bytes, missed] = whole;
    text.metric(
        "consumer_lag_changes",
        "gauge",
        "Changes that a consumer has not committed.",
        each(changes),
    );
    text.metric("consumer_lag_bytes", "gauge", "Bytes of these changes.", each(bytes));
    let oldest = each(|own| {
        let age = own.lag.since.and_then(|since| SystemTime::now().duration_since(since).ok());
        age.unwrap_or_default().as_secs_f64()
    });
    text.metric("consumer_lag_seconds", "gauge", "Age of the oldest of these changes.", oldest);
    text.metric(
        "consumer_missed_changes",
        "gauge",
        "Changes that were removed before a consumer committed them.",
        each(missed),
    );
    Ok(failed)
}

/// The jobs of operations, if the service offers them.
fn operations(text: &mut Text, page: &Page) {
    let Some(operations) = &page.operations else { return };
    let counts = operations.counts();
    let running = counts.iter().map(|(kind, running, _)| sample([("kind", *kind)], running));
    text.metric("operations_running", "gauge", "Running jobs of operations.", running);
    let failed = counts.iter().map(|(kind, _, failed)| sample([("kind", *kind)], failed));
    text.metric("operations_failed_total", "counter", "Jobs of operations that failed.", failed);
}

/// The archive, and the follower.
fn copies(text: &mut Text, page: &Page) -> Result<(), Failure> {
    let archive = page.store.archive_lag();
    if let Some(lag) = &archive {
        let help = "Whether the archive has a base for the commits since the last gap.";
        text.metric("archive_has_base", "gauge", help, [sample([], u8::from(lag.has_base))]);
        let age = lag.base_age.map(|age| sample([], age.as_secs_f64()));
        let help = "Age of the last base of the archive. A restore reads it and all later commits.";
        text.metric("archive_base_age_seconds", "gauge", help, age);
    }
    let archive = archive.map(|lag| (lag.commits, lag.bytes, lag.time, lag.error.is_some()));
    let follower = page.follower_lag()?;
    let follower = follower
        .as_ref()
        .as_ref()
        .map(|lag| (lag.commits, lag.bytes, lag.time, lag.error.is_some()));
    for (name, what, lag) in
        [("archive", "the archive", archive), ("follower", "the follower", follower)]
    {
        let Some((commits, bytes, time, is_stopped)) = lag else { continue };
        let mut one = |part: &str, help: &str, value: String| {
            text.metric(&format!("{name}_{part}"), "gauge", help, [sample([], value)]);
        };
        one("lag_commits", &format!("Commits that {what} lacks."), commits.to_string());
        one("lag_bytes", "Bytes of these commits.", bytes.to_string());
        one("lag_seconds", "Time since it had all commits.", time.as_secs_f64().to_string());
        one("stopped", "Whether an error has stopped it.", u8::from(is_stopped).to_string());
    }
    Ok(())
}

/// Returns the number of tables that are left out.
fn lag(text: &mut Text, page: &Page) -> Result<usize, Failure> {
    let txn = page.store.read()?;
    let (mut lags, mut failed) = (Vec::new(), 0);
    for table in page.store.untyped_tables() {
        match table.lag(&txn) {
            Ok(Some(lag)) => lags.push((table.name(), lag)),
            Ok(None) | Err(Error::ShardUnavailable { .. }) => {}
            Err(_) => failed += 1,
        }
    }
    let pending = lags.iter().map(|(table, lag)| sample([("table", *table)], lag.messages));
    text.metric("lag_messages", "gauge", "Pending messages of eventual indexes.", pending);
    let behind =
        lags.iter().map(|(table, lag)| sample([("table", *table)], lag.behind.as_secs_f64()));
    text.metric("lag_seconds", "gauge", "Age of the oldest pending message.", behind);
    let dead = lags.iter().map(|(table, lag)| sample([("table", *table)], lag.dead_letters));
    text.metric("dead_letters", "gauge", "Messages that could not be applied.", dead);
    let oldest = lags
        .iter()
        .map(|(table, lag)| sample([("table", *table)], lag.oldest_dead_letter.as_secs_f64()));
    let help = "Age of the first of them, since its write.";
    text.metric("oldest_dead_letter_seconds", "gauge", help, oldest);
    let failures = sample([], page.store.index_worker_failures());
    let help = "Errors and panics of the index workers; an error that is repeated counts once.";
    text.metric("index_worker_failures_total", "counter", help, [failures]);
    Ok(failed)
}

fn shards(text: &mut Text, page: &Page) -> Result<(), Failure> {
    if !page.store.has_shards() {
        return Ok(());
    }
    let shards = page.store.shards()?;
    let each = |value: fn(&index_table::report::ShardInfo) -> u64| {
        shards.iter().map(move |shard| sample([("shard", shard.name.as_str())], value(shard)))
    };
    let available = each(|shard| u64::from(shard.state == ShardStatus::Available));
    text.metric("shard_available", "gauge", "Whether a shard is available.", available);
    text.metric("shard_rows", "gauge", "Rows of a shard.", each(|shard| shard.rows));
    text.metric("shard_bytes", "gauge", "Bytes of a shard's pages.", each(|shard| shard.bytes));
    text.metric("shard_reads_total", "counter", "Reads of a shard.", each(|shard| shard.reads));
    text.metric("shard_writes_total", "counter", "Writes of a shard.", each(|shard| shard.writes));
    let moves = page.store.moves()?;
    let ids: Vec<_> = moves.iter().map(|own| own.id.to_string()).collect();
    let of_moves = |value: fn(&MoveInfo) -> u64| {
        let all = moves.iter().zip(&ids);
        all.map(move |(own, id)| {
            let labels =
                [("move", id.as_str()), ("map", &own.map), ("from", &own.from), ("to", &own.to)];
            sample(labels, value(own))
        })
    };
    text.metric("move_rows", "gauge", "Rows that a move has copied.", of_moves(|own| own.rows));
    let age = of_moves(|own| own.begun.elapsed().unwrap_or_default().as_secs());
    text.metric("move_age_seconds", "gauge", "Time since a move began.", age);
    let total = of_moves(|own| own.total.unwrap_or(0));
    text.metric(
        "move_rows_to_copy",
        "gauge",
        "Rows that a move copies; 0 if no copy runs in this process.",
        total,
    );
    Ok(())
}
