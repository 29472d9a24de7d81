//! Parts in another shard than their main rows: `#[table(part_of = …)]` on a table that is placed.
//!
//! A row and its part have the same primary key, and each of the two tables has a routing. So the other row is found
//! through the same transaction, by the routing of its table:
//!
//! - **A part is written.** The table of parts keeps the table of main rows open ([`SharedTables::main`]), and
//!   [`Reader::has_main_row`] looks up the main row in its shard. Only the type of the parts declares the reference, so opening
//!   the repository of the parts opens the table of the main rows, too.
//! - **A main row is deleted.** [`Reader::placed_part`] looks up the part in its shard, and the cascade deletes it. The
//!   manager has the names of these tables of parts ([`TableRecord::Part`]), so a process without their repository refuses
//!   the deletion, even if a shard is not available. A store without such tables only loads a flag.
//!
//! A look-up locks the other shard. So no other transaction can delete the main while a part is inserted, and the commit
//! is a commit of several shards, which a crash can't split. While the main rows move between shards, a write transaction uses
//! the current routing: the ranges of a locked shard don't change, and a transaction that locks a shard after a change
//! runs again.
//!
//! No shard has a record of the reference as a part of the table of main rows: the references of an engine are between its
//! own databases. The record of the table of parts has the declaration.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use super::{Engine, Reader, TableRecord, Tables, tables::SharedTables};
use crate::{
    engine::Read as _,
    locks::Mutex,
    model::{
        error::{Error, Result},
        key::kept_text,
        reference::{PART_OF, Referrer},
        schema::TableSchema,
        shard::{Routing, ShardNumber},
    },
};

/// The tables of parts that are placed in other shards than their main rows.
#[derive(Default)]
pub(super) struct PlacedParts {
    /// Whether the store has such tables.
    any: AtomicBool,
    /// The tables that the store has.
    known: Mutex<Vec<Placed>>,
    /// The tables that are open, by their names.
    open: Mutex<BTreeMap<&'static str, OpenParts>>,
}

/// A table of parts that is placed in a shard.
struct Placed {
    main: String,
    shard: ShardNumber,
    by: Referrer,
}

/// An open table of parts.
struct OpenParts {
    schema: &'static TableSchema,
    shared: Weak<SharedTables>,
}

impl PlacedParts {
    /// Notes that the store has these tables.
    pub(super) fn note(&self, tables: &BTreeMap<String, TableRecord>) {
        let mut known = self.known.lock();
        let parts = tables.iter().filter_map(|(table, record)| match record {
            TableRecord::Part { shard, main, repository } => {
                // Names are kept as long as the process lives, so they are kept once.
                let is_same = |it: &&Placed| {
                    it.by.table == table && it.by.cascade == Some(repository.as_str())
                };
                let by = known.iter().find(is_same).map(|it| it.by);
                let by = by.unwrap_or_else(|| Referrer {
                    table: kept_text(table),
                    reference: PART_OF,
                    index: "",
                    optional: false,
                    cascade: Some(kept_text(repository)),
                });
                Some(Placed { main: main.clone(), shard: *shard, by })
            }
            _ => None,
        });
        let parts: Vec<_> = parts.collect();
        self.any.store(!parts.is_empty(), Release);
        *known = parts;
    }
}

impl Engine {
    /// Keeps the table of main rows for a table of parts in another shard. The parts are found from now on.
    pub(crate) fn add_parts(&self, parts: &Tables, main: Tables) {
        let _ = parts.shared.main.set(main);
        let schema = parts.routing.schema();
        let shared = Arc::downgrade(&parts.shared);
        let mut open = self.parts.open.lock();
        open.insert(schema.name, OpenParts { schema, shared });
    }

    /// Returns the tables of parts, in other shards, of the rows of this table, with their shards.
    #[inline]
    fn placed_parts(&self, main: &str) -> Vec<(ShardNumber, Referrer)> {
        if self.parts.any.load(Acquire) { self.find_placed_parts(main) } else { Vec::new() }
    }

    #[cold]
    fn find_placed_parts(&self, main: &str) -> Vec<(ShardNumber, Referrer)> {
        let known = self.parts.known.lock();
        let parts = known.iter().filter(|placed| placed.main == main);
        parts.map(|placed| (placed.shard, placed.by)).collect()
    }

    /// Returns the tables with parts of this table's rows in other shards.
    pub(crate) fn tables_of_parts(&self, main: &str) -> Vec<&'static str> {
        self.placed_parts(main).into_iter().map(|(_, by)| by.table).collect()
    }

    /// Whether rows of this table have parts in other shards.
    pub(crate) fn has_placed_parts(&self, main: &str) -> bool {
        !self.placed_parts(main).is_empty()
    }

    /// Returns an open table of parts; `None` if its repository is not open in this process.
    fn open_parts(&self, table: &str, place: ShardNumber) -> Option<Tables> {
        let now = self.maps.now();
        let (schema, shared) = {
            let open = self.parts.open.lock();
            let OpenParts { schema, shared } = open.get(table)?;
            (*schema, shared.upgrade()?)
        };
        let routing = Routing::whole(schema, place);
        Some(Tables { routing, generation: now.generation(), present: now.shards().into(), shared })
    }
}

impl Reader<'_> {
    /// Whether the main row of the part with this primary key exists; `None` if the main rows of this table, if it has any, are
    /// in the shards of their parts.
    ///
    /// # Errors
    ///
    /// [`Error::NoShard`]; [`Error::ShardUnavailable`]; [`Error::OtherShard`] in a transaction of one shard.
    pub(crate) fn has_main_row(self, primary_key: &[u8]) -> Result<Option<bool>> {
        let Some(main) = self.tables().shared.main.get() else { return Ok(None) };
        let shard = self.txn.shard_of(main, primary_key);
        let shard = shard.ok_or_else(|| main.no_shard(primary_key))?;
        let reader = self.txn.reader(main, shard, Some(primary_key))?;
        Ok(Some(reader.fact(primary_key)?.is_some()))
    }

    /// Returns a reference of which the row with this primary key has a part in another shard.
    ///
    /// # Errors
    ///
    /// [`Error::RepositoryNeeded`] if the parts of a table can't be found, because its repository is not open;
    /// [`Error::ShardUnavailable`]; [`Error::OtherShard`] in a transaction of one shard.
    pub(crate) fn placed_part(self, primary_key: &[u8]) -> Result<Option<Referrer>> {
        let (schema, engine) = (self.table(), self.txn.engine());
        for (shard, by) in engine.placed_parts(schema.name) {
            let Some(parts) = engine.open_parts(by.table, shard) else {
                engine.shard(shard)?.opened()?;
                return Err(Error::RepositoryNeeded {
                    table: schema.name,
                    key: schema.show_primary_key(primary_key),
                    by: by.table,
                    reference: by.reference,
                    repository: by.cascade.unwrap_or_default(),
                });
            };
            if self.txn.reader(&parts, shard, Some(primary_key))?.fact(primary_key)?.is_some() {
                return Ok(Some(by));
            }
        }
        Ok(None)
    }
}
