//! The names of schemas and tables, and SQL with them. See docs/FORMAT.md.

use std::fmt::Write as _;

/// PostgreSQL's limit for the bytes of a name. It cuts longer names without an error.
const MAX_NAME: usize = 63;

/// The table of the records of all tables.
pub(super) const CATALOG: &str = ".catalog";

/// The table of the sequences of all tables.
pub(super) const SEQUENCES: &str = ".sequences";

/// The table of the clients that have tables open for writing.
pub(super) const CLIENTS: &str = ".clients";

/// The table of the tokens of commits, on servers without the outcomes of transactions.
pub(super) const COMMITS: &str = ".commits";

/// The key in the catalog of the number of the format.
pub(super) const FORMAT_KEY: &[u8] = b"\0format";

/// The key in the catalog of the counter of its changes: `00` ‖ `changes`, as a literal of SQL.
pub(super) const CHANGES_KEY: &str = "\\x006368616e676573";

/// The number of the format.
pub(super) const FORMAT: &[u8] = b"1";

/// Returns bytes in hexadecimal form.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Returns a name that is not longer than PostgreSQL's limit. A longer name is cut, and ends with a hash of the whole
/// name.
fn short(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let hash = blake3::hash(name.as_bytes());
    let hex = hex(hash.as_bytes().get(..8).unwrap_or_default());
    let mut end = MAX_NAME - 1 - hex.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{hex}", name.get(..end).unwrap_or_default())
}

/// Returns an identifier in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether PostgreSQL can have a schema of this name.
pub(super) fn is_schema(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains('\0')
}

/// A table in SQL.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    /// The name in the schema.
    pub(super) name: String,
    /// The name with the schema, in quotes.
    pub(super) sql: String,
    pub(super) form: Form,
}

/// The columns of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `k`, `v`: facts and small records.
    Pairs,
    /// `k`, `p`, `v`: the entries of an index.
    Entries,
    /// `k`, `s`, `p`, `v`: the entries of a unique index. `s` is empty in the only entry of a key, and is the primary
    /// key in each further entry.
    Unique,
}

impl Form {
    /// Returns the names of the columns.
    pub(super) const fn columns(self) -> &'static str {
        match self {
            Self::Pairs => "k, v",
            Self::Entries => "k, p, v",
            Self::Unique => "k, s, p, v",
        }
    }

    /// Returns the columns of the primary key.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Pairs => &["k"],
            Self::Entries => &["k", "p"],
            Self::Unique => &["k", "s"],
        }
    }

    /// Returns the names of the columns in alphabetical order.
    pub(super) const fn sorted_columns(self) -> &'static str {
        match self {
            Self::Unique => "k, p, s, v",
            form => form.columns(),
        }
    }
}

impl Relation {
    pub(super) fn new(schema: &str, name: &str, form: Form) -> Self {
        let name = short(name);
        let sql = format!("{}.{}", quoted(schema), quoted(&name));
        Self { name, sql, form }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_within_the_limit_stay_and_longer_names_stay_distinct() {
        let name = "n".repeat(63);
        assert_eq!(short(&name), name);
        let [one, other] = ["a", "b"].map(|last| short(&format!("{name}{last}")));
        assert_ne!(one, other);
        assert_eq!((one.len(), other.len()), (63, 63));
        assert_eq!(short(&format!("{}é", "n".repeat(45))).len(), 47);
        assert!(short(&"é".repeat(40)).len() <= 63);
    }

    #[test]
    fn a_long_name_has_the_hash_of_the_format() {
        let name = "n".repeat(64);
        assert_eq!(short(&name), format!("{}~{}", "n".repeat(46), LONG));
    }

    /// The first 8 bytes of the BLAKE3 hash of 64 times `n`.
    const LONG: &str = "3a107d830948caba";

    #[test]
    fn a_name_can_not_leave_its_quotes() {
        let relation = Relation::new("a\"b", "c\"; DROP TABLE d; --", Form::Pairs);
        assert_eq!(relation.sql, "\"a\"\"b\".\"c\"\"; DROP TABLE d; --\"");
    }
}
