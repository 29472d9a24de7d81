//! The statistics of scans and tables: the cost of each kind of query and of writes.

use std::thread;

use index_table::{IndexTable, IndexUsage, Result, Stats, Store, Usage};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The same index with each strategy. Each value of `group` has three rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "indexes may have fields in common")]
#[index(group)]
#[index(group, include = [score], name = "scored")]
#[index(group, strategy = "full", name = "whole")]
#[index(code, unique)]
struct Card {
    #[primary_key]
    id: u32,
    group: u16,
    score: u8,
    code: u64,
}

fn card(id: u32) -> Card {
    Card { id, group: (id / 3) as u16, score: 7, code: u64::from(id) << 32 }
}

/// Runs `check` on 30 cards in a store of each kind.
fn on_both_engines(check: impl Fn(&Store, &CardRepository) -> TestResult) -> TestResult {
    let dir = tempfile::tempdir()?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        let cards = CardRepository::open(&store)?;
        store.transaction(|txn| (0..30).try_for_each(|id| cards.insert(txn, &card(id))))?;
        check(&store, &cards)?;
    }
    Ok(())
}

/// Returns the seeks, entries, facts and bytes.
fn figures(stats: Stats) -> [u64; 4] {
    let Stats { seeks, entries, facts, bytes, .. } = stats;
    [seeks, entries, facts, bytes]
}

/// Reads an iterator to its end. Compares its statistics with the expected statistics, and with the change of the
/// transaction's statistics after it is dropped.
macro_rules! assert_reads {
    ($txn:expr, $query:expr, $figures:expr) => {{
        let before = figures($txn.stats());
        let mut query = $query;
        let results = query.by_ref().map(|result| result.map(drop)).collect::<Result<Vec<_>>>()?;
        let figures_read = figures(query.stats());
        assert_eq!(figures_read, $figures, stringify!($query));
        // The transaction counts the reads when the iterator is dropped.
        assert_eq!(figures($txn.stats()), before, stringify!($query));
        drop(query);
        let after = figures($txn.stats());
        assert_eq!(std::array::from_fn(|i| after[i] - before[i]), figures_read, stringify!($query));
        results.len()
    }};
}

/// The bytes of one of the cards 3 to 5: its version, id, group and score, and the code, which takes
/// five bytes.
const ROW: u64 = 1 + 1 + 1 + 1 + 5;

#[test]
fn each_strategy_takes_its_number_of_look_ups() -> TestResult {
    on_both_engines(|store, cards| {
        let txn = store.read()?;
        let row = cards.get(&txn, 3)?.ok_or("no row")?;
        assert_eq!(row, card(3));
        assert_eq!(figures(txn.stats()), [0, 0, 1, ROW]); // one look-up

        // Rows take two look-ups, except from a full index and from the table itself.
        let (key, primary_key) = (2, 4);
        assert_reads!(txn, cards.find_by_group(&txn, 1).rows(), [1, 3, 3, 3 * ROW]);
        assert_reads!(txn, cards.find_by_scored(&txn, 1).rows(), [1, 3, 3, 3 * ROW]);
        assert_reads!(txn, cards.find_by_whole(&txn, 1).rows(), [1, 3, 0, 3 * ROW]);
        assert_reads!(txn, cards.find_by_id_range(&txn, 3..6).rows(), [1, 3, 0, 3 * ROW]);
        assert_reads!(txn, cards.find_by_code(&txn, 3 << 32).rows(), [1, 1, 1, ROW]);

        // Keys are read from the index alone, with every strategy.
        let referring = 3 * (key + primary_key);
        // The number of the list, and the score.
        let included = 1 + 1;
        assert_reads!(txn, cards.find_by_group(&txn, 1).entries(), [1, 3, 0, referring]);
        assert_reads!(
            txn,
            cards.find_by_scored(&txn, 1).entries(),
            [1, 3, 0, referring + 3 * included]
        );
        let whole = referring + 3 * ROW;
        assert_reads!(txn, cards.find_by_whole(&txn, 1).entries(), [1, 3, 0, whole]);
        assert_reads!(txn, cards.find_by_code(&txn, 3 << 32).entries(), [1, 1, 0, 8 + primary_key]);
        let keys = 3 * primary_key;
        assert_reads!(txn, cards.find_by_group(&txn, 1).keys(), [1, 3, 0, keys]);
        assert_reads!(txn, cards.find_by_scored(&txn, 1).keys(), [1, 3, 0, keys]);
        assert_reads!(txn, cards.find_by_whole(&txn, 1).keys(), [1, 3, 0, keys]);
        assert_reads!(txn, cards.find_by_id_range(&txn, 3..6).keys(), [1, 3, 0, keys]);

        // With a limit, backward, and without results.
        assert_reads!(txn, cards.find_by_scored(&txn, 1).limit(2).keys(), [1, 2, 0, 2 * 4]);
        assert_reads!(txn, cards.by_whole(&txn).rev().limit(2).keys(), [1, 2, 0, 2 * 4]);
        assert_reads!(txn, cards.find_by_group(&txn, 99).rows(), [1, 0, 0, 0]);

        // Several rows at once.
        assert_reads!(txn, cards.get_many(&txn, [3, 99, 4]), [0, 0, 3, 2 * ROW]);
        let two = || cards.find_by_group(&txn, 1).or(cards.find_by_code(&txn, 4 << 32));
        assert_reads!(txn, two().keys(), [2, 4, 0, 3 * primary_key]);
        assert_reads!(txn, two().rows(), [2, 4, 3, 3 * ROW]);

        // Each distinct value takes a seek.
        let groups = cards.distinct_group(&txn).values();
        assert_eq!(assert_reads!(txn, groups, [11, 10, 0, 10 * key]), 10);
        Ok(())
    })
}

