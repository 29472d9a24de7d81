//! Followers that open a table while the original builds its indexes.

use index_table::{Error, Follower, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{Kind, TestResult, dirs, on_each_kind, wait_for};

on_each_kind! {
    an_index_that_is_built_in_the_original_becomes_readable,
}

mod before {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "users", shard_by = part)]
    pub(super) struct User {
        #[primary_key]
        pub(super) part: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) email: String,
        pub(super) town: u32,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[table(name = "users", shard_by = part)]
#[index(email, unique, scope = "global")]
#[index(town, scope = "global")]
#[index(town, id)]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
    town: u32,
}

const PARTS: [u32; 3] = [1, 11, 21];

/// Checks queries of each index; returns whether all are readable.
fn check(store: &Store, users: &UserRepository) -> Result<bool> {
    let txn = store.read()?;
    let found = users.get_by_email(&txn, "11.4").map(|row| row.map(|row| (row.part, row.id)));
    let of_town = users.find_by_town_id(&txn, 2, 4).count();
    let in_order = users.by_town(&txn).count();
    if let (Err(Error::IndexNotReadable { .. }), Err(Error::IndexNotReadable { .. })) =
        (&found, &of_town)
    {
        assert!(matches!(in_order, Err(Error::IndexNotReadable { .. })), "{in_order:?}");
        return Ok(false);
    }
    assert_eq!((found?, of_town?, in_order?), (Some((11, 4)), 3, 60));
    Ok(true)
}

fn an_index_that_is_built_in_the_original_becomes_readable(kind: Kind) -> TestResult {
    let dirs = dirs(kind)?;
    {
        let store = kind.journal("users").archive(&dirs.archive).open(&dirs.store)?;
        let users = before::UserRepository::open(&store)?;
        store.transaction(|txn| {
            for part in PARTS {
                for id in 0..20 {
                    let (email, town) = (format!("{part}.{id}"), id % 4 + 2 * u32::from(id == 4));
                    users.insert(txn, &before::User { part, id, email, town })?;
                }
            }
            Ok::<_, Error>(())
        })?;
    }
    let store = Store::options().archive(&dirs.archive).open(&dirs.store)?;
    let users = UserRepository::open_online(&store)?;
    crate::wait_for_archive(&store);
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    wait_for(&follower, &store)?;
    let outcome = UserRepository::open(follower.store());
    assert!(matches!(outcome, Err(Error::IndexNotReadable { .. })), "{outcome:?}");
    let copies = UserRepository::open_online(follower.store())?;
    assert!(!check(follower.store(), &copies)?);
    users.build(&store).run()?;
    wait_for(&follower, &store)?;
    assert!(check(follower.store(), &copies)?);
    let again = UserRepository::open(follower.store())?;
    assert!(check(follower.store(), &again)?);
    let report = copies.verify(&follower.store().read()?).run()?;
    assert!(report.is_clean(), "{report:?}");
    let promoted = follower.promote()?;
    assert!(check(&promoted, &copies)?);
    Ok(())
}
