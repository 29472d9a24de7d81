//! Several clients of one store: conflicts, changed declarations, lost connections.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use index_table::{__private::run_sql, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts")]
#[index(owner)]
#[index(number, unique)]
struct Account {
    #[primary_key]
    id: u32,
    owner: String,
    number: u64,
    balance: i64,
}

fn account(id: u32, balance: i64) -> Account {
    Account { id, owner: format!("owner {}", id % 3), number: u64::from(id), balance }
}

#[test]
fn no_update_of_several_clients_is_lost() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    store.transaction(|txn| (0..4).try_for_each(|id| accounts.insert(txn, &account(id, 0))))?;
    thread::scope(|scope| {
        for client in 0..4_u32 {
            let schema = &schema;
            scope.spawn(move || {
                let store = schema.open().expect("a store");
                let accounts = AccountRepository::open(&store).expect("a table");
                for round in 0..25 {
                    let id = (client + round) % 4;
                    store
                        .transaction(|txn| accounts.update(txn, id, |it| it.balance += 1))
                        .expect("an update");
                }
            });
        }
    });
    let txn = store.read()?;
    let total: i64 =
        accounts.all(&txn).rows().map(|row| row.map(|it| it.balance)).sum::<Result<_>>()?;
    assert_eq!(total, 100);
    assert!(accounts.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn two_clients_that_each_read_the_row_of_the_other_do_not_both_write() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let stores = [schema.open()?, schema.open()?];
    let accounts = [AccountRepository::open(&stores[0])?, AccountRepository::open(&stores[1])?];
    stores[0]
        .transaction(|txn| (0..2).try_for_each(|id| accounts[0].insert(txn, &account(id, 10))))?;
    // Each owner may withdraw as long as both accounts together have enough.
    for _ in 0..10 {
        thread::scope(|scope| {
            for (id, (store, accounts)) in (0..2).zip(stores.iter().zip(&accounts)) {
                scope.spawn(move || {
                    let withdrawn = store.transaction(|txn| {
                        let rows = accounts.all(txn).rows().collect::<Result<Vec<_>>>()?;
                        if rows.iter().map(|it| it.balance).sum::<i64>() >= 15 {
                            accounts.update(txn, id, |it| it.balance -= 15)?;
                        }
                        Ok(())
                    });
                    withdrawn.expect("a transaction");
                });
            }
        });
        let txn = stores[0].read()?;
        let balances: Vec<i64> = accounts[0]
            .all(&txn)
            .rows()
            .map(|row| row.map(|it| it.balance))
            .collect::<Result<_>>()?;
        assert_eq!(balances.iter().sum::<i64>(), 5, "{balances:?}");
        drop(txn);
        stores[0]
            .transaction(|txn| (0..2).try_for_each(|id| accounts[0].put(txn, &account(id, 10))))?;
    }
    Ok(())
}

#[test]
fn a_conflict_without_time_left_is_an_error_with_its_attempts() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open_with(&schema.options().retry_for(Duration::ZERO))?;
    let other = schema.open()?;
    let (accounts, of_other) = (AccountRepository::open(&store)?, AccountRepository::open(&other)?);
    other.transaction(|txn| of_other.insert(txn, &account(1, 0)))?;
    let outcome = store.transaction(|txn| {
        accounts.get(txn, 1)?;
        thread::scope(|scope| {
            let update = || other.transaction(|txn| of_other.update(txn, 1, |it| it.balance = 7));
            scope.spawn(update).join().expect("a thread")
        })?;
        accounts.update(txn, 1, |it| it.balance = 8)
    });
    assert!(matches!(outcome, Err(Error::RetriesExhausted { attempts: 1 })), "{outcome:?}");
    assert_eq!(accounts.get(&store.read()?, 1)?.map(|it| it.balance), Some(7));
    Ok(())
}

/// Lets the server refuse the first `times` insertions of accounts.
fn refuse_insertions(store: &Store, schema: &Schema, times: u32) -> Result<()> {
    let name = schema.name();
    let sql = format!(
        "CREATE SEQUENCE \"{name}\".refusals;
         CREATE FUNCTION \"{name}\".refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('\"{name}\".refusals') <= {times} THEN
             RAISE 'not serializable' USING ERRCODE = '40001';
           END IF;
           RETURN NEW;
         END $$;
         CREATE TRIGGER refusal BEFORE INSERT ON \"{name}\".accounts
           FOR EACH ROW EXECUTE FUNCTION \"{name}\".refuse()"
    );
    run_sql(store, &sql).map(drop)
}

