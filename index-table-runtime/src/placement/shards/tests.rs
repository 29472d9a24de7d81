//! The bytes of the records of a manager and of a shard, see docs/FORMAT.md; the shard whose copy of a reference table a
//! transaction reads.

use std::{cell::Cell, collections::BTreeMap, path::Path, sync::Arc};

use super::{
    Identity, Locks, ManagerRecords, Map, OpenTables, Shard, ShardRecord, ShardState, TableRecord,
    Tables,
    manager::{self, ManagerRecord},
    maps::CurrentMaps,
    recorded,
    txn::Reads as _,
    writing::Writing,
};
use crate::{
    engine::{Durability, Engine, Options},
    model::{
        error::Result,
        schema::{KeyField, Parts, TableSchema},
        shard::{Boundaries, Declared, Distribution, MapKind},
    },
};

fn records() -> ManagerRecords {
    let mut boundaries = Boundaries::all_in(Some(0));
    boundaries.assign(&[100], None, Some(1));
    let map = Declared { kind: MapKind::Ranges, key_type: "u8".to_owned(), boundaries };
    let shard = |name: &str, place: &str, options: Options| ShardRecord {
        name: name.to_owned(),
        place: place.to_owned(),
        state: ShardState::Open,
        options: recorded(&options),
    };
    let relaxed = Options::default().durability(Durability::Relaxed);
    ManagerRecords {
        own: ManagerRecord { id: [7; 16], version: 2 },
        shards: vec![shard("n", "n", Options::default()), shard("s", "/s", relaxed)],
        maps: [("t".to_owned(), map)].into(),
        places: [("i".to_owned(), 1)].into(),
        tables: [
            ("c".to_owned(), TableRecord::ByKey { fields: 1, hashed: false, map: "t".to_owned() }),
            ("i".to_owned(), TableRecord::Whole(1)),
            (
                "p".to_owned(),
                TableRecord::Part { shard: 1, main: "c".to_owned(), repository: "R".to_owned() },
            ),
        ]
        .into(),
    }
}

#[test]
fn records_of_a_manager_have_these_bytes() {
    let encoded = manager::encoded(&records()).expect("bytes");
    let shown: Vec<_> = encoded
        .iter()
        .map(|(key, record)| format!("{} {}", key.escape_ascii(), record.escape_ascii()))
        .collect();
    assert_eq!(
        shown,
        [
            r"own \x01\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x02",
            r"shard.\x00\x00\x00\x00 \x01\x01n\x01n\x02\x00",
            r"shard.\x00\x00\x00\x01 \x01\x01s\x02/s\x02\x01\ndurability\x01",
            r"map.t \x01\x00\x02u8\x02\x00\x01\x00\x01d\x01\x01",
            r"place.i \x01\x01",
            r"table.c \x01\x01\x01\x00\x01t",
            r"table.i \x01\x00\x01",
            r"table.p \x01\x03\x01\x01c\x01R",
        ]
    );
}

#[test]
fn the_record_of_a_shard_has_these_bytes() {
    let mut records = records();
    if let Some(removed) = records.shards.first_mut() {
        removed.state = ShardState::Removed;
    }
    let identity = records.identity(1, "s", Path::new("/m"), Path::new("/s"), None);
    let bytes = manager::encode_identity(&identity).expect("bytes");
    assert_eq!(
        bytes.escape_ascii().to_string(),
        r"\x01\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x01\x01s\x02/m\x02/s\x01\x01t\x00\x02u8\x01\x01d\x00\x01\x01i\x00\x02\x01\x00"
    );
}

#[test]
fn the_moves_of_a_shard_have_these_bytes() {
    let record = super::MoveRecord {
        id: 7,
        map: "m".to_owned(),
        start: vec![0, 0, 0, 50],
        end: Some(vec![0, 0, 0, 100]),
        from: 0,
        to: 2,
        is_offline: false,
        is_switched: false,
        begun: 1,
    };
    let bytes = manager::encode_moves(&[&record]).expect("bytes");
    let shown = r"\x01\x01\x07\x01m\x04\x00\x00\x002\x01\x04\x00\x00\x00d\x00\x02\x00\x00\x01";
    assert_eq!(bytes.escape_ascii().to_string(), shown);
    assert_eq!(manager::decode_moves(&bytes).expect("a record"), [record]);
    for len in 0..bytes.len() {
        let cut = bytes.get(..len).unwrap_or_default();
        assert!(manager::decode_moves(cut).is_err(), "{len} bytes");
    }
}

