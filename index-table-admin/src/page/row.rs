//! A single row.

use index_table::__private::admin::{KeyShape, UntypedEntry};
use maud::{Markup, html};

use super::{
    Page,
    frame::{self, View, shortened, url},
    lists,
    parameters::Parameters,
    rows::FIELD,
};
use crate::{failure::Failure, output::bytes, value};

/// The maximum number of bytes of a row that is decoded for its view.
const WHOLE: usize = 1 << 22;

/// Shows a single row with its list.
pub(super) fn view(page: &Page, name: &str, query: &Parameters) -> Result<Markup, Failure> {
    let own = page.table(name)?;
    let key = query.get("key").and_then(value::bytes);
    let key = key.ok_or_else(|| Failure::arguments("this is not a link of this page"))?;
    let primary = own.primary_key();
    let values = KeyShape::read_key(primary.iter().map(|field| &field.shape), &key);
    let values = values.map_err(|_| Failure::arguments("this is not a link of this page"))?;
    let txn = page.store.read()?;
    let missing = || Failure::not_found(format!("table `{name}` has no row with this key"));
    let data = own.row(&txn, &key)?.ok_or_else(missing)?;
    let entry = UntypedEntry { key: &[], primary_key: &key, data };
    let (is_long, length, list) = (data.len() > WHOLE, data.len() as u64, own.list_of(&entry));
    let mut json = String::new();
    let shown = if is_long { Ok(false) } else { page.append(&own, &entry, &mut json) };
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
            @if let Ok((version, list)) = list {
                (frame::figure("row version", &version.to_string(), ""))
                (frame::figure("list", &list.to_string(), ""))
            }
        }
        @match shown {
            Ok(true) => pre.json tabindex="0" role="region" aria-label="The row as JSON" { (pretty(&json)) },
            Ok(false) if is_long => p.empty { "The row is too long for this page. The command " code { "get" } " shows it." },
            Ok(false) => p.empty { "This page shows the keys of the table, and not its rows." },
            Err(failure) => p.error role="alert" { (value::printable(&failure.message)) },
        }
        @if let Ok((_, list)) = list { (lists::of_row(page, name, list)?) }
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
