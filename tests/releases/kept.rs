//! The record of the releases stays with the rows: after a rename, a growth, a restore, and a killed upgrade.

use std::{env, process::Command};

use index_table::{Error, IndexTable, Result, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use super::{Kind, TestResult, first, is_unknown, open, outer};

/// The first release, with another name of its table.
mod renamed {
    use super::{Deserialize, IndexTable, Serialize, first::Line};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "purchases", was = "orders", shard_by = tenant, shard_map = "tenants")]
    #[indexes((town, allow(redundant)), (id, strategy = "full"), (town, id, include = [lines]))]
    pub(super) struct Order {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) lines: Vec<Option<Line>>,
    }
}

/// Writes the rows 0 and 1 of each tenant by the first release, and 2 and 3 by a later one.
fn fill(store: &Store) -> Result<()> {
    first::insert(store, 0..2)?;
    outer::insert(store, 2..4)
}

/// Checks that the first release writes its own rows, and refuses to write those of the later one.
fn check_refused(store: &Store) -> TestResult {
    let orders = first::OrderRepository::open(store)?;
    let update = |tenant, id| {
        let row = |txn: &mut WriteTxn<'_>| orders.update(txn, tenant, id, |row| row.town.push('!'));
        store.transaction(row)
    };
    for tenant in [3, 23] {
        assert!(update(tenant, 1)?);
        is_unknown(update(tenant, 2), &format!("({tenant}, 2)"), "note");
    }
    Ok(())
}

#[test]
fn a_renamed_table_keeps_its_releases() -> TestResult {
    for kind in [Kind::OneFile, Kind::Several] {
        let dir = tempfile::tempdir()?;
        fill(&open(kind, dir.path())?)?;
        for _ in 0..2 {
            let store = open(kind, dir.path())?;
            let orders = renamed::OrderRepository::open(&store)?;
            let update =
                |id| store.transaction(|txn| orders.update(txn, 23, id, |row| row.town.push('!')));
            assert!(update(1)?);
            let refused = update(2);
            let Err(Error::UnknownField { table: "purchases", field, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(field, "note");
        }
    }
    Ok(())
}

#[test]
fn a_store_that_grows_keeps_its_releases() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(1 << 26).open(dir.path())?;
    fill(&store)?;
    store.add_shard("east", "east")?;
    check_refused(&store)?;
    {
        let orders = outer::OrderRepository::open(&store)?;
        store.move_range("tenants", 10u32.., "east").run()?;
        assert_eq!(orders.get(&store.read()?, 23, 2)?, Some(outer::order(23, 2)));
    }
    check_refused(&store)?;
    drop(store);
    check_refused(&Store::open(dir.path())?)
}

#[test]
fn a_copy_keeps_its_releases() -> TestResult {
    for kind in [Kind::OneFile, Kind::Several] {
        let dir = tempfile::tempdir()?;
        let store = open(kind, &dir.path().join("store"))?;
        fill(&store)?;
        store.backup_to(dir.path().join("copy"))?;
        check_refused(&Store::open(dir.path().join("copy"))?)?;
    }
    Ok(())
}

const UPGRADED: &str = "RELEASES_UPGRADED";

/// The process ends after the last commit of the upgrade.
#[test]
fn an_upgrade_that_is_killed_at_its_end_has_dropped_the_unknown_fields() -> TestResult {
    let name = "kept::an_upgrade_that_is_killed_at_its_end_has_dropped_the_unknown_fields";
    if let Some(dir) = env::var_os(UPGRADED) {
        let store = open(Kind::OneFile, dir.as_ref())?;
        let orders = first::OrderRepository::open(&store)?;
        orders.upgrade(&store).drop_unknown().progress(|_| std::process::abort()).run()?;
        return Err("the upgrade has ended".into());
    }
    let dir = tempfile::tempdir()?;
    fill(&open(Kind::OneFile, dir.path())?)?;
    check_refused(&open(Kind::OneFile, dir.path())?)?;
    let mut child = Command::new(env::current_exe()?);
    let child = child.args([name, "--exact"]).env(UPGRADED, dir.path()).output()?;
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(!child.status.success() && !output.contains("the upgrade has ended"), "{output}");
    let store = open(Kind::OneFile, dir.path())?;
    {
        let orders = first::OrderRepository::open(&store)?;
        let update =
            |id| store.transaction(|txn| orders.update(txn, 13, id, |row| row.town.push('!')));
        assert!(update(2)?);
        assert_eq!(orders.upgrade(&store).drop_unknown().run()?.upgraded, 0);
        assert!(update(3)?);
    }
    first::check(&store)?;
    let orders = outer::OrderRepository::open(&store)?;
    assert_eq!(orders.get(&store.read()?, 13, 3)?.map(|row| row.note), Some(String::new()));
    Ok(())
}
