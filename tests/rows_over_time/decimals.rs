//! Sums of decimal numbers.

use std::collections::BTreeMap;

use index_table::{Error, IndexTable, Result, RowVersion};
use proptest::prelude::*;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::{plain_engines, stores::stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments", shard_by = hash(id))]
#[aggregate(account, sum = [amount, id, fee])]
#[aggregate(sum = [amount])]
struct Payment {
    #[primary_key]
    id: u8,
    account: u8,
    amount: Decimal,
    fee: Option<Decimal>,
}

fn number(text: &str) -> Decimal {
    text.parse().expect("a number")
}

fn payment(id: u8, amount: &str) -> Payment {
    let fee = (!id.is_multiple_of(2)).then(|| number("0.10"));
    Payment { id, account: 7, amount: number(amount), fee }
}

#[test]
fn a_sum_of_decimals_is_exact() -> Result<()> {
    for store in stores("payments")? {
        let payments = PaymentRepository::open(&store)?;
        let mut txn = store.write()?;
        for (id, amount) in (1..).zip(["0.1", "0.2", "-100.05", "0.0000000000000000000000000001"]) {
            payments.insert(&mut txn, &payment(id, amount))?;
        }
        let totals = payments.aggregate_by_account(&txn, 7)?;
        // The sum has more digits than a `Decimal`, so the result is rounded.
        assert_eq!(totals.sum_amount, number("-99.75"));
        assert_eq!((totals.count, totals.sum_id, totals.sum_fee), (4, 10, number("0.2")));
        // The stored sum is not rounded.
        payments.update(&mut txn, 3, |row| row.amount = number("-0.3"))?;
        let least = "0.0000000000000000000000000001";
        assert_eq!(payments.aggregate(&txn)?.sum_amount, number(least));
        payments.delete(&mut txn, 4)?;
        let sum = payments.aggregate(&txn)?.sum_amount;
        assert_eq!((sum, sum.scale()), (Decimal::ZERO, 0));
        txn.commit()?;
        let sizes = store.sizes()?;
        let groups = |at: usize| (sizes[0].aggregates[at].name, sizes[0].aggregates[at].groups);
        // Each shard with rows has the totals of its own rows.
        let shards = if store.is_sharded { 1..=3 } else { 1..=1 };
        assert!(
            groups(0).0 == "aggregate_by_account" && shards.contains(&groups(0).1),
            "{sizes:?}"
        );
        assert!(groups(1).0 == "aggregate" && shards.contains(&groups(1).1), "{sizes:?}");
        assert_eq!(sizes[0].aggregates[0].bytes > 0, store.is_on_disk());
        let report = payments.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        let totals: Vec<_> =
            payments.aggregates_by_account(&store.read()?).collect::<Result<_>>()?;
        assert_eq!((totals.len(), totals[0].sum_amount), (1, Decimal::ZERO));
    }
    Ok(())
}

#[test]
fn a_sum_of_decimals_out_of_range_is_refused_and_nothing_has_changed() -> Result<()> {
    let local = super::stores::plain_stores()?.len();
    for (number, store) in plain_engines()?.into_iter().enumerate() {
        let payments = PaymentRepository::open(&store)?;
        let mut txn = store.write()?;
        let greatest = Decimal::MAX.to_string();
        payments.insert(&mut txn, &payment(1, &greatest))?;
        let mut refused = payments.insert(&mut txn, &payment(2, "1"));
        if number >= local {
            // On a server, the reader of the group gets the error.
            refused = refused.and_then(|()| payments.aggregate(&txn).map(drop));
            assert!(payments.delete(&mut txn, 2)?);
        }
        assert!(matches!(refused, Err(Error::AggregateOverflow { .. })), "{refused:?}");
        assert_eq!(payments.get(&txn, 2)?, None);
        payments.insert(&mut txn, &payment(2, "-1"))?;
        payments.insert(&mut txn, &payment(3, "1"))?;
        assert_eq!(payments.aggregate(&txn)?.sum_amount, Decimal::MAX);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "fees")]
#[aggregate(sum = [amount])]
struct OldFee {
    #[primary_key]
    id: u8,
    amount: i64,
}

#[derive(Serialize, Deserialize, RowVersion)]
#[table(version = 1)]
struct FirstFee {
    #[primary_key]
    id: u8,
    amount: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "fees", version = 2, previous = FirstFee)]
#[aggregate(sum = [amount])]
struct Fee {
    #[primary_key]
    id: u8,
    amount: Decimal,
}

impl From<FirstFee> for Fee {
    fn from(FirstFee { id, amount }: FirstFee) -> Self {
        Self { id, amount: Decimal::new(amount, 2) }
    }
}

#[test]
fn a_version_with_decimals_counts_the_rows_again() -> Result<()> {
    for store in plain_engines()? {
        let fees = OldFeeRepository::open(&store)?;
        store.transaction(|txn| {
            (1..=3).try_for_each(|id| fees.insert(txn, &OldFee { id, amount: 250 }))
        })?;
        assert_eq!(fees.aggregate(&store.read()?)?.sum_amount, 750);
        drop(fees);
        let fees = FeeRepository::open(&store)?;
        assert_eq!(fees.aggregate(&store.read()?)?.sum_amount, number("7.5"));
        assert!(fees.verify(&store.read()?).run()?.is_clean());
        let catalog = store.catalog()?;
        let aggregate = &catalog.tables[0].indexes[0];
        assert_eq!(
            (aggregate.strategy, aggregate.include.as_slice()),
            ("aggregate", &["amount".to_owned()][..])
        );
    }
    Ok(())
}

fn amount() -> impl Strategy<Value = Decimal> {
    // Up to nine digits before and six after the point, so that sums are not rounded.
    (-999_999_999_999_999_i64..=999_999_999_999_999, 0..=6_u32)
        .prop_map(|(digits, scale)| Decimal::new(digits, scale))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_decimals_have_the_sums_of_the_model(
        writes in prop::collection::vec((0..6_u8, 0..3_u8, prop::option::of(amount())), 1..24),
    ) {
        for store in stores("payments").expect("stores") {
            let payments = PaymentRepository::open(&store).expect("a repository");
            let mut model: BTreeMap<u8, Payment> = BTreeMap::new();
            store.transaction(|txn| {
                for (id, account, amount) in &writes {
                    let Some(amount) = *amount else {
                        payments.delete(txn, *id)?;
                        model.remove(id);
                        continue;
                    };
                    let row = Payment { id: *id, account: *account, amount, fee: None };
                    payments.put(txn, &row)?;
                    model.insert(*id, row);
                }
                Ok(())
            }).expect("a transaction");
            let txn = store.read().expect("a snapshot");
            for account in 0..3 {
                let totals = payments.aggregate_by_account(&txn, account).expect("totals");
                let rows = model.values().filter(|row| row.account == account);
                prop_assert_eq!(totals.sum_amount, rows.map(|row| row.amount).sum::<Decimal>());
            }
            prop_assert!(payments.verify(&txn).run().expect("a report").is_clean());
        }
    }
}
