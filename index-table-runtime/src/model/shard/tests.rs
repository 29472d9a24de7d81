use std::{collections::BTreeMap, sync::Arc};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::{key::slot, *};
use crate::{
    model::{
        KeyRange,
        key::{Desc, Key, KeyBuf},
        schema::{IndexSchema, KeyField, Source, Strategy as Carried, TableSchema},
    },
    query::Bounds,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn number(name: &str) -> Option<ShardNumber> {
    NAMES.iter().position(|own| *own == name).map(|at| at as ShardNumber)
}

fn declared(map: impl Into<ShardMap>) -> Declared {
    map.into().declare(number).expect("a map")
}

fn fault(map: impl Into<ShardMap>) -> String {
    map.into().declare(number).expect_err("no map")
}

fn key<T: Key>(value: T::Arg<'_>) -> Vec<u8> {
    let mut key = KeyBuf::new();
    T::encode(value, &mut key);
    key.as_bytes().to_vec()
}

/// Starts with the same first bytes, and starts that are prefixes of others or differ from them by zeros.
#[test]
fn the_segment_of_a_key_is_the_last_segment_that_does_not_start_after_it() {
    let parts: [&[u8]; 6] = [b"", b"\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefgi\xFF\xFF"];
    let mut keys: Vec<Vec<u8>> = parts
        .iter()
        .flat_map(|one| parts.iter().map(move |other| [*one, *other].concat()))
        .collect();
    keys.sort();
    keys.dedup();
    let mut boundaries = Boundaries::all_in(Some(0));
    for (at, start) in keys.iter().enumerate().step_by(2).skip(1) {
        boundaries.assign(start, None, Some(at as ShardNumber));
    }
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(boundaries.shard_of(key), Some((at - at % 2) as ShardNumber), "{key:?}");
    }
    assert!(boundaries.is_sound());
}

#[test]
fn the_first_bytes_of_a_key_are_padded_with_zeros() {
    let key: Vec<u8> = (1..=12).collect();
    for len in 0..=key.len() {
        let mut padded = key[..len].to_vec();
        padded.resize(8, 0);
        let expected = u64::from_be_bytes(padded[..8].try_into().expect("eight bytes"));
        assert_eq!(first_bytes(&key[..len]), expected, "{len} bytes");
    }
}

#[test]
fn keys_between_ranges_have_no_shard() {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 20u32..=29).to("a", 40u32..);
    let Declared { boundaries, key_type, .. } = declared(map);
    assert_eq!(key_type, "u32");
    for (value, shard) in [
        (0, Some(0)),
        (9, Some(0)),
        (10, None),
        (19, None),
        (20, Some(1)),
        (29, Some(1)),
        (30, None),
        (40, Some(0)),
        (u32::MAX, Some(0)),
    ] {
        assert_eq!(boundaries.shard_of(&key::<u32>(value)), shard, "{value}");
    }
    assert!(boundaries.is_sound());
    assert_eq!(boundaries.shards(), [0, 1]);
    assert_eq!(boundaries.of_shard(1), [(key::<u32>(20), Some(key::<u32>(30)))]);
}

#[test]
fn a_list_map_can_assign_all_other_keys() {
    let map = || ShardMap::list().to("a", ["NO", "SE"]).to("b", ["N"]);
    let all = declared(map().otherwise("c")).boundaries;
    let some = declared(map()).boundaries;
    for (value, shard) in
        [("NO", Some(0)), ("SE", Some(0)), ("N", Some(1)), ("NOR", None), ("", None)]
    {
        assert_eq!(some.shard_of(&key::<String>(value)), shard, "{value}");
        assert_eq!(all.shard_of(&key::<String>(value)), shard.or(Some(2)), "{value}");
    }
}

#[test]
fn a_hash_map_distributes_slots_evenly() {
    let Declared { boundaries, key_type, .. } = declared(ShardMap::hashed(["a", "b", "c"]));
    assert_eq!(key_type, HASHED);
    let mut counts = BTreeMap::new();
    for slot in 0..SLOTS {
        *counts.entry(boundaries.shard_of(&slot.to_be_bytes())).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([(Some(0), 1365), (Some(1), 1365), (Some(2), 1366)]));
}

#[test]
fn invalid_maps_are_reported_with_the_reason() {
    for (fault, expected) in [
        (fault(ShardMap::ranges().to("a", ..10u32).to("b", 9u32..)), "it has the key 9 twice"),
        (fault(ShardMap::list().to("a", [1u8]).to("b", [1u8])), "it has the key 1 twice"),
        (
            fault(ShardMap::ranges().to("a", ..10u32).to("b", 10u64..)),
            "it has keys of type `u32` and of type `u64`",
        ),
        (fault(ShardMap::ranges().to("a", ..10u32).to("x", 10u32..)), "there is no shard `x`"),
        (fault(ShardMap::list().to("a", ["k"]).otherwise("x")), "there is no shard `x`"),
        (fault(ShardMap::ranges().to("a", 5u32..5)), "a range of shard `a` has no keys"),
        (fault(ShardMap::ranges()), "it has no keys"),
        (
            fault(ShardMap::hashed([""; 0])),
            "a hash map has from 1 to 4096 shards, but this map has 0",
        ),
    ] {
        assert_eq!(fault, expected);
    }
}

