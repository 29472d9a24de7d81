//! Moves and removals of shards after a lost shard map manager was rebuilt.

use std::{
    fs,
    path::{Path, PathBuf},
};

use index_table::{IndexTable, Result, ShardMap, Store, report::MoveState};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, random_local::random_together::copy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(town)]
#[index(code, unique, scope = "global")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: u8,
    code: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant, shard_map = "orders")]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "settings")]
struct Setting {
    #[primary_key]
    name: String,
}

struct Tables {
    orders: OrderRepository,
    notes: NoteRepository,
}

const TENANTS: u32 = 40;

impl Tables {
    fn open(store: &Store) -> Result<Self> {
        let orders = OrderRepository::open(store)?;
        Ok(Self { orders, notes: NoteRepository::open(store)? })
    }

    fn check(&self, store: &Store) -> Result<()> {
        let txn = store.read()?;
        assert_eq!(self.orders.all(&txn).rows().count(), TENANTS as usize);
        assert_eq!(self.orders.by_town(&txn).rows().count(), TENANTS as usize);
        assert_eq!(self.orders.by_code(&txn).rows().count(), TENANTS as usize);
        assert_eq!(self.notes.all(&txn).rows().count(), TENANTS as usize);
        drop(txn);
        assert!(store.verify()?.is_clean());
        // The rows that each shard has for itself, with the copies.
        let rows: u64 = store.shards()?.iter().map(|shard| shard.rows).sum();
        assert!((2 * u64::from(TENANTS)..=2 * u64::from(TENANTS) + 1).contains(&rows), "{rows}");
        Ok(())
    }
}

fn filled(path: &Path) -> Result<(Store, Tables)> {
    let map = ShardMap::ranges().to("a", ..20u32).to("b", 20u32..);
    let options = ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name));
    let store = options.map("orders", map).open(path)?;
    let tables = Tables::open(&store)?;
    store.transaction(|txn| {
        for tenant in 0..TENANTS {
            let (town, code) = ((tenant % 3) as u8, tenant.into());
            tables.orders.insert(txn, &Order { tenant, number: 1, town, code })?;
            tables.notes.insert(txn, &Note { tenant, number: 1 })?;
        }
        Ok(())
    })?;
    Ok((store, tables))
}

/// Removes the manager of a store that is not open, and rebuilds it.
fn rebuilt(path: &Path) -> Result<Store> {
    fs::remove_file(path.join("data.mdb")).expect("a shard map manager");
    let options = ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name));
    options.rebuild(path)
}

/// Returns the directory of a process that was killed during a move to shard `c`, which has no other keys: before the switch,
/// or while the copies are removed from the source.
fn killed(dir: &Path, is_switched: bool) -> Result<PathBuf> {
    let (path, killed) = (dir.join("shop"), dir.join("killed"));
    let (store, _tables) = filled(&path)?;
    let mut is_copied = false;
    // All keys of the source, which then has copies only.
    let moving = store.move_range("orders", 20u32.., "c").progress(|at| {
        if (at.unit == "copies removed") == is_switched && !is_copied {
            is_copied = true;
            copy(&path, &killed).expect("copied");
        }
    });
    moving.run()?;
    assert!(is_copied);
    Ok(killed)
}

#[test]
fn an_interrupted_move_leaves_no_copies_after_the_manager_was_rebuilt() -> Result<()> {
    for (is_switched, cancels) in [(false, true), (false, false), (true, false)] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = killed(dir.path(), is_switched)?;
        let store = rebuilt(&path)?;
        let moves = store.moves()?;
        let state = if is_switched { MoveState::CleaningUp } else { MoveState::Copying };
        assert_eq!((moves.len(), moves[0].state), (1, state));
        let end = || {
            if cancels {
                store.cancel_move(moves[0].id)
            } else {
                store.resume_move(moves[0].id).run().map(drop)
            }
        };
        // The manager has no record of the tables, so their copies would stay.
        let refused = reason(end());
        assert!(refused.contains("has tables `notes`, `orders`"), "{refused}");
        assert!(refused.contains("open their repositories first"), "{refused}");
        let orders = OrderRepository::open(&store)?;
        let refused = reason(end());
        assert!(refused.contains("has table `notes`"), "{refused}");
        drop(orders);
        let tables = Tables::open(&store)?;
        tables.orders.build(&store).run()?;
        end()?;
        tables.check(&store)?;
        assert!(store.moves()?.is_empty());
        drop((store, tables));
        let store = Store::open(&path)?;
        Tables::open(&store)?.check(&store)?;
    }
    Ok(())
}

/// The rows of a table that is not open would stay in a shard that no longer has their keys.
#[test]
fn keys_move_after_a_rebuild_only_with_the_rows_of_all_tables() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(filled(dir.path())?);
    let store = rebuilt(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let refused = reason(store.move_range("orders", 5u32..10, "b").run());
    assert!(refused.contains("has table `notes`"), "{refused}");
    assert!(store.moves()?.is_empty());
    let tables = Tables { orders, notes: NoteRepository::open(&store)? };
    store.move_range("orders", 5u32..10, "b").run()?;
    tables.check(&store)
}

#[test]
fn a_shard_is_removed_after_a_rebuild_only_if_its_tables_are_known() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, tables) = filled(dir.path())?;
    let settings = SettingRepository::open(&store)?;
    let setting = Setting { name: "theme".into() };
    store.transaction(|txn| settings.insert(txn, &setting))?;
    drop((store, tables, settings));
    let store = rebuilt(dir.path())?;
    let tables = Tables::open(&store)?;
    store.move_range("orders", 20u32.., "c").run()?;
    store.remove_shard("b")?;
    // The first shard has a table without a shard key.
    let refused = reason(store.move_range("orders", ..20u32, "c").run());
    assert!(refused.contains("has table `settings`"), "{refused}");
    for refused in [reason(store.remove_shard("a")), reason(store.detach_shard("a"))] {
        assert!(refused.contains("has table `settings`"), "{refused}");
    }
    let settings = SettingRepository::open(&store)?;
    store.move_range("orders", ..20u32, "c").run()?;
    let refused = reason(store.remove_shard("a"));
    assert!(refused.contains("table `settings` is placed in it"), "{refused}");
    assert_eq!(settings.all(&store.read()?).count()?, 1);
    tables.check(&store)
}