#[test]
fn an_autocommitted_insertion_runs_again_after_conflicts() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    refuse_insertions(&store, &schema, 3)?;
    accounts.insert(&mut store.autocommit()?, &account(1, 10))?;
    assert_eq!(accounts.get(&store.read()?, 1)?, Some(account(1, 10)));
    Ok(())
}

#[test]
fn a_closure_runs_again_after_a_conflict_with_any_result() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let (accounts, of_other) = (AccountRepository::open(&store)?, AccountRepository::open(&other)?);
    other.transaction(|txn| of_other.insert(txn, &account(1, 0)))?;
    let mut runs = 0;
    store.transaction(|txn| {
        runs += 1;
        accounts.get(txn, 1)?;
        if runs == 1 {
            thread::scope(|scope| {
                let update =
                    || other.transaction(|txn| of_other.update(txn, 1, |it| it.balance += 7));
                scope.spawn(update).join().expect("a thread")
            })?;
        }
        // The error of the conflict is hidden.
        let _ = accounts.update(txn, 1, |it| it.balance += 1);
        Ok(())
    })?;
    assert_eq!(runs, 2);
    assert_eq!(accounts.get(&store.read()?, 1)?.map(|it| it.balance), Some(8));
    Ok(())
}

mod with_another_index {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "accounts")]
    #[index(owner)]
    #[index(number, unique)]
    #[index(balance)]
    pub(super) struct Account {
        #[primary_key]
        id: u32,
        owner: String,
        number: u64,
        balance: i64,
    }
}

#[test]
fn a_client_with_a_former_declaration_does_not_write() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let accounts = AccountRepository::open(&store)?;
    store.transaction(|txn| accounts.insert(txn, &account(1, 5)))?;
    let newer = with_another_index::AccountRepository::open(&other)?;
    newer.build(&other).refuse_earlier_releases().run()?;
    assert_eq!(newer.find_by_balance(&other.read()?, 5).count()?, 1);
    let outcome = store.transaction(|txn| accounts.insert(txn, &account(2, 5)));
    assert!(matches!(outcome, Err(Error::SchemaMismatch { .. })), "{outcome:?}");
    assert_eq!(accounts.find_by_owner(&store.read()?, "owner 1").count()?, 1);
    Ok(())
}

