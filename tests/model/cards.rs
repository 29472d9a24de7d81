//! Queries that read only indexes (distinct values, combined scans) and `get_many`, with and without packed
//! indexes.

use std::fmt::Debug;

use index_table::{__private::Key, Distinct, Result};
use proptest::prelude::*;

use crate::{fail, on_both_engines, text};

/// A part of a combination.
#[derive(Debug, Clone)]
enum Part {
    All,
    Ids(u16, u16),
    Suit(String),
    SuitRank(String, i8),
    Rank(i8),
    Tag(String),
    Code(u32),
    /// A scan in another order than the primary key's.
    BySuit,
    SuitsFrom(String),
    Suits(Vec<String>),
    Ranks(i8, i8),
    Tags(String),
    Codes(u32, u32),
    And(Box<Part>, Box<Part>),
    Or(Box<Part>, Box<Part>),
}

fn suit() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "a\0", "ab", "", "z"]).prop_map(str::to_owned)
}

fn part() -> impl Strategy<Value = Part> {
    let one = prop_oneof![
        1 => Just(Part::All),
        2 => (0..400_u16, 0..400_u16).prop_map(|(a, b)| Part::Ids(a, b)),
        4 => suit().prop_map(Part::Suit),
        4 => (suit(), -1..2_i8).prop_map(|(suit, rank)| Part::SuitRank(suit, rank)),
        4 => (-1..2_i8).prop_map(Part::Rank),
        4 => text().prop_map(Part::Tag),
        1 => (0..400_u32).prop_map(Part::Code),
        1 => Just(Part::BySuit),
        1 => suit().prop_map(Part::SuitsFrom),
        1 => prop::collection::vec(suit(), 0..3).prop_map(Part::Suits),
        1 => (-1..2_i8, -1..3_i8).prop_map(|(from, to)| Part::Ranks(from, to)),
        1 => text().prop_map(Part::Tags),
        1 => (0..400_u32, 0..400_u32).prop_map(|(from, to)| Part::Codes(from, to)),
    ];
    one.prop_recursive(3, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Part::And(a.into(), b.into())),
            (inner.clone(), inner).prop_map(|(a, b)| Part::Or(a.into(), b.into())),
        ]
    })
}

/// The values that the fields of a card are made from. There are few values for many cards, and one in ten
/// cards has a rare value, so that matching entries are far apart.
type Seed = (u16, bool, String, i8, Vec<String>);

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    let suit = prop_oneof![9 => Just("a".to_owned()), 1 => suit()];
    let rank = prop_oneof![9 => Just(0), 1 => -1..2_i8];
    let tags = prop::collection::vec(text(), 0..3);
    prop::collection::vec((0..400_u16, any::<bool>(), suit, rank, tags), 0..300)
}

/// Compares distinct values and their counts in both directions.
fn assert_distinct<'txn, V: Key + Debug + Ord>(
    distinct: impl Fn() -> Distinct<'txn, V>,
    entries: impl IntoIterator<Item = V>,
) -> Result<(), TestCaseError> {
    let mut sorted: Vec<V> = entries.into_iter().collect();
    sorted.sort();
    let mut expected: Vec<(String, u64)> = Vec::new();
    for value in sorted {
        let shown = format!("{value:?}");
        match expected.last_mut() {
            Some((last, count)) if *last == shown => *count += 1,
            _ => expected.push((shown, 1)),
        }
    }
    for turned in [false, true] {
        let distinct = || if turned { distinct().rev() } else { distinct() };
        let values: Result<Vec<_>> =
            distinct().values().map(|value| Ok(format!("{:?}", value?))).collect();
        let names: Vec<String> = expected.iter().map(|(value, _)| value.clone()).collect();
        prop_assert_eq!(values.map_err(fail)?, names);
        let counts: Result<Vec<_>> = distinct()
            .counts()
            .map(|counted| counted.map(|(value, count)| (format!("{value:?}"), count)))
            .collect();
        prop_assert_eq!(&counts.map_err(fail)?, &expected);
        let first = distinct().first().map_err(fail)?.map(|value| format!("{value:?}"));
        prop_assert_eq!(first.as_ref(), expected.first().map(|(value, _)| value));
        expected.reverse();
    }
    Ok(())
}

