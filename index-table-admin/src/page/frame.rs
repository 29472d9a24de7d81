//! The frame of each view, and the parts that views share.

use std::{fmt::Write as _, time::Duration};

use maud::{DOCTYPE, Markup, html};

use super::Page;
use crate::output::{bytes, mark};

/// The place of a view among the views of the page.
pub(super) struct View<'v> {
    pub(super) title: &'v str,
    /// The relative path of the overview, such as `../`.
    pub(super) up: &'v str,
    /// The views above this one, with their paths from the overview.
    pub(super) above: Vec<(String, String)>,
    /// Whether the parts with `data-live` are loaded again from time to time.
    pub(super) is_live: bool,
}

/// Returns a whole page.
pub(super) fn page(page: &Page, view: &View<'_>, body: &Markup) -> Markup {
    let View { title, up, above, is_live } = view;
    let name = page.name();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " – " (name) }
                link rel="stylesheet" href={ (up) "style.css" };
                link rel="icon" type="image/svg+xml" href={ (up) "icon.svg" };
                @if *is_live {
                    script src={ (up) "live.js" } defer {}
                    noscript { meta http-equiv="refresh" content="10"; }
                }
            }
            body {
                a.skip href="#main" { "Skip to the contents" }
                header {
                    a.store href={ (up) "./" } { (name) }
                    nav aria-label="Views" {
                        @for (label, path) in page.views() {
                            a href={ (up) (path) } aria-current=[(label == *title).then_some("page")] { (label) }
                        }
                    }
                    @if *is_live { span #live role="status" {} button #pause type="button" hidden { "Pause" } }
                }
                main #main tabindex="-1" {
                    @if !above.is_empty() {
                        p.above {
                            @for (label, path) in above { a href={ (up) (path) } { (label) } " / " }
                        }
                    }
                    h1 { (title) }
                    (body)
                }
                footer { "index-table " (env!("CARGO_PKG_VERSION")) " · read-only" }
            }
        }
    }
}

/// Returns the page of an error.
pub(super) fn error(message: &str, up: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Error – index-table" }
                link rel="stylesheet" href={ (up) "style.css" };
            }
            body {
                header { a.store href={ (up) "./" } { "Overview" } }
                main #main { h1 { "Error" } p.error role="alert" { (message) } }
            }
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(super) enum Column<'c> {
    Text(&'c str),
    Number(&'c str),
    /// Keys and rows, in a monospaced font.
    Code(&'c str),
    /// Text that a narrow screen omits.
    Wide(&'c str),
    /// A bar without a heading.
    Bar,
}

impl<'c> Column<'c> {
    const fn class(self) -> Option<&'static str> {
        match self {
            Self::Text(_) => None,
            Self::Number(_) => Some("n"),
            Self::Code(_) => Some("c"),
            Self::Wide(_) => Some("w"),
            Self::Bar => Some("b"),
        }
    }

    const fn name(self) -> &'c str {
        match self {
            Self::Text(name) | Self::Number(name) | Self::Code(name) | Self::Wide(name) => name,
            Self::Bar => "",
        }
    }
}

/// Returns the columns of a cell; `None` for one. The last cell of a short row has the rest.
fn span(at: usize, cells: usize, columns: usize) -> Option<usize> {
    Some(columns - at).filter(|rest| at + 1 == cells && *rest > 1)
}

/// Returns a table. On a narrow screen, it scrolls by itself.
pub(super) fn table(caption: &str, columns: &[Column<'_>], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr {
                    @for column in columns {
                        @if column.name().is_empty() { td class=[column.class()] {} }
                        @else { th scope="col" class=[column.class()] { (column.name()) } }
                    }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, (cell, column)) in row.iter().zip(columns).enumerate() {
                                td class=[column.class()] colspan=[span(at, row.len(), columns.len())] { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A figure with its name, for the row of figures at the top of a view.
pub(super) fn figure(name: &str, value: &str, note: &str) -> Markup {
    html! {
        div.figure {
            dt { (name) }
            dd { (value) @if !note.is_empty() { small { (note) } } }
        }
    }
}

/// A state as a word with a colour.
pub(super) fn badge(text: &str, is_good: bool) -> Markup {
    html! { span.badge.bad[!is_good] { (text) } }
}

/// Text of the service in a monospaced font.
pub(super) fn code(text: &str) -> Markup {
    html! { code { (text) } }
}

pub(super) fn text(text: &str) -> Markup {
    html! { (text) }
}

/// Returns a number with separators between the thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

pub(super) fn number(number: u64) -> Markup {
    html! { (grouped(number)) }
}

/// Shows a number with a mark if it is an estimate.
pub(super) fn counted(number: u64, is_exact: bool) -> String {
    format!("{}{}", mark(is_exact), grouped(number))
}

pub(super) fn size(size: u64) -> Markup {
    html! { (bytes(size)) }
}

/// The mark of a number that is not known.
pub(super) fn unknown() -> Markup {
    html! { span title="not known here" { "–" } }
}

/// Shows a duration with two significant digits at most.
pub(super) fn age(age: Duration) -> String {
    let (nanos, seconds) = (age.as_nanos(), age.as_secs());
    match seconds {
        0 if nanos < 1_000 => format!("{nanos} ns"),
        0 if nanos < 1_000_000 => format!("{} µs", nanos / 1_000),
        0 => format!("{} ms", nanos / 1_000_000),
        1..=9 => format!("{:.1} s", age.as_secs_f64()),
        10..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns a part of a whole in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    if tenths.is_multiple_of(10) || tenths >= 100 {
        format!("{} %", (tenths + 5) / 10)
    } else {
        format!("{}.{} %", tenths / 10, tenths % 10)
    }
}

/// Escapes text for a part of a path or a query.
pub(super) fn url(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a `String` can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Returns the start of a text that is longer than `limit` characters, with an ellipsis.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_become_markup() {
        assert_eq!(url("a b/../\"<é"), "a%20b%2F%2E%2E%2F%22%3C%C3%A9");
        let evil = "<script>'\"&";
        let table = table(evil, &[Column::Code(evil)], &[vec![code(evil)]]);
        let all = [table, error(evil, ""), figure(evil, evil, evil), badge(evil, false)];
        for part in all {
            assert!(!part.into_string().contains("<script"));
        }
    }

    #[test]
    fn numbers_ages_and_shares_take_few_characters() {
        let numbers = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        let ages = [500, 1_500, 2_500_000, 3_200_000_000, 200_000_000_000];
        let ages = ages.map(|nanos| age(Duration::from_nanos(nanos)));
        assert_eq!(ages, ["500 ns", "1 µs", "2 ms", "3.2 s", "3 min"]);
        let percents = [(0, 0), (1, 8), (15, 1000), (1, 3)].map(|(part, of)| percent(part, of));
        assert_eq!(percents, ["0 %", "13 %", "1.5 %", "33 %"]);
        assert_eq!((shortened("née", 2), shortened("né", 2)), ("né…".to_owned(), "né".to_owned()));
    }
}
