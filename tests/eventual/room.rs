//! Writes with a full queue.

use std::time::Duration;

use index_table::{Error, IndexTable, Result, Store, WhenFull, WriteTxn};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{TestResult, policies};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "guests")]
#[index(town, consistency = "eventual")]
#[index(nick, sparse, include = [score], consistency = "eventual")]
#[index(mail, unique)]
#[index(seen)]
struct Guest {
    #[primary_key]
    id: u8,
    town: u8,
    nick: Option<u8>,
    score: u8,
    mail: u8,
    seen: u8,
}

const ANN: Guest = Guest { id: 1, town: 1, nick: None, score: 1, mail: 1, seen: 1 };

fn open(messages: u64, wait: Duration) -> Result<(tempfile::TempDir, Store, GuestRepository)> {
    let (dir, store) = policies::store(messages, WhenFull::Wait(wait))?;
    let guests = GuestRepository::open(&store)?;
    Ok((dir, store, guests))
}

fn assert_full<T: std::fmt::Debug>(outcome: &Result<T>) {
    assert!(matches!(outcome, Err(Error::IndexQueueFull { messages: 1, .. })), "{outcome:?}");
}

#[test]
fn a_write_without_a_message_needs_no_room() -> TestResult {
    // A write that waits would never end.
    let (_dir, store, guests) = open(1, Duration::MAX)?;
    store.transaction(|txn| guests.insert(txn, &ANN))?;
    store.transaction(|txn| {
        guests.put(txn, &ANN)?;
        guests.put(txn, &Guest { seen: 2, score: 2, ..ANN })?;
        guests.update(txn, 1, |guest| guest.mail = 7)?;
        assert!(!guests.update(txn, 2, |_| ())?);
        assert!(!guests.delete(txn, 2)?);
        Ok(())
    })?;
    // A write that fails for another reason doesn't wait either.
    let duplicate = store.transaction(|txn| guests.insert(txn, &ANN));
    assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
    let taken = store.transaction(|txn| guests.insert(txn, &Guest { id: 2, mail: 7, ..ANN }));
    assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");

    let mut txn = store.write()?;
    assert_full(&guests.insert(&mut txn, &Guest { id: 2, mail: 2, ..ANN }));
    assert_full(&guests.update(&mut txn, 1, |guest| guest.town = 2));
    assert_full(&guests.update(&mut txn, 1, |guest| guest.nick = Some(2)));
    assert_full(&guests.update(&mut txn, 1, |guest| guest.id = 2));
    assert_full(&guests.delete(&mut txn, 1));
    // Other writes succeed.
    guests.update(&mut txn, 1, |guest| guest.seen = 3)?;
    txn.commit()?;
    let txn = store.read()?;
    let rows: Vec<Guest> = guests.all(&txn).rows().collect::<Result<_>>()?;
    assert_eq!(rows, [Guest { seen: 3, score: 2, mail: 7, ..ANN }]);
    assert_eq!(guests.lag(&txn)?.messages, 1);
    assert!(guests.verify(&txn).run()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone)]
enum Write {
    Insert(Guest),
    Put(Guest),
    Become(u8, Guest),
    Delete(u8),
}

impl Write {
    fn run(&self, guests: &GuestRepository, txn: &mut WriteTxn<'_>) -> Result<bool> {
        match self.clone() {
            Self::Insert(guest) => guests.insert(txn, &guest).map(|()| true),
            Self::Put(guest) => guests.put(txn, &guest).map(|()| true),
            Self::Become(id, guest) => guests.update(txn, id, |old| *old = guest),
            Self::Delete(id) => guests.delete(txn, id),
        }
    }
}

fn guest() -> impl Strategy<Value = Guest> {
    let nick = prop_oneof![3 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    (0..3_u8, 0..2_u8, nick, 0..2_u8, 0..6_u8, 0..2_u8)
        .prop_map(|(id, town, nick, score, mail, seen)| Guest { id, town, nick, score, mail, seen })
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        guest().prop_map(Write::Insert),
        guest().prop_map(Write::Put),
        (0..3_u8, guest()).prop_map(|(id, guest)| Write::Become(id, guest)),
        (0..3_u8).prop_map(Write::Delete),
    ]
}

/// Compares the rows and the results of a store with room in its queue and of a store without.
fn check(writes: &[Write]) -> Result<()> {
    let (_roomy, roomy, all) = open(u64::MAX, Duration::ZERO)?;
    let (_full, full, guests) = open(1, Duration::ZERO)?;
    let rows = |guests: &GuestRepository, store: &Store| {
        guests.all(&store.read()?).rows().collect::<Result<Vec<Guest>>>()
    };
    let shown = |outcome: &Result<bool>| match outcome {
        Ok(done) => done.to_string(),
        Err(error) => error.to_string(),
    };
    for (store, guests) in [(&roomy, &all), (&full, &guests)] {
        store.transaction(|txn| guests.insert(txn, &ANN))?;
    }
    for write in writes {
        let (before, messages) = (rows(&all, &roomy)?, all.lag(&roomy.read()?)?.messages);
        let mut txn = roomy.write()?;
        let expected = write.run(&all, &mut txn);
        txn.commit()?;
        let leaves = all.lag(&roomy.read()?)?.messages - messages;

        let queued = guests.lag(&full.read()?)?.messages;
        assert!(queued > 0);
        let mut txn = full.write()?;
        let mut outcome = write.run(&guests, &mut txn);
        txn.commit()?;
        if leaves > 0 {
            assert!(matches!(outcome, Err(Error::IndexQueueFull { .. })), "{write:?}");
            assert_eq!(rows(&guests, &full)?, before);
            assert!(guests.verify(&full.read()?).run()?.is_clean());
            guests.drain(&full, u64::MAX)?;
            outcome = full.transaction(|txn| write.run(&guests, txn));
        }
        assert_eq!(shown(&outcome), shown(&expected), "{write:?}");
        assert_eq!(rows(&guests, &full)?, rows(&all, &roomy)?);
        assert_eq!(
            guests.lag(&full.read()?)?.messages,
            if leaves > 0 { leaves } else { queued },
            "{write:?}"
        );
        assert!(guests.verify(&full.read()?).run()?.is_clean());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_full_queue_refuses_each_write_that_adds_a_message(
        writes in proptest::collection::vec(write(), 1..60),
    ) {
        check(&writes).expect("a store");
    }
}
