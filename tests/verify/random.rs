//! Random damage: after a repair, the indexes equal the indexes of a new store with the same rows.

use index_table::{FindingKind, Result, Store};
use proptest::prelude::*;

use crate::{INDEXES, Item, ItemRepository, in_steps, item, open, raw, raw::Raw};

#[derive(Debug, Clone)]
enum Damage {
    Delete(usize),
    Flip { entry: usize, byte: usize, bits: u8, in_value: bool },
    Cut { entry: usize, by: usize },
    Extend { entry: usize, by: Vec<u8> },
    Copy { from: usize, to: usize },
    Move { entry: usize, by: Vec<u8> },
    Put { key: Vec<u8>, value: Vec<u8> },
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 1..6);
    let at = || any::<usize>();
    prop_oneof![
        at().prop_map(Damage::Delete),
        (at(), at(), 1..=255_u8, any::<bool>())
            .prop_map(|(entry, byte, bits, in_value)| Damage::Flip { entry, byte, bits, in_value }),
        (at(), 1..6_usize).prop_map(|(entry, by)| Damage::Cut { entry, by }),
        (at(), bytes()).prop_map(|(entry, by)| Damage::Extend { entry, by }),
        (at(), at()).prop_map(|(from, to)| Damage::Copy { from, to }),
        (at(), bytes()).prop_map(|(entry, by)| Damage::Move { entry, by }),
        (bytes(), bytes()).prop_map(|(key, value)| Damage::Put { key, value }),
    ]
}

fn apply(raw: &mut Raw<'_, '_>, damage: &Damage) {
    let entries = raw.entries();
    if entries.is_empty() {
        return;
    }
    let entry = |at: usize| entries[at % entries.len()].clone();
    match damage {
        Damage::Delete(at) => raw.delete(entry(*at).0),
        Damage::Flip { entry: at, byte, bits, in_value } => {
            let (mut key, mut value) = entry(*at);
            let bytes = if *in_value { &mut value } else { &mut key };
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(byte % len) {
                *byte ^= bits;
            }
            raw.delete(entry(*at).0);
            raw.put(key, value);
        }
        Damage::Cut { entry: at, by } => {
            let (key, mut value) = entry(*at);
            value.truncate(value.len().saturating_sub(*by));
            raw.put(key, value);
        }
        Damage::Extend { entry: at, by } => {
            let (key, value) = entry(*at);
            raw.put(key, [&value[..], by].concat());
        }
        Damage::Copy { from, to } => raw.put(entry(*to).0, entry(*from).1),
        Damage::Move { entry: at, by } => {
            let (key, value) = entry(*at);
            raw.delete(&key);
            raw.put([&key[..], by].concat(), value);
        }
        Damage::Put { key, value } => raw.put(key, value),
    }
}

/// Returns the results of scans of every index.
fn seen(items: &ItemRepository, store: &Store) -> Result<String> {
    let txn = store.read()?;
    let mut seen = String::new();
    macro_rules! add {
        ($($method:ident),*) => {$(
            let entries = items.$method(&txn).entries().collect::<Result<Vec<_>>>()?;
            seen += &format!("{}: {entries:?}\n", stringify!($method));
            assert_eq!(items.$method(&txn).count()?, entries.len() as u64);
        )*};
    }
    add!(by_town, by_town_name, by_name, by_code, by_coded, by_tags, by_noted, by_live);
    add!(by_initial, by_once, by_linked, all);
    Ok(seen)
}

fn check(rows: u16, damages: &[(usize, Damage)], restores: &[u16]) -> Result<()> {
    // Insertions in any order and deletions, so that blocks are filled differently.
    let ids = |n: u16| (0..n).map(|i| i.wrapping_mul(7919) % 2048);
    let dir = tempfile::tempdir().expect("a directory");
    let fresh = Store::in_memory();
    let (expected, kept) = {
        let (store, items) = open(&dir)?;
        let new = ItemRepository::open(&fresh)?;
        let mut txn = store.write()?;
        let few = |id: u16| Item { town: "Oz".into(), ..item(id) };
        ids(rows).try_for_each(|id| items.insert(&mut txn, &few(id)))?;
        for id in restores {
            items.delete(&mut txn, ids(rows).nth(usize::from(id % rows)).unwrap_or_default())?;
        }
        txn.commit()?;
        let kept: Vec<Item> = items.all(&store.read()?).rows().collect::<Result<_>>()?;
        fresh.transaction(|txn| kept.iter().try_for_each(|item| new.insert(txn, item)))?;
        assert!(items.verify(&store.read()?).run()?.is_clean());
        (seen(&new, &fresh)?, kept)
    };
    for (index, damage) in damages {
        let name = format!("items.{}", INDEXES[index % INDEXES.len()]);
        raw::on(dir.path(), &name, |raw| apply(raw, damage));
    }
    let (store, items) = open(&dir)?;
    let found = items.verify(&store.read()?).run()?;
    let steps = in_steps(&items, &store.read()?, 13)?;
    if found.count(FindingKind::Malformed) == 0 {
        assert_eq!(
            (&steps.counts, steps.rows, steps.entries),
            (&found.counts, found.rows, found.entries)
        );
    }
    assert_eq!(steps.is_clean(), found.is_clean());
    let repaired = store.transaction(|txn| items.repair(txn).run())?;
    assert_eq!(repaired.left, 0, "{repaired}");
    assert_eq!(repaired.is_clean(), found.is_clean());
    let again = items.verify(&store.read()?).run()?;
    assert!(again.is_clean(), "{again}");
    assert_eq!(seen(&items, &store)?, expected);
    // The store works after the repair.
    store
        .transaction(|txn| kept.iter().try_for_each(|item| items.delete(txn, item.id).map(drop)))?;
    let empty = items.verify(&store.read()?).run()?;
    assert!(empty.is_clean() && empty.entries == 0, "{empty}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_damage_is_repaired(
        rows in prop_oneof![1..20_u16, 300..700_u16],
        damages in prop::collection::vec((any::<usize>(), damage()), 1..25),
        deleted in prop::collection::vec(any::<u16>(), 0..200),
    ) {
        check(rows, &damages, &deleted)
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
