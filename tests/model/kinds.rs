//! Keys of types with `#[derive(IndexKey)]`, in the primary key, in indexes and alone.

use std::collections::{BTreeMap, BTreeSet};

use index_table::{Error, IndexKey, IndexTable, ReadTxn, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{assert_clean, fail, on_both_engines, pairs, scans::assert_scan, text};

/// An enum whose variants are declared in another order than their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IndexKey)]
enum Level {
    #[key(order = 0)]
    Low = 0,
    #[key(order = 700)]
    High = 2,
    #[key(order = 5)]
    Middle = 1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IndexKey)]
enum Color {
    Red,
    Green,
    Blue,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IndexKey)]
struct Code(i16);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IndexKey)]
struct Place {
    town: String,
    color: Option<Color>,
    code: Code,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IndexKey)]
struct Pair(Color, Box<str>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(level)]
#[index(level, place, include = [pair])]
#[index(each(colors), strategy = "full")]
#[index(each(pairs))]
#[index(pair, unique)]
struct Thing {
    #[primary_key]
    color: Color,
    #[primary_key]
    code: Code,
    level: Level,
    place: Place,
    colors: BTreeSet<Color>,
    pairs: Vec<Pair>,
    pair: Pair,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::of::<Thing>();

type Id = (Color, Code);
type Model = BTreeMap<Id, Thing>;

fn id(thing: &Thing) -> Id {
    (thing.color, thing.code.clone())
}

fn color() -> impl Strategy<Value = Color> {
    prop::sample::select(vec![Color::Red, Color::Green, Color::Blue])
}

fn code() -> impl Strategy<Value = Code> {
    (-3..3_i16).prop_map(Code)
}

fn pair() -> impl Strategy<Value = Pair> {
    (color(), text()).prop_map(|(color, text)| Pair(color, text.into()))
}

fn thing() -> impl Strategy<Value = Thing> {
    let level = prop::sample::select(vec![Level::Low, Level::Middle, Level::High]);
    let place = (text(), prop::option::of(color()), code());
    let place = place.prop_map(|(town, color, code)| Place { town, color, code });
    let colors = prop::collection::btree_set(color(), 0..3);
    let pairs = prop::collection::vec(pair(), 0..3);
    (color(), code(), level, place, colors, pairs, pair()).prop_map(
        |(color, code, level, place, colors, pairs, pair)| Thing {
            color,
            code,
            level,
            place,
            colors,
            pairs,
            pair,
        },
    )
}

fn compare(
    things: &ThingRepository,
    txn: &ReadTxn<'_>,
    model: &Model,
) -> Result<(), TestCaseError> {
    fn rows<K: Ord>(
        model: &Model,
        keys: impl Fn(&Thing) -> Vec<K>,
        keep: impl Fn(&K) -> bool,
    ) -> Vec<Thing> {
        let mut rows: Vec<(K, Id, Thing)> = Vec::new();
        for thing in model.values() {
            let keys: BTreeSet<K> = keys(thing).into_iter().filter(&keep).collect();
            rows.extend(keys.into_iter().map(|key| (key, id(thing), thing.clone())));
        }
        rows.sort_by(|(a, x, _), (b, y, _)| (a, x).cmp(&(b, y)));
        rows.into_iter().map(|(_, _, thing)| thing).collect()
    }
    macro_rules! assert_query {
        ($scan:expr, $keys:expr, $keep:expr) => {
            assert_scan(
                || $scan,
                &rows(model, $keys, $keep),
                |scan| scan.keys().collect::<Result<Vec<Id>>>(),
                id,
            )?
        };
    }
    let (middle, zero) = (Level::Middle, Code(0));
    assert_query!(things.all(txn), |_| vec![()], |()| true);
    assert_query!(things.find_by_color(txn, Color::Green), |t| vec![t.color], |c| *c
        == Color::Green);
    assert_query!(things.find_by_color_range(txn, Color::Green..), |t| vec![id(t)], |i| i.0
        >= Color::Green);
    assert_query!(
        things.find_by_color_code_range(txn, Color::Red, ..&zero),
        |t| vec![id(t)],
        |i| i.0 == Color::Red && i.1 < zero
    );
    assert_query!(things.by_level(txn), |t| vec![t.level], |_| true);
    assert_query!(things.find_by_level_range(txn, ..=middle), |t| vec![t.level], |l| *l <= middle);
    assert_query!(things.by_level_place(txn), |t| vec![(t.level, t.place.clone())], |_| true);
    for place in model.values().map(|thing| &thing.place) {
        assert_query!(
            things.find_by_level_place(txn, middle, place),
            |t| vec![(t.level, t.place.clone())],
            |key| key.0 == middle && key.1 == *place
        );
        assert_query!(
            things.find_by_level_place_range(txn, middle, place..),
            |t| vec![(t.level, t.place.clone())],
            |key| key.0 == middle && key.1 >= *place
        );
    }
    assert_query!(things.by_colors(txn), |t| t.colors.iter().copied().collect(), |_| true);
    let blue = |color: &Color| *color == Color::Blue;
    assert_query!(
        things.find_by_colors(txn, Color::Blue),
        |t| t.colors.iter().copied().collect(),
        blue
    );
    assert_query!(things.by_pairs(txn), |t| t.pairs.clone(), |_| true);
    for thing in model.values() {
        prop_assert_eq!(&things.get_by_pair(txn, &thing.pair).map_err(fail)?, &Some(thing.clone()));
        let found = things.get(txn, thing.color, &thing.code).map_err(fail)?;
        prop_assert_eq!(found.as_ref(), Some(thing));
    }
    for entry in things.by_level_place(txn).entries() {
        let entry = entry.map_err(fail)?;
        let thing = &model[&(entry.color, entry.code)];
        prop_assert_eq!((entry.level, &entry.place), (thing.level, &thing.place));
        prop_assert_eq!(entry.pair, thing.pair.clone());
    }
    assert_clean(things.verify(txn))
}

fn run(store: &Store, batches: &[Vec<(Thing, u8)>]) -> Result<(), TestCaseError> {
    let things = ThingRepository::open(store).map_err(fail)?;
    let mut model = Model::new();
    for batch in batches {
        let mut txn = store.write().map_err(fail)?;
        for (thing, action) in batch {
            let id = id(thing);
            if *action == 0 {
                let deleted = things.delete(&mut txn, id.0, &id.1).map_err(fail)?;
                prop_assert_eq!(deleted, model.remove(&id).is_some());
                continue;
            }
            let taken = model.values().any(|other| {
                other.pair == thing.pair && (other.color, &other.code) != (id.0, &id.1)
            });
            match things.put(&mut txn, thing) {
                Ok(()) => {
                    prop_assert!(!taken, "{thing:?}");
                    model.insert(id, thing.clone());
                }
                Err(Error::UniqueViolation { index: "pair", .. }) => {
                    prop_assert!(taken, "{thing:?}");
                }
                Err(error) => return Err(fail(error)),
            }
        }
        txn.commit().map_err(fail)?;
        compare(&things, &store.read().map_err(fail)?, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(32)))]

    #[test]
    fn keys_of_derived_types_match_the_model(
        batches in prop::collection::vec(prop::collection::vec((thing(), 0..5_u8), 1..12), 1..4),
    ) {
        on_both_engines(|open| run(&open()?, &batches))?;
    }
}
