//! The view of a table, and the view of an index.

use std::time::{Duration, Instant};

use index_table::{
    __private::admin::{Latency, UntypedTable},
    IndexState, Usage,
    report::{CatalogIndex, CatalogKey},
};
use maud::{Markup, html};

use super::{
    Page,
    distribution::{self, KeysOfIndex},
    frame::{
        self, Column, View, age, badge, code, counted, figure, grouped, number, percent, shortened,
        table as grid, url,
    },
    parameters::Parameters,
    picture::{bar, histogram},
    rows::List,
};
use crate::{failure::Failure, output::bytes, value};

/// If an index has at most this number of entries, its keys are measured for each view.
const FEW: u64 = 2_000_000;

/// The limits for measuring keys, and the time for which the result is shown.
const TIME: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(15);
const FRESH: Duration = Duration::from_mins(1);

/// The maximum number of characters of a common value.
const VALUE: usize = 80;

fn usage(page: &Page, table: &UntypedTable) -> Option<Usage> {
    page.store.usage().into_iter().find(|usage| usage.table == table.name())
}

/// Shows the rows of a table in the order of their primary keys.
pub(super) fn table(page: &Page, name: &str, query: &Parameters) -> Result<Markup, Failure> {
    let own = page.table(name)?;
    let list = List::of(page, &own, None, query)?;
    let rows = list.shown("../")?;
    let catalog = page.catalog()?;
    let recorded = catalog.tables.iter().find(|table| table.name == name);
    let sizes = page.sizes()?;
    let size = sizes.iter().find(|size| size.table == name);
    let view = View { title: name, up: "../", above: vec![top()], is_live: false };
    let body = html! {
        @if !list.is_part() {
            dl.figures {
                @if let Some(size) = size {
                    (figure("rows", &counted(size.rows, size.rows_exact), ""))
                    (figure("bytes of rows", &bytes(size.bytes), ""))
                }
                @if let Some(recorded) = recorded {
                    (figure("primary key", &fields(&recorded.primary_key), ""))
                    (figure("row version", &recorded.version.to_string(), ""))
                }
            }
            p { a href={ "../lists/" (url(name)) } { "The lists of the fields of its rows" } }
            nav.indexes aria-label="Indexes" {
                h2 { "Indexes" }
                ul {
                    @for index in recorded.into_iter().flat_map(|table| &table.indexes) {
                        @if own.key_of(&index.name).is_some() {
                            li {
                                a href={ (url(name)) "/" (url(&index.name)) } { (index.name) }
                                @if index.state != IndexState::Readable { " " (badge(&index.state.to_string(), false)) }
                            }
                        }
                    }
                }
            }
            @if let Some(usage) = usage(page, &own).filter(|_| page.recorded.is_none()) {
                section { h2 { "Use" }
                    dl.figures {
                        (figure("look-ups by primary key", &grouped(usage.gets), ""))
                        (figure("scans", &grouped(usage.scans), &format!("{} rows", grouped(usage.scanned))))
                        (figure("inserted", &grouped(usage.inserts), ""))
                        (figure("put", &grouped(usage.puts), ""))
                        (figure("updated", &grouped(usage.updates), ""))
                        (figure("deleted", &grouped(usage.deletes), ""))
                    }
                }
            }
        }
        (rows)
    };
    Ok(frame::page(page, &view, &body))
}

fn top() -> (String, String) {
    ("Overview".to_owned(), "./".to_owned())
}

/// Shows how an index is used, the distribution of its keys, and its keys.
pub(super) fn index(
    page: &Page,
    name: &str,
    index: &str,
    query: &Parameters,
) -> Result<Markup, Failure> {
    let own = page.table(name)?;
    let list = List::of(page, &own, Some(index), query)?;
    let catalog = page.catalog()?;
    let recorded = catalog.tables.iter().find(|table| table.name == name);
    let recorded =
        recorded.and_then(|table| table.indexes.iter().find(|recorded| recorded.name == index));
    let is_readable = recorded.is_none_or(|index| index.state == IndexState::Readable);
    let above = vec![top(), (name.to_owned(), format!("table/{}", url(name)))];
    let view = View { title: &format!("{name}.{index}"), up: "../../", above, is_live: false };
    let body = html! {
        @if !list.is_part() {
            (declared(page, name, index, recorded)?)
            @if page.recorded.is_none() { (used(page, &own, index)) }
            @if is_readable { (keys(page, &own, index, query.get("measure").is_some())?) }
        }
        @if is_readable { (list.shown("../../")?) }
        @else { p.error role="alert" { "The index is not readable, so its keys can't be listed." } }
    };
    Ok(frame::page(page, &view, &body))
}

/// Shows the fields of a key with their types.
fn fields(key: &[CatalogKey]) -> String {
    let field = |field: &CatalogKey| match field.form.as_str() {
        "field" => format!("{}: {}", field.name, field.shape),
        form => format!("{form} {}: {}", field.name, field.shape),
    };
    key.iter().map(field).collect::<Vec<_>>().join(", ")
}

fn declared(
    page: &Page,
    table: &str,
    index: &str,
    recorded: Option<&CatalogIndex>,
) -> Result<Markup, Failure> {
    let sizes = page.sizes()?;
    let size = sizes.iter().find(|size| size.table == table);
    let size = size.and_then(|size| size.indexes.iter().find(|size| size.name == index));
    Ok(html! {
        dl.figures {
            @if let Some(recorded) = recorded {
                div.figure { dt { "state" } dd { (badge(&recorded.state.to_string(), recorded.state == IndexState::Readable)) } }
                (figure("key", &fields(&recorded.key), ""))
                @let include = recorded.include.join(", ");
                (figure("strategy", recorded.strategy, &include))
                @if !recorded.options.is_empty() { (figure("options", &recorded.options.join(", "), "")) }
            }
            @if let Some(size) = size {
                (figure("entries", &counted(size.entries, size.entries_exact), ""))
                (figure("bytes", &bytes(size.bytes), ""))
            }
        }
    })
}

