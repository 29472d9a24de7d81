//! The figures of an index, or of a shard key, that a table does not have.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use index_table::{
    __private::admin::{
        CommittedRow, ImaginedAnalysis, KeyBuf, KeyShape, PlainKey, RowValue, UntypedRange,
        UntypedTable,
    },
    Error, Store,
    report::KeyDistribution,
};
use serde_json::{Value, json};

use super::{copies::time, restored::Copies};
use crate::{
    cli::Dir,
    failure::Failure,
    names::unknown,
    open::{self, Opened},
    output::{Output, bytes},
    progress::Bar,
    value::{self, printable},
};

/// An index that is measured before it is declared.
#[derive(Debug, Args)]
pub(crate) struct WhatIf {
    #[command(flatten)]
    dir: Dir,
    /// The index: `TABLE(FIELD, …)`, with `desc(FIELD)`, `each(FIELD)` or `hash(FIELD)`, then `unique`, and `include FIELD, …` or
    /// `full`.
    #[arg(
        long,
        value_name = "INDEX",
        required_unless_present = "shard_key",
        conflicts_with = "shard_key"
    )]
    index: Option<String>,
    /// A shard key instead of an index: `TABLE(FIELD, …)`.
    #[arg(long, value_name = "KEY")]
    shard_key: Option<String>,
    /// Estimate the figures from about this number of rows, in equal distances.
    #[arg(long, value_name = "ROWS")]
    sample: Option<u64>,
    /// An archive of the store: show the entries that its commits since a time would have written; for a shard key, the share of these
    /// commits that would have crossed shards.
    #[arg(long, value_name = "DIR", requires = "since")]
    archive: Option<PathBuf>,
    /// The time in UTC, such as `2024-02-29T12:30:00Z`.
    #[arg(long, value_name = "TIME", requires = "archive")]
    since: Option<String>,
    /// The directory in which a copy of the store is restored meanwhile; without it, that of the system for temporary files.
    #[arg(long, value_name = "DIR", requires = "archive")]
    temp: Option<PathBuf>,
}

/// The form of a field in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Desc,
    Each,
    Hash,
}

/// The data of the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Data {
    None,
    Include(Vec<String>),
    Full,
}

/// An index as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spelled {
    table: String,
    key: Vec<(Form, String)>,
    is_unique: bool,
    data: Data,
}