#[test]
fn counting_decodes_no_rows() -> TestResult {
    on_both_engines(|store, cards| {
        let txn = store.read()?;
        assert_eq!(cards.find_by_scored(&txn, 1).count()?, 3);
        assert_eq!(figures(txn.stats()), [1, 3, 0, 0]);
        assert!(cards.find_by_whole(&txn, 1).exists()?);
        assert_eq!(figures(txn.stats()), [2, 4, 0, 0]);
        Ok(())
    })
}

#[test]
fn a_scan_has_its_own_stats() -> TestResult {
    on_both_engines(|store, cards| {
        let txn = store.read()?;
        let mut rows = cards.by_group(&txn).rows();
        assert_eq!(figures(rows.stats()), [1, 0, 0, 0]);
        rows.next().transpose()?;
        assert_eq!(figures(rows.stats())[..3], [1, 1, 1]);
        // Another scan has its own statistics.
        let mut keys = cards.by_scored(&txn).keys();
        keys.nth(3).transpose()?;
        assert_eq!(figures(keys.stats()), [1, 4, 0, 16]);
        rows.next().transpose()?;
        assert_eq!(figures(rows.stats())[..3], [1, 2, 2]);
        assert_eq!(txn.stats(), Stats::default());
        drop(rows);
        assert_eq!(figures(txn.stats())[..3], [1, 2, 2]);
        drop(keys);
        assert_eq!(figures(txn.stats())[..3], [2, 6, 2]);
        // A scan that does not run reads nothing.
        drop(cards.by_group(&txn));
        drop(cards.distinct_group(&txn).values());
        drop(cards.find_by_group(&txn, 1).and(cards.find_by_scored(&txn, 1)));
        assert_eq!(figures(txn.stats())[..3], [2, 6, 2]);
        Ok(())
    })
}

/// Returns gets, scans, scanned rows, inserts, puts, updates and deletes.
fn of_rows(usage: &Usage) -> [u64; 7] {
    let Usage { gets, scans, scanned, inserts, puts, updates, deletes, .. } = *usage;
    [gets, scans, scanned, inserts, puts, updates, deletes]
}

/// Returns the queries, entries, facts and written entries of each index.
fn of_indexes(usage: &Usage) -> Vec<(&'static str, [u64; 4])> {
    let figures = |index: &IndexUsage| {
        let IndexUsage { name, queries, entries, facts, written, .. } = *index;
        (name, [queries, entries, facts, written])
    };
    usage.indexes.iter().map(figures).collect()
}