/// The slot of a key and the bytes of a stored map are part of the format; see docs/FORMAT.md.
#[test]
fn slots_and_boundaries_have_these_bytes() {
    assert_eq!(slot(&key::<u64>(7)), GOLDEN_SLOT);
    let Declared { boundaries, .. } =
        declared(ShardMap::ranges().to("a", ..100u32).to("b", 100u32..200));
    let bytes = postcard::to_allocvec(&boundaries).expect("bytes");
    assert_eq!(bytes, [3, 0, 1, 0, 4, 0, 0, 0, 100, 1, 1, 4, 0, 0, 0, 200, 0]);
    assert_eq!(postcard::from_bytes::<Boundaries>(&bytes), Ok(boundaries));
}

const GOLDEN_SLOT: [u8; 2] = [0x0b, 0xd3];

const fn index(name: &'static str, key: &'static [KeyField]) -> IndexSchema {
    let strategy = Carried::Normalized;
    IndexSchema {
        name,
        key,
        strategy,
        unique: false,
        eventual: false,
        conditions: &[],
        findings: &[],
    }
}

const KEY: ShardKey = ShardKey { fields: 2, hashed: false, map: "things", global: &[] };

/// (tenant, region) is the shard key of rows with the primary key (tenant, region, id).
static TABLE: TableSchema = TableSchema {
    name: "things",
    was: &[],
    version: 1,
    fields: &[],
    previous: None,
    changed: &[],
    aggregates: &[],
    primary_key: &[
        KeyField::new::<u8>("tenant"),
        KeyField::new::<String>("region"),
        KeyField::new::<u16>("id"),
    ],
    indexes: &[
        index("town", &[KeyField::new::<String>("town")]),
        index(
            "region_tenant_town",
            &[
                KeyField::new::<String>("region"),
                KeyField::new::<u8>("tenant"),
                KeyField::new::<String>("town"),
            ],
        ),
        index(
            "town_tenant_region",
            &[
                KeyField::new::<String>("town"),
                KeyField::new::<u8>("tenant"),
                KeyField::new::<String>("region"),
            ],
        ),
        index("tenant_desc", &[KeyField::desc::<u8>("tenant"), KeyField::new::<String>("region")]),
    ],
};

fn routing(hashed: bool, boundaries: Boundaries) -> Routing {
    Routing::by_key(&TABLE, ShardKey { hashed, ..KEY }, Arc::new(boundaries), Vec::new())
}

type Row = (u8, String, u16, String);

fn primary_key((tenant, region, id, _): &Row) -> Vec<u8> {
    [key::<u8>(*tenant), key::<String>(region), key::<u16>(*id)].concat()
}

fn index_key(index: usize, (tenant, region, _, town): &Row) -> Vec<u8> {
    match index {
        0 => key::<String>(town),
        1 => [key::<String>(region), key::<u8>(*tenant), key::<String>(town)].concat(),
        2 => [key::<String>(town), key::<u8>(*tenant), key::<String>(region)].concat(),
        _ => [key::<Desc<u8>>(*tenant), key::<String>(region)].concat(),
    }
}

fn boundaries() -> impl Strategy<Value = Boundaries> {
    let bound = (any::<u8>(), "[a\u{1}]{0,2}");
    let parts = (bound, proptest::option::of(bound), proptest::option::of(0..4u32));
    let parts = vec(parts, 0..6);
    parts.prop_map(|parts| {
        let mut boundaries = Boundaries::all_in(Some(0));
        for ((tenant, region), end, shard) in parts {
            let start = key::<(u8, String)>((tenant, region.as_str()));
            let end = end.map(|(tenant, region)| key::<(u8, String)>((tenant, region.as_str())));
            boundaries.assign(&start, end.as_deref(), shard);
        }
        boundaries
    })
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    vec((0..6u8, "[a\u{1}]{0,2}", any::<u16>(), "[ab]{0,2}"), 0..40)
}

/// Returns the bounds of a query of a source: some fields are equal to those of a row, and the next field is
/// in a range.
fn bounds_of(source: Source, row: &Row, other: &Row, fields: usize, ranged: u8) -> KeyRange {
    let (tenant, region, id, town) = row;
    let mut bounds = Bounds::new();
    let names: &[&str] = match source {
        Source::Facts => &["tenant", "region", "id"],
        Source::Index(0) => &["town"],
        Source::Index(1) => &["region", "tenant", "town"],
        Source::Index(2) => &["town", "tenant", "region"],
        Source::Index(_) => &["desc", "region"],
    };
    let text = |name: &str, row: &Row| if name == "town" { row.3.clone() } else { row.1.clone() };
    for name in names.iter().take(fields) {
        bounds = match *name {
            "tenant" => bounds.equal::<u8>(*tenant),
            "id" => bounds.equal::<u16>(*id),
            "desc" => bounds.equal::<Desc<u8>>(*tenant),
            "town" => bounds.equal::<String>(town),
            _ => bounds.equal::<String>(region),
        };
    }
    if let Some(name) = names.get(fields) {
        bounds = match (*name, ranged) {
            (_, 0) => bounds,
            ("tenant", 1) => bounds.range::<u8>(*tenant..),
            ("tenant", 2) => bounds.range::<u8>(..=other.0),
            ("tenant", _) => bounds.range::<u8>(*tenant..other.0),
            ("id", _) => bounds.range::<u16>(*id..),
            ("desc", _) => bounds.range::<Desc<u8>>(..*tenant),
            (name, 1) => bounds.range::<String>(text(name, row).as_str()..),
            (name, 2) => bounds.starting_with::<String>(&text(name, row)),
            (name, _) => {
                bounds.range::<String>(text(name, row).as_str()..=text(name, other).as_str())
            }
        };
    }
    bounds.range
}

