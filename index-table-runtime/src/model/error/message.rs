//! Parts of error messages.

use std::{io, path::Path};

/// Formats a number of a sequence. `u64::MAX` may represent a greater number.
pub(super) fn shown_number(number: u64) -> String {
    if number == u64::MAX { "the last number".to_owned() } else { number.to_string() }
}

/// Returns the reason why a store can't be written to, and the remedy.
pub(super) fn read_only(source: Option<&io::Error>) -> String {
    match source {
        None => "was opened with `read_only(true)`, or is a follower's; to write, open it without, or promote the \
                 follower".to_owned(),
        Some(source) => format!(
            "can't be written to ({source}); allow it, or open it with \
             `Store::options().read_only(true)` to read"
        ),
    }
}

/// Returns the reason why a store can't be opened beside another process, and the ways out.
pub(super) fn elsewhere(path: &Path, process: Option<u32>, has_journal: bool) -> String {
    let process = process.map_or("another process".to_owned(), |id| format!("process {id}"));
    let path = path.display();
    if has_journal {
        format!(
            "{process} writes `{path}`, and a store with a journal has one writing process; wait until it has closed the \
             store, read it with `read_only(true)`, or, for several writing processes, open it with `Durability::Full` in \
             all of them"
        )
    } else {
        format!(
            "{process} has `{path}` open and may write it without a journal, so no journal can be started; close the store \
             there, open it with `Durability::Full` here too, or read it with `read_only(true)`"
        )
    }
}

/// The key in the errors about the lists of the names in a table's rows.
pub(crate) const LISTS_KEY: &str = "of the lists of its rows";

/// The beginning of the "key" of a damaged page.
const PAGE: &str = "page ";

/// Returns the error for a damaged page of a table's rows, or of an index.
#[cold]
pub(crate) fn damaged_page(
    table: &'static str,
    index: Option<&'static str>,
    page: u64,
    reason: &str,
) -> super::Error {
    let reason = format!("{reason}; {}", way_out(table, index));
    super::Error::Corrupt { table, index, key: format!("{PAGE}{page}"), reason }
}

/// Whether an error is of a damaged page, which ends a pass over a table. Other damage is a finding.
pub(crate) fn is_damaged_page(error: &super::Error) -> bool {
    matches!(error, super::Error::Corrupt { key, .. } if key.starts_with(PAGE))
}

/// Returns what is lost by a damaged page, and the way out.
pub(crate) fn way_out(table: &str, index: Option<&str>) -> String {
    match index {
        Some(index) => format!(
            "no row is lost: `index-table build STORE --rebuild {table} {index}` gives up this index, and the program \
             builds it again from the rows"
        ),
        None => "its rows are lost: `index-table salvage STORE TO` copies all others to a new store, or restore a backup"
            .to_owned(),
    }
}

/// Returns the position of damage.
pub(super) fn position(key: &str) -> String {
    if key.starts_with(PAGE) { key.to_owned() } else { format!("key {key}") }
}

/// Returns the remedy for a damaged file, unless the reason has it.
pub(super) fn restored(reason: &str) -> &'static str {
    if reason.contains("`index-table ") || reason.contains("`mdb_load` ") {
        ""
    } else {
        "; restore the directory from a copy"
    }
}

/// Returns the remedy for damage. That of lists and pages is in its reason.
pub(super) fn repaired_by(key: &str) -> &'static str {
    if key == LISTS_KEY || key.starts_with(PAGE) {
        return "";
    }
    "; the repository's `verify` lists the damage, and `repair` corrects it"
}

/// Returns the name of the index in messages, or `other`.
pub(super) fn index_or(other: &str, index: Option<&str>) -> String {
    index.map_or(other.to_owned(), |index| format!("index `{index}`"))
}

/// Returns an archive in messages.
pub(super) fn archive_of(directory: Option<&Path>) -> String {
    match directory {
        Some(directory) => format!("the archive `{}`", directory.display()),
        None => "an archive".to_owned(),
    }
}
