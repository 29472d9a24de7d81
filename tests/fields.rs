//! Structs of rows that a later release declares with other fields, without another version of the table.

#[path = "support/data_files.rs"]
mod data_files;

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use data_files::{Kind, on_each_kind};
use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The tenants of the shards.
const TENANTS: [u32; 3] = [3, 13, 23];

/// The first release.
mod first {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "users", shard_by = tenant, shard_map = "tenants", view)]
    #[indexes((town), (phone, scope = "global"))]
    #[index(age, strategy = "full")]
    #[aggregate(town, sum = [age])]
    pub(super) struct User {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) phone: String,
        pub(super) age: u16,
        pub(super) fax: String,
    }

    pub(super) fn user(tenant: u32, id: u32) -> User {
        User {
            tenant,
            id,
            town: format!("T{}", id % 3),
            phone: format!("+{tenant}.{id}"),
            age: u16::try_from(id % 90).expect("a small number"),
            fax: "0".repeat(20),
        }
    }
}

/// A default that is another value each time.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    NEXT.fetch_add(1, Relaxed)
}

/// The second release: `fax` is gone, `phone` has another name, `age` is wider, the others are new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = tenant, shard_map = "tenants", view)]
#[indexes((town), (state, strategy = "partial", include = [token]))]
#[index(age, strategy = "full")]
#[index(token, unique, scope = "global")]
#[index(computed(label: String))]
#[aggregate(town, sum = [age])]
#[aggregate(state, sum = [token])]
struct User {
    #[serde(default)]
    state: String,
    #[serde(default = "next_token")]
    token: u64,
    age: u32,
    town: String,
    #[serde(alias = "phone")]
    mobile: String,
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    nick: Option<String>,
}

impl User {
    fn label(&self) -> String {
        format!("{}-{}", self.town, self.token)
    }
}

fn open(kind: Kind, path: &Path) -> Result<Store> {
    kind.store("tenants").map_size(1 << 28).open(path)
}

fn fill(store: &Store, rows: u32) -> Result<()> {
    let users = first::UserRepository::open(store)?;
    for tenant in TENANTS {
        store.transaction(|txn| {
            (0..rows).try_for_each(|id| users.insert(txn, &first::user(tenant, id)))
        })?;
    }
    Ok(())
}

/// Checks that the rows are those of the first release, each with one token.
fn check(store: &Store, rows: u32) -> TestResult {
    let users = UserRepository::open(store)?;
    let txn = store.read()?;
    let all = users.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(all.len(), rows as usize * TENANTS.len());
    for row in &all {
        let old = first::user(row.tenant, row.id);
        assert_eq!((&row.mobile, row.age, &row.nick), (&old.phone, u32::from(old.age), &None));
        assert_eq!(users.get(&txn, row.tenant, row.id)?.as_ref(), Some(row));
        assert_eq!(users.get_by_token(&txn, row.token)?.as_ref(), Some(row), "another token");
        let view = users.get_view(&txn, row.tenant, row.id)?.ok_or("no row")?;
        assert_eq!((view.token, view.mobile, view.age), (row.token, &*row.mobile, row.age));
    }
    let mut by_age: Vec<_> = users.by_age(&txn).rows().collect::<Result<_>>()?;
    by_age.sort_by_key(|row| (row.tenant, row.id));
    assert_eq!(by_age, all, "full entries have another token");
    let tokens: u64 = all.iter().map(|row| row.token).sum();
    let entries = users.find_by_state(&txn, "").entries().collect::<Result<Vec<_>>>()?;
    assert_eq!(entries.iter().map(|entry| entry.token).sum::<u64>(), tokens);
    assert_eq!(users.aggregate_by_state(&txn, "")?.sum_token, i128::from(tokens));
    assert_eq!(users.find_by_town(&txn, "T1").count()?, u64::from(rows) / 3 * 3);
    let report = users.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn fields_change_without_a_version() -> TestResult {
    on_each_kind(|kind| {
        for rows in [30, 1500] {
            let dir = tempfile::tempdir()?;
            fill(&open(kind, dir.path())?, rows)?;
            let store = open(kind, dir.path())?;
            check(&store, rows)?;
            drop(store);
            let store = open(kind, dir.path())?;
            check(&store, rows)?;
            let users = UserRepository::open(&store)?;
            store.transaction(|txn| {
                users.update(txn, 3, 1, |row| row.state = "new".into())?;
                users.delete(txn, 13, 2)
            })?;
            let report = users.verify(&store.read()?).run()?;
            assert!(report.is_clean(), "{report}");
        }
        Ok(())
    })
}
