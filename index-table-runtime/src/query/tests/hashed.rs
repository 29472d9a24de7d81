//! Random operations with values that share a hash, compared with a model. In unit tests, all texts that
//! begin with `~` have the same hash.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store,
    model::{
        entity::{Entity, EntryReader, IndexEntry},
        error::EncodeError,
        key::{DecodeError, KeyBuf},
        maintain::EntryBuffer,
        row::{RowBody, RowOutput},
        schema::{FieldSchema, IndexSchema, KeyField, Source, Strategy as Carried, TableSchema},
    },
    query::{Bounds, Scan, Values},
    store::ReadTxn,
    table::KeyedTable,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Link {
    id: u16,
    url: String,
    tag: u8,
}

const fn index(
    name: &'static str,
    key: &'static [KeyField],
    strategy: Carried,
    unique: bool,
) -> IndexSchema {
    IndexSchema { name, key, strategy, unique, eventual: false, conditions: &[], findings: &[] }
}

const URL: KeyField = KeyField::hash::<String>("url");
const TAG: KeyField = KeyField::new::<u8>("tag");

/// The indexes are, by position: packed in blocks, unique, unique with the url in its entries, and full.
impl Entity for Link {
    type Key = u16;
    const TABLE: &'static TableSchema = &TableSchema {
        name: "links",
        was: &[],
        version: 1,
        fields: &[
            FieldSchema::new::<u16>("id", "u16"),
            FieldSchema::new::<String>("url", "String"),
            FieldSchema::new::<u8>("tag", "u8"),
        ],
        previous: None,
        changed: &[],
        aggregates: &[],
        primary_key: &[KeyField::new::<u16>("id")],
        indexes: &[
            index("packed", &[URL], Carried::Normalized, false),
            index("once", &[URL, TAG], Carried::Normalized, true),
            index("once_carried", &[TAG, URL], Carried::Partial(&["url"]), true),
            index("full", &[URL, TAG], Carried::Full, false),
        ],
    };

    fn encode(&self, out: RowOutput<'_>) -> Result<(), EncodeError> {
        crate::private::RowFormat::<Self>::encode(self, out)
    }

    fn decode(body: RowBody<'_>) -> Result<Self, crate::private::DecodeError> {
        crate::private::RowFormat::<Self>::decode(body)
    }

    fn primary_key(&self, key: &mut KeyBuf) {
        key.push(&self.id);
    }

    fn entries(&self, index: usize, entries: &mut EntryBuffer) -> Result<(), EncodeError> {
        let hash = entries.hash(&self.url);
        match index {
            0 => {
                entries.key().push(&hash);
            }
            2 => {
                entries.include(&["url"]);
                entries.key().push(&self.tag).push(&hash);
            }
            _ => {
                entries.key().push(&hash).push(&self.tag);
            }
        }
        Ok(())
    }

    fn hashed(&self, _: usize, values: &mut KeyBuf) {
        values.push(&self.url);
    }

    fn hashed_in_entry(
        _: usize,
        mut entry: EntryReader<'_>,
        values: &mut KeyBuf,
    ) -> Result<(), DecodeError> {
        let url = entry.field::<&str>(&["url"])?;
        values.push_arg::<String>(url);
        Ok(())
    }
}

/// An entry of the index at this position, which reads no fields.
struct At<const INDEX: usize>;