impl WhatIf {
    pub(crate) fn run(&self, out: &Output) -> Result<(), Failure> {
        let text = self.index.as_ref().or(self.shard_key.as_ref()).map_or("", String::as_str);
        let spelled = Spelled::read(text).map_err(|reason| {
            Failure::arguments(format!(
                "`{text}` is not an index such as `customers(town, desc(since)) include phone`: {reason}"
            ))
        })?;
        let is_shard_key = self.shard_key.is_some();
        let is_plain = spelled.key.iter().all(|(form, _)| *form == Form::Plain);
        if is_shard_key && (!is_plain || spelled.is_unique || spelled.data != Data::None) {
            return Err(Failure::arguments("a shard key has fields only: `TABLE(FIELD, …)`"));
        }
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let tables = opened.recorded(out)?;
        let table = open::table(&tables, &spelled.table)?;
        let key = spelled.shapes(table)?;
        let txn = opened.store.read()?;
        let rows = table.count(&txn, &UntypedRange::default())?;
        let every = self.sample.map_or(1, |sample| (rows / sample.max(1)).max(1));
        let has_data = spelled.is_unique || spelled.data != Data::None;
        let mut index = table.imagine(key.clone(), has_data);
        let mut read = 0_u64;
        table.each_row(&txn, every, |primary_key, fields, row| {
            read += 1;
            let failed = |reason: String| {
                let key = super::keys::json_of(&table.primary_key(), primary_key);
                let key = key.map_or_else(|_| value::hex(primary_key), |key| key.to_string());
                Failure::other(format!("the key of row {key} can't be computed: {reason}"))
            };
            let data = spelled.data_of(fields, row.len());
            for key in spelled.keys(&key, fields).map_err(failed)? {
                index.push(&key, primary_key, data)?;
            }
            Ok::<_, Failure>(())
        })?;
        let mut analysis = index.finish(every)?;
        restate(table, &key, &mut analysis);
        let past = match (&self.archive, &self.since) {
            (Some(archive), Some(since)) => {
                let past = Past { spelled: &spelled, key: &key, table };
                Some(past.counts(out, archive, time(since)?, self.temp.as_deref())?)
            }
            _ => None,
        };
        let sample = (every > 1).then_some(read);
        let duplicates = analysis.keys.last().filter(|_| spelled.is_unique);
        let duplicates = duplicates.filter(|keys| keys.rows.max > 1).map(|keys| keys.rows.max);
        if is_shard_key {
            let keys = analysis.keys.last();
            let mut value = json!({ "table": spelled.table, "rows": rows, "sample": sample, "shard_key": keys });
            add_commits(&mut value, past.map(|past| past.json(true)));
            return Ok(out.put(&value, |text| {
                writeln!(text, "{rows} rows{}", estimated(sample))?;
                keys.into_iter().try_for_each(|keys| show(text, keys))?;
                past.into_iter().try_for_each(|past| writeln!(text, "{}", past.text(true)))
            })?);
        }
        let mut value = json!({
            "table": spelled.table,
            "rows": rows,
            "sample": sample,
            "index": analysis,
            "rows_with_the_most_common_key": duplicates,
        });
        add_commits(&mut value, past.map(|past| past.json(false)));
        Ok(out.put(&value, |text| {
            let ImaginedAnalysis { entries, key_bytes, bytes: all, depth, keys } = &analysis;
            writeln!(
                text,
                "{entries} entries of {rows} rows{}, {} of pages, {depth} levels, keys of {key_bytes} bytes",
                estimated(sample),
                bytes(*all)
            )?;
            if let Some(rows) = duplicates {
                writeln!(text, "not unique: up to {rows} rows have an equal key")?;
            }
            keys.iter().try_for_each(|keys| show(text, keys))?;
            past.into_iter().try_for_each(|past| writeln!(text, "{}", past.text(false)))
        })?)
    }
}

/// The past commits of an archive, for an index or a shard key.
struct Past<'p> {
    spelled: &'p Spelled,
    key: &'p [(String, KeyShape)],
    table: &'p UntypedTable,
}

/// What the commits since a time would have done.
#[derive(Debug, Clone, Copy, Default)]
struct PastCounts {
    /// The commits that wrote rows of the table.
    commits: u64,
    rows: u64,
    /// The entries of an index that they would have written or deleted, and the most of one commit.
    entries: u64,
    most: u64,
    /// The commits with rows of several shard keys.
    crossing: u64,
}

impl PastCounts {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn share(self) -> f64 {
        self.crossing as f64 / self.commits.max(1) as f64
    }

