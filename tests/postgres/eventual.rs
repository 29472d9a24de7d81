//! Eventual indexes with several clients and workers.

use std::{
    thread,
    time::{Duration, Instant},
};

use index_table::{__private::run_sql, Error, IndexTable, IndexToken, Result, Store, WhenFull};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "articles")]
#[allow(clippy::duplicated_attributes, reason = "both indexes are eventual")]
#[index(author, consistency = "eventual")]
#[index(each(words), consistency = "eventual")]
struct Article {
    #[primary_key]
    id: u32,
    author: String,
    words: Vec<String>,
}

fn article(id: u32, author: u32) -> Article {
    let words = (id..id + 3).map(|word| format!("word {}", word % 10)).collect();
    Article { id, author: format!("author {author}"), words }
}

/// Returns the number of messages in the queue.
fn messages(store: &Store, schema: &Schema) -> Result<u32> {
    let sql = format!("SELECT count(*)::text FROM \"{}\".\".queue.articles\"", schema.name());
    let count = run_sql(store, &sql)?;
    Ok(count.and_then(|count| count.parse().ok()).expect("a number"))
}

#[test]
fn writers_of_messages_do_not_conflict() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let stores = [schema.open()?, schema.open()?];
    let articles = [ArticleRepository::open(&stores[0])?, ArticleRepository::open(&stores[1])?];
    // The keys of the two rows are far apart, so that only the messages could conflict.
    for round in 0..4 {
        let mut txns = [stores[0].write()?, stores[1].write()?];
        for (of, (txn, articles)) in txns.iter_mut().zip(&articles).enumerate() {
            articles.put(txn, &article(1_000_000 * of as u32 + round, 1))?;
        }
        let [one, other] = txns;
        one.commit()?;
        other.commit()?;
    }
    assert_eq!(articles[0].lag(&stores[0].read()?)?.messages, 8);
    assert_eq!(articles[0].drain(&stores[0], u64::MAX)?.applied, 8);
    assert_eq!(messages(&stores[0], &schema)?, 0, "a message stays");
    assert_eq!(articles[0].find_by_author(&stores[0].read()?, "author 1").stale().count()?, 8);
    Ok(())
}

#[test]
fn a_message_that_is_committed_out_of_order_is_applied() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let stores = [schema.open()?, schema.open()?];
    let articles = [ArticleRepository::open(&stores[0])?, ArticleRepository::open(&stores[1])?];
    let mut early = stores[0].write()?;
    articles[0].insert(&mut early, &article(1, 1))?;
    let early_token = early.token();
    let mut late = stores[1].write()?;
    articles[1].insert(&mut late, &article(1_000_000, 1))?;
    let late_token = late.commit_with_token()?;
    assert_eq!(articles[1].drain(&stores[1], u64::MAX)?.applied, 1);
    early.commit()?;
    let is_applied = |token| articles[0].wait_for(&stores[0], token, Duration::ZERO);
    assert!(is_applied(&late_token)?);
    assert!(!is_applied(&early_token)?);
    assert_eq!(articles[1].drain(&stores[1], u64::MAX)?.applied, 1);
    assert!(is_applied(&early_token)?);
    let report = articles[0].verify(&stores[0].read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_transaction_can_not_wait_for_its_own_messages() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let articles = ArticleRepository::open(&store)?;
    let _worker = store.start_index_worker()?;
    let wait = |token: IndexToken| articles.wait_for(&store, &token, Duration::from_mins(1));
    let begun = Instant::now();
    let mut txn = store.write()?;
    articles.insert(&mut txn, &article(1, 1))?;
    assert!(matches!(wait(txn.token()), Err(Error::WriteInProgress)));
    let waited = txn.nested(|txn| {
        articles.insert(txn, &article(2, 1))?;
        wait(txn.token())
    });
    assert!(matches!(waited, Err(Error::WriteInProgress)));
    txn.commit()?;
    let waited = store.transaction(|txn| {
        articles.insert(txn, &article(3, 1))?;
        wait(txn.token())
    });
    assert!(matches!(waited, Err(Error::WriteInProgress)));
    assert!(begun.elapsed() < Duration::from_secs(30), "a call has waited");
    let token = store.transaction(|txn| {
        articles.insert(txn, &article(4, 1))?;
        Ok(txn.token())
    })?;
    assert!(wait(token)?);
    Ok(())
}

