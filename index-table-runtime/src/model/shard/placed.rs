//! The shard map of a table without a shard key. The table has it from the beginning of its first move: a map of ranges, of
//! which one shard has all keys.

use super::{Boundaries, Declared, MapKind};

/// The name of the map begins with it. The names of other maps don't.
const PREFIX: char = '@';

/// The name of the key type. A shard key of no field has no bytes.
const KEY_TYPE: &str = "()";

/// Returns the name of the map of a table without a shard key.
pub(crate) fn placed_map(table: &str) -> String {
    format!("{PREFIX}{table}")
}

/// Returns the table without a shard key that has the map with this name; `None` for other maps.
pub(crate) fn placed_table(map: &str) -> Option<&str> {
    map.strip_prefix(PREFIX)
}

impl Declared {
    /// Returns the map of a table without a shard key, in which no shard has the keys yet.
    pub(crate) fn placed() -> Self {
        let (kind, key_type) = (MapKind::Ranges, KEY_TYPE.to_owned());
        Self { kind, key_type, boundaries: Boundaries::all_in(None) }
    }
}