impl<const INDEX: usize> IndexEntry<'_> for At<INDEX> {
    type Row = Link;
    const SOURCE: Source = Source::Index(INDEX);

    fn decode(_: EntryReader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

type Model = BTreeMap<u16, Link>;

fn url(url: &str) -> Bounds {
    Bounds::new().hashed::<Link, String>(url)
}

fn compare_scan<'txn, E: IndexEntry<'txn, Row = Link>>(
    scan: impl Fn() -> Scan<'txn, E>,
    model: &Model,
    keep: impl Fn(&Link) -> bool,
) -> Result<(), TestCaseError> {
    let expected: Vec<u16> = model.values().filter(|row| keep(row)).map(|row| row.id).collect();
    let sorted = |ids: Result<Vec<u16>>| -> Result<Vec<u16>, TestCaseError> {
        let mut ids = ids.map_err(fail)?;
        ids.sort_unstable();
        Ok(ids)
    };
    prop_assert_eq!(&sorted(scan().keys().collect())?, &expected);
    let ids = |rows: Result<Vec<Link>>| rows.map(|rows| rows.iter().map(|row| row.id).collect());
    prop_assert_eq!(&sorted(ids(scan().rev().rows().collect()))?, &expected);
    prop_assert_eq!(scan().count().map_err(fail)?, expected.len() as u64);
    prop_assert_eq!(scan().limit(1).count().map_err(fail)?, expected.len().min(1) as u64);
    prop_assert_eq!(scan().entries().count(), expected.len());
    for reverse in [false, true] {
        let scan = || if reverse { scan().rev() } else { scan() };
        let (mut read, mut cursor) = (Vec::new(), None);
        loop {
            let page = match &cursor {
                None => scan().page(2),
                Some(cursor) => scan().after(cursor).page(2),
            };
            let page = page.map_err(fail)?;
            read.extend(page.items.iter().map(|row| row.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        prop_assert_eq!(&sorted(Ok(read))?, &expected);
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn fail(error: Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

fn compare(
    table: &KeyedTable<Link>,
    txn: &ReadTxn<'_>,
    model: &Model,
) -> Result<(), TestCaseError> {
    for text in URLS {
        let is = |row: &Link| row.url == text;
        compare_scan(|| table.scan::<At<0>>(txn, url(text)), model, is)?;
        compare_scan(|| table.scan::<At<1>>(txn, url(text)), model, is)?;
        compare_scan(|| table.scan::<At<3>>(txn, url(text)), model, is)?;
        let high = |row: &Link| is(row) && row.tag >= 1;
        compare_scan(|| table.scan::<At<1>>(txn, url(text).range::<u8>(1..)), model, high)?;
        compare_scan(|| table.scan::<At<3>>(txn, url(text).range::<u8>(1..)), model, high)?;
        let above = |row: &Link| is(row) && row.tag > 0;
        let range = (std::ops::Bound::Excluded(0), std::ops::Bound::Unbounded);
        compare_scan(|| table.scan::<At<3>>(txn, url(text).range::<u8>(range)), model, above)?;

        let tags = table
            .distinct::<u8>(txn, Source::Index(3), url(text))
            .counts()
            .collect::<Result<Vec<_>>>();
        let mut expected = BTreeMap::new();
        for row in model.values().filter(|row| is(row)) {
            *expected.entry(row.tag).or_insert(0) += 1;
        }
        prop_assert_eq!(tags.map_err(fail)?, expected.clone().into_iter().collect::<Vec<_>>());
        let tags = table.distinct::<u8>(txn, Source::Index(1), url(text)).rev().counts();
        let tags = tags.collect::<Result<Vec<_>>>().map_err(fail)?;
        prop_assert_eq!(tags, expected.into_iter().rev().collect::<Vec<_>>());

        for tag in 0..3 {
            let both = |row: &Link| is(row) && row.tag == tag;
            let carried = || Bounds::new().equal::<u8>(tag).hashed::<Link, String>(text);
            compare_scan(|| table.scan::<At<2>>(txn, carried()), model, both)?;
            let one = table.get_by(txn, 1, url(text).equal::<u8>(tag)).map_err(fail)?;
            prop_assert_eq!(one.as_ref(), model.values().find(|row| both(row)));
            let combined = table
                .scan::<At<0>>(txn, url(text))
                .and(table.scan::<At<2>>(txn, carried()))
                .or(table.scan::<At<1>>(txn, url(text).equal::<u8>(tag)));
            let keys = combined.keys().collect::<Result<Vec<_>>>().map_err(fail)?;
            let expected = model.values().filter(|row| both(row)).map(|row| row.id);
            prop_assert_eq!(keys, expected.collect::<Vec<_>>());
        }
    }
    let texts = ["~b", "c", "~", "x", "~b"];
    let list = || Values::texts::<String>(texts);
    let listed = |row: &Link| texts.contains(&row.url.as_str());
    compare_scan(
        || table.scan::<At<0>>(txn, Bounds::new().one_of_hashed::<Link>(list())),
        model,
        listed,
    )?;
    compare_scan(
        || table.scan::<At<3>>(txn, Bounds::new().one_of_hashed::<Link>(list())),
        model,
        listed,
    )?;
    let of_tag = || Bounds::new().equal::<u8>(1).one_of_hashed::<Link>(list());
    compare_scan(|| table.scan::<At<2>>(txn, of_tag()), model, |row| listed(row) && row.tag == 1)?;
    let tags = || url("~a").one_of(Values::new::<u8>([2, 0, 2]));
    compare_scan(
        || table.scan::<At<1>>(txn, tags()),
        model,
        |row| row.url == "~a" && row.tag != 1,
    )?;
    compare_scan(|| table.scan::<At<0>>(txn, Bounds::new()), model, |_| true)?;
    compare_scan(|| table.scan::<At<1>>(txn, Bounds::new()), model, |_| true)?;
    compare_scan(|| table.scan::<At<2>>(txn, Bounds::new()), model, |_| true)
}

/// The URLs. The first three have the same hash.
const URLS: [&str; 4] = ["~", "~a", "~b", "c"];

fn run(store: &Store, rows: &[(Link, bool)]) -> Result<(), TestCaseError> {
    let table = KeyedTable::<Link>::open(store).map_err(fail)?;
    let mut model = Model::new();
    let mut txn = store.write().map_err(fail)?;
    for (row, keep) in rows {
        if !keep {
            let deleted = table.delete(&mut txn, row.id).map_err(fail)?;
            prop_assert_eq!(deleted, model.remove(&row.id).is_some());
            continue;
        }
        let holder = model
            .values()
            .find(|other| other.id != row.id && (&other.url, other.tag) == (&row.url, row.tag));
        match (table.put(&mut txn, row), holder) {
            (Ok(()), None) => {
                model.insert(row.id, row.clone());
            }
            (Err(Error::UniqueViolation { index: "once", key, holder, .. }), Some(other)) => {
                prop_assert_eq!(key, format!("({:?}, {})", row.url, row.tag));
                prop_assert_eq!(holder, other.id.to_string());
            }
            (result, holder) => {
                return Err(TestCaseError::fail(format!("{row:?}: {result:?}, {holder:?}")));
            }
        }
    }
    compare(&table, &txn, &model)
}

fn row() -> impl Strategy<Value = Link> {
    (0_u16..12, prop::sample::select(&URLS[..]), 0_u8..3).prop_map(|(id, url, tag)| Link {
        id,
        url: url.to_owned(),
        tag,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_that_share_a_hash_are_distinguished(
        rows in prop::collection::vec((row(), prop::bool::weighted(0.85)), 1..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        run(&Store::options().map_size(1 << 24).open(dir.path()).map_err(fail)?, &rows)?;
        #[cfg(feature = "memory")]
        run(&Store::in_memory(), &rows)?;
    }
}
