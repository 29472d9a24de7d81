//! Rows that exchange keys of a unique index while they move to another shard.

use std::{collections::BTreeMap, path::Path};

use index_table::{IndexTable, Result, ShardMap, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use crate::random_local::random_together::copy;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = tenant)]
#[index(tenant, nick, unique)]
#[index(tenant, badge, unique, include = [nick])]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    nick: String,
    badge: u32,
}

fn person(id: u32, nick: &str) -> Person {
    Person { tenant: 7, id, nick: nick.into(), badge: id }
}

fn opened(path: &Path) -> Result<(Store, PersonRepository)> {
    let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("people", map).open(path)?;
    let people = PersonRepository::open(&store)?;
    Ok((store, people))
}

/// Checks that each row is found by each of its keys, that no key has another entry, and that no key is free.
fn check(store: &Store, people: &PersonRepository, expected: &[Person]) -> Result<()> {
    let txn = store.read()?;
    assert_eq!(people.all(&txn).rows().collect::<Result<Vec<_>>>()?, expected);
    for one in expected {
        assert_eq!(people.get_by_tenant_nick(&txn, 7, &one.nick)?.as_ref(), Some(one));
        assert_eq!(people.get_by_tenant_badge(&txn, 7, one.badge)?.as_ref(), Some(one));
    }
    assert_eq!(people.by_tenant_nick(&txn).count()?, expected.len() as u64);
    assert_eq!(people.by_tenant_badge(&txn).count()?, expected.len() as u64);
    let report = people.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    drop(txn);
    for one in expected {
        let second = Person { id: u32::MAX, ..one.clone() };
        assert!(store.transaction(|txn| people.insert(txn, &second)).is_err(), "{second:?}");
    }
    Ok(())
}

type Change = fn(&PersonRepository, &mut WriteTxn<'_>) -> Result<()>;

#[test]
fn rows_exchange_unique_keys_while_they_are_copied() -> Result<()> {
    let exchange: Change = |people, txn| {
        people.put(txn, &person(2, "spare"))?;
        people.put(txn, &person(1, "x"))?;
        people.put(txn, &person(2, "a"))
    };
    let pass_down: Change = |people, txn| {
        people.delete(txn, 7, 2)?;
        people.put(txn, &person(1, "x"))
    };
    let pass_up: Change = |people, txn| {
        people.delete(txn, 7, 1)?;
        people.put(txn, &person(2, "a"))
    };
    let rename: Change = |people, txn| people.update(txn, 7, 2, |row| row.id = 0).map(drop);
    let renamed = Person { badge: 2, ..person(0, "x") };
    let cases = [
        (exchange, vec![person(1, "x"), person(2, "a")]),
        (pass_down, vec![person(1, "x")]),
        (pass_up, vec![person(2, "a")]),
        (rename, vec![renamed, person(1, "a")]),
    ];
    for (change, expected) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, people) = opened(&dir.path().join("store"))?;
        store.transaction(|txn| {
            people.insert(txn, &person(1, "a"))?;
            people.insert(txn, &person(2, "x"))
        })?;
        let mut is_changed = false;
        let moving = store.move_range("people", 7u32..=7, "b").progress(|_| {
            if !std::mem::replace(&mut is_changed, true) {
                store.transaction(|txn| change(&people, txn)).expect("a change");
            }
        });
        moving.run()?;
        check(&store, &people, &expected)?;
    }
    Ok(())
}

/// The copies are from several snapshots: a row that has its key back may be equal to its copy, while another copy had the key
/// in between.
#[test]
fn a_key_that_returns_during_a_resumed_move_keeps_its_entry() -> Result<()> {
    const LAST: u32 = 2_000;
    let dir = tempfile::tempdir().expect("a directory");
    let (path, killed) = (dir.path().join("store"), dir.path().join("killed"));
    let (store, people) = opened(&path)?;
    let name = |id: u32| format!("n{id}");
    store.transaction(|txn| {
        (1..=LAST).try_for_each(|id| people.insert(txn, &person(id, &name(id))))
    })?;
    let moving = store.move_range("people", 7u32..=7, "b").progress(|at| {
        if at.unit == "rows" && at.done == u64::from(LAST) {
            copy(&path, &killed).expect("copied");
        }
    });
    moving.run()?;
    drop((store, people));

    let (store, people) = opened(&killed)?;
    let exchange = |one: &str, last: &str| {
        store.transaction(|txn| {
            people.put(txn, &person(1, "spare"))?;
            people.put(txn, &person(LAST, last))?;
            people.put(txn, &person(1, one))
        })
    };
    exchange(&name(LAST), &name(1))?;
    let mut is_back = false;
    let id = store.moves()?.first().expect("an interrupted move").id;
    let resumed = store.resume_move(id).progress(|_| {
        if !std::mem::replace(&mut is_back, true) {
            exchange(&name(1), &name(LAST)).expect("exchanged again");
        }
    });
    resumed.run()?;
    let expected: Vec<_> = (1..=LAST).map(|id| person(id, &name(id))).collect();
    check(&store, &people, &expected)
}

