//! The figures of an index, or of a shard key, that a table does not have.

use std::collections::BTreeSet;

use clap::Args;
use index_table::{
    __private::admin::{
        ImaginedAnalysis, KeyBuf, KeyShape, PlainKey, RowValue, UntypedRange, UntypedTable,
    },
    report::KeyDistribution,
};
use serde_json::json;

use crate::{
    cli::Dir,
    failure::Failure,
    names::unknown,
    open::{self, Opened},
    output::{Output, bytes},
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
        let sample = (every > 1).then_some(read);
        let duplicates = analysis.keys.last().filter(|_| spelled.is_unique);
        let duplicates = duplicates.filter(|keys| keys.rows.max > 1).map(|keys| keys.rows.max);
        if is_shard_key {
            let keys = analysis.keys.last();
            return Ok(out.put(&json!({ "table": spelled.table, "rows": rows, "sample": sample, "shard_key": keys }), |text| {
                writeln!(text, "{rows} rows{}", estimated(sample))?;
                keys.into_iter().try_for_each(|keys| show(text, keys))
            })?);
        }
        let value = json!({
            "table": spelled.table,
            "rows": rows,
            "sample": sample,
            "index": analysis,
            "rows_with_the_most_common_key": duplicates,
        });
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
            keys.iter().try_for_each(|keys| show(text, keys))
        })?)
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
        (KeyShape::Desc(inner) | KeyShape::Hash(inner) | KeyShape::Named(_, inner), value) => {
            plain(inner, value)?
        }
        (KeyShape::Option(_), RowValue::Null) => PlainKey::Option(None),
        (KeyShape::Option(inner), RowValue::Some(value)) => {
            PlainKey::Option(Some(Box::new(plain(inner, value)?)))
        }
        (KeyShape::Option(inner), value) => PlainKey::Option(Some(Box::new(plain(inner, value)?))),
        (KeyShape::Unsigned(_), RowValue::Integer(value)) => {
            PlainKey::Unsigned(u128::try_from(*value).map_err(|_| other())?)
        }
        (KeyShape::Unsigned(_), RowValue::Large(value)) => PlainKey::Unsigned(*value),
        (KeyShape::Signed(_), RowValue::Integer(value)) => PlainKey::Signed(*value),
        (KeyShape::Bool, RowValue::Bool(value)) => PlainKey::Bool(*value),
        #[expect(clippy::cast_possible_truncation, reason = "it was an f32")]
        (KeyShape::F32, RowValue::Float(bits)) => PlainKey::F32(f64::from_bits(*bits) as f32),
        (KeyShape::F64, RowValue::Float(bits)) => PlainKey::F64(f64::from_bits(*bits)),
        (KeyShape::Text, RowValue::Text(text)) => PlainKey::Text(text.clone()),
        (KeyShape::Char, RowValue::Text(text)) => {
            PlainKey::Char(text.parse().map_err(|_| other())?)
        }
        (KeyShape::Bytes | KeyShape::Array(_), RowValue::Bytes(bytes)) => {
            PlainKey::Bytes(bytes.clone())
        }
        (KeyShape::Bytes | KeyShape::Array(_), RowValue::Elements(elements)) => {
            let byte = |element: &RowValue| match element {
                RowValue::Integer(byte) => u8::try_from(*byte).map_err(|_| other()),
                _ => Err(other()),
            };
            PlainKey::Bytes(elements.iter().map(byte).collect::<Result<_, _>>()?)
        }
        (KeyShape::Tuple(shapes), RowValue::Elements(values)) if shapes.len() == values.len() => {
            let values = shapes.iter().zip(values).map(|(shape, value)| plain(shape, value));
            PlainKey::Tuple(values.collect::<Result<_, _>>()?)
        }
        _ => return Err(other()),
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