/// The ranges are written in the own records of both shards only if they have changed. Otherwise, merging thousands of ranges
/// would write all of them three times for each.
#[test]
fn only_the_switch_of_a_move_changes_the_ranges_of_shards() {
    let mut boundaries = Boundaries::all_in(Some(0));
    boundaries.assign(&[5], Some(&[9]), Some(1));
    let map = || Map {
        kind: MapKind::Ranges,
        key_type: "u8".to_owned(),
        boundaries: boundaries.clone().into(),
    };
    let by_name = ["m", "other"].map(|name| (name.to_owned(), map())).into();
    let maps = CurrentMaps::new(by_name, [0, 1].into()).now();
    let (start, end, map) = (vec![5], Some(vec![7]), "m".to_owned());
    let (is_offline, is_switched) = (false, false);
    let begun = super::MoveRecord {
        id: 7,
        map,
        start,
        end,
        from: 1,
        to: 0,
        is_offline,
        is_switched,
        begun: 1,
    };
    let moving = super::Moving::new(begun);
    let switched = Arc::new(moving.switched());
    let begun = maps.with(Arc::new(moving));
    assert!(begun.have_same_ranges(&maps));
    assert!(begun.without(7).have_same_ranges(&maps));
    let after = begun.with(switched);
    assert!(!after.have_same_ranges(&begun));
    assert!(after.without(7).have_same_ranges(&after));
    let owners: Vec<_> = after.get("m").expect("a map").boundaries.segments().collect();
    assert_eq!(
        owners,
        [
            (&[][..], Some(&[7][..]), Some(0)),
            (&[7][..], Some(&[9][..]), Some(1)),
            (&[9][..], None, Some(0))
        ]
    );
}

#[test]
fn options_of_a_shard_equal_their_decoded_record() {
    let options = Options::default()
        .durability(Durability::None)
        .map_size(1 << 20)
        .max_map_size(1 << 22)
        .max_databases(7)
        .max_readers(9)
        .reserve(0)
        .index_queue(5, crate::WhenFull::Wait(std::time::Duration::from_millis(1500)));
    assert_eq!(super::options_of(&recorded(&options)), options);
    assert_eq!(recorded(&Options::default()), []);
    for (durability, number) in
        [(Durability::Relaxed, 1), (Durability::None, 2), (Durability::Journal, 3)]
    {
        let options = Options::default().durability(durability);
        assert_eq!(recorded(&options), [("durability".to_owned(), number)]);
        assert_eq!(super::options_of(&recorded(&options)), options);
    }
}

#[test]
fn records_equal_their_decoded_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = crate::engine::Engine::open(&Options::default().map_size(1 << 24), dir.path());
    let manager = super::Manager::new(engine.expect("an engine"), None);
    assert_eq!(manager.read().expect("nothing"), None);
    let mut written = records();
    manager.write(&written).expect("written");
    assert_eq!(manager.read().expect("records").as_ref(), Some(&written));
    written.places.clear();
    manager.write(&written).expect("written");
    manager.write_table("x", &TableRecord::Whole(0)).expect("written");
    written.tables.insert("x".to_owned(), TableRecord::Whole(0));
    assert_eq!(manager.read().expect("records"), Some(written));
}

#[test]
fn the_record_of_a_copy_of_a_single_shard_has_these_bytes_until_it_belongs_to_a_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::default().durability(Durability::Full);
    let shard = Engine::open(&options, dir.path()).expect("an engine");
    let records = ManagerRecords::new();
    let identity = records.identity(0, "a", Path::new("shop"), Path::new("shop/a"), None);
    let keys = || {
        let records = manager::own_records(&shard).expect("records");
        records.into_iter().filter(|(key, _)| key != manager::OWN).collect::<Vec<_>>()
    };
    identity.write(&shard).expect("written");
    assert_eq!(keys(), []);
    manager::write_alone(&shard).expect("written");
    assert_eq!(keys(), [(b"alone".to_vec(), vec![1])]);
    identity.write(&shard).expect("written");
    assert_eq!(keys(), []);
}

