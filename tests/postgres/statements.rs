//! The number of prepared statements depends on the declarations alone.

use std::{env, fs};

use index_table::{__private::run_sql, IndexTable, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema, serial::Random};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "articles")]
#[index(each(words))]
#[index(each(authors))]
#[index(each(places))]
#[index(each(years))]
struct Article {
    #[primary_key]
    id: u32,
    words: Vec<u32>,
    authors: Vec<u32>,
    places: Vec<u32>,
    years: Vec<u32>,
}

/// The number of indexes.
const INDEXES: u64 = 4;

fn article(id: u32, random: &mut Random) -> Article {
    let mut some = || (0..random.below(4)).map(|_| random.below(6) as u32).collect();
    Article { id, words: some(), authors: some(), places: some(), years: some() }
}

/// Returns the number of statements that a new connection prepares.
fn prepared(store: &Store) -> index_table::Result<u64> {
    let count = run_sql(store, "SELECT count(*)::text FROM pg_prepared_statements")?;
    Ok(count.and_then(|count| count.parse().ok()).unwrap_or(u64::MAX))
}

#[test]
fn random_updates_prepare_a_number_of_statements_that_depends_on_the_declaration() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    let store = schema.open_with(&schema.options().connections(1))?;
    let articles = ArticleRepository::open(&store)?;
    let mut random = Random(7);
    let random = &mut random;
    store
        .transaction(|txn| (0..50).try_for_each(|id| articles.insert(txn, &article(id, random))))?;
    let updates = env::var("INDEX_TABLE_UPDATES").ok().and_then(|it| it.parse().ok());
    let mut update = |times: u32| -> TestResult {
        for _ in 0..times {
            let id = random.below(50) as u32;
            let new = article(id, random);
            store
                .transaction(|txn| articles.update(txn, id, |row| *row = new.clone()).map(drop))?;
        }
        Ok(())
    };
    update(1_000)?;
    let before = prepared(&store)?;
    assert!(before <= 8 + 4 * INDEXES, "{before}");
    update(updates.unwrap_or(1_000))?;
    assert_eq!(prepared(&store)?, before);
    // The memory of the session that has run the updates, if the server is on this machine.
    let own = format!(
        "SELECT pid::text FROM pg_stat_activity WHERE query LIKE '%\"{}\"%' OR query = 'COMMIT' \
         AND pid <> pg_backend_pid() ORDER BY query_start DESC LIMIT 1",
        schema.name()
    );
    if let Some(pid) = run_sql(&direct, &own)?
        && let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status"))
    {
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        assert!(kilobytes.is_none_or(|kilobytes: u64| kilobytes < 20_000), "{kilobytes:?} kB");
    }
    let report = articles.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}
