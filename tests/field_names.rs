//! Fields with other names in rows than in the struct: `#[serde(rename = …)]`. Rows have the names that serde writes, so only a
//! change of these names is a change of the rows.

#[path = "support/data_files.rs"]
mod data_files;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;

use std::path::Path;

use data_files::{Kind, on_each_kind};
use index_table::{Error, FindingKind, IndexState, IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The tenants of the shards.
const TENANTS: [u32; 3] = [3, 13, 23];

/// The numbers of rows of each tenant: indexes of few rows are built when the table is opened.
const ROWS: [u32; 2] = [30, 1500];

/// The names in the struct and in rows are the same.
mod plain {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant, shard_map = "tenants")]
    #[index(town)]
    #[index(age, include = [town])]
    #[index(tenant, phone, unique, name = "phone")]
    #[aggregate(kind, sum = [age])]
    pub(super) struct Person {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        #[serde(default)]
        pub(super) town: String,
        pub(super) age: u16,
        pub(super) phone: String,
        pub(super) kind: u8,
    }
}

/// The same rows, and other names in the struct.
mod renamed {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = owner, shard_map = "tenants")]
    #[index(city, name = "town")]
    #[index(years, name = "age", include = [city])]
    #[index(owner, mobile, unique, name = "phone")]
    #[aggregate(kind, sum = [years])]
    pub(super) struct Person {
        #[primary_key]
        #[serde(rename = "tenant")]
        pub(super) owner: u32,
        #[primary_key]
        #[serde(rename(serialize = "id", deserialize = "id"))]
        pub(super) number: u32,
        #[serde(rename = "town", default)]
        pub(super) city: String,
        #[serde(rename = "age")]
        pub(super) years: u16,
        #[serde(rename = "phone")]
        pub(super) mobile: String,
        pub(super) kind: u8,
    }
}

/// The same names in the struct as those of [`plain`], and another name of a field in rows.
mod other_rows {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant, shard_map = "tenants")]
    #[index(town)]
    #[index(age, include = [town])]
    #[index(tenant, phone, unique, name = "phone")]
    #[aggregate(kind, sum = [age])]
    pub(super) struct Person {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        #[serde(rename = "homeTown", default)]
        pub(super) town: String,
        pub(super) age: u16,
        pub(super) phone: String,
        pub(super) kind: u8,
    }
}

/// A rule gives a field without a default another name in rows.
mod by_rule {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant, shard_map = "tenants")]
    #[serde(rename_all = "UPPERCASE")]
    #[index(age)]
    pub(super) struct Person {
        #[primary_key]
        #[serde(rename = "tenant")]
        pub(super) tenant: u32,
        #[primary_key]
        #[serde(rename = "id")]
        pub(super) id: u32,
        pub(super) age: u16,
    }
}

/// A field of the primary key has another name in rows.
mod other_key {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant, shard_map = "tenants")]
    pub(super) struct Person {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        #[serde(rename = "number", default)]
        pub(super) id: u32,
    }
}

fn open(kind: Kind, path: &Path) -> Result<Store> {
    kind.store("tenants").map_size(1 << 28).open(path)
}

fn person(tenant: u32, id: u32) -> plain::Person {
    plain::Person {
        tenant,
        id,
        town: format!("T{}", id % 3),
        age: u16::try_from(id % 90).expect("a small number"),
        phone: format!("+{id}"),
        kind: u8::try_from(id % 3).expect("a small number"),
    }
}

fn fill(store: &Store, rows: u32) -> Result<()> {
    let people = plain::PersonRepository::open(store)?;
    for tenant in TENANTS {
        store.transaction(|txn| {
            (0..rows).try_for_each(|id| people.insert(txn, &person(tenant, id)))
        })?;
    }
    Ok(())
}

/// Checks all rows and indexes of a release in which all people of a kind have the town that `town_of` returns.
macro_rules! check {
    ($store:expr, $rows:expr, $module:ident { $town:ident, $age:ident }, $town_of:expr) => {{
        let people = $module::PersonRepository::open($store)?;
        let (rows, store, town_of): (u32, _, fn(u8) -> String) = ($rows, $store, $town_of);
        let txn = store.read()?;
        let all = people.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(all.len(), rows as usize * TENANTS.len());
        for row in &all {
            assert_eq!(row.$town, town_of(row.kind));
        }
        for kind in 0..3 {
            let town = town_of(kind);
            let of_town = all.iter().filter(|row| row.$town == town);
            assert_eq!(people.find_by_town(&txn, &town).rows().count(), of_town.count());
            let ages = all.iter().filter(|row| row.kind == kind).map(|row| i128::from(row.$age));
            let total = people.aggregate_by_kind(&txn, kind)?;
            assert_eq!((total.count, total.sums()), (u64::from(rows), ages.sum()));
        }
        for entry in people.by_age(&txn).entries() {
            let entry = entry?;
            let is_of = |row: &&$module::Person| row.$age == entry.$age && row.$town == entry.$town;
            assert!(all.iter().any(|row| is_of(&row)), "the entry has another town");
        }
        let report = people.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
    }};
}

