//! The tables of the store, compared with the declarations of the program.

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::{
    cli::Dir,
    failure::{Code, Failure},
    open::Opened,
    output::Output,
    typed::Declared,
};

/// A store whose tables are compared.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    #[command(flatten)]
    dir: Dir,
    /// End with the exit code 5 if a table differs, or no declaration names it.
    #[arg(long)]
    check: bool,
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
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        // A table may be in one of them only.
        let missing = opened.missing_shards();
        if !missing.is_empty() {
            return Err(Failure::new(Code::Unavailable, missing.join("; ")));
        }
        let names: Vec<_> = opened.catalog()?.tables.into_iter().map(|table| table.name).collect();
        let tables: Vec<_> =
            declared.iter().map(|table| Compared::new(&opened, table, &names)).collect();
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
        if !self.check || (undeclared.is_empty() && !is_different) {
            return Ok(());
        }
        Err(Failure::new(
            Code::Other,
            "the store differs from the declarations; a table whose name was changed is declared with \
             `#[table(name = \"…\", was = \"…\")]`",
        ))
    }
}
