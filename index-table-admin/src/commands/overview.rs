//! The tables and indexes of a store, their states and sizes.

use std::path::Path;

use index_table::{
    Error, IndexState,
    report::{Catalog, CatalogIndex, CatalogKey, CatalogTable, TableSize},
};
use serde_json::json;

use crate::{
    cli::Counted,
    failure::{Code, Failure, joined},
    names::unknown,
    open::Opened,
    output::{Align, Grid, Output, about, bytes},
};

/// A store with its catalog and its sizes.
struct Contents {
    catalog: Catalog,
    /// `None` if a shard is missing.
    sizes: Option<Vec<TableSize>>,
}

impl Contents {
    fn read(out: &Output, store: &Counted) -> Result<Self, Failure> {
        let opened = Opened::to_read(out, &store.dir)?;
        // Sizes are of open tables.
        let _tables = opened.recorded(out)?;
        let missing = opened.missing_shards();
        let sizes = match measured(&opened, store) {
            Ok(sizes) => Some(sizes),
            Err(Error::ShardUnavailable { .. }) if !missing.is_empty() => None,
            Err(error) => return Err(error.into()),
        };
        for shard in missing {
            out.note(&format!("{shard}; the sizes are left out"));
        }
        Ok(Self { catalog: opened.store.catalog()?, sizes })
    }

    fn size(&self, table: &str) -> Option<&TableSize> {
        self.sizes.iter().flatten().find(|size| size.table == table)
    }

    /// Returns the entries and the bytes of an index, or the groups and the bytes of an aggregate.
    fn index_size(&self, table: &str, index: &CatalogIndex) -> Option<IndexSize> {
        if index.state == IndexState::Retired {
            return None;
        }
        let size = self.size(table)?;
        let indexes = size.indexes.iter().map(|it| {
            let (entries, is_exact, bytes) = (it.entries, it.entries_exact, it.bytes);
            (it.name, IndexSize { entries, is_exact, bytes })
        });
        let aggregates = size
            .aggregates
            .iter()
            .map(|it| (it.name, IndexSize { entries: it.groups, is_exact: true, bytes: it.bytes }));
        let (_, size) = indexes.chain(aggregates).find(|(name, _)| *name == index.name)?;
        Some(size)
    }
}

/// The size of an index, or of an aggregate, whose groups are its entries.
struct IndexSize {
    entries: u64,
    is_exact: bool,
    bytes: u64,
}

fn measured(opened: &Opened, store: &Counted) -> Result<Vec<TableSize>, Error> {
    if store.exact { opened.store.sizes() } else { opened.store.estimated_sizes() }
}

pub(crate) fn tables(out: &Output, store: &Counted) -> Result<(), Failure> {
    let contents = Contents::read(out, store)?;
    let mut grid = Grid::new([
        ("table", Align::Left),
        ("version", Align::Right),
        ("primary key", Align::Left),
        ("rows", Align::Right),
        ("bytes", Align::Right),
        ("indexes", Align::Right),
        ("state", Align::Left),
    ]);
    let mut values = Vec::new();
    for table in &contents.catalog.tables {
        let size = contents.size(&table.name);
        let all = size.map(TableSize::total_bytes);
        let is_index = |index: &&CatalogIndex| {
            !matches!(index.strategy, "aggregate" | "reference" | "changes")
        };
        let declared = table.indexes.iter().filter(is_index);
        let declared = declared.filter(|index| index.state != IndexState::Retired);
        let (declared, state) = (declared.count(), state(table));
        grid.row([
            table.name.clone(),
            table.version.to_string(),
            keys(&table.primary_key),
            size.map_or_else(unknown_number, |size| about(size.rows, size.rows_exact)),
            all.map_or_else(unknown_number, bytes),
            declared.to_string(),
            state.clone(),
        ]);
        values.push(json!({
            "table": table.name,
            "version": table.version,
            "older_versions": table.older_versions,
            "primary_key": table.primary_key,
            "rows": size.map(|size| size.rows),
            "rows_exact": size.map(|size| size.rows_exact),
            "bytes": all,
            "indexes": declared,
            "state": state,
            "unreadable": table.unreadable,
        }));
    }
    Ok(out.put(&json!({ "tables": values }), |text| out.grid(text, &mut grid))?)
}

