//! The distribution of the keys of an index: their statistics, and the steps of a histogram.

use std::time::Instant;

use index_table::{
    __private::admin::{KeyShape, PlainKey, UntypedField, UntypedRange, UntypedTable},
    ReadTxn,
    report::{Advice, IndexAnalysis},
};

use super::picture::Step;
use crate::{failure::Failure, value};

/// The maximum number of columns of a histogram.
const COLUMNS: usize = 48;

/// With at most this number of values, each value has a column.
const VALUES: u64 = 24;

/// The maximum number of common values.
const COMMON: usize = 10;

/// The number of entries between two reads of the clock.
const BETWEEN: u64 = 1024;

/// The maximum number of characters of a label.
const LABEL: usize = 40;

pub(super) struct KeysOfIndex {
    pub(super) analysis: IndexAnalysis,
    pub(super) advice: Vec<Advice>,
    /// The columns in the order of the values; none for hashed keys.
    pub(super) steps: Vec<Step>,
    /// The meaning of a column.
    pub(super) unit: &'static str,
    /// The most common values of the first field, each with the number of its entries.
    pub(super) common: Vec<(String, u64)>,
}

/// Reads all keys of an index; `None` if the deadline passes, or if the index is not readable.
pub(super) fn measure(
    table: &UntypedTable,
    txn: &ReadTxn<'_>,
    index: &str,
    deadline: Instant,
) -> Result<Option<KeysOfIndex>, Failure> {
    let mut is_over = || Instant::now() > deadline;
    let Some((analysis, advice)) = table.analyze_index(txn, index, &mut is_over)? else {
        return Ok(None);
    };
    let fields = table.key_of(index).unwrap_or_default();
    let distinct = analysis.keys.first().map_or(0, |keys| keys.distinct);
    let Some(mut columns) = Columns::of(table, txn, index, &fields, distinct)? else {
        let hashes = analysis.keys.first().into_iter().flat_map(|keys| &keys.most_common);
        let common = hashes.map(|own| (own.value.clone(), own.entries)).collect();
        return Ok(Some(KeysOfIndex { analysis, advice, steps: Vec::new(), unit: "", common }));
    };
    let range = UntypedRange { index: Some(index.to_owned()), ..UntypedRange::default() };
    let (mut read, mut is_cut) = (0_u64, false);
    table.each_entry(txn, &range, |entry| {
        read += 1;
        is_cut = read.is_multiple_of(BETWEEN) && is_over();
        columns.add(first(&fields, entry.key)?, entry.key);
        Ok::<_, Failure>(!is_cut)
    })?;
    if is_cut {
        return Ok(None);
    }
    let (unit, common) = (columns.form.unit(), columns.common());
    Ok(Some(KeysOfIndex { analysis, advice, steps: columns.finish(), unit, common }))
}

/// Returns the value of the first field of a key.
fn first(fields: &[UntypedField], key: &[u8]) -> Result<PlainKey, Failure> {
    let values = KeyShape::read_key(fields.iter().map(|field| &field.shape), key);
    let values =
        values.map_err(|error| Failure::damage(format!("a key can't be decoded: {error}")));
    values?.into_iter().next().ok_or_else(|| Failure::damage("a key has no fields"))
}

/// The meaning of the columns.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// A value.
    Values,
    /// An equal part of the numbers from `low` up to `high`.
    Numbers { low: f64, high: f64, columns: usize },
    /// The texts with the same prefix of this number of characters.
    Starts(usize),
    /// An equal part of the encoded keys, which differ from the byte `at` on.
    Bytes { at: usize, low: u64, high: u64 },
}

impl Form {
    const fn unit(self) -> &'static str {
        match self {
            Self::Values => "each column is a value",
            Self::Numbers { .. } => "each column is an equal part of the range of values",
            Self::Starts(_) => "each column has the texts with the same first characters",
            Self::Bytes { .. } => "each column is an equal part of the range of keys",
        }
    }
}

/// Neighbouring entries in a column.
struct Run {
    column: usize,
    first: PlainKey,
    last: PlainKey,
    entries: u64,
}

struct Columns {
    shape: KeyShape,
    form: Form,
    runs: Vec<Run>,
    /// The current value, and the number of its entries so far.
    value: Option<(PlainKey, u64)>,
    /// The values with the most entries, in any order.
    common: Vec<(PlainKey, u64)>,
}