impl plain::PersonAggregateByKind {
    fn sums(&self) -> i128 {
        self.sum_age
    }
}

impl other_rows::PersonAggregateByKind {
    fn sums(&self) -> i128 {
        self.sum_age
    }
}

impl renamed::PersonAggregateByKind {
    fn sums(&self) -> i128 {
        self.sum_years
    }
}

/// Returns the names of the indexes that are not readable.
fn unreadable(store: &Store) -> Result<Vec<String>> {
    let catalog = store.catalog()?;
    let indexes = catalog.tables.into_iter().flat_map(|table| table.indexes);
    let unreadable = indexes.filter(|index| index.state != IndexState::Readable);
    Ok(unreadable.map(|index| index.name).collect())
}

on_each_kind!(
    a_name_in_the_struct_is_no_change,
    another_name_in_rows_is_another_field,
    a_needed_field_with_another_name_is_refused,
    a_key_keeps_its_names_in_rows,
);

fn a_name_in_the_struct_is_no_change(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    check_names_in_the_struct(|| open(kind, dir.path()))?;
    // Such a store needs no change.
    let store = kind.store("tenants").read_only(true).open(dir.path())?;
    check!(&store, ROWS[1], plain { town, age }, |kind| format!("T{kind}"));
    check!(&store, ROWS[1], renamed { city, years }, |kind| format!("T{kind}"));
    Ok(())
}

fn check_names_in_the_struct(open: impl Fn() -> Result<Store>) -> TestResult {
    fill(&open()?, ROWS[1])?;
    for _ in 0..2 {
        let store = open()?;
        drop(renamed::PersonRepository::open_online(&store)?);
        assert_eq!(unreadable(&store)?, [""; 0], "an index is built again");
        check!(&store, ROWS[1], renamed { city, years }, |kind| format!("T{kind}"));
        drop(store);
        let store = open()?;
        check!(&store, ROWS[1], plain { town, age }, |kind| format!("T{kind}"));
    }
    let store = open()?;
    let people = renamed::PersonRepository::open(&store)?;
    store.transaction(|txn| {
        people.update(txn, 3, 1, |row| row.city = "Oslo".into())?;
        people.update(txn, 3, 1, |row| row.city = "T1".into())
    })?;
    Ok(())
}

fn another_name_in_rows_is_another_field(kind: Kind) -> TestResult {
    for rows in ROWS {
        let dir = tempfile::tempdir()?;
        check_names_in_rows(|| open(kind, dir.path()), rows)?;
    }
    Ok(())
}

fn check_names_in_rows(open: impl Fn() -> Result<Store>, rows: u32) -> TestResult {
    fill(&open()?, rows)?;
    // The indexes of the field are built again, and the others are kept.
    {
        let store = open()?;
        drop(other_rows::PersonRepository::open_online(&store)?);
        let mut built = unreadable(&store)?;
        built.sort_unstable();
        if rows == ROWS[1] {
            assert_eq!(built, ["age", "town"]);
        }
    }
    for _ in 0..2 {
        let store = open()?;
        check!(&store, rows, other_rows { town, age }, |_| String::new());
    }
    let store = open()?;
    let people = other_rows::PersonRepository::open(&store)?;
    store.transaction(|txn| {
        people.update(txn, 3, 1, |row| row.town = "Oslo".into())?;
        people.update(txn, 13, 1, |row| row.town = "Oslo".into())
    })?;
    assert_eq!(people.find_by_town(&store.read()?, "Oslo").count()?, 2);
    drop((people, store));
    // Rows that were written with the other name have the default again.
    for _ in 0..2 {
        let store = open()?;
        check!(&store, rows, plain { town, age }, |_| String::new());
    }
    Ok(())
}