pub(crate) fn indexes(out: &Output, store: &Counted, only: Option<&str>) -> Result<(), Failure> {
    let contents = Contents::read(out, store)?;
    let tables = &contents.catalog.tables;
    if let Some(only) = only
        && tables.iter().all(|table| table.name != only)
    {
        return Err(unknown("table", only, tables.iter().map(|table| table.name.as_str())));
    }
    let mut grid = Grid::new([
        ("table", Align::Left),
        ("index", Align::Left),
        ("key", Align::Left),
        ("strategy", Align::Left),
        ("options", Align::Left),
        ("entries", Align::Right),
        ("bytes", Align::Right),
        ("state", Align::Left),
    ]);
    let mut values = Vec::new();
    for table in tables.iter().filter(|table| only.is_none_or(|only| table.name == only)) {
        for index in &table.indexes {
            let size = contents.index_size(&table.name, index);
            let strategy = match index.include.as_slice() {
                [] => index.strategy.to_owned(),
                include => format!("{} ({})", index.strategy, include.join(", ")),
            };
            grid.row([
                table.name.clone(),
                index.name.clone(),
                keys(&index.key),
                strategy,
                index.options.join(", "),
                size.as_ref()
                    .map_or_else(unknown_number, |size| about(size.entries, size.is_exact)),
                size.as_ref().map_or_else(unknown_number, |size| bytes(size.bytes)),
                index.state.to_string(),
            ]);
            values.push(json!({
                "table": table.name,
                "index": index.name,
                "key": index.key,
                "strategy": index.strategy,
                "include": index.include,
                "options": index.options,
                "layout": index.layout,
                "entries": size.as_ref().map(|size| size.entries),
                "entries_exact": size.as_ref().map(|size| size.is_exact),
                "bytes": size.as_ref().map(|size| size.bytes),
                "state": index.state,
            }));
        }
    }
    Ok(out.put(&json!({ "indexes": values }), |text| out.grid(text, &mut grid))?)
}

pub(crate) fn sizes(out: &Output, store: &Counted) -> Result<(), Failure> {
    let opened = Opened::to_read(out, &store.dir)?;
    // Sizes are of open tables.
    let _tables = opened.recorded(out)?;
    let missing = opened.missing_shards();
    let sizes = match measured(&opened, store) {
        Err(Error::ShardUnavailable { .. }) if !missing.is_empty() => {
            let message =
                format!("{}; `shards` shows the sizes of the other shards", joined(&missing));
            return Err(Failure::new(Code::Unavailable, message));
        }
        sizes => sizes?,
    };
    let mut grid = Grid::new([
        ("table", Align::Left),
        ("index or aggregate", Align::Left),
        ("rows, entries or groups", Align::Right),
        ("bytes", Align::Right),
    ]);
    let mut total = 0;
    for size in &sizes {
        let (table, rows) = (size.table.to_owned(), about(size.rows, size.rows_exact));
        grid.row([table.clone(), String::new(), rows, bytes(size.bytes)]);
        total += size.total_bytes();
        for index in &size.indexes {
            let entries = about(index.entries, index.entries_exact);
            let name = index.name.to_owned();
            grid.row([table.clone(), name, entries, bytes(index.bytes)]);
        }
        for aggregate in &size.aggregates {
            let (name, groups) = (aggregate.name.to_owned(), aggregate.groups.to_string());
            grid.row([table.clone(), name, groups, bytes(aggregate.bytes)]);
        }
        if size.change_bytes > 0 {
            grid.row([table, "changes".to_owned(), String::new(), bytes(size.change_bytes)]);
        }
    }
    grid.row(["all".to_owned(), String::new(), String::new(), bytes(total)]);
    Ok(out.put(&json!({ "tables": sizes, "bytes": total }), |text| out.grid(text, &mut grid))?)
}

pub(crate) fn catalog(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
    for shard in opened.missing_shards() {
        out.note(&shard);
    }
    let catalog = opened.store.catalog()?;
    Ok(out.put(&catalog, |text| out.report(text, &catalog.to_string()))?)
}

/// Returns the indexes that are not readable, with their states.
fn state(table: &CatalogTable) -> String {
    if let Some(reason) = &table.unreadable {
        return reason.clone();
    }
    let other = table.indexes.iter().filter(|index| index.state != IndexState::Readable);
    let other: Vec<_> = other.map(|index| format!("{}: {}", index.name, index.state)).collect();
    if other.is_empty() { "readable".to_owned() } else { other.join("; ") }
}

/// Shows the fields of a key with their types.
fn keys(fields: &[CatalogKey]) -> String {
    let fields = fields.iter().map(|field| match field.form.as_str() {
        "field" | "desc" | "hash" => format!("{}: {}", field.name, field.shape),
        form => format!("{form} {}: {}", field.name, field.shape),
    });
    fields.collect::<Vec<_>>().join(", ")
}

fn unknown_number() -> String {
    "-".to_owned()
}
