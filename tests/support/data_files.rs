//! The kinds of stores on a disk that a test runs on: with one data file, and with several.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::time::Duration;

use index_table::{Durability, Options, ShardMap, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    OneFile,
    /// Three shards: `a` with the keys below 10, `b` with the keys below 20, and `c` with all others.
    Several,
}

impl Kind {
    /// Returns options with the shards, and with this shard map.
    pub(crate) fn store(self, shard_map: &str) -> Options {
        match self {
            Self::OneFile => Store::options(),
            Self::Several => {
                let all = ["a", "b", "c"];
                let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
                let options = all.iter().fold(Store::options(), |all, name| all.shard(*name, name));
                options.map(shard_map, map)
            }
        }
    }

    /// Returns options with a journal that makes a checkpoint every few commits.
    pub(crate) fn journal(self, shard_map: &str) -> Options {
        let options = self.store(shard_map).durability(Durability::Journal);
        options.checkpoint(1 << 16, 1 << 14, Duration::from_hours(1))
    }

    /// Returns the value for this kind.
    pub(crate) fn of<T>(self, one_file: T, several: T) -> T {
        match self {
            Self::OneFile => one_file,
            Self::Several => several,
        }
    }
}

/// Defines two tests of each function, one for each kind of store. The compiler reports a function that is not listed.
macro_rules! on_each_kind {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod one_file {
            $($(#[$attribute])* #[test] fn $name() -> crate::TestResult {
                super::$name(crate::Kind::OneFile)
            })+
        }
        mod several {
            $($(#[$attribute])* #[test] fn $name() -> crate::TestResult {
                super::$name(crate::Kind::Several)
            })+
        }
    };
}

pub(crate) use on_each_kind;