    fn json(self, is_shard_key: bool) -> Value {
        let Self { commits, rows, entries, most, crossing } = self;
        if is_shard_key {
            json!({ "commits": commits, "rows": rows, "crossing": crossing, "share": self.share() })
        } else {
            json!({ "commits": commits, "rows": rows, "entries": entries, "most": most })
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an average")]
    fn text(self, is_shard_key: bool) -> String {
        let Self { commits, rows, entries, most, crossing } = self;
        if is_shard_key {
            let share = self.share() * 100.0;
            return format!(
                "{commits} commits wrote {rows} rows; {crossing} of them ({share:.1} %) wrote rows of several shard keys"
            );
        }
        let average = entries as f64 / commits.max(1) as f64;
        format!(
            "{commits} commits wrote {rows} rows, and would have written {entries} entries: {average:.1} for each commit, {most} at most"
        )
    }
}

impl Past<'_> {
    /// Reads the archive once. Memory does not grow with the commits.
    fn counts(
        &self,
        out: &Output,
        archive: &Path,
        since: SystemTime,
        temp: Option<&Path>,
    ) -> Result<PastCounts, Failure> {
        let copy = Copies::begin(out, temp).reserve(0)?;
        let (mut counts, mut failure) = (PastCounts::default(), None);
        let (mut commit, mut entries, mut shard_key, mut crosses) = (None, 0, None, false);
        let bar = Bar::new();
        let restore = Store::restore_archive(archive).progress(|at| bar.show(at));
        let read = restore.rows_since(&copy.place, self.table.name(), since, &mut |row| {
            if commit.replace(row.commit) != Some(row.commit) {
                counts.commits += 1;
                (entries, shard_key, crosses) = (0, None, false);
            }
            counts.rows += 1;
            let keys = self.keys(row).inspect_err(|reason| failure = Some(reason.clone()));
            let Ok([old, new]) = keys else {
                return Err(Error::NotOffered { what: "the key of a row in the archive" });
            };
            let written = self.written(row, [&old, &new]);
            entries += written;
            counts.entries += written;
            counts.most = counts.most.max(entries);
            for key in old.into_iter().chain(new) {
                let first = shard_key.get_or_insert_with(|| key.clone());
                if *first != key && !crosses {
                    crosses = true;
                    counts.crossing += 1;
                }
            }
            Ok(())
        });
        drop(bar);
        if let Some(reason) = failure {
            return Err(Failure::other(reason));
        }
        read?;
        Ok(counts)
    }

    /// Returns the keys of a row before and after a commit.
    fn keys(&self, row: CommittedRow<'_>) -> Result<[BTreeSet<Vec<u8>>; 2], String> {
        let of = |bytes: Option<&[u8]>| {
            let Some(bytes) = bytes else { return Ok(BTreeSet::new()) };
            let values = self.table.row_values(row.primary_key, bytes);
            let values = values.map_err(|error| error.to_string())?;
            self.spelled.keys(self.key, &values).map_err(|reason| {
                format!("the key of a row in commit {} can't be computed: {reason}", row.commit)
            })
        };
        Ok([of(row.old)?, of(row.new)?])
    }

    /// Returns the number of entries that a change of a row writes or deletes.
    fn written(&self, row: CommittedRow<'_>, [old, new]: [&BTreeSet<Vec<u8>>; 2]) -> u64 {
        let values = |bytes: Option<&[u8]>| {
            bytes.and_then(|bytes| self.table.row_values(row.primary_key, bytes).ok())
        };
        let has_other_data = match &self.spelled.data {
            Data::None => false,
            Data::Full => row.old != row.new,
            Data::Include(included) => {
                let of = |bytes| {
                    let mut values = values(bytes).unwrap_or_default();
                    values.retain(|(name, _)| included.contains(name));
                    values
                };
                of(row.old) != of(row.new)
            }
        };
        let rewritten = if has_other_data { old.intersection(new).count() } else { 0 };
        (old.symmetric_difference(new).count() + rewritten) as u64
    }
}

fn estimated(sample: Option<u64>) -> String {
    sample.map_or_else(String::new, |rows| format!(" (estimated from {rows} rows)"))
}

fn show(text: &mut dyn std::io::Write, keys: &KeyDistribution) -> std::io::Result<()> {
    let rows = &keys.rows;
    writeln!(
        text,
        "({}): {} values, with {} entries at least, {} in the middle, {} at 99 %, {} at most",
        keys.fields.join(", "),
        keys.distinct,
        rows.min,
        rows.p50,
        rows.p99,
        rows.max
    )?;
    keys.most_common.iter().filter(|common| common.entries > 1).try_for_each(|common| {
        let value = printable(&common.value);
        writeln!(text, "  {value}: {} entries, {:.1} %", common.entries, common.share * 100.0)
    })
}

/// Adds the figures of past commits to those of the table.
fn add_commits(value: &mut Value, commits: Option<Value>) {
    if let (Some(commits), Some(figures)) = (commits, value.as_object_mut()) {
        figures.insert("commits".to_owned(), commits);
    }
}

/// Writes the values of an analysis in the form of `keys` and `find`.
fn restate(table: &UntypedTable, key: &[(String, KeyShape)], analysis: &mut ImaginedAnalysis) {
    let own = table.primary_key();
    // The fields are those of a key, with other shapes.
    let Some(first) = own.first() else { return };
    let fields: Vec<_> = key
        .iter()
        .map(|(_, shape)| {
            let is_hash = matches!(shape, KeyShape::Hash(_));
            index_table::__private::admin::UntypedField { shape: *shape, is_hash, ..*first }
        })
        .collect();
    for keys in &mut analysis.keys {
        let fields = fields.get(..keys.fields.len()).unwrap_or_default();
        for common in &mut keys.most_common {
            common.value = value::restated(fields, &common.value);
        }
    }
}

impl Spelled {
    /// Reads an index.
    fn read(text: &str) -> Result<Self, String> {
        let (table, rest) = text.split_once('(').ok_or("it has no `(`")?;
        let end = closing(rest).ok_or("it has no `)`")?;
        let (key, rest) = rest.split_at(end);
        let mut rest = rest.get(1..).unwrap_or_default().trim();
        let key = key.split(',').map(field).collect::<Result<Vec<_>, _>>()?;
        let is_unique = rest.strip_prefix("unique").inspect(|after| rest = after.trim()).is_some();
        let data = if rest.is_empty() {
            Data::None
        } else if rest == "full" {
            Data::Full
        } else {
            let fields =
                rest.strip_prefix("include").ok_or_else(|| format!("`{rest}` is unknown"))?;
            let fields = fields.trim().trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
            let fields = fields.split(',').map(|field| name(field.trim()));
            Data::Include(fields.collect::<Result<_, _>>()?)
        };
        Ok(Self { table: name(table.trim())?, key, is_unique, data })
    }

