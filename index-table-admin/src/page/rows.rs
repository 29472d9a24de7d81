//! The rows that a table or an index has, in pages, with their fields as columns, and with filters.

use std::time::Instant;

use index_table::{
    __private::admin::{KeyBuf, KeyShape, UntypedEntry, UntypedField, UntypedRange, UntypedTable},
    ReadTxn,
};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Page,
    frame::{Column, shortened, size, table, url},
    parameters::{COLUMNS, Parameters},
};
use crate::{
    failure::Failure,
    forms::Fields,
    output::bytes,
    part::{self, Next},
    value,
};

/// The maximum number of rows in a page.
pub(super) const PAGE: usize = 50;

/// The maximum number of characters of a field.
pub(super) const FIELD: usize = 200;

/// The maximum number of bytes of a row that is decoded for a list.
const SHORT: usize = 1 << 16;

/// The column of rows that are not structs.
const ROW: &str = "row";

/// The keys or the rows of a table or of an index that a view lists or exports.
pub(super) struct List<'l> {
    page: &'l Page,
    pub(super) table: &'l UntypedTable,
    /// The fields of the key of the index, or of the primary key.
    fields: Vec<UntypedField>,
    index: Option<&'l str>,
    /// The values of the leading fields.
    values: Vec<String>,
    query: &'l Parameters,
}

impl<'l> List<'l> {
    /// Reads the parameters of a view: the values `v0`, `v1` and so on, the bounds `from` and `to` of the next field, `order`, `after`,
    /// and the columns `c`.
    pub(super) fn of(
        page: &'l Page,
        table: &'l UntypedTable,
        index: Option<&'l str>,
        query: &'l Parameters,
    ) -> Result<Self, Failure> {
        let fields = match index {
            None => table.primary_key(),
            Some(index) => table.key_of(index).ok_or_else(|| {
                Failure::not_found(format!("table `{}` has no index `{index}`", table.name()))
            })?,
        };
        let value = |at: usize| query.get(&format!("v{at}")).unwrap_or_default().to_owned();
        let mut values: Vec<_> = (0..fields.len()).map(value).collect();
        while values.last().is_some_and(String::is_empty) {
            values.pop();
        }
        if let Some(gap) = values.iter().position(String::is_empty) {
            let name = fields.get(gap).map_or("", |field| field.name);
            return Err(Failure::arguments(format!(
                "fill in the fields from the first one on: `{name}` is empty; an empty text is written `\"\"`"
            )));
        }
        Ok(Self { page, table, fields, index, values, query })
    }

    /// Whether the view lists only a part of the keys.
    pub(super) fn is_part(&self) -> bool {
        !self.values.is_empty()
            || ["from", "to", "after"].iter().any(|it| self.query.get(it).is_some())
    }

    fn is_reverse(&self) -> bool {
        self.query.get("order") == Some("desc")
    }

    /// Returns the range of the keys with these values. Without bounds, the last value is a prefix if it is text.
    pub(super) fn range(&self, after: Option<&str>) -> Result<UntypedRange, Failure> {
        let range = |values, next| {
            let fields = (self.fields.as_slice(), self.table.primary_key());
            part::range(self.index, (fields.0, &fields.1), (values, next), after, self.is_reverse())
        };
        let bound = |name| self.query.get(name).unwrap_or_default();
        let (from, to) = (bound("from"), bound("to"));
        if !(from.is_empty() && to.is_empty()) {
            return range(&self.values, Next::Range(from, to));
        }
        match self.values.split_last() {
            Some((last, values)) if self.is_text(values.len(), last) => {
                range(values, Next::StartingWith(last))
            }
            _ => range(&self.values, Next::All),
        }
    }

    /// Whether a field can begin with this text.
    fn is_text(&self, field: usize, text: &str) -> bool {
        let mut prefix = KeyBuf::new();
        self.fields.get(field).is_some_and(|field| {
            !field.is_hash && field.shape.write_prefix(text, &mut prefix).is_ok()
        })
    }