/// A move can change the ranges of a shard while a table is opened or renamed.
#[test]
fn a_change_of_an_identity_keeps_what_is_changed_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::default().durability(Durability::Full);
    let shard = Engine::open(&options, dir.path()).expect("an engine");
    let records = ManagerRecords::new();
    let identity = records.identity(0, "a", Path::new("shop"), Path::new("shop/a"), None);
    identity.write(&shard).expect("written");
    let is_first = Cell::new(true);
    Identity::change(&shard, &|own| {
        if is_first.replace(false) {
            let others = Identity { shards: 7, ..own.clone() };
            others.write(&shard).expect("written");
        }
        own.places.push("towns".to_owned());
    })
    .expect("changed");
    let expected = Identity { shards: 7, places: vec!["towns".to_owned()], ..identity };
    assert_eq!(Identity::read(&shard).expect("a record"), Some(expected));
}

#[test]
fn the_record_of_hidden_entries_has_these_bytes() {
    let maps = ["users.email".to_owned()].into();
    let bytes = manager::encode_hidden(&maps).expect("bytes");
    assert_eq!(bytes.escape_ascii().to_string(), r"\x01\x01\x0busers.email");
    assert_eq!(manager::decode_hidden(&bytes).expect("a record"), maps);
}

static TOWNS: TableSchema = TableSchema::of_records("towns", &[KeyField::new::<String>("name")]);

#[test]
fn a_transaction_reads_no_copy_of_a_reference_table_in_a_shard_that_is_being_attached() -> Result<()>
{
    let dir = tempfile::tempdir().expect("a directory");
    let shard = |name: &str| {
        let options = Options::default().durability(Durability::Full);
        let path = dir.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        let engine = Engine::open(&options, &path)?;
        Ok(Shard::open(Arc::from(name), Arc::new(engine)))
    };
    let shards = ["a", "b", "c"].into_iter().map(shard).collect::<Result<_>>()?;
    let engine = super::Engine::new(shards, [], BTreeMap::new(), None, None, false);
    let nearest = |present: &[u32], used: &[u32], locks: &Locks| {
        engine.maps.install(Arc::new(engine.maps.now().with_shards(present.into())));
        let open = |engine: &Engine| {
            let opened = engine.open_table(&TOWNS, Parts::default(), false, &mut |_| Ok(()));
            let tables = Arc::new(opened.map_err(|(error, _)| error)?);
            Ok(Some(OpenTables { tables, record: Arc::default() }))
        };
        let open = engine.engines().map(open).collect::<Result<_>>()?;
        let routing = engine.routing(&TOWNS, Distribution::Reference)?;
        let tables = Tables::new(routing, &engine, open);
        let (writing, _) = Writing::with(&engine, locks)?;
        for shard in used {
            writing.reader(&tables, *shard, None)?;
        }
        Ok::<_, crate::Error>(writing.nearest(&tables))
    };
    let these = |shards: &[u32]| Locks::These(shards.iter().copied().collect());
    // The first locked shard, but one that has been used is preferred.
    assert_eq!(nearest(&[0, 1, 2], &[], &Locks::All)?, 0);
    assert_eq!(nearest(&[0, 1, 2], &[1], &Locks::All)?, 1);
    assert_eq!(nearest(&[0, 1, 2], &[], &these(&[2]))?, 2);
    assert_eq!(nearest(&[0, 1, 2], &[], &Locks::None)?, 0);
    // Shard 0 is open, and in no map: it is being attached.
    assert_eq!(nearest(&[1, 2], &[], &Locks::All)?, 1);
    assert_eq!(nearest(&[1, 2], &[0, 2], &Locks::All)?, 2);
    assert_eq!(nearest(&[1, 2], &[0], &these(&[0, 2]))?, 2);
    assert_eq!(nearest(&[1, 2], &[0], &these(&[0]))?, 1);
    assert_eq!(nearest(&[1, 2], &[], &Locks::None)?, 1);
    Ok(())
}

#[test]
fn changes_of_the_manager_by_several_threads_are_all_kept() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::default().durability(Durability::None);
    let manager = super::Manager::new(Engine::open(&options, dir.path())?, None);
    manager.write(&records())?;
    let names = |thread: u32| (0..20).map(move |table| format!("t{thread}.{table}"));
    let record = records().tables.into_values().next().expect("a table");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (manager, record) = (&manager, &record);
            scope.spawn(move || {
                for name in names(thread) {
                    manager.write_table(&name, record).expect("written");
                }
            });
        }
        for number in 0..20 {
            manager.change_shard(0, &|shard| shard.set_restored(number)).expect("written");
        }
    });
    let found = manager.read()?.expect("records");
    assert_eq!(found.shards.first().and_then(ShardRecord::restored), Some(19));
    for name in (0..3).flat_map(names) {
        assert!(found.tables.contains_key(&name), "{name}");
    }
    Ok(())
}