/// Between all transactions of moves back and forth, rows give up keys, and other rows take them.
#[test]
fn random_exchanges_during_moves_leave_each_key_to_its_row() -> Result<()> {
    const ROWS: u32 = 700;
    for seed in 1..=6_u64 {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, people) = opened(&dir.path().join("store"))?;
        let mut model: BTreeMap<u32, Person> = BTreeMap::new();
        store.transaction(|txn| {
            (0..ROWS).try_for_each(|id| people.insert(txn, &person(id, &format!("n{id}"))))
        })?;
        model.extend((0..ROWS).map(|id| (id, person(id, &format!("n{id}")))));
        let mut random = seed;
        let mut below = |limit: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as u32 % limit
        };
        for to in ["b", "a", "b"] {
            let moving = store.move_range("people", 7u32..=7, to).progress(|_| {
                let changed = store.transaction(|txn| {
                    let mut next = model.clone();
                    for _ in 0..20 {
                        let (one, other) = (below(ROWS), below(ROWS));
                        let (Some(first), Some(second)) =
                            (next.get(&one).cloned(), next.get(&other).cloned())
                        else {
                            // The key of a deleted row returns under its primary key.
                            let free = if next.contains_key(&one) { other } else { one };
                            let held = next.values().any(|row| row.badge == free);
                            let new = person(free, &format!("new{free}"));
                            let held = held || next.values().any(|row| row.nick == new.nick);
                            if !held {
                                people.insert(txn, &new)?;
                                next.insert(free, new);
                            }
                            continue;
                        };
                        if one == other {
                            continue;
                        }
                        people.delete(txn, 7, other)?;
                        let first = Person { nick: second.nick.clone(), ..first };
                        people.put(txn, &first)?;
                        next.remove(&other);
                        if below(3) > 0 {
                            let nick = next.insert(one, first).map(|row| row.nick);
                            let second = Person { nick: nick.expect("its former name"), ..second };
                            people.put(txn, &second)?;
                            next.insert(other, second);
                        } else {
                            next.insert(one, first);
                        }
                    }
                    Ok(next)
                });
                model = changed.expect("exchanged");
            });
            moving.run()?;
            check(&store, &people, &model.values().cloned().collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(code, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    code: u32,
}

/// The key identifies an entry of a global unique index, so the last row with the key counts.
#[test]
fn rows_exchange_keys_of_a_global_index_while_its_entries_move() -> Result<()> {
    const MEMBERS: u32 = 60;
    let dir = tempfile::tempdir().expect("a directory");
    let map = ShardMap::ranges().to("a", ..30u32).to("b", 30u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("members", map);
    let store = options.open(dir.path().join("store"))?;
    let members = MemberRepository::open(&store)?;
    let member = |tenant, code| Member { tenant, code };
    store
        .transaction(|txn| (0..MEMBERS).try_for_each(|it| members.insert(txn, &member(it, it))))?;
    let mut codes: Vec<u32> = (0..MEMBERS).collect();
    let mut exchange = |step: u32| {
        for (one, other) in (0..30).map(|at| (at, (at * 7 + step) % MEMBERS)) {
            codes.swap(one as usize, other as usize);
            store
                .transaction(|txn| {
                    members.put(txn, &member(one, u32::MAX))?;
                    members.put(txn, &member(other, codes[other as usize]))?;
                    members.put(txn, &member(one, codes[one as usize]))
                })
                .expect("exchanged");
        }
    };
    for (step, to) in (1..).zip(["b", "a", "b"]) {
        store.move_slots("members.code", .., to).progress(|_| exchange(step)).run()?;
    }
    let txn = store.read()?;
    for (tenant, code) in (0..).zip(codes) {
        assert_eq!(members.get_by_code(&txn, code)?, Some(member(tenant, code)));
    }
    assert_eq!(members.by_code(&txn).count()?, u64::from(MEMBERS));
    assert!(members.verify(&txn).run()?.is_clean());
    Ok(())
}
