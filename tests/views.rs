//! Views, the borrowed form of rows, from every method that returns them.

#[path = "support/stores.rs"]
mod stores;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use index_table::{IndexKey, IndexTable, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use stores::Tried;

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
enum Kind {
    Private,
    Company,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Address {
    street: String,
    number: Option<u16>,
}

type Name = String;

/// Fields of many types, in keys and outside of keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[allow(clippy::option_option, reason = "a field may have this type")]
#[table(view, shard_by = hash(group))]
#[index(kind, score)]
#[index(kind, desc(score), include = [nick], name = "partial")]
#[index(score, kind, strategy = "full")]
#[index(each(tags), strategy = "full", allow(doubled_full))]
#[index(id, group, unique)]
struct Wide {
    #[primary_key]
    group: String,
    #[primary_key]
    id: u32,
    kind: Kind,
    score: i64,
    nick: Option<String>,
    bytes: Vec<u8>,
    maybe_bytes: Option<Vec<u8>>,
    boxed: Box<str>,
    shared: Cow<'static, str>,
    alias: Name,
    letter: char,
    flag: bool,
    ratio: f64,
    array: [u8; 4],
    words: [u16; 3],
    tags: Vec<String>,
    pair: (String, u8),
    nested: Option<Option<String>>,
    map: BTreeMap<String, i128>,
    set: HashSet<u8>,
    address: Address,
    time: Duration,
    unit: (),
}

#[track_caller]
fn same(view: &WideView<'_>, row: &Wide) {
    let WideView {
        group,
        id,
        kind,
        score,
        nick,
        bytes,
        maybe_bytes,
        boxed,
        shared,
        alias,
        letter,
        flag,
        ratio,
        array,
        words,
        tags,
        pair,
        nested,
        map,
        set,
        address,
        time,
        unit,
    } = view;
    assert_eq!((*group, *id, *kind, *score), (&*row.group, row.id, row.kind, row.score));
    assert_eq!(*nick, row.nick.as_deref());
    assert_eq!((*bytes, *maybe_bytes), (&*row.bytes, row.maybe_bytes.as_deref()));
    assert_eq!((*boxed, *shared, alias), (&*row.boxed, &*row.shared, &row.alias));
    assert_eq!((*letter, *flag, ratio.to_bits()), (row.letter, row.flag, row.ratio.to_bits()));
    assert_eq!((array, words, tags), (&row.array, &row.words, &row.tags));
    assert_eq!((pair, nested, map, set), (&row.pair, &row.nested, &row.map, &row.set));
    assert_eq!((address, *time, *unit), (&row.address, row.time, row.unit));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just("\0\u{1}".to_owned()), Just(String::new()), "[a-cÿ]{1,9}", "[a-c]{200}"]
}

fn wide() -> impl Strategy<Value = Wide> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..9);
    let first = (
        "[ab]?",
        any::<bool>(),
        -3..3_i64,
        prop::option::of(text()),
        bytes(),
        prop::option::of(bytes()),
        (text(), text(), text()),
        any::<(char, bool, f64, [u8; 4], [u16; 3])>(),
    );
    let second = (
        prop::collection::vec("[a-c]?", 0..4),
        (text(), any::<u8>()),
        prop::option::of(prop::option::of(text())),
        prop::collection::btree_map(text(), any::<i128>(), 0..3),
        prop::collection::hash_set(any::<u8>(), 0..4),
        (text(), any::<Option<u16>>(), any::<u32>()),
    );
    (first, second).prop_map(|(first, second)| {
        let (group, company, score, nick, bytes, maybe_bytes, texts, scalars) = first;
        let (letter, flag, ratio, array, words) = scalars;
        let (tags, pair, nested, map, set, (street, number, seconds)) = second;
        Wide {
            group,
            id: 0,
            kind: if company { Kind::Company } else { Kind::Private },
            score,
            nick,
            bytes,
            maybe_bytes,
            boxed: texts.0.into(),
            shared: texts.1.into(),
            alias: texts.2,
            letter,
            flag,
            ratio,
            array,
            words,
            tags,
            pair,
            nested,
            map,
            set,
            address: Address { street, number },
            time: Duration::from_secs(seconds.into()),
            unit: (),
        }
    })
}

