//! Plans from samples of many rows.

use std::ops::Range;

use index_table::{IndexTable, Result, ShardMap, Store, report::PlannedMove};
use serde::{Deserialize, Serialize};

#[allow(clippy::duplicated_attributes, reason = "two indexes may have the same scope")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sales", shard_by = tenant)]
#[index(day, scope = "global")]
#[index(code, unique, scope = "global")]
struct Sale {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    day: u16,
    code: u64,
    text: String,
}

const ROWS: u64 = 200_000;
const TENANTS: u32 = 1000;
const DAYS: u16 = 365;

/// Returns the number of rows of a tenant: neighbours differ by up to a factor of 40, and half of all rows are of the first
/// tenants.
fn rows_of(tenant: u32) -> u64 {
    let share = if tenant < 200 { 500 } else { 125 };
    share + u64::from(tenant * 7919 % 13) * share / 6 - share * 11 / 12
}

/// Returns the rows of all tenants, and the rows of each tenant.
fn all() -> (Vec<Sale>, Vec<u64>) {
    let mut left = ROWS;
    let mut counts: Vec<u64> = (0..TENANTS).map(|tenant| rows_of(tenant).min(left)).collect();
    for count in &mut counts {
        *count = (*count).min(left);
        left -= *count;
    }
    let mut rows = Vec::new();
    for (tenant, count) in (0..TENANTS).zip(&counts) {
        for number in 0..*count {
            let code = rows.len() as u64 * 7919 % 1_000_003;
            // Later days have more rows.
            let day = (code % u64::from(DAYS)).max(code / 7 % u64::from(DAYS)) as u16;
            let text = "x".repeat((tenant % 40) as usize);
            rows.push(Sale { tenant, number, day, code, text });
        }
    }
    (rows, counts)
}

/// Returns the keys of a move that are below a limit.
fn keys(planned: &PlannedMove, limit: usize) -> Range<usize> {
    let key = |text: &Option<String>| text.as_ref().map(|text| text.parse().expect("a number"));
    key(&planned.start).unwrap_or(0).min(limit)..key(&planned.end).unwrap_or(limit).min(limit)
}

#[test]
fn plans_from_samples_are_within_the_tolerance() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = ["a", "b", "c", "d"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("sales", ShardMap::ranges().to("a", ..900u32).to("b", 900u32..))
        .map("sales.day", ShardMap::ranges().to("a", ..u16::MAX).to("b", u16::MAX..))
        .map("sales.code", ShardMap::ranges().to("c", 0u64..))
        .open(dir.path().join("store"))?;
    let sales = SaleRepository::open(&store)?;
    let (rows, of_tenants) = all();
    let total: u64 = of_tenants.iter().sum();
    assert!(total > 150_000, "{total}");
    let mut of_days = vec![0; usize::from(DAYS)];
    for row in &rows {
        of_days[usize::from(row.day)] += 1;
    }
    sales.bulk_load(&store, rows).run()?;

    for (map, counts) in [("sales", &of_tenants), ("sales.day", &of_days)] {
        let plan = store.rebalance(map).plan()?;
        let sampled = plan.sampled_rows().expect("a sample");
        // The entries of the index are on fewer pages than a sample has.
        assert!(
            if map == "sales" { sampled < total / 2 } else { sampled == total },
            "{sampled} rows"
        );
        assert!(plan.to_string().contains(&format!("estimated from {sampled} sampled rows")));
        // The sum of the loads is exact if each entry is one row.
        let before: u64 = plan.shards().iter().map(|shard| shard.before).sum();
        assert!(before.abs_diff(total) <= total / 50, "{plan}");
        // The numbers of rows that really move.
        let mut loads = [0_i64; 4];
        let at = |name: &str| usize::from(name.as_bytes()[0] - b'a');
        for shard in store.ranges(map)? {
            loads[at(&shard.shard)] += i64::try_from(shard.rows).expect("few rows");
        }
        for planned in plan.moves() {
            let moved: u64 = counts[keys(planned, counts.len())].iter().sum();
            assert!(moved.abs_diff(planned.rows) <= total / 25, "{moved} rows: {planned}");
            loads[at(&planned.from)] -= i64::try_from(moved).expect("few rows");
            loads[at(&planned.to)] += i64::try_from(moved).expect("few rows");
        }
        let even = i64::try_from(total / 4).expect("few rows");
        assert_eq!(loads.iter().sum::<i64>(), i64::try_from(total).expect("few rows"));
        // The tolerance, and the error of the estimates.
        assert!(loads.iter().all(|load| *load <= even * 115 / 100), "{loads:?}, {plan}");

        let exact = store.rebalance(map).exact().plan()?;
        assert_eq!(exact.sampled_rows(), None);
        assert_eq!(exact.shards().iter().map(|shard| shard.before).sum::<u64>(), total);
    }
    // The bytes too.
    let bytes = |plan: index_table::report::RebalancePlan<'_>| -> u64 {
        plan.shards().iter().map(|shard| shard.before).sum()
    };
    let estimated = bytes(store.rebalance("sales").by_bytes().plan()?);
    let exact = bytes(store.rebalance("sales").by_bytes().exact().plan()?);
    assert!(estimated.abs_diff(exact) <= exact / 25, "{estimated} and {exact} bytes");
    // A unique index.
    let plan = store.rebalance("sales.code").plan()?;
    assert!(plan.shards().iter().all(|shard| shard.after <= total / 4 * 115 / 100), "{plan}");
    Ok(())
}
