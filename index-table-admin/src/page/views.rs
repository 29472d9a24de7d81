//! The views of the page.

use std::{collections::HashMap, fmt::Write as _};

use index_table::{
    __private::admin::{KeyBuf, KeyShape, UntypedField, UntypedRange, UntypedTable},
    IndexState, Usage,
    report::{ShardStatus, TableSize},
};

use super::{
    PAGE, Page,
    html::{self, bar, escape, table, url},
};
use crate::{failure::Failure, output::bytes, value};

pub(super) fn overview(page: &Page) -> Result<String, Failure> {
    let (catalog, sizes) = (page.store.catalog()?, page.sizes()?);
    let all = TableSize::total_bytes;
    let most = sizes.iter().map(all).max().unwrap_or(0);
    let (mut tables, mut indexes) = (Vec::new(), Vec::new());
    for own in &catalog.tables {
        let size = sizes.iter().find(|size| size.table == own.name);
        let (name, path) = (escape(&own.name), url(&own.name));
        let total = size.map_or(0, all);
        // Without a repository, only the catalog describes the table.
        let (rows, link) = match size {
            Some(size) => (size.rows.to_string(), format!("<a href=\"table/{path}\">{name}</a>")),
            None => ("–".to_owned(), name.clone()),
        };
        tables.push(vec![
            link,
            rows,
            bytes(total),
            bar(
                total,
                most,
                &format!("{} of the largest table with {}", bytes(total), bytes(most)),
            ),
            own.version.to_string(),
            own.unreadable.as_deref().map_or_else(String::new, escape),
        ]);
        for index in &own.indexes {
            let aggregate = size.into_iter().flat_map(|size| &size.aggregates);
            let mut aggregate = aggregate.filter(|it| it.name == index.name);
            let aggregate = aggregate.next().filter(|_| index.state != IndexState::Retired);
            if let Some(aggregate) = aggregate {
                indexes.push(vec![
                    name.clone(),
                    escape(&index.name),
                    escape(&index.state.to_string()),
                    aggregate.groups.to_string(),
                    bytes(aggregate.bytes),
                    bar(aggregate.bytes, total, "part of the table's bytes"),
                ]);
                continue;
            }
            let size = size.and_then(|size| size.indexes.iter().find(|it| it.name == index.name));
            let size = size.filter(|_| index.state != IndexState::Retired);
            let (label, index_path) = (escape(&index.name), url(&index.name));
            indexes.push(vec![
                name.clone(),
                match size {
                    Some(_) => format!("<a href=\"table/{path}/{index_path}\">{label}</a>"),
                    None => label,
                },
                escape(&index.state.to_string()),
                size.map_or_else(|| "–".to_owned(), |size| size.entries.to_string()),
                size.map_or_else(|| "–".to_owned(), |size| bytes(size.bytes)),
                bar(size.map_or(0, |size| size.bytes), total, "part of the table's bytes"),
            ]);
        }
    }
    let mut body = table(
        "Tables",
        &[
            ("table", false),
            ("rows", true),
            ("bytes", true),
            ("", false),
            ("version", true),
            ("", false),
        ],
        &tables,
    );
    body += &table(
        "Indexes",
        &[
            ("table", false),
            ("index", false),
            ("state", false),
            ("entries", true),
            ("bytes", true),
            ("", false),
        ],
        &indexes,
    );
    let readers = page.store.readers();
    let oldest =
        readers.oldest.map_or_else(String::new, |age| format!(", the oldest for {age:.1?}"));
    let _ = write!(body, "<p>{} read transactions of this process{oldest}.</p>", readers.count);
    body += &shards(page)?;
    Ok(html::page("Overview", "", &body))
}

fn shards(page: &Page) -> Result<String, Failure> {
    let Some(sharded) = page.store.as_sharded() else { return Ok(String::new()) };
    let shards = sharded.shards()?;
    let most = shards.iter().map(|shard| shard.bytes).max().unwrap_or(0);
    let rows: Vec<_> = shards
        .iter()
        .map(|shard| {
            let is_available = shard.state == ShardStatus::Available;
            vec![
                escape(&shard.name),
                escape(&shard.state.to_string()),
                if is_available { shard.rows.to_string() } else { "–".to_owned() },
                bytes(shard.bytes),
                bar(shard.bytes, most, "part of the largest shard"),
                shard.reads.to_string(),
                shard.writes.to_string(),
            ]
        })
        .collect();
    let columns = [
        ("shard", false),
        ("state", false),
        ("rows", true),
        ("bytes", true),
        ("", false),
        ("reads", true),
        ("writes", true),
    ];
    Ok(table("Shards, with their load since the store was opened", &columns, &rows))
}

