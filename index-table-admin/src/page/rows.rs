//! Rows: a page of keys in their order with a search, and a single row.

use std::{collections::HashMap, time::Instant};

use index_table::{
    __private::admin::{KeyBuf, KeyShape, UntypedEntry, UntypedField, UntypedRange, UntypedTable},
    ReadTxn,
};
use maud::{Markup, html};

use super::{
    Page,
    frame::{self, Column, View, shortened, size, table, url},
};
use crate::{failure::Failure, output::bytes, value};

/// The maximum number of keys in a page.
pub(super) const PAGE: usize = 50;

/// The maximum number of characters of a key's field, and of a row in a list.
const FIELD: usize = 200;
const ROW: usize = 400;

/// The maximum number of bytes of a row that is decoded for a list, and for its own view.
const SHORT: usize = 1 << 16;
const WHOLE: usize = 1 << 22;

/// The keys of a table or of an index that a view lists.
pub(super) struct List<'l> {
    page: &'l Page,
    table: &'l UntypedTable,
    /// The fields of the key of the index, or of the primary key.
    fields: Vec<UntypedField>,
    index: Option<&'l str>,
    /// The last part of the view's path.
    path: String,
    /// The values of the leading fields.
    values: Vec<String>,
    is_reverse: bool,
    after: Option<&'l str>,
}

impl<'l> List<'l> {
    /// Reads the parameters of a view: `v0`, `v1` and so on, `order` and `after`.
    pub(super) fn of(
        page: &'l Page,
        table: &'l UntypedTable,
        index: Option<&'l str>,
        query: &'l HashMap<String, String>,
    ) -> Result<Self, Failure> {
        let fields = match index {
            None => table.primary_key(),
            Some(index) => table.key_of(index).ok_or_else(|| {
                Failure::not_found(format!("table `{}` has no index `{index}`", table.name()))
            })?,
        };
        let value = |at: usize| query.get(&format!("v{at}")).cloned().unwrap_or_default();
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
        Ok(Self {
            page,
            table,
            path: url(index.unwrap_or(table.name())),
            fields,
            index,
            values,
            is_reverse: query.get("order").is_some_and(|order| order == "desc"),
            after: query.get("after").map(String::as_str),
        })
    }

    /// Whether the view lists only a part of the keys.
    pub(super) fn is_part(&self) -> bool {
        !self.values.is_empty() || self.after.is_some()
    }

    /// Returns the range of the keys with these values. If the last value is text, it is a prefix.
    fn range(&self) -> Result<UntypedRange, Failure> {
        let mut start = KeyBuf::new();
        if let Some((last, values)) = self.values.split_last() {
            value::encode(&self.fields, values, &mut start).map_err(Failure::arguments)?;
            let field = self.fields.get(values.len());
            let before = start.as_bytes().len();
            let is_text = field.is_some_and(|field| {
                !field.is_hash && field.shape.write_prefix(last, &mut start).is_ok()
            });
            if !is_text {
                debug_assert!(start.as_bytes().len() >= before);
                start = KeyBuf::new();
                value::encode(&self.fields, &self.values, &mut start)
                    .map_err(Failure::arguments)?;
            }
        }
        let mut range = UntypedRange {
            index: self.index.map(str::to_owned),
            start: start.as_bytes().to_vec(),
            is_prefix: true,
            reverse: self.is_reverse,
            ..UntypedRange::default()
        };
        if let Some(after) = self.after {
            let keys = after.split_once('.');
            let keys = keys.and_then(|(key, own)| Some((value::bytes(key)?, value::bytes(own)?)));
            let is_own = |(key, own): &(Vec<u8>, Vec<u8>)| {
                range.contains(if self.index.is_some() { key } else { own })
            };
            let keys = keys.filter(is_own);
            range.after =
                Some(keys.ok_or_else(|| Failure::arguments("this is not a link of this page"))?);
        }
        Ok(range)
    }