    /// Returns the query of a link with the same filter.
    fn query(&self, is_reverse: bool, after: Option<&str>) -> String {
        let names: Vec<_> = (0..self.values.len()).map(|at| format!("v{at}")).collect();
        let values = names.iter().map(String::as_str).zip(self.values.iter().map(String::as_str));
        let bounds = ["from", "to"].into_iter().filter_map(|it| Some((it, self.query.get(it)?)));
        let order = is_reverse.then_some(("order", "desc"));
        let after = after.map(|after| ("after", after));
        self.query.query(values.chain(bounds).chain(order).chain(after))
    }

    /// Returns a link to this view with other parameters.
    fn link(&self, is_reverse: bool, after: Option<&str>) -> String {
        format!("{}?{}#rows", self.path(), self.query(is_reverse, after))
    }

    /// Returns the last part of the view's path.
    fn path(&self) -> String {
        url(self.index.unwrap_or(self.table.name()))
    }

    /// Returns the names of the fields that rows of the table have, or had once; none for rows that are not structs.
    pub(super) fn known(&self) -> Result<Vec<String>, Failure> {
        let mut known = Vec::new();
        for list in self.page.store.row_lists(self.table.name())? {
            for field in list.fields.into_iter().flatten() {
                if !known.contains(&field.name) {
                    known.push(field.name);
                }
            }
        }
        Ok(known)
    }

