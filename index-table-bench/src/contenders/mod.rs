//! The contenders.

pub mod fjall;
pub mod heed;
pub mod index_table;
pub(crate) mod keys;
pub mod native_db;
pub mod redb;
pub mod sqlite;

use crate::contender::Kind;

/// All contenders. The others are compared with the first contender.
pub const ALL: [Kind; 7] = [
    Kind {
        name: "index-table",
        about: "the generated repository, as in README.md",
        open: index_table::open,
    },
    Kind {
        name: "heed",
        about: "written by hand on heed, with the same layout in the file: the floor",
        open: heed::open_packed,
    },
    Kind {
        name: "heed, plain keys",
        about: "the same, but the index on towns has an entry of its own for each row, with an \
                empty value",
        open: heed::open_plain,
    },
    Kind {
        name: "native_db",
        about: "native_db 0.8 with three secondary keys, one of them computed",
        open: native_db::open,
    },
    Kind {
        name: "SQLite",
        about: "rusqlite with SQLite compiled in: WAL, synchronous=FULL, memory-mapped, cached \
                statements, covering index",
        open: sqlite::open,
    },
    Kind { name: "redb", about: "redb 4 with index tables written by hand", open: redb::open },
    Kind {
        name: "fjall",
        about: "fjall 3 with index keyspaces written by hand",
        open: fjall::open,
    },
];
