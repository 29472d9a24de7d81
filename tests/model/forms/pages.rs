//! Hashed fields among the other forms, after a primary key of variable length.

use std::cmp::Reverse;

use index_table::{Error, IndexTable, ReadTxn, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Model, Row};
use crate::{assert_clean, fail, on_both_engines, pairs, text};

type Text = Option<String>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[table(view)]
#[index(hash(url), desc(year), name = "newest")]
#[index(hash(url), hash(pair), unique, filter = is_live, name = "only")]
#[index(each(tags), hash(text), include = [text, year])]
#[index(town, hash(text), year, sparse, strategy = "full", name = "in_town")]
#[index(hash(blob), hash(url), year, include = [url])]
#[index(computed(initial: String), hash(pair), each(tags), name = "initials")]
struct Page {
    #[primary_key]
    name: String,
    url: String,
    year: u8,
    town: String,
    text: Text,
    blob: Vec<u8>,
    pair: (u8, String),
    tags: Vec<u8>,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::with_view::<Page>();

impl Page {
    fn is_live(&self) -> bool {
        self.year > 0
    }

    fn initial(&self) -> String {
        self.name.chars().take(1).collect()
    }

    fn only(&self) -> Option<(&str, &(u8, String))> {
        self.is_live().then_some((&self.url, &self.pair))
    }

    fn tagged<K>(&self, key: impl Fn(u8) -> K) -> Vec<K> {
        self.tags.iter().map(|tag| key(*tag)).collect()
    }
}

impl Row for Page {
    type Id = String;

    fn id(&self) -> String {
        self.name.clone()
    }
}

/// Generates short and long values, few enough to occur repeatedly.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(VALUES).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["x", "\0"]).prop_map(|text| text.repeat(2000)),
    ]
}

const VALUES: &[&str] = &["", "a", "ab", "a\0", "\u{1}"];

fn page() -> impl Strategy<Value = Page> {
    let pair = (0_u8..2, prop::sample::select(&VALUES[..2]).prop_map(str::to_owned));
    let tags = prop::collection::vec(0_u8..3, 0..3);
    let optional = prop::option::weighted(0.8, value());
    (text(), value(), 0_u8..4, prop::sample::select(&VALUES[..2]), optional, value(), pair, tags)
        .prop_map(|(name, url, year, town, text, blob, pair, tags)| Page {
            name,
            url,
            year,
            town: town.to_owned(),
            text,
            blob: blob.into_bytes(),
            pair,
            tags,
        })
}

