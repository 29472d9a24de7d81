//! Shards with different durabilities that come back.

use std::{fs, path::Path};

use index_table::{Durability, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = part)]
#[index(email, unique, scope = "global")]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
}

fn user(part: u32, id: u32) -> User {
    User { part, id, email: format!("{part}.{id}") }
}

fn options(durabilities: [Durability; 2]) -> Options {
    let [a, b] = durabilities.map(|durability| Store::options().durability(durability));
    let map = ShardMap::ranges().to("a", ..1u32).to("b", 1u32..);
    Store::options().shard_with("a", "a", a).shard_with("b", "b", b).map("users", map)
}

fn write(store: &Store, users: &UserRepository, id: u32) -> Result<()> {
    store.transaction(|txn| (0..2).try_for_each(|part| users.insert(txn, &user(part, id))))
}

/// Checks that each part has the rows below this number.
fn check(store: &Store, users: &UserRepository, count: u32) -> Result<()> {
    let rows = users.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
    assert!(rows.into_iter().eq((0..2).flat_map(|part| (0..count).map(move |id| user(part, id)))));
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

fn check_again(path: &Path, count: u32) -> Result<()> {
    let store = Store::open(path)?;
    check(&store, &UserRepository::open(&store)?, count)
}

const MIXES: [[Durability; 2]; 4] = [
    [Durability::Journal, Durability::Relaxed],
    [Durability::Relaxed, Durability::Journal],
    [Durability::Relaxed, Durability::Relaxed],
    [Durability::Journal, Durability::Journal],
];

#[test]
fn a_shard_with_another_durability_is_detached_and_attached() -> Result<()> {
    for mix in MIXES {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let store = options(mix).open(&path)?;
        let users = UserRepository::open(&store)?;
        write(&store, &users, 0)?;
        store.detach_shard("b")?;
        let plain = Store::open(path.join("b"))?;
        let own = UserRepository::open(&plain)?;
        plain.transaction(|txn| own.insert(txn, &user(1, 1)))?;
        drop((plain, own));
        store.transaction(|txn| users.insert(txn, &user(0, 1)))?;
        store.attach_shard("b", "b")?;
        check(&store, &users, 2)?;
        write(&store, &users, 2)?;
        check(&store, &users, 3)?;
        drop((store, users));
        check_again(&path, 3)?;
    }
    Ok(())
}

#[test]
fn a_shard_with_another_durability_is_restored() -> Result<()> {
    for mix in MIXES {
        for lost in [&["b"][..], &["a", "b"]] {
            let dir = tempfile::tempdir().expect("a directory");
            let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
            let store = options(mix).open(&path)?;
            let users = UserRepository::open(&store)?;
            write(&store, &users, 0)?;
            store.backup_to(&backup)?;
            drop((store, users));
            for name in lost {
                fs::remove_dir_all(path.join(name)).expect("removed");
            }
            let store = Store::open(&path)?;
            for name in lost {
                let copy = backup.join(format!("shard.{}", u8::from(*name == "b")));
                store.restore_shard(&store.shard(name)?, copy)?;
            }
            let users = UserRepository::open(&store)?;
            check(&store, &users, 1)?;
            write(&store, &users, 1)?;
            check(&store, &users, 2)?;
            drop((store, users));
            check_again(&path, 2)?;
        }
    }
    Ok(())
}
