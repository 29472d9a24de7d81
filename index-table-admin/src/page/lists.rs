//! The lists of the fields of a table's rows: their history, and the rows of each.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use index_table::__private::admin::{RowField, RowList, UntypedRange, UntypedTable};
use maud::{Markup, html};

use super::{
    Page,
    frame::{self, Column, View, age, code, grouped, number, shortened, size, table as grid, url},
    parameters::Parameters,
    rows::FIELD,
};
use crate::{failure::Failure, value};

/// The maximum number of lists of a view. Of more lists, the last ones are shown.
const LISTS: usize = 100;

/// If a table has at most this number of rows, the rows of each list are counted for each view.
const FEW: u64 = 200_000;

/// The limits for counting, and the time for which the result is shown.
const TIME: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(15);
const FRESH: Duration = Duration::from_mins(1);

/// For each list, the rows, their bytes, and some of their versions.
pub(super) struct Counted {
    lists: BTreeMap<u32, (u64, u64, Vec<u32>)>,
    rows: u64,
    /// The rows whose list can't be read.
    damaged: u64,
    is_complete: bool,
}

/// Shows the lists of a table, oldest first.
pub(super) fn view(page: &Page, name: &str, query: &Parameters) -> Result<Markup, Failure> {
    let own = page.table(name)?;
    let lists = page.store.row_lists(name)?;
    let sizes = page.sizes()?;
    let rows = sizes.iter().find(|size| size.table == name).map_or(0, |size| size.rows);
    let is_asked = query.get("count").is_some();
    let ask = html! {
        p { a.button href={ (url(name)) "?count=1" } { "Count the rows of each list" } " This reads " (number(rows)) " rows." }
    };
    let (counted, note) = if rows > FEW && !is_asked {
        (None, ask)
    } else {
        let limit = if is_asked { LONG } else { TIME };
        let key = format!("{name} {is_asked}");
        match page.lists.try_get(&key, FRESH, || count(page, &own, lists.len(), limit))? {
            None => (
                None,
                html! { p.hint { "Other rows are being counted. Reload this page in a moment." } },
            ),
            Some((counted, _)) if counted.is_complete => (Some(counted), html! {}),
            Some((counted, _)) => {
                let note = html! {
                    p.hint { "Counted are the first " (number(counted.rows)) " rows, in " (age(limit)) "." }
                    @if !is_asked { (ask) }
                };
                (Some(counted), note)
            }
        }
    };
    let first = lists.len().saturating_sub(LISTS);
    let view = View {
        title: &format!("{name}: lists"),
        up: "../",
        above: vec![
            ("Overview".to_owned(), "./".to_owned()),
            (name.to_owned(), format!("table/{}", url(name))),
        ],
        is_live: false,
    };
    let damaged = counted.as_ref().map_or(0, |counted| counted.damaged);
    let body = html! {
        section {
            h2 { "History" }
            p.hint {
                "A row begins with the number of the list of its fields. A list is recorded when the first row needs it, and is never changed. \
                 A store does not record when that was: later lists have larger numbers."
            }
            (note)
            @if damaged > 0 { p.error role="alert" { (number(damaged)) " rows have no list that can be read; run " code { "verify" } "." } }
            @if lists.is_empty() { p.empty { "There are none: no row was written, or the record of the lists is damaged." } }
            @else { (history(&lists, first, counted.as_deref())) }
        }
        @for (at, list) in lists.iter().enumerate().skip(first) {
            section id={ "list" (at) } {
                h2 { "List " (at) }
                (fields(list, at))
            }
        }
    };
    Ok(frame::page(page, &view, &body))
}