    /// Returns a link to this view with other parameters.
    fn link(&self, is_reverse: bool, after: Option<&str>) -> String {
        let values = self.values.iter().enumerate();
        let values = values.map(|(at, value)| format!("v{at}={}", url(value)));
        let order = is_reverse.then(|| "order=desc".to_owned());
        let after = after.map(|after| format!("after={}", url(after)));
        let all: Vec<_> = values.chain(order).chain(after).collect();
        format!("{}?{}#rows", self.path, all.join("&"))
    }

    /// Returns the search, and a page of keys with their rows.
    pub(super) fn shown(&self, up: &str) -> Result<Markup, Failure> {
        let (range, primary) = (self.range()?, self.table.primary_key());
        let mut rows: Vec<Vec<Markup>> = Vec::new();
        let (mut last, mut has_more, mut has_rows) = (String::new(), false, false);
        let begun = Instant::now();
        let txn = self.page.store.read()?;
        self.table.each_entry(&txn, &range, |entry| {
            // Each page has a row, so that its link to the next page leads on.
            let is_late = !rows.is_empty() && begun.elapsed() > self.page.limits.rows;
            if rows.len() == PAGE || is_late {
                has_more = true;
                return Ok::<_, Failure>(false);
            }
            last = format!("{}.{}", value::hex(entry.key), value::hex(entry.primary_key));
            let mut cells = Vec::new();
            if self.index.is_some() {
                cells.extend(shown(&self.fields, entry.key)?);
            }
            cells.extend(shown(&primary, entry.primary_key)?);
            let row = self.row(&txn, &entry)?;
            let mut cells: Vec<_> = cells.iter().map(|cell| html! { (cell) }).collect();
            if let Some(row) = row {
                has_rows = true;
                let view = format!(
                    "{up}row/{}?key={}",
                    url(self.table.name()),
                    value::hex(entry.primary_key)
                );
                cells.push(html! { a.row href=(view) { (row) } });
            } else if self.index.is_none() {
                cells.push(size(entry.data.len() as u64));
            }
            rows.push(cells);
            Ok(true)
        })?;
        drop(txn);
        let mut columns: Vec<_> = Vec::new();
        if self.index.is_some() {
            columns.extend(self.fields.iter().map(|field| Column::Code(field.name)));
        }
        columns.extend(primary.iter().map(|field| Column::Code(field.name)));
        if has_rows {
            columns.push(Column::Code("row"));
        } else if self.index.is_none() {
            columns.push(Column::Number("bytes of the row"));
        }
        let what = if has_rows { "Rows" } else { "Keys" };
        Ok(html! {
            section #rows {
                h2 { (what) }
                (self.search())
                @if rows.is_empty() { p.empty { "There are none." } }
                @else { (table(what, &columns, &rows)) }
                p.pages {
                    @if self.after.is_some() { a href=(self.link(self.is_reverse, None)) { "First page" } }
                    @if has_more { a rel="next" href=(self.link(self.is_reverse, Some(&last))) { "Next page" } }
                    a href=(self.link(!self.is_reverse, None)) {
                        (if self.is_reverse { "In ascending order" } else { "In descending order" })
                    }
                }
            }
        })
    }

    fn search(&self) -> Markup {
        html! {
            form method="get" action={ (self.path) "#rows" } role="search" {
                @for (at, field) in self.fields.iter().enumerate() {
                    div {
                        label for={ "v" (at) } { (field.name) " " small { (field.shape) } }
                        input id={ "v" (at) } name={ "v" (at) } value=(self.values.get(at).map_or("", String::as_str))
                            autocomplete="off" spellcheck="false";
                    }
                }
                @if self.is_reverse { input type="hidden" name="order" value="desc"; }
                button { "Search" }
                p.hint { "Fill in the leading fields. The last one may be the start of a text." }
            }
        }
    }

    /// Returns the row of an entry as JSON; `None` if the program doesn't have its type.
    fn row(&self, txn: &ReadTxn<'_>, entry: &UntypedEntry<'_>) -> Result<Option<String>, Failure> {
        if self.page.types.is_empty() {
            return Ok(None);
        }
        let data = match self.index {
            None => Some(entry.data),
            Some(_) => self.table.row(txn, entry.primary_key)?,
        };
        // An eventual index may have the key of a row that was deleted.
        let Some(data) = data else { return Ok(None) };
        if data.len() > SHORT {
            return Ok(Some(format!("a row of {}", bytes(data.len() as u64))));
        }
        let row = self.page.shown(self.table, &UntypedEntry { data, ..*entry })?;
        Ok(row.map(|row| value::printable(&shortened(&row, ROW))))
    }
}