#[cfg(feature = "postgres")]
#[test]
fn names_change_on_a_server() -> TestResult {
    if let Some(schema) = postgres::Schema::new() {
        check_names_in_the_struct(|| schema.open())?;
    }
    if let Some(schema) = postgres::Schema::new() {
        check_names_in_rows(|| schema.open(), ROWS[1])?;
    }
    Ok(())
}

fn a_needed_field_with_another_name_is_refused(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(&open(kind, dir.path())?, 3)?;
    let store = open(kind, dir.path())?;
    let before = store.read()?.commit_number();
    match by_rule::PersonRepository::open(&store).map(drop) {
        Err(Error::SchemaMismatch { table: "people", difference, .. }) => {
            assert_eq!(
                difference,
                "the row with primary key (3, 0) can't be read: missing field `AGE`"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.read()?.commit_number(), before, "the file has changed");
    check!(&store, 3, plain { town, age }, |kind| format!("T{kind}"));
    Ok(())
}

fn a_key_keeps_its_names_in_rows(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(&open(kind, dir.path())?, 3)?;
    let store = open(kind, dir.path())?;
    match other_key::PersonRepository::open(&store).map(drop) {
        Err(Error::SchemaMismatch { table: "people", difference, way_out }) => {
            let expected = "its primary key is (tenant: u32, id: u32) in the file and (tenant: u32, number: u32) in the code";
            assert_eq!(difference, expected);
            assert!(way_out.contains("`#[serde(rename = …)]`"), "{way_out}");
        }
        other => panic!("{other:?}"),
    }
    check!(&store, 3, plain { town, age }, |kind| format!("T{kind}"));
    Ok(())
}

#[test]
fn the_catalog_has_the_names_in_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = open(Kind::OneFile, dir.path())?;
    drop(renamed::PersonRepository::open(&store)?);
    let table = store.catalog()?.tables.into_iter().next().ok_or("no table")?;
    let names: Vec<_> = table.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tenant", "id", "town", "age", "phone", "kind"]);
    let index = table.indexes.get(1).ok_or("no index")?;
    assert_eq!(
        (index.key[0].name.as_str(), index.include.as_slice()),
        ("age", &["town".into()][..])
    );
    Ok(())
}

/// Versions whose structs have other names in rows.
mod versions {
    use super::{Deserialize, IndexTable, RowVersion, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", repository = Older)]
    #[index(town)]
    #[index(area)]
    pub(super) struct TownV1 {
        #[primary_key]
        pub(super) id: u32,
        #[serde(rename = "stadt")]
        pub(super) town: String,
        pub(super) area: u32,
    }

    #[derive(Deserialize, RowVersion)]
    pub(super) struct Former {
        id: u32,
        #[serde(rename = "stadt")]
        town: String,
        area: u32,
    }

    macro_rules! second {
        ($name:ident, $repository:ident, |$town:ident| $change:expr) => {
            #[derive(Serialize, Deserialize, IndexTable)]
            #[table(name = "towns", version = 2, previous = Former, repository = $repository)]
            #[index(town)]
            #[index(area)]
            pub(super) struct $name {
                #[primary_key]
                id: u32,
                town: String,
                area: u32,
            }

            impl From<Former> for $name {
                fn from(Former { id, town: $town, area }: Former) -> Self {
                    Self { id, town: $change, area }
                }
            }
        };
    }

    second!(Town, Towns, |town| town);
    second!(Altered, Alters, |town| town.to_uppercase());
}

#[test]
fn a_version_can_give_a_field_another_name_in_rows() -> TestResult {
    use versions::{Alters, Older, TownV1, Towns};
    let dir = tempfile::tempdir()?;
    let open = || open(Kind::OneFile, dir.path());
    {
        let store = open()?;
        let towns = Older::open(&store)?;
        let town = |id| TownV1 { id, town: format!("t{}", id % 3), area: id };
        store.transaction(|txn| (0..1500).try_for_each(|id| towns.insert(txn, &town(id))))?;
    }
    let store = open()?;
    {
        let towns = Alters::open_online(&store)?;
        assert_eq!(unreadable(&store)?, ["town"]);
        let report = towns.verify(&store.read()?).run()?;
        assert_eq!(report.count(FindingKind::WrongConversion), 1500, "{report}");
    }
    let towns = Towns::open(&store)?;
    assert_eq!(towns.find_by_town(&store.read()?, "t1").count()?, 500);
    let report = towns.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(towns.upgrade(&store).run()?.upgraded, 1500);
    let report = towns.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}