#[test]
fn usage_counts_queries() -> TestResult {
    on_both_engines(|store, cards| {
        let txn = store.read()?;
        cards.get(&txn, 3)?;
        cards.get(&txn, 99)?;
        assert_eq!(cards.get_many(&txn, [1, 2, 3]).count(), 3);
        assert_eq!(cards.all(&txn).limit(4).rows().count(), 4);
        assert_eq!(cards.find_by_id_range(&txn, 3..5).keys().count(), 2);
        cards.get_by_code(&txn, 3 << 32)?;
        cards.find_by_group(&txn, 1).page(2)?;
        assert_eq!(cards.find_by_scored(&txn, 1).entries().count(), 3);
        cards.find_by_scored(&txn, 1).first()?;
        assert!(cards.find_by_scored(&txn, 1).exists()?);
        assert_eq!(cards.distinct_scored(&txn).values().take(2).count(), 2);
        // The rows of a combination are looked up one by one.
        let both = cards.find_by_scored(&txn, 1).and(cards.find_by_whole(&txn, 1));
        assert_eq!(both.rows().count(), 3);

        let usage = cards.usage();
        assert_eq!(of_rows(&usage), [2 + 3 + 3, 2, 4 + 2, 30, 0, 0, 0]);
        let indexes = [
            ("group", [1, 3, 2, 30]),
            ("scored", [5, 3 + 1 + 1 + 2 + 3, 1, 30]),
            ("whole", [1, 3, 0, 30]),
            ("code", [1, 1, 1, 30]),
        ];
        assert_eq!(of_indexes(&usage), indexes);
        assert_eq!(usage.table, "card");
        let strategies: Vec<_> = usage.indexes.iter().map(|index| index.strategy).collect();
        assert_eq!(strategies, ["normalized", "partial", "full", "normalized"]);
        assert!(usage.indexes.iter().all(|index| index.advice.is_empty()));
        Ok(())
    })
}

#[test]
fn usage_counts_committed_writes() -> TestResult {
    on_both_engines(|store, cards| {
        let written = |usage: &Usage| usage.indexes.iter().map(|it| it.written).collect::<Vec<_>>();
        // Rolled back, refused and unchanged rows are not counted.
        let mut txn = store.write()?;
        cards.insert(&mut txn, &card(100))?;
        cards.delete(&mut txn, 3)?;
        drop(txn);
        let mut txn = store.write()?;
        assert!(cards.insert(&mut txn, &card(3)).is_err());
        assert!(cards.put(&mut txn, &Card { code: 4 << 32, ..card(3) }).is_err());
        cards.put(&mut txn, &card(3))?;
        cards.update(&mut txn, 3, |_| {})?;
        cards.update(&mut txn, 99, |card| card.score = 1)?;
        cards.delete(&mut txn, 99)?;
        txn.commit()?;
        assert_eq!(of_rows(&cards.usage()), [0, 0, 0, 30, 0, 0, 0]);
        assert_eq!(written(&cards.usage()), [30; 4]);

        let mut txn = store.write()?;
        // A changed field is rewritten in the entries that carry it.
        cards.update(&mut txn, 3, |card| card.score = 1)?;
        cards.put(&mut txn, &card(3))?;
        // For a changed field in a key, an entry is removed and another is added.
        cards.update(&mut txn, 4, |card| card.group = 5)?;
        cards.put(&mut txn, &card(100))?;
        cards.delete(&mut txn, 100)?;
        // Writes are counted when they are committed.
        assert_eq!(written(&cards.usage()), [30; 4]);
        txn.commit()?;
        assert_eq!(of_rows(&cards.usage()), [0, 0, 0, 30, 2, 2, 1]);
        let [group, scored, whole, code] = [2 + 2, 2 + 2 + 2, 2 + 2 + 2, 1 + 1];
        assert_eq!(written(&cards.usage()), [30 + group, 30 + scored, 30 + whole, 30 + code]);
        Ok(())
    })
}