fn shown(fields: &[UntypedField], key: &[u8]) -> Result<Vec<String>, Failure> {
    let values = KeyShape::read_key(fields.iter().map(|field| &field.shape), key);
    let values =
        values.map_err(|error| Failure::damage(format!("a key can't be decoded: {error}")))?;
    let shown = fields.iter().zip(&values);
    Ok(shown.map(|(field, own)| shortened(&value::show(&field.shape, own), FIELD)).collect())
}

/// Shows a single row.
pub(super) fn row(
    page: &Page,
    name: &str,
    query: &HashMap<String, String>,
) -> Result<Markup, Failure> {
    let own = page.table(name)?;
    let key = query.get("key").and_then(|key| value::bytes(key));
    let key = key.ok_or_else(|| Failure::arguments("this is not a link of this page"))?;
    let primary = own.primary_key();
    let values = KeyShape::read_key(primary.iter().map(|field| &field.shape), &key);
    let values = values.map_err(|_| Failure::arguments("this is not a link of this page"))?;
    let txn = page.store.read()?;
    let missing = || Failure::not_found(format!("table `{name}` has no row with this key"));
    let data = own.row(&txn, &key)?.ok_or_else(missing)?;
    let entry = UntypedEntry { key: &[], primary_key: &key, data };
    let is_long = data.len() > WHOLE;
    let json = if is_long { None } else { page.shown(&own, &entry)? };
    let length = data.len() as u64;
    drop(txn);
    let view = View {
        title: "Row",
        up: "../",
        above: vec![
            ("Overview".to_owned(), "./".to_owned()),
            (name.to_owned(), format!("table/{}", url(name))),
        ],
        is_live: false,
    };
    let body = html! {
        dl.figures {
            @for (field, own) in primary.iter().zip(&values) {
                (frame::figure(field.name, &shortened(&value::show(&field.shape, own), FIELD), ""))
            }
            (frame::figure("bytes", &bytes(length), ""))
        }
        @match json {
            Some(json) => pre.json tabindex="0" role="region" aria-label="The row as JSON" { (pretty(&json)) },
            None if is_long => p.empty { "The row is too long for this page. The command " code { "get" } " shows it." },
            None => p.empty { "This program doesn't have the type of the row, so only keys are shown." },
        }
    };
    Ok(frame::page(page, &view, &body))
}

/// Returns JSON in several lines. Its numbers are unchanged.
fn pretty(json: &str) -> String {
    let (mut pretty, mut depth, mut is_text, mut is_escaped) =
        (String::new(), 0_usize, false, false);
    let line = |pretty: &mut String, depth: usize| {
        pretty.push('\n');
        pretty.extend(std::iter::repeat_n("  ", depth));
    };
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if is_text {
            is_text = is_escaped || character != '"';
            is_escaped = character == '\\' && !is_escaped;
            pretty.push_str(&value::printable(character.encode_utf8(&mut [0; 4])));
            continue;
        }
        match character {
            '{' | '[' => {
                pretty.push(character);
                depth += 1;
                match characters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => {
                        depth -= 1;
                        pretty.push(end);
                    }
                    None => line(&mut pretty, depth),
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut pretty, depth);
                pretty.push(character);
            }
            ',' => {
                pretty.push(character);
                line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            other => {
                is_text = other == '"';
                pretty.push(other);
            }
        }
    }
    pretty
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn json_in_several_lines_has_the_same_values() {
        let json = r#"{"a":[1.0,{}],"b":"x,\"{:\\","c":[],"d":18446744073709551616}"#;
        let shown = pretty(json);
        assert_eq!(
            shown,
            "{\n  \"a\": [\n    1.0,\n    {}\n  ],\n  \"b\": \"x,\\\"{:\\\\\",\n  \"c\": [],\n  \"d\": 18446744073709551616\n}"
        );
    }
}