fn compare(
    pages: &PageRepository,
    txn: &ReadTxn<'_>,
    m: &Model<Page>,
) -> Result<(), TestCaseError> {
    macro_rules! assert_query {
        ($scan:expr, $keys:expr, $keep:expr) => {
            super::assert_query(m, || $scan, |scan| scan.keys().collect(), $keys, $keep)?
        };
    }
    let long = ["x".repeat(2000), "\0".repeat(2000), "missing".repeat(100)];
    for value in VALUES.iter().copied().chain(long.iter().map(String::as_str)) {
        let newest = |p: &Page| vec![(p.url == value, Reverse(p.year))];
        assert_query!(pages.find_by_newest_url(txn, value), newest, |key| key.0);
        assert_query!(pages.find_by_newest(txn, value, 1), newest, |key| *key
            == (true, Reverse(1)));
        assert_query!(pages.find_by_newest_range(txn, value, 1..3), newest, |key| {
            key.0 && (1..3).contains(&key.1.0)
        });
        let years = pages.distinct_newest_by_url(txn, value).counts();
        let years = years.collect::<Result<Vec<_>>>().map_err(fail)?;
        let count =
            |year| m.values().filter(|page| page.url == value && page.year == year).count() as u64;
        let expected = (0..4).rev().map(|year| (year, count(year))).filter(|(_, n)| *n > 0);
        prop_assert_eq!(years, expected.collect::<Vec<_>>());

        for number in 0..2 {
            let pair = (number, "a".to_owned());
            let is = |page: &Page| page.only() == Some((value, &pair));
            let found = pages.get_by_only(txn, value, (number, "a")).map_err(fail)?;
            prop_assert_eq!(found.as_ref(), m.values().find(|page| is(page)));
            assert_query!(pages.find_by_only(txn, value, (number, "a")), |p| vec![is(p)], |is| *is);

            let initial = value.chars().take(1).collect::<String>();
            let initials = |p: &Page| {
                p.tagged(|tag| {
                    ((p.initial(), p.pair.clone()) == (initial.clone(), pair.clone()), tag)
                })
            };
            assert_query!(
                pages.find_by_initials_initial_pair(txn, &initial, (number, "a")),
                initials,
                |key| { key.0 }
            );
            assert_query!(
                pages.find_by_initials(txn, &initial, (number, "a"), 1),
                initials,
                |key| { *key == (true, 1) }
            );
        }

        for text in [Some(value), None] {
            let tagged = |p: &Page| p.tagged(|tag| (tag, p.text.as_deref() == text));
            assert_query!(pages.find_by_tags_text(txn, 1, text), tagged, |key| *key == (1, true));
            for entry in pages.find_by_tags_text(txn, 1, text).entries() {
                let entry = entry.map_err(fail)?;
                prop_assert_eq!((entry.tags, entry.text.as_deref()), (1, text));
                prop_assert_eq!(entry.year, m[entry.name].year);
            }
            let town = |p: &Page| {
                let present = p.text.is_some().then(|| p.town.clone());
                let is = p.text.as_deref() == text;
                present.map(|town| (town, is, p.year)).into_iter().collect::<Vec<_>>()
            };
            let Some(text) = text else { continue };
            assert_query!(pages.find_by_in_town_town_text(txn, "a", text), town, |key| key.0
                == "a"
                && key.1);
            assert_query!(pages.find_by_in_town_range(txn, "a", text, 2..), town, |key| {
                key.0 == "a" && key.1 && key.2 >= 2
            });
        }

        let blob = |p: &Page| vec![(p.blob == value.as_bytes(), p.url == "a", p.year)];
        assert_query!(pages.find_by_blob_url(txn, value.as_bytes(), "a"), blob, |key| key.0
            && key.1);
        assert_query!(pages.find_by_blob_url_year(txn, value.as_bytes(), "a", 2), blob, |key| {
            *key == (true, true, 2)
        });
        let some = pages.find_by_blob(txn, value.as_bytes());
        let expected = m.values().filter(|page| page.blob == value.as_bytes());
        prop_assert_eq!(some.count().map_err(fail)?, expected.count() as u64);

        let both = pages.find_by_newest(txn, value, 1).and(pages.find_by_tags_text(txn, 1, None));
        let both = both.or(pages.find_by_only(txn, value, (0, "a")));
        let found = both.keys().collect::<Result<Vec<_>>>().map_err(fail)?;
        let expected = m.values().filter(|page| {
            page.url == value
                && ((page.year == 1 && page.tags.contains(&1) && page.text.is_none())
                    || (page.is_live() && page.pair == (0, "a".to_owned())))
        });
        prop_assert_eq!(found, expected.map(Row::id).collect::<Vec<_>>());
    }
    // A query for a prefix before a hash, or for the whole index, returns all rows in the order of their
    // hashes.
    let in_town = m.values().filter(|page| page.town == "a" && page.text.is_some()).count();
    prop_assert_eq!(pages.find_by_in_town_town(txn, "a").count().map_err(fail)?, in_town as u64);
    prop_assert_eq!(pages.by_newest(txn).rows().count(), m.len());
    let live = m.values().filter(|page| page.is_live()).count();
    prop_assert_eq!(pages.by_only(txn).count().map_err(fail)?, live as u64);
    assert_clean(pages.verify(txn))
}

fn run(store: &Store, batches: &[Vec<(Page, bool)>]) -> Result<(), TestCaseError> {
    let pages = PageRepository::open(store).map_err(fail)?;
    let mut model = Model::<Page>::new();
    for batch in batches {
        let mut txn = store.write().map_err(fail)?;
        for (page, keep) in batch {
            if !keep {
                let deleted = pages.delete(&mut txn, &page.name).map_err(fail)?;
                prop_assert_eq!(deleted, model.remove(&page.name).is_some());
                continue;
            }
            let mut others = model.values().filter(|other| other.name != page.name);
            let free = page.only().is_none() || others.all(|other| other.only() != page.only());
            match pages.put(&mut txn, page) {
                Ok(()) => {
                    prop_assert!(free, "{page:?}");
                    model.insert(page.name.clone(), page.clone());
                }
                Err(Error::UniqueViolation { index: "only", .. }) => {
                    prop_assert!(!free, "{page:?}");
                }
                Err(error) => return Err(fail(error)),
            }
        }
        txn.commit().map_err(fail)?;
        compare(&pages, &store.read().map_err(fail)?, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(16)))]

    #[test]
    fn hashed_queries_match_the_model(
        batches in prop::collection::vec(
            prop::collection::vec((page(), prop::bool::weighted(0.85)), 1..25),
            1..4,
        ),
    ) {
        on_both_engines(|open| run(&open()?, &batches))?;
    }
}