macro_rules! cards {
    ($name:ident, $id:ty, |$number:ident| $make_id:expr, |$range:ident| $ids:expr) => {
        pub(crate) mod $name {
            use std::collections::BTreeMap;

            use index_table::{Combined, IndexTable, ReadTxn, Result, Store};
            use proptest::prelude::*;
            use serde::{Deserialize, Serialize};

            use super::{Part, Seed, assert_distinct};
            use crate::{assert_clean, combinations::assert_combination, fail, pairs};

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[allow(clippy::duplicated_attributes, reason = "indexes may have fields in common")]
            #[index(suit)]
            #[index(suit, rank, include = [code])]
            #[index(rank, strategy = "full")]
            #[index(each(tags))]
            #[index(suit, each(tags), name = "tagged")]
            #[index(code, unique)]
            #[index(rank, code, unique, name = "ranked")]
            struct Card {
                #[primary_key]
                id: $id,
                suit: String,
                rank: i8,
                tags: Vec<String>,
                code: u32,
            }

            pub(crate) const MODEL: pairs::Model = pairs::Model::of::<Card>();

            type Model = BTreeMap<$id, Card>;

            fn id($number: u16) -> $id {
                $make_id
            }

            fn holds(part: &Part, card: &Card) -> bool {
                match part {
                    Part::All => true,
                    Part::Ids(from, to) => (id(*from)..id(*to)).contains(&card.id),
                    Part::Suit(suit) => card.suit == *suit,
                    Part::SuitRank(suit, rank) => card.suit == *suit && card.rank == *rank,
                    Part::Rank(rank) => card.rank == *rank,
                    Part::Tag(tag) => card.tags.contains(tag),
                    Part::Code(code) => card.code == *code,
                    Part::BySuit => true,
                    Part::SuitsFrom(suit) => card.suit >= *suit,
                    Part::Suits(suits) => suits.contains(&card.suit),
                    Part::Ranks(from, to) => (*from..*to).contains(&card.rank),
                    Part::Tags(tag) => card.tags.iter().any(|it| it.starts_with(tag)),
                    Part::Codes(from, to) => (*from..*to).contains(&card.code),
                    Part::And(a, b) => holds(a, card) && holds(b, card),
                    Part::Or(a, b) => holds(a, card) || holds(b, card),
                }
            }

            fn combine<'txn>(
                cards: &'txn CardRepository,
                txn: &'txn ReadTxn<'_>,
                part: &Part,
            ) -> Combined<'txn, Card> {
                match part {
                    Part::All => cards.all(txn).into(),
                    Part::Ids(from, to) => {
                        let $range = id(*from)..id(*to);
                        cards.find_by_id_range(txn, $ids).into()
                    }
                    Part::Suit(suit) => cards.find_by_suit(txn, suit).into(),
                    Part::SuitRank(suit, rank) => cards.find_by_suit_rank(txn, suit, *rank).into(),
                    Part::Rank(rank) => cards.find_by_rank(txn, *rank).into(),
                    Part::Tag(tag) => cards.find_by_tags(txn, tag).into(),
                    Part::Code(code) => cards.find_by_code(txn, *code).into(),
                    Part::BySuit => cards.by_suit_rank(txn).into(),
                    Part::SuitsFrom(suit) => cards.find_by_suit_range(txn, suit.as_str()..).into(),
                    Part::Suits(suits) => cards.find_by_suit_in(txn, suits).into(),
                    Part::Ranks(from, to) => {
                        cards.find_by_ranked_rank_range(txn, *from..*to).into()
                    }
                    Part::Tags(tag) => cards.find_by_tags_starting_with(txn, tag).into(),
                    Part::Codes(from, to) => cards.find_by_code_range(txn, *from..*to).into(),
                    Part::And(a, b) => combine(cards, txn, a).and(combine(cards, txn, b)),
                    Part::Or(a, b) => combine(cards, txn, a).or(combine(cards, txn, b)),
                }
            }

            fn combined(
                cards: &CardRepository,
                txn: &ReadTxn<'_>,
                model: &Model,
                part: &Part,
            ) -> Result<(), TestCaseError> {
                let rows: Vec<Card> =
                    model.values().filter(|card| holds(part, card)).cloned().collect();
                let combination = || combine(cards, txn, part);
                let keys: Vec<$id> = combination().keys().collect::<Result<_>>().map_err(fail)?;
                prop_assert!(keys.iter().eq(rows.iter().map(|card| &card.id)), "{:?}", keys);
                let facts = txn.stats().facts;
                prop_assert_eq!(
                    &combination().rows().collect::<Result<Vec<_>>>().map_err(fail)?,
                    &rows
                );
                prop_assert_eq!(txn.stats().facts - facts, rows.len() as u64);
                prop_assert_eq!(combination().count().map_err(fail)?, rows.len() as u64);
                prop_assert_eq!(combination().exists().map_err(fail)?, !rows.is_empty());
                prop_assert_eq!(combination().first().map_err(fail)?, rows.first().cloned());
                let some: Result<Vec<_>> = combination().limit(9).limit(3).rows().collect();
                prop_assert_eq!(some.map_err(fail)?, &rows[..rows.len().min(3)]);
                assert_combination(combination, &rows)
            }

            fn distinct(
                cards: &CardRepository,
                txn: &ReadTxn<'_>,
                model: &Model,
            ) -> Result<(), TestCaseError> {
                let all = || model.values();
                assert_distinct(|| cards.distinct_suit(txn), all().map(|card| card.suit.clone()))?;
                assert_distinct(
                    || cards.distinct_suit_rank(txn),
                    all().map(|card| (card.suit.clone(), card.rank)),
                )?;
                assert_distinct(|| cards.distinct_rank(txn), all().map(|card| card.rank))?;
                assert_distinct(|| cards.distinct_code(txn), all().map(|card| card.code))?;
                assert_distinct(
                    || cards.distinct_ranked(txn),
                    all().map(|card| (card.rank, card.code)),
                )?;
                let tags = |card: &Card| {
                    let mut tags = card.tags.clone();
                    tags.sort();
                    tags.dedup();
                    tags
                };
                assert_distinct(|| cards.distinct_tags(txn), all().flat_map(tags))?;
                for suit in ["a", "a\0", ""] {
                    let of_suit = || all().filter(|card| card.suit == suit);
                    assert_distinct(
                        || cards.distinct_rank_by_suit(txn, suit),
                        of_suit().map(|card| card.rank),
                    )?;
                    assert_distinct(
                        || cards.distinct_tagged_by_suit(txn, suit),
                        of_suit().flat_map(tags),
                    )?;
                }
                Ok(())
            }

            pub(super) fn run(
                store: &Store,
                seeds: &[Seed],
                parts: &[Part],
            ) -> Result<(), TestCaseError> {
                let cards = CardRepository::open(store).map_err(fail)?;
                let mut model = Model::new();
                let mut txn = store.write().map_err(fail)?;
                for (number, there, suit, rank, tags) in seeds {
                    let id = id(*number);
                    if *there {
                        let (suit, tags) = (suit.clone(), tags.clone());
                        let code = u32::from(*number);
                        let card = Card { id: id.clone(), suit, rank: *rank, tags, code };
                        cards.put(&mut txn, &card).map_err(fail)?;
                        model.insert(id, card);
                    } else {
                        use index_table::__private::Key as _;
                        cards.delete(&mut txn, id.arg()).map_err(fail)?;
                        model.remove(&id);
                    }
                }
                distinct(&cards, &txn, &model)?;
                txn.commit().map_err(fail)?;
                let txn = store.read().map_err(fail)?;
                distinct(&cards, &txn, &model)?;
                assert_clean(cards.verify(&txn))?;
                for part in parts {
                    combined(&cards, &txn, &model, part)?;
                }
                let ids: Vec<$id> = seeds.iter().map(|(number, ..)| id(*number)).collect();
                let rows: Result<Vec<_>> = cards.get_many(&txn, &ids).collect();
                let expected: Vec<_> = ids.iter().map(|id| model.get(id).cloned()).collect();
                prop_assert_eq!(rows.map_err(fail)?, expected);
                Ok(())
            }
        }
    };
}

cards!(packed, u16, |number| number, |range| range);
cards!(
    single,
    String,
    // Primary keys of different lengths, in another order than the numbers.
    |number| format!("{}\0{}", number % 7, "x".repeat(usize::from(number / 7))),
    |range| range.start.as_str()..range.end.as_str()
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(48)))]

    #[test]
    fn distinct_values_and_combinations_match_the_model(
        seeds in seeds(),
        parts in prop::collection::vec(part(), 1..12),
    ) {
        on_both_engines(|open| packed::run(&open()?, &seeds, &parts))?;
        on_both_engines(|open| single::run(&open()?, &seeds, &parts))?;
    }
}