/// Every method for views returns the same values as the method for rows.
fn check(store: &Tried, rows: &[Wide]) -> Result<()> {
    let wide = WideRepository::open(store)?;
    store.fill(rows.iter(), |txn, row| wide.insert(txn, row))?;
    let txn = store.read()?;
    for row in rows {
        let view = wide.get_view(&txn, &row.group, row.id)?;
        same(&view.expect("a row"), row);
        same(&wide.get_view_by_id_group(&txn, row.id, &row.group)?.expect("a row"), row);
    }
    assert_eq!(wide.get_view(&txn, "c", 0)?, None);
    assert_eq!(wide.get_view_by_id_group(&txn, u32::MAX, "a")?, None);

    let stats = || {
        let stats = txn.stats();
        [stats.seeks, stats.entries, stats.facts]
    };
    let difference = |from: [u64; 3], to: [u64; 3]| [0, 1, 2].map(|at| to[at] - from[at]);
    macro_rules! compare {
        ($($scan:expr),* $(,)?) => {$({
            let before = stats();
            let rows = $scan.rows().collect::<Result<Vec<_>>>()?;
            let between = stats();
            let views = $scan.views().collect::<Result<Vec<_>>>()?;
            assert_eq!(views.len(), rows.len());
            assert_eq!(difference(between, stats()), difference(before, between), stringify!($scan));
            views.iter().zip(&rows).for_each(|(view, row)| same(view, row));
        })*};
    }
    let first = rows.first().map_or(0, |row| row.score);
    let (private, company) = (Kind::Private, Kind::Company);
    compare!(
        wide.all(&txn),
        wide.all(&txn).rev().limit(3),
        wide.find_by_group(&txn, "a"),
        wide.by_kind_score(&txn),
        wide.find_by_kind_score_range(&txn, private, ..0).rev(),
        wide.find_by_partial(&txn, company, first),
        wide.by_partial(&txn).limit(4),
        wide.find_by_score(&txn, first),
        wide.by_tags(&txn),
        wide.by_id_group(&txn).rev(),
        wide.find_by_kind_score(&txn, private, first).and(wide.all(&txn)),
        wide.find_by_score_kind(&txn, first, private)
            .or(wide.find_by_partial(&txn, company, first)),
    );
    if let Some(cursor) = wide.by_partial(&txn).page(2)?.next {
        compare!(wide.by_partial(&txn).after(&cursor));
    }

    let mut keys = wide.all(&txn).rev().keys().collect::<Result<Vec<_>>>()?;
    keys.push(("none".to_owned(), 7));
    let views = wide.get_many(&txn, &keys).views();
    assert_eq!(views.size_hint().1, Some(keys.len()));
    for (view, row) in views.zip(wide.get_many(&txn, &keys)) {
        match (view?, row?) {
            (Some(view), Some(row)) => same(&view, &row),
            (view, row) => assert!(view.is_none() && row.is_none()),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_view_equals_its_row(mut rows in prop::collection::vec(wide(), 0..12)) {
        for (id, row) in (0..).zip(&mut rows) {
            row.id = id;
        }
        for store in stores::stores("wide").map_err(|error| TestCaseError::fail(error.to_string()))? {
            let checked = check(&store, &rows);
            prop_assert!(checked.is_ok(), "{checked:?}");
        }
    }
}

/// A serde format of seconds as text.
mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(super) fn serialize<S: Serializer>(seconds: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(seconds)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let text = <&str>::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

mod loud {
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::ptr_arg, reason = "serde gives a reference to the field")]
    pub(super) fn write<S: Serializer>(text: &String, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text.to_uppercase())
    }

    pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Ok(format!("{}!", String::deserialize(from)?))
    }
}

mod made {
    pub(super) fn seven() -> u8 {
        7
    }

    pub(super) fn word() -> String {
        "made".to_owned()
    }
}

/// A type without serde's traits and without `Default`.
#[derive(Debug, Clone, PartialEq)]
struct Foreign(u32);

mod foreign {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Foreign;

