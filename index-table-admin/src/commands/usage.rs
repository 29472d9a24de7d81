//! The counters in the memory of a service, from the metrics of its page.

use std::{collections::BTreeMap, path::Path};

use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Page},
    failure::{Code, Failure},
    output::{Align, Grid, Output},
    server::shown,
};

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// The address of the page that the service mounts, such as `http://127.0.0.1:3000/admin/`.
    url: String,
    /// The secret of the page. Default: the variable `INDEX_TABLE_TOKEN`.
    #[arg(long)]
    token: Option<String>,
}

impl Usage {
    pub(crate) fn run(self, out: &Output) -> Result<(), Failure> {
        let url = shown(Path::new(&self.url));
        let token = self.token.or_else(|| std::env::var("INDEX_TABLE_TOKEN").ok());
        let metrics = metrics(&self.url, token.as_deref().filter(|token| !token.is_empty()))?;
        let mut tables: BTreeMap<String, [u64; 6]> = BTreeMap::new();
        let mut indexes: BTreeMap<(String, String), [u64; 4]> = BTreeMap::new();
        for Sample { name, labels, value } in metrics.lines().filter_map(Sample::read) {
            let Some(table) = labels.get("table") else { continue };
            let of_table = match (name, labels.get("kind").map(String::as_str)) {
                ("gets_total", _) => Some(0),
                ("scans_total", _) => Some(1),
                ("writes_total", Some("insert")) => Some(2),
                ("writes_total", Some("put")) => Some(3),
                ("writes_total", Some("update")) => Some(4),
                ("writes_total", Some("delete")) => Some(5),
                _ => None,
            };
            if let Some(at) = of_table {
                let counts = tables.entry(table.clone()).or_default();
                counts.iter_mut().skip(at).take(1).for_each(|count| *count = value);
            }
            let of_index = match name {
                "index_queries_total" => Some(0),
                "index_entries_read_total" => Some(1),
                "index_rows_read_total" => Some(2),
                "index_entries_written_total" => Some(3),
                _ => None,
            };
            if let Some((at, index)) = of_index.zip(labels.get("index")) {
                let counts = indexes.entry((table.clone(), index.clone())).or_default();
                counts.iter_mut().skip(at).take(1).for_each(|count| *count = value);
            }
        }
        if tables.is_empty() {
            return Err(Failure::not_found(format!(
                "`{url}` has no counters of tables; give the address of the page, which ends before `metrics`"
            )));
        }
        let right = |name| (name, Align::Right);
        let mut of_tables = Grid::new(
            [("table", Align::Left)]
                .into_iter()
                .chain(["gets", "scans", "inserts", "puts", "updates", "deletes"].map(right)),
        );
        for (table, counts) in &tables {
            of_tables.row([table.clone()].into_iter().chain(counts.map(|count| count.to_string())));
        }
        let mut of_indexes = Grid::new(
            [("table", Align::Left), ("index", Align::Left)]
                .into_iter()
                .chain(["queries", "entries read", "rows read", "entries written"].map(right)),
        );
        for ((table, index), counts) in &indexes {
            let names = [table.clone(), index.clone()].into_iter();
            of_indexes.row(names.chain(counts.map(|count| count.to_string())));
        }
        Ok(out.put(&json_of(&tables, &indexes), |text| {
            out.grid(text, &mut of_tables)?;
            writeln!(text)?;
            out.grid(text, &mut of_indexes)
        })?)
    }
}

fn json_of(
    tables: &BTreeMap<String, [u64; 6]>,
    indexes: &BTreeMap<(String, String), [u64; 4]>,
) -> Value {
    let tables = tables.iter().map(|(table, counts)| {
        let [gets, scans, inserts, puts, updates, deletes] = counts;
        let own = indexes.iter().filter(|((of, _), _)| of == table);
        let own = own.map(|((_, index), [queries, entries_read, rows_read, written])| {
            json!({
                "index": index,
                "queries": queries,
                "entries_read": entries_read,
                "rows_read": rows_read,
                "entries_written": written,
            })
        });
        json!({
            "table": table,
            "gets": gets,
            "scans": scans,
            "inserts": inserts,
            "puts": puts,
            "updates": updates,
            "deletes": deletes,
            "indexes": own.collect::<Vec<_>>(),
        })
    });
    json!({ "tables": tables.collect::<Vec<_>>() })
}

/// A line of the metrics.
struct Sample<'t> {
    /// The name without the common prefix.
    name: &'t str,
    labels: BTreeMap<&'t str, String>,
    value: u64,
}

impl<'t> Sample<'t> {
    /// Reads a line of the text format; `None` for comments and other metrics.
    fn read(line: &'t str) -> Option<Self> {
        let (name, mut rest) = line.strip_prefix("index_table_")?.split_once('{')?;
        let mut labels = BTreeMap::new();
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (mut value, mut characters) = (String::new(), after.char_indices());
            let end = loop {
                match characters.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => match characters.next()?.1 {
                        'n' => value.push('\n'),
                        escaped => value.push(escaped),
                    },
                    (_, character) => value.push(character),
                }
            };
            labels.insert(label.trim_start_matches([',', ' ']), value);
            rest = after.get(end..)?;
            if let Some(number) = rest.strip_prefix('}') {
                return Some(Self { name, labels, value: number.trim().parse().ok()? });
            }
        }
    }
}

/// Requests the metrics of a page.
fn metrics(url: &str, token: Option<&str>) -> Result<String, Failure> {
    let page = Page::of(url, token, "the usage can't be read from")?;
    let Answer { status, body } = page.get("metrics")?;
    let place = &page.shown;
    match status {
        200 => Ok(body),
        401 | 403 => Err(Failure::new(
            Code::Unavailable,
            format!("`{place}` needs the secret of the page; give `--token`"),
        )),
        404 => Err(Failure::not_found(format!(
            "there is no page at `{place}`; check the path at which the service mounts it"
        ))),
        _ => Err(page.unavailable(&format!("the status is `{status}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_may_have_all_characters() {
        let line = r#"index_table_writes_total{table="a\"b\\c\n}",kind="put"} 17"#;
        let sample = Sample::read(line).expect("a sample");
        assert_eq!((sample.name, sample.value), ("writes_total", 17));
        assert_eq!(sample.labels["table"], "a\"b\\c\n}");
        assert_eq!(sample.labels["kind"], "put");
        for other in [
            "# HELP index_table_rows Rows.",
            "up 1",
            "index_table_readers 2",
            "index_table_x{a=\"b",
        ] {
            assert!(Sample::read(other).is_none(), "{other}");
        }
    }
}