proptest! {
    #[test]
    fn boundaries_match_a_naive_map(
        parts in vec((any::<u8>(), any::<u8>(), proptest::option::of(0..4u32)), 0..12),
        (from, to) in (any::<u8>(), proptest::option::of(any::<u8>())),
    ) {
        let mut boundaries = Boundaries::all_in(None);
        let mut naive = [None; 256];
        for (start, end, shard) in parts {
            boundaries.assign(&[start], Some(&[end]), shard);
            (start..end.max(start)).for_each(|key| naive[usize::from(key)] = shard);
        }
        prop_assert!(boundaries.is_sound());
        for key in 0..=u8::MAX {
            prop_assert_eq!(boundaries.shard_of(&[key]), naive[usize::from(key)]);
            prop_assert_eq!(boundaries.shard_of(&[key, 9]), naive[usize::from(key)]);
        }
        let end = to.map(|to| [to]);
        let within = boundaries.shards_within(&[from], end.as_ref().map(|end| &end[..]));
        let keys = usize::from(from)..to.map_or(256, usize::from);
        let mut expected: Vec<_> = keys.filter_map(|key| naive[key]).collect();
        expected.sort_unstable();
        expected.dedup();
        if to.is_none_or(|to| to > from) {
            prop_assert_eq!(within, expected);
        }
    }

    #[test]
    fn keys_are_in_the_shard_of_their_range(parts in btree_map(any::<u32>(), 0..4usize, 1..8)) {
        let bounds: Vec<_> = parts.keys().copied().collect();
        let mut map = ShardMap::ranges().to("a", ..bounds[0]);
        for (at, (start, shard)) in parts.iter().enumerate() {
            map = match bounds.get(at + 1) {
                Some(end) => map.to(NAMES[*shard], *start..*end),
                None => map.to(NAMES[*shard], *start..),
            };
        }
        prop_assume!(bounds[0] > 0);
        let boundaries = declared(map).boundaries;
        for probe in bounds.iter().flat_map(|it| [it.saturating_sub(1), *it, it.saturating_add(1)]) {
            let expected = parts.range(..=probe).next_back().map_or(0, |(_, shard)| *shard);
            prop_assert_eq!(boundaries.shard_of(&key::<u32>(probe)), Some(expected as u32));
        }
    }

    /// A query reads the shards of all matching rows.
    #[test]
    fn a_query_reads_the_shards_of_all_its_rows(
        boundaries in boundaries(),
        hashed in any::<bool>(),
        rows in rows(),
        (fields, ranged) in (0..4usize, 0..4u8),
        source in prop_oneof![Just(Source::Facts), (0..4usize).prop_map(Source::Index)],
    ) {
        prop_assume!(rows.len() >= 2);
        let boundaries = if hashed {
            declared(ShardMap::hashed(["a", "b", "c", "d"])).boundaries
        } else {
            boundaries
        };
        let routing = routing(hashed, boundaries);
        let bounds = bounds_of(source, &rows[0], &rows[1], fields, ranged);
        let shards = routing.shards_of(source, &bounds).unwrap_or(Shards::All(&[]));
        for row in &rows {
            let primary_key = primary_key(row);
            let found = match source {
                Source::Facts => bounds.contains(&primary_key),
                Source::Index(index) => bounds.contains(&index_key(index, row)),
            };
            let own = routing.shard_of(&primary_key);
            if let Some(own) = own.filter(|_| found) {
                prop_assert!(shards.contains(&own), "{row:?} is in {own}, the query reads {shards:?}");
            }
        }
    }

    #[test]
    fn a_query_with_the_shard_key_reads_one_shard(
        boundaries in boundaries(),
        hashed in any::<bool>(),
        row in (0..6u8, "[a\u{1}]{0,2}", any::<u16>(), "[ab]{0,2}"),
        ranged in 0..4u8,
    ) {
        let routing = routing(hashed, boundaries);
        for (source, fields) in [(Source::Facts, 2), (Source::Index(1), 2), (Source::Index(2), 3)] {
            let bounds = bounds_of(source, &row, &row, fields, ranged);
            let shards = routing.shards_of(source, &bounds).unwrap_or(Shards::All(&[]));
            prop_assert_eq!(&*shards, Vec::from_iter(routing.shard_of(&primary_key(&row))));
        }
    }
}