impl Columns {
    /// Chooses the form by the first and the last key; `None` without keys, or if the keys are hashes.
    fn of(
        table: &UntypedTable,
        txn: &ReadTxn<'_>,
        index: &str,
        fields: &[UntypedField],
        distinct: u64,
    ) -> Result<Option<Self>, Failure> {
        let mut ends = Vec::new();
        for reverse in [false, true] {
            let index = Some(index.to_owned());
            let range = UntypedRange { index, reverse, ..UntypedRange::default() };
            table.each_entry(txn, &range, |entry| {
                ends.push((first(fields, entry.key)?, entry.key.to_vec()));
                Ok::<_, Failure>(false)
            })?;
        }
        let Some(field) = fields.first().filter(|field| !field.is_hash) else { return Ok(None) };
        let [(low, low_key), (high, high_key)] = ends.as_slice() else { return Ok(None) };
        let shape = field.shape;
        let form = if distinct <= VALUES {
            Form::Values
        } else if let (Some(low), Some(high)) = (number(&shape, low), number(&shape, high)) {
            let (low, high) = (low.min(high), low.max(high));
            let few = if is_whole(&shape) { whole(high - low) + 1 } else { COLUMNS };
            let columns = few.min(COLUMNS);
            Form::Numbers { low, high, columns }
        } else if let (Some(low), Some(high)) = (start(low), start(high)) {
            let same = low.chars().zip(high.chars()).take_while(|(a, b)| a == b).count();
            Form::Starts(same + 1)
        } else {
            let at = low_key.iter().zip(high_key).take_while(|(a, b)| a == b).count();
            let (low, high) = (place(low_key, at), place(high_key, at));
            Form::Bytes { at, low: low.min(high), high: low.max(high) }
        };
        let (runs, common) = (Vec::new(), Vec::new());
        Ok(Some(Self { shape, form, runs, value: None, common }))
    }

    /// Counts the entries of each value.
    fn count(&mut self, value: &PlainKey) {
        match &mut self.value {
            Some((own, entries)) if own == value => *entries += 1,
            _ => {
                self.end_value();
                self.value = Some((value.clone(), 1));
            }
        }
    }

    fn end_value(&mut self) {
        let Some(ended) = self.value.take() else { return };
        if self.common.len() < COMMON {
            self.common.push(ended);
            return;
        }
        // Of several values with the fewest entries, the last value is replaced.
        let least = self.common.iter_mut().rev().min_by_key(|(_, entries)| *entries);
        if let Some(least) = least
            && least.1 < ended.1
        {
            *least = ended;
        }
    }

    /// Returns the most common values, the most common value first.
    fn common(&mut self) -> Vec<(String, u64)> {
        self.end_value();
        self.common.sort_by_key(|(_, entries)| std::cmp::Reverse(*entries));
        let shown =
            self.common.iter().map(|(own, entries)| (value::show(&self.shape, own), *entries));
        shown.collect()
    }

    fn add(&mut self, value: PlainKey, key: &[u8]) {
        self.count(&value);
        let last = self.runs.last();
        let column = match self.form {
            Form::Values => last.map_or(0, |run| run.column + usize::from(run.last != value)),
            Form::Starts(characters) => {
                let own = |value| start(value).map(|text| text.chars().take(characters));
                let is_same = last.is_some_and(|run| match (own(&run.last), own(&value)) {
                    (Some(a), Some(b)) => a.eq(b),
                    (None, None) => true,
                    _ => false,
                });
                last.map_or(0, |run| run.column + usize::from(!is_same))
            }
            Form::Numbers { low, high, columns } => {
                let width = (high - low).max(f64::MIN_POSITIVE);
                let spread = if columns == COLUMNS { columns } else { columns - 1 };
                let part = number(&self.shape, &value).map_or(0.0, |it| (it - low) / width);
                whole(part * f64::from(u32::try_from(spread).unwrap_or(u32::MAX))).min(columns - 1)
            }
            Form::Bytes { at, low, high } => {
                let (part, all) = (place(key, at).saturating_sub(low), (high - low).max(1));
                let column = u128::from(part) * COLUMNS as u128 / u128::from(all);
                usize::try_from(column).unwrap_or(COLUMNS).min(COLUMNS - 1)
            }
        };
        match self.runs.last_mut() {
            Some(run) if run.column == column => {
                (run.last, run.entries) = (value, run.entries + 1);
            }
            _ => {
                let first = value.clone();
                self.runs.push(Run { column, first, last: value, entries: 1 });
                if self.runs.len() > COLUMNS * 16 {
                    self.join();
                }
            }
        }
    }

    /// Joins each column with the next column.
    fn join(&mut self) {
        let mut joined: Vec<Run> = Vec::new();
        for (at, run) in std::mem::take(&mut self.runs).into_iter().enumerate() {
            match joined.last_mut() {
                Some(last) if at % 2 == 1 => {
                    (last.last, last.column) = (run.last, run.column);
                    last.entries += run.entries;
                }
                _ => joined.push(run),
            }
        }
        self.runs = joined;
    }