#[test]
fn an_index_is_built_beside_the_writes_of_another_client() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    {
        let accounts = AccountRepository::open(&store)?;
        accounts.bulk_load(&store, (0..6_000).map(|id| account(id, i64::from(id % 7)))).run()?;
    }
    let accounts = with_another_index::AccountRepository::open_online(&store)?;
    let of_other = with_another_index::AccountRepository::open_online(&other)?;
    let (is_built, updated) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (is_built, updated, other) = (&is_built, &updated, &other);
        scope.spawn(move || {
            while !is_built.load(Ordering::Relaxed) || updated.load(Ordering::Relaxed) == 0 {
                let id = updated.fetch_add(1, Ordering::Relaxed) as u32 * 37 % 6_000;
                let gone = other.transaction(|txn| of_other.delete(txn, id));
                gone.expect("a deletion");
            }
        });
        let report = accounts.build(&store).run();
        is_built.store(true, Ordering::Relaxed);
        report.expect("a build");
    });
    let report = accounts.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn every_acknowledged_row_survives_sessions_that_end() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    // The workers continue until enough transactions have failed.
    let (is_over, failed) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcomes: Vec<Vec<(u32, Option<bool>)>> = thread::scope(|scope| {
        let (is_over, failed, schema) = (&is_over, &failed, &schema);
        let (store, accounts) = (&store, &accounts);
        let ender = scope.spawn(move || {
            let other = schema.open().expect("a store");
            // Only sessions that have used a table of this schema.
            let sql = format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE pid <> pg_backend_pid() AND query LIKE '%\"{}\"%' AND random() < 0.4",
                schema.name()
            );
            while !is_over.load(Ordering::Relaxed) {
                run_sql(&other, &sql).expect("a statement");
                thread::sleep(Duration::from_millis(4));
            }
        });
        let workers: Vec<_> = (0..8_u32)
            .map(|worker| {
                scope.spawn(move || {
                    let goes_on = |round: &u32| *round < 60 || failed.load(Ordering::Relaxed) < 5;
                    let rounds = (0..50_000).take_while(goes_on);
                    let ids = rounds.map(|round| worker * 100_000 + round);
                    let once = |id| match worker % 2 {
                        0 => accounts.insert(&mut store.autocommit()?, &account(id, 1)),
                        _ => store.transaction(|txn| accounts.insert(txn, &account(id, 1))),
                    };
                    let insert = |id| {
                        let begun = Instant::now();
                        let inserted = once(id);
                        assert!(begun.elapsed() < Duration::from_secs(20), "{inserted:?}");
                        match inserted {
                            Ok(()) => (id, Some(true)),
                            Err(Error::CommitUnknown { .. }) => (id, None),
                            Err(Error::Unreachable { .. } | Error::TransactionFailed { .. }) => {
                                failed.fetch_add(1, Ordering::Relaxed);
                                (id, Some(false))
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    ids.map(insert).collect()
                })
            })
            .collect();
        let outcomes = workers.into_iter().map(|it| it.join().expect("a thread")).collect();
        is_over.store(true, Ordering::Relaxed);
        ender.join().expect("a thread");
        outcomes
    });
    let txn = store.read().or_else(|_| store.read())?;
    let (mut kept, mut lost) = (0, 0);
    for (id, outcome) in outcomes.into_iter().flatten() {
        let is_there = accounts.get(&txn, id)?.is_some();
        if let Some(expected) = outcome {
            assert_eq!(is_there, expected, "account {id}");
        }
        kept += u32::from(is_there);
        lost += u32::from(!is_there);
    }
    assert!(kept > 0 && lost > 0, "{kept} rows are there, and {lost} are not");
    let report = accounts.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments")]
#[index(account)]
struct Payment {
    #[primary_key]
    id: u32,
    #[references(Account)]
    account: u32,
}

#[test]
fn a_dropped_table_is_not_created_again_for_a_reference_to_it() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    store.transaction(|txn| accounts.insert(txn, &account(1, 0)))?;
    run_sql(&store, &format!("DROP TABLE \"{}\".accounts", schema.name()))?;
    let refused = PaymentRepository::open(&schema.open()?).map(drop);
    let Err(Error::SchemaMismatch { difference, .. }) = refused else { panic!("{refused:?}") };
    assert!(difference.contains("\"accounts\""), "{difference}");
    let refused = AccountRepository::open(&schema.open()?).map(drop);
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn a_deletion_and_a_new_reference_at_the_same_time_do_not_both_succeed() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let (accounts, payments) = (AccountRepository::open(&store)?, PaymentRepository::open(&store)?);
    let rounds = 0..40_u32;
    store.transaction(|txn| {
        rounds.clone().try_for_each(|id| accounts.insert(txn, &account(id, 0)))
    })?;
    let schema = &schema;
    let [deleted, referred] = thread::scope(|scope| {
        let deletes = scope.spawn({
            let rounds = rounds.clone();
            move || -> Vec<u32> {
                let store = schema.open().expect("a store");
                let accounts = AccountRepository::open(&store).expect("a table");
                let delete = |id: &u32| match store.transaction(|txn| accounts.delete(txn, *id)) {
                    Err(Error::Referenced { .. }) => false,
                    deleted => deleted.expect("a deletion"),
                };
                rounds.filter(delete).collect()
            }
        });
        let refers = scope.spawn({
            let rounds = rounds.clone();
            move || -> Vec<u32> {
                let store = schema.open().expect("a store");
                let payments = PaymentRepository::open(&store).expect("a table");
                let refer = |id: &u32| {
                    let row = Payment { id: *id, account: *id };
                    match store.transaction(|txn| payments.insert(txn, &row)) {
                        Err(Error::MissingReference { .. }) => false,
                        inserted => inserted.map(|()| true).expect("an insert"),
                    }
                };
                rounds.filter(refer).collect()
            }
        });
        [deletes.join().expect("no panic"), refers.join().expect("no panic")]
    });
    assert!(deleted.iter().all(|id| !referred.contains(id)), "{deleted:?} {referred:?}");
    assert_eq!(deleted.len() + referred.len(), rounds.len());
    let txn = store.read()?;
    assert_eq!(accounts.all(&txn).count()?, referred.len() as u64);
    assert!(payments.verify(&txn).run()?.is_clean());
    Ok(())
}
