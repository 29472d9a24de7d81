//! Descending fields of every kind, and a descending primary key of variable length.

use std::cmp::Reverse;

use index_table::{Error, IndexTable, ReadTxn, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Model, Row};
use crate::{assert_clean, fail, on_both_engines, pairs, text};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[table(view)]
#[index(desc(spelling), name = "backwards")]
#[index(desc(size), include = [bytes])]
#[index(desc(bytes))]
#[index(desc(pair), desc(live))]
#[index(desc(sound), size, strategy = "full")]
#[index(live, desc(size), desc(spelling), name = "newest")]
#[index(each(tags), desc(spelling), filter = is_live, name = "tagged")]
#[index(each(computed(tails: Vec<String>)))]
#[index(desc(size), desc(bytes), unique, filter = is_live, name = "only")]
struct Word {
    #[primary_key]
    spelling: String,
    size: i16,
    bytes: Vec<u8>,
    pair: (u8, String),
    sound: Option<String>,
    live: bool,
    tags: Vec<String>,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::with_view::<Word>();

impl Word {
    fn is_live(&self) -> bool {
        self.live
    }

    fn tails(&self) -> Vec<String> {
        self.tags.iter().map(|tag| tag.chars().rev().collect()).collect()
    }

    fn only(&self) -> Vec<(Reverse<i16>, Reverse<Vec<u8>>)> {
        let key = (Reverse(self.size), Reverse(self.bytes.clone()));
        self.live.then_some(key).into_iter().collect()
    }
}

impl Row for Word {
    type Id = String;