    fn finish(mut self) -> Vec<Step> {
        let (form, shape) = (self.form, self.shape);
        let is_spread = matches!(form, Form::Numbers { .. } | Form::Bytes { .. });
        while !is_spread && self.runs.len() > COLUMNS {
            self.join();
        }
        let show = |value: &PlainKey| super::frame::shortened(&value::show(&shape, value), LABEL);
        let both = |first: String, last: String| {
            if first == last { first } else { format!("{first} – {last}") }
        };
        let step = |run: &Run| {
            let label = both(show(&run.first), show(&run.last));
            let tick = match form {
                Form::Starts(characters) => {
                    let begin = |value: &PlainKey| -> String {
                        start(value).map_or_else(String::new, |text| {
                            text.chars().take(characters).filter(|it| !it.is_control()).collect()
                        })
                    };
                    both(begin(&run.first), begin(&run.last))
                }
                _ => label.clone(),
            };
            Step { label, tick, entries: run.entries }
        };
        if !is_spread {
            return self.runs.iter().map(step).collect();
        }
        let columns = if let Form::Numbers { columns, .. } = form { columns } else { COLUMNS };
        let empty = || Step { label: "none".to_owned(), tick: String::new(), entries: 0 };
        let mut steps: Vec<_> = (0..columns).map(|_| empty()).collect();
        self.runs.sort_by_key(|run| run.column);
        let ends = self
            .runs
            .first()
            .map(|run| show(&run.first))
            .zip(self.runs.last().map(|run| show(&run.last)));
        for run in &self.runs {
            if let Some(own) = steps.get_mut(run.column) {
                *own = step(run);
                if columns == COLUMNS {
                    own.tick = String::new();
                }
            }
        }
        if let (Some((low, high)), true) = (ends, columns == COLUMNS) {
            if let Some(first) = steps.first_mut() {
                first.tick = low;
            }
            if let Some(last) = steps.last_mut() {
                last.tick = high;
            }
        }
        steps
    }
}

/// Returns the text of a value.
fn start(value: &PlainKey) -> Option<&str> {
    match value {
        PlainKey::Text(text) => Some(text),
        PlainKey::Option(value) => value.as_deref().and_then(start),
        _ => None,
    }
}

/// Returns a number without its decimals.
#[expect(clippy::cast_sign_loss, reason = "a negative number becomes 0")]
const fn whole(number: f64) -> usize {
    number as usize
}

/// Returns eight bytes of a key as a number.
fn place(key: &[u8], at: usize) -> u64 {
    let bytes = key.get(at..).unwrap_or_default();
    (0..8).fold(0, |number, at| number << 8 | u64::from(bytes.get(at).copied().unwrap_or(0)))
}

/// Whether the numbers of a shape are whole.
fn is_whole(shape: &KeyShape) -> bool {
    match shape {
        KeyShape::Desc(inner) | KeyShape::Option(inner) => is_whole(inner),
        KeyShape::Named(name, _) => *name == "date",
        KeyShape::Unsigned(_) | KeyShape::Signed(_) => true,
        _ => false,
    }
}

/// Returns the place of a number, a date or a time among all values; `None` for other values.
#[expect(clippy::cast_precision_loss, reason = "a histogram needs few digits")]
fn number(shape: &KeyShape, value: &PlainKey) -> Option<f64> {
    let seconds = |seconds: f64, nanos: u128| seconds + nanos as f64 / 1e9;
    match (shape, value) {
        (KeyShape::Desc(inner), value) => number(inner, value),
        (KeyShape::Option(inner), PlainKey::Option(Some(value))) => number(inner, value),
        (KeyShape::Named(name, _), PlainKey::Tuple(parts)) => match (*name, parts.as_slice()) {
            (
                "datetime",
                [PlainKey::Signed(days), PlainKey::Unsigned(of_day), PlainKey::Unsigned(nanos)],
            ) => Some(seconds(*days as f64 * 86_400.0 + *of_day as f64, *nanos)),
            ("instant", [PlainKey::Signed(whole), PlainKey::Unsigned(nanos)]) => {
                Some(seconds(*whole as f64, *nanos))
            }
            ("duration", [PlainKey::Unsigned(whole), PlainKey::Unsigned(nanos)]) => {
                Some(seconds(*whole as f64, *nanos))
            }
            _ => None,
        },
        (KeyShape::Named("decimal", _), PlainKey::Bytes(_)) => {
            value.show_as("decimal")?.parse().ok()
        }
        (_, PlainKey::Unsigned(number)) => Some(*number as f64),
        (_, PlainKey::Signed(number)) => Some(*number as f64),
        (_, PlainKey::F32(number)) => Some(f64::from(*number)).filter(|it| it.is_finite()),
        (_, PlainKey::F64(number)) => Some(*number).filter(|it| it.is_finite()),
        _ => None,
    }
}
