//! The tables of the store: as a document, as a picture, and compared with the declarations of a program.

mod check;
mod mermaid;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use index_table::report::{StoreSchema, TableSize};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    failure::{Code, Failure, joined},
    open::Opened,
    output::Output,
    typed::Declared,
};

/// A store whose tables are shown or compared.
#[derive(Debug, Args)]
#[command(override_usage = "index-table schema [OPTIONS] <STORE>")]
pub(crate) struct Schema {
    /// The directory of the store, or the URL of a database of PostgreSQL.
    #[arg(value_name = "STORE")]
    dir: Option<PathBuf>,
    /// Show what opening the tables in this file would do to the store, and end with the exit code 5 if data is lost or a table is
    /// refused. A program writes the file by `index_table::schema`. Without FILE, a program with its types compares its own
    /// declarations, and ends with the exit code 5 if a table differs, or no declaration names it.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "the option is absent, or has no file")]
    check: Option<Option<PathBuf>>,
    /// Read all rows, and list those that the declarations in the file can't read.
    #[arg(long, requires = "check")]
    rows: bool,
    /// The form of the tables.
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "check")]
    format: Option<Format>,
}

/// The form of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A document that `--check` reads.
    Json,
    /// A picture of the tables and their references, for Mermaid.
    Mermaid,
}

/// A declared table.
#[derive(Serialize)]
struct Compared {
    table: &'static str,
    /// `same`, `missing` or `different`.
    state: &'static str,
    /// The difference.
    reason: Option<String>,
}

impl Compared {
    fn new(opened: &Opened, declared: &Declared, names: &[String]) -> Self {
        let table = declared.name;
        if !names.iter().any(|name| declared.is_named(name)) {
            return Self { table, state: "missing", reason: None };
        }
        match declared.open_online(&opened.store) {
            Ok(_) => Self { table, state: "same", reason: None },
            Err(failure) => Self { table, state: "different", reason: Some(failure.message) },
        }
    }
}

impl Schema {
    /// Shows or compares the tables. `declared` are those of a program with its types.
    pub(crate) fn run(self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let (dir, file) = match (self.dir, self.check.clone()) {
            (Some(dir), file) => (dir, file.flatten()),
            // `schema --check STORE`
            (None, Some(Some(dir))) => (dir, None),
            (None, _) => return Err(Failure::arguments("STORE is missing")),
        };
        let opened = Opened::to_read(out, &dir)?;
        // A table may be in one of them only.
        let missing = opened.missing_shards();
        if !missing.is_empty() {
            return Err(Failure::new(Code::Unavailable, joined(&missing)));
        }
        match (file, self.format) {
            (Some(file), _) => check::run(out, &opened, &read(&file)?, self.rows),
            (None, _) if self.rows => Err(Failure::arguments("`--rows` needs `--check FILE`")),
            (None, None) if !declared.is_empty() => {
                compare(out, &opened, declared, self.check.is_some())
            }
            (None, None) if self.check.is_some() => Err(Failure::arguments(
                "`--check` needs a FILE with declarations; a program writes it by `index_table::schema`",
            )),
            (None, Some(Format::Mermaid)) => {
                let schema = opened.store.recorded_schema()?;
                Ok(out.put_text(&mermaid::picture(&schema))?)
            }
            (None, _) => show(out, &opened),
        }
    }
}

/// Reads the declarations in a file.
fn read(file: &Path) -> Result<StoreSchema, Failure> {
    let failed = |code, reason: String| {
        Failure::new(code, format!("`{}` can't be read: {reason}", file.display()))
    };
    let text =
        std::fs::read_to_string(file).map_err(|error| failed(Code::Other, error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(Code::Arguments, error.to_string()))
}

/// Writes the tables as a document, with their rows, bytes and lists.
fn show(out: &Output, opened: &Opened) -> Result<(), Failure> {
    let schema = opened.store.recorded_schema()?;
    // Sizes are of open tables.
    let _tables = opened.recorded(out)?;
    let sizes = opened.store.sizes()?;
    let mut document =
        serde_json::to_value(&schema).map_err(|error| Failure::other(error.to_string()))?;
    let tables = document.get_mut("tables").and_then(Value::as_array_mut);
    for (value, table) in tables.into_iter().flatten().zip(&schema.tables) {
        let Some(fields) = value.as_object_mut() else { continue };
        let lists = opened.store.row_lists(&table.table)?.into_iter().map(|list| {
            let fields = list.fields.map(|fields| {
                let field = |field: &index_table::__private::admin::RowField| {
                    json!({ "name": field.name, "kind": field.kind, "absent": field.absent })
                };
                fields.iter().map(field).collect::<Vec<_>>()
            });
            json!({ "struct": list.name, "fields": fields })
        });
        fields.insert("lists".to_owned(), lists.collect());
        if let Some(size) = sizes.iter().find(|size| size.table == table.table) {
            fields.insert("stored".to_owned(), stored(size));
        }
    }
    Ok(out.put_json(&document)?)
}

fn stored(size: &TableSize) -> Value {
    let indexes = size.indexes.iter().map(|it| (it.name, it.entries, it.bytes));
    let groups = size.aggregates.iter().map(|it| (it.name, it.groups, it.bytes));
    let indexes = indexes
        .chain(groups)
        .map(|(name, entries, bytes)| json!({ "name": name, "entries": entries, "bytes": bytes }));
    let indexes = indexes.collect::<Vec<_>>();
    json!({ "rows": size.rows, "bytes": size.bytes, "indexes": indexes })
}

/// Compares the tables with the declarations of the program.
fn compare(
    out: &Output,
    opened: &Opened,
    declared: &[Declared],
    check: bool,
) -> Result<(), Failure> {
    let names: Vec<_> = opened.catalog()?.tables.into_iter().map(|table| table.name).collect();
    let tables: Vec<_> =
        declared.iter().map(|table| Compared::new(opened, table, &names)).collect();
    let is_undeclared = |name: &&String| !declared.iter().any(|table| table.is_named(name));
    let undeclared: Vec<_> = names.iter().filter(is_undeclared).collect();
    out.put(&json!({ "tables": tables, "undeclared": undeclared }), |text| {
        for Compared { table, state, reason } in &tables {
            match reason {
                Some(reason) => writeln!(text, "table `{table}`: {state}: {reason}")?,
                None => writeln!(text, "table `{table}`: {state}")?,
            }
        }
        for name in &undeclared {
            writeln!(text, "table `{name}`: no declaration of this program names it")?;
        }
        Ok(())
    })?;
    let is_different = tables.iter().any(|table| table.state == "different");
    if !check || (undeclared.is_empty() && !is_different) {
        return Ok(());
    }
    Err(Failure::new(
        Code::Other,
        "the store differs from the declarations; a table whose name was changed is declared with \
         `#[table(name = \"…\", was = \"…\")]`",
    ))
}