#[test]
fn threads_and_clones_share_the_counters() -> TestResult {
    on_both_engines(|store, cards| {
        thread::scope(|scope| {
            for _ in 0..4 {
                let cards = cards.clone();
                scope.spawn(move || {
                    for _ in 0..100 {
                        let txn = store.read().expect("a transaction");
                        assert_eq!(cards.find_by_group(&txn, 1).rows().count(), 3);
                    }
                });
            }
        });
        let again = CardRepository::open(store)?;
        assert_eq!(of_indexes(&again.usage())[0], ("group", [400, 1200, 1200, 30]));
        Ok(())
    })
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[allow(clippy::duplicated_attributes, reason = "indexes may have fields in common")]
#[index(town)]
#[index(email, include = [phone])]
#[index(phone, strategy = "full", name = "phone_book")]
#[index(active, allow(few_values))]
#[index(each(tags), town, unique)]
struct Customer {
    #[primary_key]
    id: u32,
    town: String,
    email: String,
    phone: String,
    active: bool,
    tags: Vec<u8>,
}

/// The report has all counters and the advice.
#[test]
fn the_report_is_displayed_and_serialized() -> TestResult {
    let store = Store::in_memory();
    let customers = CustomerRepository::open(&store)?;
    let mut txn = store.write()?;
    for id in 0..1000 {
        let (town, email) = (format!("{}", id % 20), format!("{id}@example.com"));
        let (active, phone) = (id % 2 == 0, format!("555-{id}"));
        customers.insert(&mut txn, &Customer { id, town, email, phone, active, tags: vec![] })?;
    }
    txn.commit()?;
    let txn = store.read()?;
    for town in 0..200 {
        let town = format!("{}", town % 20);
        assert_eq!(customers.find_by_town(&txn, &town).rows().count(), 50);
    }
    assert_eq!(customers.find_by_email_starting_with(&txn, "1").rows().count(), 111);
    assert_eq!(customers.find_by_phone_book(&txn, "555-7").rows().count(), 1);
    customers.get(&txn, 7)?;
    assert_eq!(customers.all(&txn).keys().count(), 1000);

    let usage = customers.usage();
    let expected = "\
table `customers`
  gets  scans  scanned  inserts  puts  updates  deletes
     1      1     1000     1000     0        0        0

  index       strategy    queries  entries  facts  written
  town        normalized      200    10000  10000     1000
  email       partial           1      111    111     1000
  phone_book  full              1        1      0     1000
  active      normalized        0        0      0     1000
  tags_town   normalized        0        0      0        0

  index `town`: of the 10000 entries that were read, 10000 were followed to their rows, a second \
look-up each, and 1000 rows were written; `include` the fields that are read most and use \
`entries()`, or make it `strategy = \"full\"`, if there is space for it
  index `phone_book`: 1000 of its entries were written or removed and 1 were read, so it carries \
the whole row for little; a normalized index is written less often
  index `active`: it was never queried, and 1000 of its entries were written or removed; if other \
processes don't query it either, it costs writes and space for nothing
";
    assert_eq!(usage.to_string(), expected);

    let json = serde_json::to_value(&usage)?;
    assert_eq!(json["table"], "customers");
    assert_eq!(json["inserts"], 1000);
    assert_eq!(json["indexes"][1]["strategy"], "partial");
    assert_eq!(json["indexes"][0]["advice"][0].as_str().map(|it| &it[..6]), Some("of the"));
    Ok(())
}

mod doubtful {
    #![allow(deprecated, reason = "the test is about this warning")]

    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[index(active)]
    #[index(blocked, allow(few_values))]
    pub(super) struct Doubtful {
        #[primary_key]
        id: u32,
        active: bool,
        blocked: bool,
    }
}

#[test]
fn warnings_are_in_the_report() -> TestResult {
    let usage = doubtful::DoubtfulRepository::open(&Store::in_memory())?.usage();
    let [active, blocked] = usage.indexes.as_slice() else { panic!("two indexes: {usage}") };
    assert!(active.advice[0].starts_with("an index on a `bool` alone"), "{usage}");
    assert_eq!((active.advice.len(), blocked.advice.len()), (1, 0));
    Ok(())
}

/// A reopened table starts at zero.
#[test]
fn a_reopened_table_starts_at_zero() -> TestResult {
    let store = Store::in_memory();
    let cards = CardRepository::open(&store)?;
    store.transaction(|txn| cards.insert(txn, &card(1)))?;
    assert_eq!(cards.usage().inserts, 1);
    drop(cards);
    assert_eq!(CardRepository::open(&store)?.usage().inserts, 0);
    Ok(())
}