/// Shows the keys of a table or of an index, and how an index is used.
pub(super) fn keys(
    page: &Page,
    name: &str,
    index: Option<&str>,
    query: &HashMap<String, String>,
) -> Result<String, Failure> {
    let own = page.table(name)?;
    let primary = own.primary_key();
    let fields = match index {
        None => primary.clone(),
        Some(index) => own
            .key_of(index)
            .ok_or_else(|| Failure::not_found(format!("table `{name}` has no index `{index}`")))?,
    };
    let (up, path) = match index {
        None => ("../", url(name)),
        Some(index) => ("../../", url(index)),
    };
    let prefix = query.get("prefix").map_or("", String::as_str);
    let mut range = range(&fields, index, prefix)?;
    if let Some(after) = query.get("after") {
        let keys = after
            .split_once('.')
            .and_then(|(key, primary_key)| Some((value::bytes(key)?, value::bytes(primary_key)?)));
        let is_own = |(key, primary_key): &(Vec<u8>, Vec<u8>)| {
            range.contains(if index.is_some() { key } else { primary_key })
        };
        let keys = keys.filter(is_own);
        range.after =
            Some(keys.ok_or_else(|| Failure::arguments("this is not a link of this page"))?);
    }
    let (mut rows, mut last, mut more) = (Vec::new(), String::new(), false);
    let txn = page.store.read()?;
    own.each_entry(&txn, &range, |entry| {
        if rows.len() as u64 == PAGE {
            more = true;
            return Ok::<_, Failure>(false);
        }
        last = format!("{}.{}", value::hex(entry.key), value::hex(entry.primary_key));
        let mut cells = Vec::new();
        if index.is_some() {
            cells.extend(shown(&fields, entry.key)?);
        }
        cells.extend(shown(&primary, entry.primary_key)?);
        rows.push(cells);
        Ok(true)
    })?;
    drop(txn);
    let mut columns: Vec<_> = Vec::new();
    if index.is_some() {
        columns.extend(fields.iter().map(|field| (field.name, false)));
    }
    columns.extend(primary.iter().map(|field| (field.name, false)));

    let first = fields.first().map_or("", |field| field.name);
    let mut body = String::new();
    if let Some(index) = index {
        body += &usage(page, &own, index);
    } else {
        body += "<ul>";
        for index in own.index_names() {
            let (path, index) = (format!("{path}/{}", url(index)), escape(index));
            let _ = write!(body, "<li><a href=\"{path}\">index {index}</a></li>");
        }
        body += "</ul>";
    }
    let (label, text) = (escape(first), escape(prefix));
    let _ = write!(
        body,
        "<form method=get action=\"{path}\" role=search><div><label for=prefix>{label} (of text: its start)</label>\
         <input id=prefix name=prefix value=\"{text}\"></div><button>Search</button></form>"
    );
    body += &table("Keys", &columns, &rows);
    if more {
        let next = format!("{path}?prefix={}&amp;after={}", url(prefix), url(&last));
        let _ = write!(
            body,
            "<p class=pages><a href=\"{path}\">First</a><a rel=next href=\"{next}\">Next</a></p>"
        );
    }
    let title =
        index.map_or_else(|| format!("Table {name}"), |index| format!("Index {name}.{index}"));
    Ok(html::page(&title, up, &body))
}

/// Returns the entries whose first field has this value, or begins with this text.
fn range(
    fields: &[UntypedField],
    index: Option<&str>,
    prefix: &str,
) -> Result<UntypedRange, Failure> {
    let mut start = KeyBuf::new();
    if let Some(first) = fields.first()
        && !prefix.is_empty()
        && first.shape.write_prefix(prefix, &mut start).is_err()
    {
        start = KeyBuf::new();
        value::encode(std::slice::from_ref(first), &[prefix.to_owned()], &mut start)
            .map_err(Failure::arguments)?;
    }
    let start = start.as_bytes().to_vec();
    let index = index.map(str::to_owned);
    Ok(UntypedRange { index, start, is_prefix: true, ..UntypedRange::default() })
}

fn shown(fields: &[UntypedField], key: &[u8]) -> Result<Vec<String>, Failure> {
    let values = KeyShape::read_key(fields.iter().map(|field| &field.shape), key);
    let values =
        values.map_err(|error| Failure::damage(format!("a key can't be decoded: {error}")))?;
    let shown = fields.iter().zip(&values);
    Ok(shown.map(|(field, own)| escape(&value::show(&field.shape, own))).collect())
}

fn usage(page: &Page, table: &UntypedTable, index: &str) -> String {
    let all = page.store.usage();
    let found = all.iter().find(|usage: &&Usage| usage.table == table.name());
    let Some(own) = found.and_then(|usage| usage.indexes.iter().find(|own| own.name == index))
    else {
        return String::new();
    };
    let rows = [
        ("queries", own.queries),
        ("entries read", own.entries),
        ("rows looked up", own.facts),
        ("entries written", own.written),
    ]
    .map(|(name, number)| vec![name.to_owned(), number.to_string()]);
    let columns = [("since the store was opened", false), ("", true)];
    let mut html = html::table("Use", &columns, &rows);
    for advice in &own.advice {
        let _ = write!(html, "<p>Advice: {}</p>", escape(advice));
    }
    html
}