/// Shows the queries of an index and their costs, since the service opened the table.
fn used(page: &Page, table: &UntypedTable, index: &str) -> Markup {
    let usage = usage(page, table);
    let own = usage.as_ref().and_then(|usage| usage.indexes.iter().find(|own| own.name == index));
    let Some(own) = own else { return html! {} };
    let each = |number: u64| {
        let tenths = u128::from(number) * 10 / u128::from(own.queries.max(1));
        if own.queries == 0 {
            String::new()
        } else {
            format!("{}.{} a query", tenths / 10, tenths % 10)
        }
    };
    let latency = table.latency(Some(index)).filter(|latency| latency.count > 0);
    html! {
        section {
            h2 { "Use since the table was opened" }
            dl.figures {
                (figure("queries", &grouped(own.queries), ""))
                (figure("entries read", &grouped(own.entries), &each(own.entries)))
                (figure("rows looked up", &grouped(own.facts), &each(own.facts)))
                (figure("entries written", &grouped(own.written), ""))
                @if let Some(latency) = latency { (times(&latency)) }
            }
            @if !own.advice.is_empty() {
                ul.advice { @for advice in &own.advice { li { (advice) } } }
            }
        }
    }
}

fn times(latency: &Latency) -> Markup {
    let at =
        |percent: u64| latency.percentile(percent).map_or_else(|| "more than 8 s".to_owned(), age);
    html! { (figure("half of the queries take at most", &at(50), &format!("99 %: {}", at(99)))) }
}

/// Shows the distribution of the keys, and advice from it.
fn keys(page: &Page, table: &UntypedTable, index: &str, is_asked: bool) -> Result<Markup, Failure> {
    let sizes = page.sizes()?;
    let size = sizes.iter().find(|size| size.table == table.name());
    let size = size.and_then(|size| size.indexes.iter().find(|size| size.name == index));
    let (entries, is_exact) = size.map_or((0, true), |size| (size.entries, size.entries_exact));
    let own = url(index);
    let measure = |entries: u64| {
        html! {
            p { a.button href={ (own) "?measure=1" } { "Measure the distribution" } " This reads " (counted(entries, is_exact)) " entries." }
        }
    };
    let body = if entries > FEW && !is_asked {
        measure(entries)
    } else {
        let limit = if is_asked { LONG } else { TIME };
        let key = format!("{}.{index} {is_asked}", table.name());
        let found = page.keys.try_get(&key, FRESH, || {
            let txn = page.store.read()?;
            distribution::measure(table, &txn, index, Instant::now() + limit)
        })?;
        match found.as_ref().map(|(keys, age)| (keys.as_ref().as_ref(), age)) {
            None => {
                html! { p.hint { "Another distribution is being measured. Reload this page in a moment." } }
            }
            Some((None, _)) => html! {
                p.hint { "The entries could not be read within " (age(limit)) ". The command " code { "index-table analyze" } " has no limit." }
                @if !is_asked { (measure(entries)) }
            },
            Some((Some(keys), since)) => measured(keys, *since),
        }
    };
    Ok(html! { section { h2 { "Distribution of the keys" } (body) } })
}

fn measured(keys: &KeysOfIndex, since: Duration) -> Markup {
    let KeysOfIndex { analysis, advice, steps, unit, common } = keys;
    let first = analysis.keys.first();
    let name = first.map_or_else(String::new, |keys| keys.fields.join(", "));
    let label = format!("{} entries by {name}; {unit}", grouped(analysis.entries));
    let common: Vec<_> = common
        .iter()
        .map(|(own, entries)| {
            let part = percent(*entries, analysis.entries);
            vec![
                code(&shortened(&value::printable(own), VALUE)),
                number(*entries),
                frame::text(&part),
                bar(&[(*entries, "")], analysis.entries, &part),
            ]
        })
        .collect();
    let prefixes: Vec<_> = analysis
        .keys
        .iter()
        .map(|keys| {
            let rows = keys.rows;
            let figures = [keys.distinct, rows.min, rows.p50, rows.p90, rows.p99, rows.max];
            let figures = figures.into_iter().map(number);
            [code(&keys.fields.join(", "))].into_iter().chain(figures).collect()
        })
        .collect();
    let columns = [
        Column::Code("leading fields"),
        Column::Number("values"),
        Column::Number("fewest"),
        Column::Number("half up to"),
        Column::Number("90 %"),
        Column::Number("99 %"),
        Column::Number("most"),
    ];
    let of_common =
        [Column::Code("value"), Column::Number("entries"), Column::Number("part"), Column::Bar];
    let steps_table: Vec<_> =
        steps.iter().map(|step| vec![code(&step.label), number(step.entries)]).collect();
    html! {
        @if steps.is_empty() {
            p.hint { (if analysis.entries == 0 { "The index has no entries." } else { "The keys are hashes, which are distributed evenly." }) }
        } @else {
            figure {
                (histogram(steps, &label))
                figcaption { "Entries by " (code(&name)) "; " (unit) "." @if since > Duration::from_secs(1) { " Measured " (age(since)) " ago." } }
            }
            details {
                summary { "The picture as a table" }
                (grid("Entries", &[Column::Code("values"), Column::Number("entries")], &steps_table))
            }
        }
        @for own in advice {
            div.advice { p { strong { "Advice: " } (own.change) } p.hint { (own.reason) } }
        }
        div.halves {
            @if !common.is_empty() { (grid("Most common values", &of_common, &common)) }
            (grid("Entries of each value", &columns, &prefixes))
        }
    }
}