fn history(lists: &[RowList], first: usize, counted: Option<&Counted>) -> Markup {
    let rows: Vec<_> = lists
        .iter()
        .enumerate()
        .skip(first)
        .map(|(at, list)| {
            let before = at.checked_sub(1).and_then(|before| lists.get(before));
            let mut cells = vec![
                html! { a href={ "#list" (at) } { (at) } },
                code(&printable(&list.name)),
                html! { (change(before, list)) },
            ];
            if let Some(counted) = counted {
                let found = u32::try_from(at).ok().and_then(|at| counted.lists.get(&at));
                let (rows, bytes, versions) = found.cloned().unwrap_or_default();
                let versions: Vec<_> = versions.iter().map(u32::to_string).collect();
                cells.extend([html! { (versions.join(", ")) }, number(rows), size(bytes)]);
            }
            cells
        })
        .collect();
    let mut columns = vec![Column::Text("list"), Column::Code("struct"), Column::Text("change")];
    if counted.is_some() {
        columns.extend([
            Column::Text("row versions"),
            Column::Number("rows"),
            Column::Number("bytes of rows"),
        ]);
    }
    html! {
        @if first > 0 { p.hint { "The first " (grouped(first as u64)) " lists are not shown." } }
        (grid("Lists", &columns, &rows))
    }
}

/// Describes what a list changes.
fn change(before: Option<&RowList>, list: &RowList) -> String {
    let Some(before) = before else { return "first".to_owned() };
    let of = |list: &RowList| list.fields.clone().unwrap_or_default();
    let (old, new) = (of(before), of(list));
    let find = |all: &[RowField], name: &str| all.iter().find(|field| field.name == name).cloned();
    let mut parts = Vec::new();
    for field in &new {
        match find(&old, &field.name) {
            None => parts.push(format!("adds {}", field.name)),
            Some(own) if own.kind != field.kind => parts.push(format!("changes {}", field.name)),
            Some(own) if own.absent != field.absent => {
                parts.push(format!("{} can be absent", field.name));
            }
            Some(_) => {}
        }
    }
    let removed = old.iter().filter(|field| find(&new, &field.name).is_none());
    parts.extend(removed.map(|field| format!("removes {}", field.name)));
    let text =
        if parts.is_empty() { "the order or an inner list".to_owned() } else { parts.join(", ") };
    printable(&text)
}

fn fields(list: &RowList, at: usize) -> Markup {
    let Some(fields) = &list.fields else {
        return html! { p.empty { "The rows are not structs, but " code { (printable(&list.name)) } "." } };
    };
    let rows: Vec<_> = fields
        .iter()
        .map(|field| {
            let absent = if field.absent { "yes" } else { "" };
            vec![code(&printable(&field.name)), code(&printable(&field.kind)), html! { (absent) }]
        })
        .collect();
    let columns = [Column::Code("field"), Column::Code("kind"), Column::Text("can be absent")];
    grid(&format!("Fields of list {at}"), &columns, &rows)
}

/// Shows the list of a row.
pub(super) fn of_row(page: &Page, name: &str, list: u32) -> Result<Markup, Failure> {
    let lists = page.store.row_lists(name)?;
    let at = usize::try_from(list).unwrap_or(usize::MAX);
    Ok(html! {
        section {
            h2 { "List" }
            p { a href={ "../lists/" (url(name)) } { "The lists of the table" } " " small { (lists.len()) } }
            @match lists.get(at) {
                Some(own) => (fields(own, at)),
                None => p.error role="alert" { "The store has no list " (list) "; run " code { "verify" } "." },
            }
        }
    })
}

/// Counts the rows of each list until a time.
fn count(
    page: &Page,
    table: &UntypedTable,
    lists: usize,
    limit: Duration,
) -> Result<Counted, Failure> {
    let end = Instant::now() + limit;
    let mut counted = Counted { lists: BTreeMap::new(), rows: 0, damaged: 0, is_complete: true };
    let txn = page.store.read()?;
    table.each_entry(&txn, &UntypedRange::default(), |entry| {
        if counted.rows.is_multiple_of(1024) && Instant::now() > end {
            counted.is_complete = false;
            return Ok::<_, Failure>(false);
        }
        counted.rows += 1;
        let list = table.list_of(&entry).ok();
        let Some((version, list)) = list.filter(|(_, list)| (*list as usize) < lists) else {
            counted.damaged += 1;
            return Ok(true);
        };
        let own = counted.lists.entry(list).or_default();
        own.0 += 1;
        own.1 += entry.data.len() as u64;
        if !own.2.contains(&version) && own.2.len() < 8 {
            own.2.push(version);
        }
        Ok(true)
    })?;
    Ok(counted)
}

fn printable(text: &str) -> String {
    value::printable(&shortened(text, 2 * FIELD))
}
