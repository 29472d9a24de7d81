//! The catalog as text.

use std::fmt;

use super::{Catalog, CatalogKey, CatalogTable};
use crate::model::index_state::IndexState;
use crate::{
    model::index_state::{Duplicate, Duplicates},
    usage::lines,
};

impl fmt::Display for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, table) in self.tables.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{table}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CatalogTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.unreadable {
            return writeln!(f, "table `{}`: {reason}", self.name);
        }
        writeln!(f, "table `{}`, version {}", self.name, self.version)?;
        if !self.older_versions.is_empty() {
            let versions = self.older_versions.iter().map(ToString::to_string);
            writeln!(f, "  rows of older versions: {}", listed(versions))?;
        }
        let fields = self.fields.iter().map(|(name, declared)| format!("{name}: {declared}"));
        writeln!(f, "  rows: {}", listed(fields))?;
        writeln!(f, "  primary key: {}", keys(&self.primary_key))?;
        if self.indexes.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let names = ["index", "key", "strategy", "include", "options", "layout", "state"];
        let mut table = vec![names.map(str::to_owned)];
        table.extend(self.indexes.iter().map(|index| {
            let (name, strategy) = (index.name.clone(), index.strategy.to_owned());
            let [include, options] =
                [&index.include, &index.options].map(|words| listed(words.iter().cloned()));
            let (layout, state) = (index.layout.clone(), index.state.to_string());
            [name, keys(&index.key), strategy, include, options, layout, state]
        }));
        lines(f, names.len(), &table)?;
        for index in &self.indexes {
            for duplicate in index.state.duplicates().iter().flat_map(|all| &all.first) {
                writeln!(f, "  index `{}`: {duplicate}", index.name)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for IndexState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Readable => f.write_str("readable"),
            Self::Building { rows, of, duplicates } => {
                write!(f, "building, {rows} of {of} rows")?;
                if duplicates.count > 0 { write!(f, ", {duplicates}") } else { Ok(()) }
            }
            Self::Violated(duplicates) => write!(f, "violated, {duplicates}"),
            Self::Disabled => f.write_str("disabled"),
            Self::Retired => f.write_str("retired"),
            Self::Announced => f.write_str("announced"),
        }
    }
}

impl IndexState {
    /// Returns the reason why the index is not readable, and the remedy.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Building { rows, of, .. } => format!(
                "it is under construction, with {rows} of {of} rows done; the repository's \
                 `build` continues it, and so does `open`"
            ),
            Self::Violated(duplicates) => {
                let first = duplicates.first.first();
                let first = first.map_or(String::new(), |first| format!(" ({first})"));
                format!(
                    "it is unique, and its build has found {duplicates}{first}; `Store::catalog` \
                     lists them, `open_online` opens the table so that you can change them, and \
                     the repository's `build` makes the index readable when there are none"
                )
            }
            Self::Readable => "it was not readable in this snapshot, and is now; begin another \
                 transaction"
                .to_owned(),
            Self::Disabled => {
                "its queue was full; start a worker, and rebuild it by the repository's `build` \
                 or `open`"
                    .to_owned()
            }
            Self::Retired => {
                "the client that has opened the table last for writing does not declare it, or declares it \
                 otherwise"
                    .to_owned()
            }
            Self::Announced => {
                "clients of an earlier release have the table open; it is built when they have ended".to_owned()
            }
        }
    }
}

impl fmt::Display for Duplicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = if self.count == 1 { "duplicate" } else { "duplicates" };
        write!(f, "{} {rows}", self.count)
    }
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, holder, row } = self;
        write!(f, "the row {row} has the key {key}, and so has the row {holder}")
    }
}

/// Returns the fields of a key as declared, with their shapes.
fn keys(fields: &[CatalogKey]) -> String {
    listed(fields.iter().map(|CatalogKey { name, shape, form }| match form.as_str() {
        "field" => format!("{name}: {shape}"),
        form => format!("{form}({name}): {shape}"),
    }))
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
