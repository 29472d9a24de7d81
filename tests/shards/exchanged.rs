//! Rows that exchange keys of unique indexes while a shard is detached, attached or restored.

use std::{fs, path::Path, thread};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[allow(clippy::duplicated_attributes, reason = "two indexes may have options in common")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = part)]
#[index(part, nick, unique)]
#[index(email, unique, scope = "global")]
#[index(hash(text), unique, scope = "global", name = "text")]
struct Person {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    nick: String,
    email: String,
    text: String,
}

/// Returns a row with the keys of this number.
fn person(part: u32, id: u32, key: u32) -> Person {
    let email = format!("{key}@example.com");
    Person { part, id, nick: format!("n{key}"), text: format!("text of {email}"), email }
}

fn opened(path: &Path) -> Result<(Store, PersonRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("people", map);
    let store = options.open(path)?;
    let people = PersonRepository::open(&store)?;
    Ok((store, people))
}

/// Writes the rows of a part in this order, each with the keys of its number.
fn put(store: &Store, people: &PersonRepository, rows: &[(u32, u32, u32)]) -> Result<()> {
    store.transaction(|txn| {
        rows.iter().try_for_each(|(part, id, key)| people.put(txn, &person(*part, *id, *key)))
    })
}

/// Lets two rows exchange their keys.
fn exchange(
    (store, people): (&Store, &PersonRepository),
    part: u32,
    (one, of_one): (u32, u32),
    (other, of_other): (u32, u32),
) -> Result<()> {
    let rows = [(part, other, 1_000_000), (part, one, of_other), (part, other, of_one)];
    put(store, people, &rows)
}

/// Checks that each row is found by each of its keys, that no key has another entry, and that no key is free.
fn check((store, people): (&Store, &PersonRepository), rows: &[(u32, u32, u32)]) -> Result<()> {
    let txn = store.read()?;
    let mut expected: Vec<_> = rows.iter().map(|row| person(row.0, row.1, row.2)).collect();
    expected.sort_by_key(|row| (row.part, row.id));
    assert_eq!(people.all(&txn).rows().collect::<Result<Vec<_>>>()?, expected);
    for row in &expected {
        assert_eq!(people.get_by_part_nick(&txn, row.part, &row.nick)?.as_ref(), Some(row));
        assert_eq!(people.get_by_email(&txn, &row.email)?.as_ref(), Some(row));
        assert_eq!(people.get_by_text(&txn, &row.text)?.as_ref(), Some(row));
    }
    assert_eq!(people.by_part_nick(&txn).count()?, rows.len() as u64);
    assert_eq!(people.by_email(&txn).count()?, rows.len() as u64);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    drop(txn);
    for row in expected {
        let second = Person { id: u32::MAX, ..row };
        let taken = store.transaction(|txn| people.insert(txn, &second));
        assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
    }
    Ok(())
}

#[test]
fn rows_exchange_unique_keys_while_their_shard_is_detached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let shop = dir.path().join("shop");
    let (store, people) = opened(&shop)?;
    put(&store, &people, &[(1, 1, 11), (1, 2, 12), (20, 1, 21), (20, 2, 22), (20, 3, 23)])?;
    store.detach_shard("b")?;
    {
        // Rows of the shard exchange their keys, and a row gives up a key.
        let alone = Store::open(shop.join("b"))?;
        let alone = (&alone, &PersonRepository::open(&alone)?);
        exchange(alone, 20, (1, 21), (2, 22))?;
        put(alone.0, alone.1, &[(20, 3, 33)])?;
    }
    // A row of another shard takes this key, and two of them exchange theirs.
    put(&store, &people, &[(1, 3, 23)])?;
    exchange((&store, &people), 1, (1, 11), (2, 12))?;
    exchange((&store, &people), 1, (1, 12), (3, 23))?;
    store.attach_shard("b", "b")?;
    let rows = [(1, 1, 23), (1, 2, 11), (1, 3, 12), (20, 1, 22), (20, 2, 21), (20, 3, 33)];
    check((&store, &people), &rows)?;
    drop((store, people));
    let (store, people) = opened(&shop)?;
    check((&store, &people), &rows)
}

/// The rows of a shard that leaves, which is more than a batch of hidden entries that are removed.
const ROWS: u32 = 3000;

#[test]
fn rows_take_and_exchange_the_keys_of_hidden_entries_while_these_are_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, people) = opened(&dir.path().join("shop"))?;
    let of_b: Vec<_> = (0..ROWS).map(|id| (20, id, id)).collect();
    put(&store, &people, &of_b)?;
    // From the end, as the entries are removed from the beginning, and from the beginning.
    let keys: Vec<_> = (0..60).flat_map(|at| [ROWS - 1 - at, at]).collect();
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for (id, key) in (0..).zip(&keys) {
                while let Err(error) = put(&store, &people, &[(1, id, *key)]) {
                    assert!(matches!(error, Error::UniqueViolation { .. }), "{error}");
                }
                if id % 2 == 1 {
                    let before = (id - 1, keys[id as usize - 1]);
                    exchange((&store, &people), 1, before, (id, *key))?;
                }
            }
            Ok::<_, Error>(())
        });
        store.detach_shard("b")?;
        writing.join().expect("a thread")
    })?;
    let exchanged = (0..).zip(keys.chunks(2)).flat_map(|(pair, keys)| {
        let at: u32 = 2 * pair;
        [(1, at, keys[1]), (1, at + 1, keys[0])]
    });
    check((&store, &people), &exchanged.collect::<Vec<_>>())
}

#[test]
fn rows_exchange_unique_keys_between_a_backup_and_its_restoration() -> Result<()> {
    for is_open in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        let (store, people) = opened(&shop)?;
        put(&store, &people, &[(1, 1, 11), (1, 2, 12), (20, 1, 21), (20, 2, 22), (20, 3, 23)])?;
        store.backup_shard(&store.shard("b")?, &backup)?;
        exchange((&store, &people), 1, (1, 11), (2, 12))?;
        exchange((&store, &people), 20, (1, 21), (2, 22))?;
        // A key that no row of the backup has.
        put(&store, &people, &[(20, 3, 33)])?;
        put(&store, &people, &[(20, 3, 34), (1, 3, 33)])?;
        drop((store, people));
        fs::remove_dir_all(shop.join("b")).expect("removed");

        let store = Store::open(&shop)?;
        let people = is_open.then(|| PersonRepository::open(&store)).transpose()?;
        store.restore_shard(&store.shard("b")?, &backup)?;
        let people = people.map_or_else(|| PersonRepository::open(&store), Ok)?;
        let rows = [(1, 1, 12), (1, 2, 11), (1, 3, 33), (20, 1, 21), (20, 2, 22), (20, 3, 23)];
        check((&store, &people), &rows)?;
    }
    Ok(())
}