    /// Returns the shapes of the fields of the key.
    fn shapes(&self, table: &UntypedTable) -> Result<Vec<(String, KeyShape)>, Failure> {
        let names = table.field_names();
        let included = match &self.data {
            Data::Include(fields) => fields.as_slice(),
            Data::None | Data::Full => &[],
        };
        let fields = self.key.iter().map(|(_, field)| field).chain(included);
        if let Some(field) = fields.into_iter().find(|field| !names.contains(&field.as_str())) {
            return Err(unknown("field", field, names.into_iter()));
        }
        let shapes = self.key.iter().map(|(form, field)| {
            let shape = table.shape_of_field(field, *form == Form::Each).ok_or_else(|| {
                Failure::other(format!(
                    "the form of `{field}` in keys can't be computed: no key of table `{}` has the field, and its type is not \
                     a scalar of the standard library",
                    self.table
                ))
            })?;
            // They live until the process ends.
            let kept = || -> &'static KeyShape { Box::leak(Box::new(shape)) };
            Ok((
                field.clone(),
                match form {
                    Form::Plain | Form::Each => shape,
                    Form::Desc => KeyShape::Desc(kept()),
                    Form::Hash => KeyShape::Hash(kept()),
                },
            ))
        });
        shapes.collect()
    }

    /// Returns the encoded keys of a row.
    fn keys(
        &self,
        shapes: &[(String, KeyShape)],
        fields: &[(String, RowValue)],
    ) -> Result<BTreeSet<Vec<u8>>, String> {
        let mut keys = vec![KeyBuf::new()];
        for ((form, name), (_, shape)) in self.key.iter().zip(shapes) {
            let field = fields.iter().find(|(own, _)| own == name).map(|(_, value)| value);
            let values = match (form, field) {
                (Form::Each, Some(RowValue::Elements(elements))) => elements.iter().collect(),
                (Form::Each, None | Some(RowValue::Null)) => Vec::new(),
                (_, Some(value)) => vec![value],
                (_, None) if shape.is_option() => vec![&RowValue::Null],
                (_, None) => {
                    return Err(format!("it lacks `{name}`, whose default only the struct has"));
                }
            };
            let mut longer = Vec::new();
            for value in values {
                let value = plain(shape, value).map_err(|reason| format!("`{name}`: {reason}"))?;
                for key in &keys {
                    let mut key = key.clone();
                    let written = match shape {
                        KeyShape::Hash(inner) => inner.write_hash(&value, &mut key),
                        shape => shape.write(&value, &mut key),
                    };
                    written.map_err(|error| format!("`{name}`: {error}"))?;
                    longer.push(key);
                }
            }
            keys = longer;
        }
        Ok(keys.iter().map(|key| key.as_bytes().to_vec()).collect())
    }