    pub(super) fn serialize<S: Serializer>(foreign: &Foreign, to: S) -> Result<S::Ok, S::Error> {
        foreign.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Foreign, D::Error> {
        u32::deserialize(from).map(Foreign)
    }
}

/// A row with every attribute of serde that is allowed in a row with a view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view = Twin)]
#[serde(rename = "other", rename_all = "camelCase", deny_unknown_fields, default)]
struct Attributed {
    #[primary_key]
    row_id: u32,
    #[serde(rename = "name", alias = "title")]
    full_name: String,
    #[serde(with = "as_text")]
    in_seconds: u32,
    #[serde(with = "self::foreign")]
    foreign: Foreign,
    #[serde(serialize_with = "loud::write", deserialize_with = "loud::read")]
    both_ways: String,
    #[serde(serialize_with = "loud::write")]
    one_way: String,
    #[serde(deserialize_with = "loud::read")]
    other_way: String,
    #[serde(skip, default)]
    cache: Vec<u8>,
    #[serde(skip_serializing, skip_deserializing, default = "made::word")]
    word: String,
    #[serde(default = "made::word")]
    defaulted: String,
    #[serde(default = "made::seven")]
    seven: u8,
    #[serde(default)]
    last: Option<String>,
}

impl Default for Attributed {
    fn default() -> Self {
        Self {
            row_id: 1,
            full_name: "Alice".to_owned(),
            in_seconds: 90,
            foreign: Foreign(3),
            both_ways: "both".to_owned(),
            one_way: "one".to_owned(),
            other_way: "other".to_owned(),
            cache: vec![1, 2, 3],
            word: "forgotten".to_owned(),
            defaulted: "kept".to_owned(),
            seven: 8,
            last: Some("last".to_owned()),
        }
    }
}

#[test]
fn serde_attributes_mean_the_same_in_a_view() -> TestResult {
    let store = Store::in_memory();
    let table = AttributedRepository::open(&store)?;
    store.transaction(|txn| table.insert(txn, &Attributed::default()))?;
    let txn = store.read()?;
    let row = table.get(&txn, 1)?.ok_or("no row")?;
    let Twin {
        row_id,
        full_name,
        in_seconds,
        foreign,
        both_ways,
        one_way,
        other_way,
        cache,
        word,
        defaulted,
        seven,
        last,
    } = table.get_view(&txn, 1)?.ok_or("no row")?;
    assert_eq!((row_id, full_name), (row.row_id, &*row.full_name));
    assert_eq!((in_seconds, foreign), (row.in_seconds, row.foreign.clone()));
    // Fields with `with` attributes are owned, as in the row.
    let owned: (String, String, String) = (both_ways, one_way, other_way);
    assert_eq!(owned, (row.both_ways.clone(), row.one_way.clone(), row.other_way.clone()));
    assert_eq!(owned, ("BOTH!".to_owned(), "ONE".to_owned(), "other!".to_owned()));
    assert_eq!((cache, word), (row.cache.clone(), row.word.clone()));
    assert_eq!((&row.cache, &*row.word), (&Vec::new(), "made"));
    let borrowed: (&str, Option<&str>) = (defaulted, last);
    assert_eq!(borrowed, (&*row.defaulted, row.last.as_deref()));
    assert_eq!(seven, row.seven);

    let json = serde_json::to_string(&table.get_view(&txn, 1)?)?;
    assert_eq!(json, serde_json::to_string(&row)?);
    assert!(json.contains(r#""rowId":1,"name":"Alice","inSeconds":"90""#), "{json}");
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view)]
#[serde(transparent)]
struct Transparent {
    #[primary_key]
    name: String,
    #[serde(skip)]
    cache: u8,
}

/// The view of a row without borrowed fields has a lifetime too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(number)]
struct Plain {
    #[primary_key]
    id: u8,
    number: u32,
}

#[test]
fn rows_without_strings_have_views() -> TestResult {
    let store = Store::in_memory();
    let (transparent, plain) =
        (TransparentRepository::open(&store)?, PlainRepository::open(&store)?);
    store.transaction(|txn| {
        transparent.insert(txn, &Transparent { name: "a".to_owned(), cache: 1 })?;
        plain.insert(txn, &Plain { id: 1, number: 2 })
    })?;
    let txn = store.read()?;
    let view: Option<TransparentView<'_>> = transparent.get_view(&txn, "a")?;
    assert_eq!(view, Some(TransparentView { name: "a", cache: 0 }));
    assert_eq!(serde_json::to_string(&view)?, r#""a""#);
    let view: Option<PlainView<'_>> = plain.find_by_number(&txn, 2).views().next().transpose()?;
    assert_eq!(view, Some(PlainView { id: 1, number: 2 }));
    Ok(())
}

/// Borrowed values live as long as the transaction, and longer than the scan.
#[test]
fn views_outlive_the_scan() -> TestResult {
    let store = Store::in_memory();
    let table = TransparentRepository::open(&store)?;
    store.transaction(|txn| {
        ["a", "b"].into_iter().try_for_each(|name| {
            table.insert(txn, &Transparent { name: name.to_owned(), cache: 0 })
        })
    })?;
    let txn = store.read()?;
    let names: Vec<&str> =
        table.all(&txn).views().map(|view| view.map(|view| view.name)).collect::<Result<_>>()?;
    assert_eq!(names, ["a", "b"]);
    // A row in a write transaction has a view as well.
    let mut writer = store.write()?;
    table.insert(&mut writer, &Transparent { name: "c".to_owned(), cache: 0 })?;
    assert_eq!(
        table.all(&writer).rev().views().next().transpose()?.map(|view| view.name),
        Some("c")
    );
    Ok(())
}

/// Methods for views return the same errors as methods for rows.
#[test]
fn views_fail_like_rows() -> TestResult {
    let (store, other) = (Store::in_memory(), Store::in_memory());
    let table = PlainRepository::open(&store)?;
    let txn = other.read()?;
    let wrong = |error| matches!(error, Some(index_table::Error::WrongStore { table: "plain" }));
    assert!(wrong(table.get_view(&txn, 1).err()));
    assert!(wrong(table.all(&txn).views().next().and_then(Result::err)));
    assert!(wrong(table.get_many(&txn, [1]).views().next().and_then(Result::err)));
    assert!(wrong(table.all(&txn).or(table.all(&txn)).views().next().and_then(Result::err)));
    Ok(())
}