    /// Returns the search, and a page of keys with their rows.
    pub(super) fn shown(&self, up: &str) -> Result<Markup, Failure> {
        let after = self.query.get("after");
        let (range, primary) = (self.range(after)?, self.table.primary_key());
        let mut found = Vec::new();
        let (mut last, mut has_more) = (String::new(), false);
        let begun = Instant::now();
        let txn = self.page.store.read()?;
        self.table.each_entry(&txn, &range, |entry| {
            // Each page has a row, so that its link to the next page leads on.
            let is_late = !found.is_empty() && begun.elapsed() > self.page.limits.rows;
            if found.len() == PAGE || is_late {
                has_more = true;
                return Ok::<_, Failure>(false);
            }
            last = part::cursor(entry.key, entry.primary_key);
            found.push(self.found(&txn, &entry, &primary, up)?);
            Ok(true)
        })?;
        drop(txn);
        let has_rows = found.iter().any(|found| !matches!(found.row, Row::Hidden(_)));
        let own = if has_rows { self.columns(&found, &primary)? } else { Vec::new() };
        let names: Vec<_> =
            own.iter().map(|name| value::printable(&shortened(name, FIELD))).collect();
        let mut columns: Vec<_> = Vec::new();
        if self.index.is_some() {
            columns.extend(self.fields.iter().map(|field| Column::Code(field.name)));
        }
        columns.extend(primary.iter().map(|field| Column::Code(field.name)));
        columns.extend(names.iter().map(|name| Column::Code(name)));
        if !has_rows && self.index.is_none() {
            columns.push(Column::Number("bytes of the row"));
        } else if has_rows && own.is_empty() {
            columns.push(Column::Code(ROW));
        }
        let what = if has_rows { "Rows" } else { "Keys" };
        let rows: Vec<_> = found.into_iter().map(|found| found.cells(&own, self.index)).collect();
        let is_reverse = self.is_reverse();
        Ok(html! {
            section #rows {
                h2 { (what) }
                (self.search(if has_rows { self.known()? } else { Vec::new() }, &own))
                @if rows.is_empty() { p.empty { "There are none." } }
                @else { (table(what, &columns, &rows)) }
                p.pages {
                    @if after.is_some() { a href=(self.link(is_reverse, None)) { "First page" } }
                    @if has_more { a rel="next" href=(self.link(is_reverse, Some(&last))) { "Next page" } }
                    a href=(self.link(!is_reverse, None)) {
                        (if is_reverse { "In ascending order" } else { "In descending order" })
                    }
                    @if has_rows {
                        @for (form, name) in [("jsonl", "JSON lines"), ("csv", "CSV")] {
                            a href=(self.export(up, form)) download { "Export as " (name) }
                        }
                    }
                }
            }
        })
    }

    /// Returns the path of the export of all rows with this filter.
    fn export(&self, up: &str, form: &str) -> String {
        let index = self.index.map_or_else(String::new, |index| format!("/{}", url(index)));
        let query = self.query(self.is_reverse(), None);
        format!("{up}export/{}{index}?form={form}&{query}", url(self.table.name()))
    }

    /// Returns the columns of the rows besides those of their keys: the chosen ones, or the fields in the order in which they come.
    fn columns(&self, found: &[Found], primary: &[UntypedField]) -> Result<Vec<String>, Failure> {
        if !self.query.columns().is_empty() {
            return Ok(self.query.columns().to_vec());
        }
        // A key of an index can have another value than the field with its name.
        let catalog = self.page.catalog()?;
        let own = catalog.tables.iter().find(|table| table.name == self.table.name());
        let own = own.into_iter().flat_map(|table| &table.indexes);
        let own = own.filter(|index| Some(index.name.as_str()) == self.index);
        let own = own.flat_map(|index| &index.key);
        let own = own.filter(|key| ["field", "desc"].contains(&key.form.as_str()));
        let keys: Vec<_> = primary
            .iter()
            .map(|field| field.name)
            .chain(own.map(|key| key.name.as_str()))
            .collect();
        let mut columns: Vec<String> = Vec::new();
        let rows = found.iter().filter_map(|found| match &found.row {
            Row::Fields(row) => Some(row),
            _ => None,
        });
        for (name, _) in rows.flat_map(|row| &row.0) {
            let is_shown = keys.contains(&name.as_str()) || columns.contains(name);
            if columns.len() < COLUMNS && !is_shown {
                columns.push(name.clone());
            }
        }
        Ok(columns)
    }

    /// Returns the form of the filter. `known` are the fields that can be columns, `shown` those that are.
    fn search(&self, known: Vec<String>, shown: &[String]) -> Markup {
        let chosen = self.query.columns();
        let further = chosen.iter().filter(|name| !known.contains(name)).cloned();
        let further: Vec<_> = further.collect();
        let next = self.fields.get(self.values.len());
        let bounds = ["from", "to"].map(|name| self.query.get(name).unwrap_or_default());
        html! {
            form method="get" action={ (self.path()) "#rows" } role="search" {
                @for (at, field) in self.fields.iter().enumerate() {
                    div {
                        label for={ "v" (at) } { (field.name) " " small { (field.shape) } }
                        input id={ "v" (at) } name={ "v" (at) } value=(self.values.get(at).map_or("", String::as_str))
                            autocomplete="off" spellcheck="false";
                    }
                }
                @if let Some(next) = next.filter(|field| !field.is_hash) {
                    @for (name, label, value) in [("from", "from", bounds[0]), ("to", "up to, without", bounds[1])] {
                        div {
                            label for=(name) { (next.name) " " (label) }
                            input id=(name) name=(name) value=(value) autocomplete="off" spellcheck="false";
                        }
                    }
                }
                @if self.is_reverse() { input type="hidden" name="order" value="desc"; }
                button { "Search" }
                p.hint { "Fill in the leading fields. The last one may be the start of a text, if there is no range of the next one." }
                @if !known.is_empty() {
                    details.columns open[!chosen.is_empty()] {
                        summary { "Columns" }
                        fieldset {
                            legend { "Show these fields; without a choice, all of them" }
                            @for (at, name) in known.into_iter().chain(further).enumerate() {
                                span {
                                    input type="checkbox" id={ "c" (at) } name="c" value=(name)
                                        checked[!chosen.is_empty() && shown.contains(&name)];
                                    label for={ "c" (at) } { (value::printable(&shortened(&name, FIELD))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the row of an entry. An entry or a row that can't be decoded is shown with its error.
    fn found(
        &self,
        txn: &ReadTxn<'_>,
        entry: &UntypedEntry<'_>,
        primary: &[UntypedField],
        up: &str,
    ) -> Result<Found, Failure> {
        let mut cells = Vec::new();
        if self.index.is_some() {
            cells.extend(texts(&self.fields, entry.key));
        }
        let keys = cells.len();
        cells.extend(texts(primary, entry.primary_key));
        let mut cells: Vec<_> = cells.iter().map(|cell| html! { (cell) }).collect();
        let row = self.row(txn, entry)?;
        if !matches!(row, Row::Hidden(_) | Row::Missing)
            && let Some(key) = cells.get_mut(keys)
        {
            let (table, own) = (url(self.table.name()), value::hex(entry.primary_key));
            *key = html! { a.row href={ (up) "row/" (table) "?key=" (own) } { (key) } };
        }
        Ok(Found { cells, row })
    }

    fn row(&self, txn: &ReadTxn<'_>, entry: &UntypedEntry<'_>) -> Result<Row, Failure> {
        if !self.page.shows_rows(self.table) {
            return Ok(Row::Hidden(entry.data.len() as u64));
        }
        Ok(match self.data(txn, entry)? {
            // An eventual index can have the key of a row that was deleted.
            None if self.index.is_some_and(|index| self.table.is_eventual(index)) => Row::Missing,
            None => {
                Row::Damaged("the entry has no row; run `verify`, and then `repair`".to_owned())
            }
            Some(data) if data.len() > SHORT => Row::Long(data.len() as u64),
            Some(data) => {
                let mut json = String::new();
                match self.page.append(self.table, &UntypedEntry { data, ..*entry }, &mut json) {
                    Ok(true) => Row::Fields(fields(&json)),
                    Ok(false) => Row::Hidden(data.len() as u64),
                    Err(failure) => Row::Damaged(failure.message),
                }
            }
        })
    }

    /// Returns the bytes of the row of an entry; `None`: there is no such row.
    pub(super) fn data<'e>(
        &'e self,
        txn: &'e ReadTxn<'_>,
        entry: &UntypedEntry<'e>,
    ) -> Result<Option<&'e [u8]>, Failure> {
        match self.index {
            None => Ok(Some(entry.data)),
            Some(_) => Ok(self.table.row(txn, entry.primary_key)?),
        }
    }
}

/// A row of a page.
struct Found {
    /// The keys.
    cells: Vec<Markup>,
    row: Row,
}

enum Row {
    Fields(Fields),
    /// The page does not show the row, which has this number of bytes.
    Hidden(u64),
    /// The row has too many bytes.
    Long(u64),
    /// The row was deleted.
    Missing,
    /// The error.
    Damaged(String),
}

impl Found {
    /// Returns the cells of the row. A cell of text has the place of all columns.
    fn cells(self, columns: &[String], index: Option<&str>) -> Vec<Markup> {
        let Self { mut cells, row } = self;
        match row {
            Row::Fields(row) => cells.extend(columns.iter().map(|name| {
                let text = row.at(name).map(text).unwrap_or_default();
                html! { (text) }
            })),
            Row::Hidden(length) if index.is_none() => cells.push(size(length)),
            Row::Hidden(_) => {}
            Row::Long(length) => cells.push(html! { "a row of " (bytes(length)) }),
            Row::Missing => cells.push(html! { "deleted" }),
            Row::Damaged(error) => {
                let error = value::printable(&shortened(&error, 2 * FIELD));
                cells.push(html! { span.error { (error) } });
            }
        }
        cells
    }
}

/// Returns the fields of a row. A row that is not a struct has one.
fn fields(json: &str) -> Fields {
    Fields::read(json).unwrap_or_else(|_| {
        Fields(vec![(ROW.to_owned(), serde_json::from_str(json).unwrap_or_default())])
    })
}

/// Returns a value as text: JSON, except a text.
fn text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => shortened(text, FIELD),
        other => shortened(&other.to_string(), FIELD),
    };
    value::printable(&text)
}

/// Returns the fields of a key; of one that can't be decoded, its bytes and the reason.
fn texts(fields: &[UntypedField], key: &[u8]) -> Vec<String> {
    match KeyShape::read_key(fields.iter().map(|field| &field.shape), key) {
        Ok(values) => {
            let shown = fields.iter().zip(&values);
            shown.map(|(field, own)| shortened(&value::show(&field.shape, own), FIELD)).collect()
        }
        Err(error) => {
            let bytes = shortened(&value::hex(key), FIELD);
            let first = format!("{bytes}: the key can't be decoded: {error}");
            let others = std::iter::repeat_n(String::new(), fields.len().saturating_sub(1));
            std::iter::once(first).chain(others).collect()
        }
    }
}
