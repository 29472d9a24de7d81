//! Structs of rows that a later release declares with other fields, without another version of the table.

#[path = "support/data_files.rs"]
mod data_files;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;

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

on_each_kind!(fields_change_without_a_version, a_row_without_a_needed_field_is_refused);

fn fields_change_without_a_version(kind: Kind) -> TestResult {
    // Indexes of few rows are built when the table is opened.
    for rows in [30, 6000] {
        let dir = tempfile::tempdir()?;
        check_releases(|| open(kind, dir.path()), rows)?;
    }
    Ok(())
}

#[cfg(feature = "postgres")]
#[test]
fn fields_change_on_a_server() -> TestResult {
    for rows in [30, 1500] {
        if let Some(schema) = postgres::Schema::new() {
            check_releases(|| schema.open(), rows)?;
        }
    }
    Ok(())
}

fn check_releases(open: impl Fn() -> Result<Store>, rows: u32) -> TestResult {
    fill(&open()?, rows)?;
    for _ in 0..2 {
        check(&open()?, rows)?;
    }
    let store = open()?;
    let users = UserRepository::open(&store)?;
    store.transaction(|txn| {
        users.update(txn, 3, 1, |row| row.state = "new".into())?;
        users.delete(txn, 13, 2)
    })?;
    let report = users.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// A release with a field that older rows lack, and without a default for it.
mod strict {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "users", shard_by = tenant, shard_map = "tenants")]
    #[index(email)]
    pub(super) struct User {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) email: String,
    }
}

fn a_row_without_a_needed_field_is_refused(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(&open(kind, dir.path())?, 3)?;
    let store = open(kind, dir.path())?;
    let before = store.read()?.commit_number();
    match strict::UserRepository::open(&store).map(drop) {
        Err(Error::SchemaMismatch { table: "users", difference, way_out }) => {
            assert_eq!(
                difference,
                "the row with primary key (3, 0) can't be read: missing field `email`"
            );
            assert!(way_out.contains("`#[serde(default)]`"), "{way_out}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read()?.commit_number(), before, "the file has changed");
    let users = first::UserRepository::open(&store)?;
    assert!(users.verify(&store.read()?).run()?.is_clean());
    // Without rows, any field can be new.
    store.transaction(|txn| {
        TENANTS.iter().try_for_each(|tenant| {
            (0..3).try_for_each(|id| users.delete(txn, *tenant, id).map(drop))
        })
    })?;
    drop(users);
    strict::UserRepository::open(&store)?;
    Ok(())
}

#[test]
fn a_row_that_others_of_its_list_are_unlike_is_an_error_of_its_own() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "events", repository = OldEvents)]
    struct OldEvent {
        #[primary_key]
        id: u32,
        kind: Option<String>,
    }

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "events", repository = Events)]
    struct Event {
        #[primary_key]
        id: u32,
        kind: String,
    }

    let dir = tempfile::tempdir()?;
    {
        let store = Store::open(dir.path())?;
        let events = OldEvents::open(&store)?;
        store.transaction(|txn| {
            (0..6000).try_for_each(|id| {
                let kind = (id != 3000).then(|| "k".to_owned());
                events.insert(txn, &OldEvent { id, kind })
            })
        })?;
    }
    for read_only in [false, true] {
        let store = Store::options().read_only(read_only).open(dir.path())?;
        let events = Events::open(&store)?;
        let txn = store.read()?;
        assert_eq!(events.get(&txn, 2999)?.map(|event| event.kind), Some("k".to_owned()));
        let error = events.get(&txn, 3000).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { key, .. } if key == "3000"), "{error:?}");
        assert_eq!(events.verify(&txn).run()?.counts.iter().map(|it| it.1).sum::<u64>(), 1);
    }
    Ok(())
}

/// A release with fewer fields.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = tenant, shard_map = "tenants", repository = Few)]
#[index(age, strategy = "full")]
struct FewFields {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    age: u32,
}

#[test]
fn an_upgrade_drops_the_values_of_removed_fields() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(&open(Kind::OneFile, dir.path())?, 100)?;
    let store = open(Kind::OneFile, dir.path())?;
    // Its new indexes have renewed all rows.
    let users = UserRepository::open(&store)?;
    assert_eq!(users.upgrade(&store).run()?.upgraded, 0);
    drop(users);

    let users = Few::open(&store)?;
    let done = users.upgrade(&store).run()?;
    assert_eq!((done.rows, done.upgraded), (300, 300));
    assert!(done.bytes_after < done.bytes_before / 3, "{done:?}");
    assert_eq!(users.upgrade(&store).run()?.upgraded, 0);
    let report = users.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Tables whose rows a shard can't write again by itself.
mod shared {
    use super::{Deserialize, IndexTable, Serialize, next_token};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "places", shard_by = tenant, shard_map = "tenants", repository = OldPlaces)]
    #[index(town, name = "whole", strategy = "full", scope = "global")]
    pub(super) struct OldPlace {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "places", shard_by = tenant, shard_map = "tenants", repository = Places)]
    #[index(town, name = "whole", strategy = "full", scope = "global")]
    #[index(note)]
    pub(super) struct Place {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        #[serde(default)]
        pub(super) note: String,
        pub(super) town: String,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "codes", reference, repository = OldCodes)]
    pub(super) struct OldCode {
        #[primary_key]
        pub(super) code: u32,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "codes", reference, repository = Codes)]
    pub(super) struct Code {
        #[primary_key]
        pub(super) code: u32,
        #[serde(default = "next_token")]
        pub(super) token: u64,
    }
}

/// The entries of a global index are in other shards than the rows, and the copies of a reference table are equal.
#[test]
fn shards_leave_rows_as_they_are_if_others_have_data_of_them() -> TestResult {
    use shared::{Codes, OldCode, OldCodes, OldPlace, OldPlaces, Place, Places};
    for rows in [30, 5000] {
        let dir = tempfile::tempdir()?;
        {
            let store = open(Kind::Several, dir.path())?;
            let (places, codes) = (OldPlaces::open(&store)?, OldCodes::open(&store)?);
            for tenant in TENANTS {
                let place = |id: u32| OldPlace { tenant, id, town: format!("T{}", id % 7) };
                store.transaction(|txn| {
                    (0..rows).try_for_each(|id| places.insert(txn, &place(id)))
                })?;
            }
            store.transaction(|txn| {
                (0..rows).try_for_each(|code| codes.insert(txn, &OldCode { code }))
            })?;
        }
        let store = open(Kind::Several, dir.path())?;
        let (places, codes) = (Places::open(&store)?, Codes::open(&store)?);
        for _ in 0..2 {
            let txn = store.read()?;
            assert_eq!(places.find_by_note(&txn, "").count()?, u64::from(rows) * 3);
            assert_eq!(places.by_whole(&txn).rows().count(), rows as usize * 3);
            let report = places.verify(&txn).run()?;
            assert!(report.is_clean(), "{report}");
            let report = codes.verify(&txn).run()?;
            assert!(report.is_clean(), "{report}");
            drop(txn);
            places.upgrade(&store).run()?;
            codes.upgrade(&store).run()?;
        }
        let changed = Place { tenant: 13, id: 7, note: "n".into(), town: "T1".into() };
        store.transaction(|txn| places.put(txn, &changed))?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}