#[test]
fn nested_transactions_do_not_replace_messages() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let articles = ArticleRepository::open(&store)?;
    let mut txn = store.write()?;
    articles.insert(&mut txn, &article(1, 1))?;
    txn.nested(|txn| articles.insert(txn, &article(2, 1)))?;
    let refused = txn.nested(|txn| {
        articles.insert(txn, &article(3, 1))?;
        articles.insert(txn, &article(1, 1))
    });
    assert!(refused.is_err());
    let token = txn.token();
    articles.insert(&mut txn, &article(4, 1))?;
    txn.commit()?;
    assert_eq!(messages(&store, &schema)?, 3);
    // The token covers the first two messages.
    articles.drain(&store, 1)?;
    assert!(!articles.wait_for(&store, &token, Duration::ZERO)?);
    articles.drain(&store, 1)?;
    assert!(articles.wait_for(&store, &token, Duration::ZERO)?);
    articles.drain(&store, u64::MAX)?;
    assert_eq!(articles.find_by_author(&store.read()?, "author 1").stale().count()?, 3);
    assert!(articles.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn a_writer_detects_a_full_queue() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    // With one connection, the writer counts the messages in its transaction.
    for connections in [1, 4] {
        let options = schema.options().connections(connections);
        let store = schema.open_with(&options.index_queue(5, WhenFull::ApplyInLine))?;
        let articles = ArticleRepository::open(&store)?;
        store.transaction(|txn| (0..20).try_for_each(|id| articles.put(txn, &article(id, 2))))?;
        assert_eq!(messages(&store, &schema)?, 5);
        articles.drain(&store, u64::MAX)?;
        store.transaction(|txn| (0..20).try_for_each(|id| articles.delete(txn, id).map(drop)))?;
        articles.drain(&store, u64::MAX)?;
        assert!(articles.verify(&store.read()?).run()?.is_clean());
        // The counted length is at most a second old, so a new count follows.
        thread::sleep(Duration::from_millis(1_100));
    }
    Ok(())
}

#[test]
fn a_writer_waits_for_room_in_the_queue() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let wait = WhenFull::Wait(Duration::from_mins(1));
    let store = schema.open_with(&schema.options().index_queue(3, wait))?;
    let articles = ArticleRepository::open(&store)?;
    let _worker = store.start_index_worker()?;
    for id in 0..12 {
        store.transaction(|txn| articles.put(txn, &article(id, 2)))?;
    }
    articles.drain(&store, u64::MAX)?;
    assert_eq!(articles.find_by_author(&store.read()?, "author 2").stale().count()?, 12);
    Ok(())
}

#[test]
fn workers_of_several_clients_apply_the_messages_of_several_writers() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let stores = [schema.open()?, schema.open()?];
    let articles = [ArticleRepository::open(&stores[0])?, ArticleRepository::open(&stores[1])?];
    let workers = [stores[0].start_index_worker()?, stores[1].start_index_worker()?];
    let writer = |of: usize| {
        let (store, articles) = (&stores[of % 2], &articles[of % 2]);
        let mut token = index_table::IndexToken::default();
        for round in 0..25_u32 {
            let id = (of as u32 * 7 + round * 3) % 40;
            token = store
                .transaction(|txn| {
                    if round % 6 == 5 {
                        articles.delete(txn, id)?;
                    } else {
                        articles.put(txn, &article(id, round))?;
                    }
                    Ok(txn.token())
                })
                .expect("a write");
        }
        assert!(articles.wait_for(store, &token, Duration::from_mins(1)).expect("a wait"));
    };
    thread::scope(|scope| {
        for of in 0..4 {
            scope.spawn(move || writer(of));
        }
    });
    drop(workers);
    articles[0].drain(&stores[0], u64::MAX)?;
    assert_eq!(messages(&stores[0], &schema)?, 0);
    let report = articles[0].verify(&stores[0].read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_dead_letter_whose_number_is_taken_gets_the_next_one() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let articles = ArticleRepository::open(&store)?;
    let queue = format!("\"{}\".\".queue.articles\"", schema.name());
    // A message that can't be applied, and a dead letter of another cluster.
    let insert = format!(
        "INSERT INTO {queue} (k, v) VALUES ('\\x0000000100000001', '\\x07'), \
         ('\\x8000000100000001', '\\x07')"
    );
    run_sql(&store, &insert)?;
    let drained = articles.drain(&store, u64::MAX)?;
    assert_eq!((drained.applied, drained.dead_letters, drained.left), (0, 1, 0));
    let dead = format!(
        "SELECT string_agg(encode(k, 'hex') || (v = '\\x07')::text, ' ' ORDER BY k) FROM {queue} \
         WHERE k >= '\\x80' AND k < '\\x81'"
    );
    let dead = run_sql(&store, &dead)?;
    assert_eq!(dead.as_deref(), Some("8000000100000001true 8000000100000002false"));
    Ok(())
}