    /// Returns the bytes of the data of an entry, about.
    fn data_of(&self, fields: &[(String, RowValue)], row: usize) -> u64 {
        let size = match &self.data {
            Data::None => 0,
            Data::Full => row,
            Data::Include(included) => {
                let own = fields.iter().filter(|(name, _)| included.contains(name));
                1 + own.map(|(_, value)| size(value)).sum::<usize>()
            }
        };
        size as u64
    }
}

/// Returns the position of the `)` that closes a list.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1;
    text.char_indices().find_map(|(at, letter)| {
        match letter {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        (open == 0).then_some(at)
    })
}

fn field(text: &str) -> Result<(Form, String), String> {
    let text = text.trim();
    for (word, form) in [("desc", Form::Desc), ("each", Form::Each), ("hash", Form::Hash)] {
        let inner = text.strip_prefix(word).and_then(|text| text.trim().strip_prefix('('));
        if let Some(inner) = inner.and_then(|text| text.strip_suffix(')')) {
            return Ok((form, name(inner.trim())?));
        }
    }
    if text.contains('(') {
        return Err(format!("`{text}` can't be computed without the struct"));
    }
    Ok((Form::Plain, name(text)?))
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty()
        || text.contains(|letter: char| letter.is_whitespace() || "()[]".contains(letter))
    {
        return Err(format!("`{text}` is not a name"));
    }
    Ok(text.to_owned())
}

/// Returns a value of a row in the form of keys.
fn plain(shape: &KeyShape, value: &RowValue) -> Result<PlainKey, String> {
    let other = || format!("a value of the row is not a key of the type `{shape}`");
    Ok(match (shape, value) {
        (KeyShape::Enum(_) | KeyShape::Named(..), RowValue::Text(text)) => {
            value::parse(shape, text)?
        }
        (KeyShape::Desc(inner) | KeyShape::Hash(inner), value) => plain(inner, value)?,
        (KeyShape::Named(_, inner), value) => match value.key(shape) {
            Some(key) => key,
            None => plain(inner, value)?,
        },
        (KeyShape::Option(inner), value) if *value != RowValue::Null => {
            let value = if let RowValue::Some(value) = value { value } else { value };
            PlainKey::Option(Some(Box::new(plain(inner, value)?)))
        }
        (KeyShape::Tuple(shapes), RowValue::Elements(values)) if shapes.len() == values.len() => {
            let values = shapes.iter().zip(values).map(|(shape, value)| plain(shape, value));
            PlainKey::Tuple(values.collect::<Result<_, _>>()?)
        }
        (shape, value) => value.key(shape).ok_or_else(other)?,
    })
}

/// Returns the bytes of a value in a row, about.
fn size(value: &RowValue) -> usize {
    match value {
        RowValue::Null | RowValue::Bool(_) => 1,
        RowValue::Integer(value) => {
            (128 - value.unsigned_abs().leading_zeros() as usize).div_ceil(7).max(1)
        }
        RowValue::Large(_) => 19,
        RowValue::Float(_) => 8,
        RowValue::Text(text) => 1 + text.len(),
        RowValue::Bytes(bytes) => 1 + bytes.len(),
        RowValue::Some(value) => 1 + size(value),
        RowValue::Elements(elements) => 1 + elements.iter().map(size).sum::<usize>(),
        // The names of fields are not in a row.
        RowValue::Pairs(pairs) => 1 + pairs.iter().map(|(_, value)| size(value)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_as_it_is_written() {
        let read = |text| Spelled::read(text);
        let plain = read("customers(town, last_name) include phone").expect("an index");
        assert_eq!(plain.table, "customers");
        assert_eq!(
            plain.key,
            [(Form::Plain, "town".to_owned()), (Form::Plain, "last_name".to_owned())]
        );
        assert_eq!(plain.data, Data::Include(vec!["phone".to_owned()]));
        let other = read("c(desc(a), each( b ),hash(c)) unique include [d, e]").expect("an index");
        let forms: Vec<_> = other.key.iter().map(|(form, _)| *form).collect();
        assert_eq!(forms, [Form::Desc, Form::Each, Form::Hash]);
        assert!(other.is_unique && other.data == Data::Include(vec!["d".into(), "e".into()]));
        assert_eq!(read("c(a) full").expect("an index").data, Data::Full);
        for wrong in ["c", "c(a", "c()", "(a)", "c(a) sparse", "c(computed(f: u8))", "c(a) include"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
