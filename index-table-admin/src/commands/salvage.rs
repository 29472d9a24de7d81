//! Copying what can be read of a damaged store.

use std::path::Path;

use index_table::{
    Store,
    report::{LostRange, SalvageReport},
};
use serde_json::json;

use super::copies::{check_place, clean_on_ctrl_c, of_copy};
use crate::{
    crash,
    failure::Failure,
    names,
    open::DATA,
    output::Output,
    server::{self, Server},
    typed::{Calls, Declared},
    value::printable,
};

pub(crate) fn salvage(
    out: &Output,
    dir: &Path,
    to: &Path,
    declared: &[Declared],
) -> Result<(), Failure> {
    if Server::of(dir)?.is_some() {
        return Err(Failure::arguments("a store on a server has no pages to salvage"));
    }
    if !dir.join(DATA).exists() {
        return Err(names::no_store(dir));
    }
    check_place(to, dir)?;
    crash::report(out, dir);
    clean_on_ctrl_c(out, to);
    let report = Store::salvage(dir, to).map_err(|error| of_copy(error, to))?;
    let to_build = build(out, to, &report, declared);
    // Only to show the keys in `lost`.
    let opened = Store::options().create(false).read_only(true).open(to);
    let tables = opened.and_then(|store| store.open_recorded()).map(|opened| opened.tables);
    let tables = tables.unwrap_or_else(|error| {
        out.note(&format!("the copy can't be opened: {error}"));
        Vec::new()
    });
    let shown: Vec<_> = report
        .lost
        .iter()
        .map(|lost| {
            let table = tables.iter().find(|table| table.name() == lost.database);
            let key = |key: &Option<Vec<u8>>| {
                let key = key.as_ref()?;
                Some(table.map_or_else(|| hex(key), |table| table.show_primary_key(key)))
            };
            (lost, key(&lost.from), key(&lost.to))
        })
        .collect();
    let value = json!({
        "store": server::shown(dir),
        "copy": server::shown(to),
        "tables": report.tables,
        "to_build": to_build,
        "missing_commits": report.missing_commits,
        "lost": shown.iter().map(|(lost, from, to)| json!({
            "database": lost.database,
            "page": lost.page,
            "reason": lost.reason,
            "from": from,
            "to": to,
        })).collect::<Vec<_>>(),
    });
    out.put(&value, |text| {
        for table in &report.tables {
            writeln!(text, "table `{}`: {} rows copied", table.table, table.rows)?;
        }
        for index in &to_build {
            writeln!(
                text,
                "index `{index}` is empty; the program builds it when it opens the table"
            )?;
        }
        if report.missing_commits > 0 {
            writeln!(
                text,
                "{} commits of the journal after its last checkpoint are not copied; `recover` on a copy of the \
                 directory applies them, if LMDB can still write it",
                report.missing_commits
            )?;
        }
        for (lost, from, to) in &shown {
            writeln!(text, "{}", printable(&line(lost, from.as_deref(), to.as_deref())))?;
        }
        Ok(())
    })?;
    if report.lost.is_empty() && report.missing_commits == 0 {
        return Ok(());
    }
    if report.lost.is_empty() {
        return Err(Failure::damage(format!(
            "{} commits of the journal are not copied; `{}` has everything else",
            report.missing_commits,
            to.display()
        )));
    }
    Err(Failure::damage(format!(
        "{} ranges of keys could not be read; `{}` has everything else",
        report.lost.len(),
        to.display()
    )))
}

/// Opens the tables of which the program has the types, which builds their indexes. Returns the indexes that are not built. An error is
/// shown, and the copy stays as it is.
fn build(out: &Output, to: &Path, report: &SalvageReport, declared: &[Declared]) -> Vec<String> {
    let mut to_build = report.to_build.clone();
    let exists = |own: &Declared| report.tables.iter().any(|table| own.is_named(&table.table));
    let found: Vec<_> = declared.iter().filter(|own| exists(own)).collect();
    if found.is_empty() {
        return to_build;
    }
    let store = match Store::open(to) {
        Ok(store) => store,
        Err(error) => {
            out.note(&format!("no index is built: {error}"));
            return to_build;
        }
    };
    for own in found {
        match own.open_online(&store).and_then(|table| {
            table.build(&store, false, Calls { progress: &mut |_| (), stop: &|| false })
        }) {
            Ok(_) => to_build.retain(|index| {
                !index.split_once('.').is_some_and(|(table, _)| own.is_named(table))
            }),
            Err(failure) => out.note(&failure.message),
        }
    }
    to_build
}

/// Describes lost keys.
fn line(lost: &LostRange, from: Option<&str>, to: Option<&str>) -> String {
    let from = from.map_or_else(|| "from the first key".to_owned(), |from| format!("from {from}"));
    let to = to.map_or_else(|| "to the last".to_owned(), |to| format!("before {to}"));
    let LostRange { database, page, reason, .. } = lost;
    let what = if database.is_empty() { "the names of databases" } else { database };
    format!("lost: `{what}` {from}, {to}: page {page}: {reason}")
}

fn hex(key: &[u8]) -> String {
    key.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
