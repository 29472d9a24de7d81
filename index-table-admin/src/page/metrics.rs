//! The metrics of a store in the text format of Prometheus.

use std::fmt::{Display, Write as _};

use index_table::{Error, IndexState, report::ShardStatus};

use super::Page;
use crate::failure::Failure;

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
            let labels: Vec<_> = labels
                .iter()
                .map(|(label, text)| format!("{label}=\"{}\"", escape(text)))
                .collect();
            let labels =
                if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.0, "index_table_{name}{labels} {value}");
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn sample<'s>(labels: impl Into<Vec<(&'s str, &'s str)>>, value: impl Display) -> Sample<'s> {
    (labels.into(), value.to_string())
}

pub(super) fn text(page: &Page) -> Result<String, Failure> {
    let mut text = Text::default();
    sizes(&mut text, page)?;
    usage(&mut text, page);
    lag(&mut text, page)?;
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
    shards(&mut text, page)?;
    Ok(text.0)
}

fn sizes(text: &mut Text, page: &Page) -> Result<(), Failure> {
    let sizes = page.sizes()?;
    let rows = sizes.iter().map(|size| sample([("table", size.table)], size.rows));
    text.metric("rows", "gauge", "Rows of a table.", rows);
    let bytes = sizes.iter().map(|size| sample([("table", size.table)], size.bytes));
    text.metric("table_bytes", "gauge", "Bytes of the pages of a table's rows.", bytes);
    let indexes = || {
        sizes.iter().flat_map(|size| {
            let labels = |index: &'static str| vec![("table", size.table), ("index", index)];
            size.indexes.iter().map(move |index| (labels(index.name), index))
        })
    };
    let entries = indexes().map(|(labels, index)| (labels, index.entries.to_string()));
    text.metric("index_entries", "gauge", "Entries of an index.", entries);
    let bytes = indexes().map(|(labels, index)| (labels, index.bytes.to_string()));
    text.metric("index_bytes", "gauge", "Bytes of the pages of an index.", bytes);
    let aggregates = || {
        sizes.iter().flat_map(|size| {
            let labels = |name: &'static str| [("table", size.table), ("aggregate", name)];
            size.aggregates.iter().map(move |aggregate| (labels(aggregate.name), aggregate))
        })
    };
    let groups = aggregates().map(|(labels, aggregate)| sample(labels, aggregate.groups));
    text.metric("aggregate_groups", "gauge", "Groups of an aggregate.", groups);
    let bytes = aggregates().map(|(labels, aggregate)| sample(labels, aggregate.bytes));
    text.metric("aggregate_bytes", "gauge", "Bytes of the pages of an aggregate.", bytes);
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

fn lag(text: &mut Text, page: &Page) -> Result<(), Failure> {
    let txn = page.store.read()?;
    let mut lags = Vec::new();
    for table in page.tables() {
        match table.lag(&txn) {
            Ok(Some(lag)) => lags.push((table.name(), lag)),
            Ok(None) | Err(Error::ShardUnavailable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let pending = lags.iter().map(|(table, lag)| sample([("table", *table)], lag.messages));
    text.metric("lag_messages", "gauge", "Pending messages of eventual indexes.", pending);
    let behind =
        lags.iter().map(|(table, lag)| sample([("table", *table)], lag.behind.as_secs_f64()));
    text.metric("lag_seconds", "gauge", "Age of the oldest pending message.", behind);
    let dead = lags.iter().map(|(table, lag)| sample([("table", *table)], lag.dead_letters));
    text.metric("dead_letters", "gauge", "Messages that could not be applied.", dead);
    Ok(())
}

fn shards(text: &mut Text, page: &Page) -> Result<(), Failure> {
    let Some(sharded) = page.store.as_sharded() else { return Ok(()) };
    let shards = sharded.shards()?;
    let each = |value: fn(&index_table::report::ShardInfo) -> u64| {
        shards.iter().map(move |shard| sample([("shard", shard.name.as_str())], value(shard)))
    };
    let available = each(|shard| u64::from(shard.state == ShardStatus::Available));
    text.metric("shard_available", "gauge", "Whether a shard is available.", available);
    text.metric("shard_rows", "gauge", "Rows of a shard.", each(|shard| shard.rows));
    text.metric("shard_bytes", "gauge", "Bytes of a shard's pages.", each(|shard| shard.bytes));
    text.metric("shard_reads_total", "counter", "Reads of a shard.", each(|shard| shard.reads));
    text.metric("shard_writes_total", "counter", "Writes of a shard.", each(|shard| shard.writes));
    Ok(())
}
