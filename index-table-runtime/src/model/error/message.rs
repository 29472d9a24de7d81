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

/// Returns the remedy for damage. That of lists is in its reason.
pub(super) fn repaired_by(key: &str) -> &'static str {
    if key == LISTS_KEY {
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