    fn id(&self) -> String {
        self.spelling.clone()
    }
}

fn word() -> impl Strategy<Value = Word> {
    let byte = || prop::sample::select(vec![0, 1, 2, 0xFE, 0xFF]);
    let size = prop::sample::select(vec![i16::MIN, -1, 0, 1, 255, i16::MAX]);
    let bytes = prop::collection::vec(byte(), 0..3);
    let tags = prop::collection::vec(text(), 0..3);
    (text(), size, bytes, (byte(), text()), prop::option::of(text()), any::<bool>(), tags).prop_map(
        |(spelling, size, bytes, pair, sound, live, tags)| Word {
            spelling,
            size,
            bytes,
            pair,
            sound,
            live,
            tags,
        },
    )
}

fn compare(
    words: &WordRepository,
    txn: &ReadTxn<'_>,
    m: &Model<Word>,
) -> Result<(), TestCaseError> {
    macro_rules! assert_query {
        ($scan:expr, $keys:expr, $keep:expr) => {
            super::assert_query(m, || $scan, |scan| scan.keys().collect(), $keys, $keep)?
        };
    }
    let spelling = |w: &Word| vec![Reverse(w.spelling.clone())];
    let size = |w: &Word| vec![Reverse(w.size)];
    let bytes = |w: &Word| vec![Reverse(w.bytes.clone())];
    let sound = |w: &Word| vec![(Reverse(w.sound.clone()), w.size)];
    let newest = |w: &Word| vec![(w.live, Reverse(w.size), Reverse(w.spelling.clone()))];
    let tags = |w: &Word| {
        let tags = w.tags.iter().filter(|_| w.live);
        tags.map(|tag| (tag.clone(), Reverse(w.spelling.clone()))).collect::<Vec<_>>()
    };
    assert_query!(words.by_backwards(txn), spelling, |_| true);
    assert_query!(words.by_size(txn), size, |_| true);
    assert_query!(words.by_bytes(txn), bytes, |_| true);
    assert_query!(words.by_pair_live(txn), |w| vec![Reverse((w.pair.clone(), w.live))], |_| true);
    assert_query!(words.by_sound_size(txn), sound, |_| true);
    assert_query!(words.by_newest(txn), newest, |_| true);
    assert_query!(words.by_tagged(txn), tags, |_| true);
    assert_query!(words.by_only(txn), Word::only, |_| true);
    assert_query!(words.by_tails(txn), Word::tails, |_| true);
    let listed = ["a", "\0a", "", "b", "a"];
    assert_query!(words.find_by_tails_in(txn, listed), Word::tails, |t| listed
        .contains(&t.as_str()));

    assert_query!(words.find_by_size_range(txn, -1..=1), size, |s| (-1..=1).contains(&s.0));
    assert_query!(words.find_by_size_range(txn, i16::MIN..0), size, |s| s.0 < 0);
    assert_query!(words.find_by_newest_live_size_range(txn, true, 1..), newest, |k| k.0
        && k.1.0 >= 1);
    let low: &[u8] = &[1];
    assert_query!(words.find_by_bytes_range(txn, low..), bytes, |b| b.0.as_slice() >= low);
    assert_query!(words.find_by_bytes(txn, &[]), bytes, |b| b.0.is_empty());
    let pair = |w: &Word| vec![Reverse((w.pair.clone(), w.live))];
    assert_query!(words.find_by_pair_range(txn, (1, "a")..(0xFF, "")), pair, |key| {
        let (byte, text) = &key.0.0;
        ((1, "a")..(0xFF, "")).contains(&(*byte, text))
    });
    for part in ["", "a", "a\0", "\u{1}", "\u{10ffff}"] {
        assert_query!(words.find_by_backwards(txn, part), spelling, |s| s.0 == part);
        assert_query!(words.find_by_backwards_range(txn, part..), spelling, |s| s.0.as_str()
            >= part);
        assert_query!(words.find_by_backwards_range(txn, ..=part), spelling, |s| s.0.as_str()
            <= part);
        assert_query!(words.find_by_backwards_starting_with(txn, part), spelling, |s| {
            s.0.starts_with(part)
        });
        assert_query!(words.find_by_newest_starting_with(txn, true, 0, part), newest, |(
            live,
            s,
            text,
        )| {
            *live && s.0 == 0 && text.0.starts_with(part)
        });
        assert_query!(words.find_by_tagged_range(txn, "a", part..), tags, |(tag, text)| {
            tag == "a" && text.0.as_str() >= part
        });
        assert_query!(words.find_by_sound(txn, Some(part)), sound, |key| key.0.0.as_deref()
            == Some(part));
        assert_query!(words.find_by_sound_range(txn, ..Some(part)), sound, |key| {
            key.0.0.as_deref() < Some(part)
        });
    }
    for entry in words.by_size(txn).entries() {
        let entry = entry.map_err(fail)?;
        let word = &m[entry.spelling];
        prop_assert_eq!((entry.size, entry.bytes), (word.size, word.bytes.as_slice()));
    }
    for entry in words.by_newest(txn).entries() {
        let entry = entry.map_err(fail)?;
        let word = &m[&entry.spelling];
        prop_assert_eq!((entry.live, entry.size), (word.live, word.size));
    }
    assert_clean(words.verify(txn))
}

fn run(store: &Store, batches: &[Vec<(Word, bool)>]) -> Result<(), TestCaseError> {
    let words = WordRepository::open(store).map_err(fail)?;
    let mut model = Model::<Word>::new();
    for batch in batches {
        let mut txn = store.write().map_err(fail)?;
        for (word, keep) in batch {
            if !keep {
                let deleted = words.delete(&mut txn, &word.spelling).map_err(fail)?;
                prop_assert_eq!(deleted, model.remove(&word.spelling).is_some());
                continue;
            }
            let mut others = model.values().filter(|other| other.spelling != word.spelling);
            let free =
                word.only().iter().all(|key| others.all(|other| !other.only().contains(key)));
            match words.put(&mut txn, word) {
                Ok(()) => {
                    prop_assert!(free, "{word:?}");
                    model.insert(word.spelling.clone(), word.clone());
                }
                Err(Error::UniqueViolation { index: "only", .. }) => {
                    prop_assert!(!free, "{word:?}");
                }
                Err(error) => return Err(fail(error)),
            }
        }
        txn.commit().map_err(fail)?;
        compare(&words, &store.read().map_err(fail)?, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(48)))]

    #[test]
    fn descending_keys_match_the_model(
        batches in prop::collection::vec(
            prop::collection::vec((word(), prop::bool::weighted(0.85)), 1..25),
            1..4,
        ),
    ) {
        on_both_engines(|open| run(&open()?, &batches))?;
    }
}
