//! A schema of a program as a document: what it says about a store is what an opening then does.

use std::{collections::BTreeSet, path::Path};

use index_table::{
    __private::{Entity, KeyedTable, admin::TableChange},
    IndexState, IndexTable, Options, ShardMap, Store,
    report::StoreSchema,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Declares a table `people` of a release.
macro_rules! release {
    ($name:ident, [$($attribute:meta),*], { $($(#[$on:meta])* $field:ident: $ty:ty),* }) => {
        mod $name {
            use super::*;

            #[derive(Clone, Serialize, Deserialize, IndexTable)]
            $(#[$attribute])*
            pub(super) struct Person { $($(#[$on])* pub(super) $field: $ty),* }
        }
    };
}

release!(first, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(new_index, [table(name = "people"), index(town), index(age), index(note)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(included, [table(name = "people"), index(town, include = [age]), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(renamed_index, [table(name = "people"), index(town, name = "by_town"), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(retired, [table(name = "people"), index(town)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(eventual, [table(name = "people"), index(town, consistency = "eventual"), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(with_default, [table(name = "people"), index(town), index(age), index(owner)],
    { #[primary_key] id: u64, town: String, age: u32, note: String, #[serde(default)] owner: String });
release!(later, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String, #[serde(default)] owner: String });
release!(with_option, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String, owner: Option<u8> });
release!(without_default, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String, owner: String });
release!(fewer_fields, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32 });
release!(alias, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, #[serde(alias = "note")] remark: String });
release!(wider, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u64, note: String });
release!(other_kind, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: u32 });
release!(other_key, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u32, town: String, age: u32, note: String });
release!(other_name, [table(name = "persons"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(former_name, [table(name = "persons", was = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(totals, [table(name = "people"), index(town), index(age), aggregate(town, sum = [age])],
    { #[primary_key] id: u64, town: String, age: u32, note: String });
release!(stream, [table(name = "people", changes), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, note: String });

release!(flat, [table(name = "people"), index(town), index(age)],
    { #[primary_key] id: u64, town: String, age: u32, #[serde(flatten)] remarks: Remarks });
release!(local, [table(name = "people", shard_by = id), index(town)],
    { #[primary_key] id: u64, town: String });
release!(global, [table(name = "people", shard_by = id), index(town, scope = "global")],
    { #[primary_key] id: u64, town: String });

#[derive(Clone, Serialize, Deserialize)]
struct Remarks {
    note: String,
}

/// The second version of the rows.
mod second {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Clone, Serialize, Deserialize, index_table::RowVersion)]
    pub(super) struct Before {
        id: u64,
        town: String,
        age: u32,
        note: String,
    }

    #[derive(Clone, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", version = 2, previous = Before, changed = [age])]
    #[index(town)]
    #[index(age)]
    pub(super) struct Person {
        #[primary_key]
        pub(super) id: u64,
        pub(super) town: String,
        pub(super) age: u32,
        pub(super) note: String,
    }

    impl From<Before> for Person {
        fn from(Before { id, town, age, note }: Before) -> Self {
            Self { id, town, age: age + 1, note }
        }
    }
}

/// The second version, without the first.
mod second_only {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Clone, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", version = 2)]
    #[index(town)]
    pub(super) struct Person {
        #[primary_key]
        id: u64,
        town: String,
        age: u32,
        note: String,
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "kinds", reference)]
struct PersonKind {
    #[primary_key]
    id: u32,
}

fn person(id: u64) -> first::Person {
    first::Person { id, town: format!("town {}", id % 3), age: 30, note: "text".to_owned() }
}

/// Opens a table for writing, with rows that are read back as this type.
fn fill<R: Entity + Serialize + for<'de> Deserialize<'de>>(dir: &Path) {
    let store = Store::open(dir).expect("a store");
    let table = KeyedTable::<R>::open(&store).expect("a table");
    let rows = (1..=20).map(person).map(|row| {
        serde_json::from_value(serde_json::to_value(row).expect("JSON")).expect("a row")
    });
    table.bulk_load(&store, rows.collect::<Vec<R>>()).run().expect("a load");
}

/// What a document says about a store.
fn said<R: Entity>(dir: &Path) -> (TableChange, Vec<String>) {
    let file = serde_json::to_string(&index_table::schema::<R>()).expect("JSON");
    let document: StoreSchema = serde_json::from_str(&file).expect("a document");
    assert_eq!(document, index_table::schema::<R>());
    let store = Options::default().read_only(true).create(false).open(dir).expect("a store");
    let mut changes = store.compare_schema(&document, false).expect("a comparison");
    (changes.tables.remove(0), changes.undeclared)
}

/// What an opening does: the indexes that it builds, and those that it retires; or its error.
type Done = Result<(BTreeSet<String>, BTreeSet<String>), String>;

fn done<R: Entity>(dir: &Path) -> Done {
    let store = Store::open(dir).expect("a store");
    let opened = KeyedTable::<R>::open_online(&store).map_err(|error| error.to_string())?;
    let catalog = store.catalog().expect("a catalog");
    drop(opened);
    let table = catalog.tables.iter().find(|table| table.name == R::TABLE.name).expect("a table");
    let with = |is: fn(&IndexState) -> bool| {
        let indexes = table.indexes.iter().filter(|index| is(&index.state));
        indexes.map(|index| index.name.clone()).filter(|name| name != "change-stream").collect()
    };
    Ok((
        with(|state| matches!(state, IndexState::Building { .. })),
        with(|state| matches!(state, IndexState::Retired)),
    ))
}

/// Compares what the document says with what the opening does.
fn check<A, B>(name: &str) -> TableChange
where
    A: Entity + Serialize + for<'de> Deserialize<'de>,
    B: Entity,
{
    let dir = tempfile::tempdir().expect("a directory");
    fill::<A>(dir.path());
    let (change, undeclared) = said::<B>(dir.path());
    let opened = done::<B>(dir.path());
    match &opened {
        Err(error) => assert_eq!(change.refused.as_ref(), Some(error), "{name}"),
        Ok((built, went)) => {
            assert_eq!(change.refused, None, "{name}");
            let builds: BTreeSet<_> = change.built.iter().map(|part| part.name.clone()).collect();
            assert_eq!(builds, *built, "{name}: built");
            let retired: BTreeSet<_> = change.retired.iter().cloned().collect();
            assert_eq!(retired, *went, "{name}: retired");
            assert_eq!(undeclared.is_empty(), !change.created, "{name}");
            // The same opening once more changes nothing, except that builds go on.
            let (again, _) = said::<B>(dir.path());
            assert!(again.built.len() == built.len() && again.renamed.is_empty(), "{name}");
            assert_eq!((again.was, again.version), (None, None), "{name}");
        }
    }
    change
}

#[test]
fn a_document_says_what_an_opening_does() {
    use first::Person as First;

    let same = check::<First, First>("same");
    assert!(same.is_same() && same.rows == 20, "{same:?}");
    assert_eq!(check::<First, new_index::Person>("new index").built[0].name, "note");
    let included = check::<First, included::Person>("other declaration");
    assert!(included.built[0].again, "{included:?}");
    let renamed = check::<First, renamed_index::Person>("renamed index");
    assert_eq!(renamed.renamed, [("town".to_owned(), "by_town".to_owned())]);
    assert_eq!(check::<First, retired::Person>("retired index").retired, ["age"]);
    assert!(!check::<First, eventual::Person>("eventual").has_losses());
    assert!(check::<eventual::Person, First>("no longer eventual").built[0].again);
    let added = check::<First, with_default::Person>("field with a default");
    assert_eq!(
        (added.fields_added.as_slice(), added.has_losses()),
        (&["owner".to_owned()][..], false)
    );
    assert!(!check::<First, with_option::Person>("option").has_losses());
    assert_eq!(check::<First, fewer_fields::Person>("fewer fields").lost, ["field `note`"]);
    assert!(!check::<First, alias::Person>("alias").has_losses());
    let wider = check::<First, wider::Person>("wider");
    assert_eq!(wider.fields_changed.len(), 1);
    assert!(check::<First, other_name::Person>("other name").created);
    assert_eq!(check::<First, former_name::Person>("former name").was.as_deref(), Some("people"));
    assert_eq!(check::<First, totals::Person>("aggregate").built.len(), 1);
    assert!(!check::<First, stream::Person>("stream").has_losses());
    assert_eq!(check::<stream::Person, First>("no stream").lost, ["change stream"]);
    let second = check::<First, second::Person>("second version");
    assert_eq!((second.version, second.built.len()), (Some((1, 2)), 1), "{second:?}");
}

#[test]
fn fields_in_the_place_of_another_are_neither_missing_nor_lost() {
    let flat = check::<first::Person, flat::Person>("flatten");
    assert!(!flat.has_losses() && flat.fields_added == ["remarks"], "{flat:?}");
    let dir = tempfile::tempdir().expect("a directory");
    fill::<first::Person>(dir.path());
    let store = Options::default().read_only(true).create(false).open(dir.path()).expect("a store");
    let document = index_table::schema::<flat::Person>();
    let changes = store.compare_schema(&document, true).expect("a comparison");
    assert_eq!(changes.tables[0].unreadable.as_ref().map(|rows| rows.rows), Some(0));
}

#[test]
fn an_index_of_each_shard_is_built_again_over_all_shards_and_back() {
    fn built<A: Entity + Serialize + for<'de> Deserialize<'de>, B: Entity>() {
        let dir = tempfile::tempdir().expect("a directory");
        {
            let map = ShardMap::ranges().to("north", ..10u64).to("south", 10u64..);
            let options = Options::default().shard("north", "north").shard("south", "south");
            let store = options.map("people", map).open(dir.path()).expect("a store");
            let table = KeyedTable::<A>::open(&store).expect("a table");
            let rows = (1..=20).map(person).map(|row| {
                serde_json::from_value(serde_json::to_value(row).expect("JSON")).expect("a row")
            });
            table.bulk_load(&store, rows.collect::<Vec<A>>()).run().expect("a load");
        }
        assert!(said::<A>(dir.path()).0.is_same());
        let names: Vec<_> = said::<B>(dir.path()).0.built.into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["town"]);
        let (opened, _) = done::<B>(dir.path()).expect("an opening");
        assert!(opened.contains("town"), "{opened:?}");
    }
    built::<local::Person, global::Person>();
    built::<global::Person, local::Person>();
}

#[test]
fn rows_in_all_shards_are_counted_once() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let map = ShardMap::ranges().to("north", ..10u64).to("south", 10u64..);
        let options = Options::default().shard("north", "north").shard("south", "south");
        let store = options.map("people", map).open(dir.path()).expect("a store");
        let kinds = PersonKindRepository::open(&store).expect("a table");
        store
            .transaction(|txn| (0..3).try_for_each(|id| kinds.insert(txn, &PersonKind { id })))
            .expect("a commit");
    }
    assert_eq!(said::<PersonKind>(dir.path()).0.rows, 3);
}

#[test]
fn a_table_from_before_shards_keeps_its_index_as_a_global_one() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path()).expect("a store");
        drop(KeyedTable::<local::Person>::open(&store).expect("a table"));
        store.add_shard("second", "second").expect("a shard");
    }
    assert!(said::<global::Person>(dir.path()).0.built.is_empty());
    assert!(done::<global::Person>(dir.path()).expect("an opening").0.is_empty());
}

#[test]
fn a_document_says_what_an_opening_refuses() {
    use first::Person as First;

    for (name, change) in [
        ("primary key", check::<First, other_key::Person>("primary key")),
        ("earlier version", check::<second::Person, First>("earlier version")),
        ("gap", check::<First, second_only::Person>("gap")),
    ] {
        assert!(change.refused.is_some(), "{name}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    fill::<First>(dir.path());
    let refuses = |text: &str, (change, _): (TableChange, Vec<String>), opened: Done| {
        let refused = change.refused.expect("a refusal");
        assert!(refused.contains(text), "{refused}");
        assert!(opened.expect_err("an error").contains("the row with primary key 1 can't be read"));
    };
    refuses(
        "missing field `owner`",
        said::<without_default::Person>(dir.path()),
        done::<without_default::Person>(dir.path()),
    );
    refuses(
        "kind text",
        said::<other_kind::Person>(dir.path()),
        done::<other_kind::Person>(dir.path()),
    );
    // Both tables have rows.
    drop(done::<other_name::Person>(dir.path()));
    fill::<other_name::Person>(dir.path());
    let (both, _) = said::<former_name::Person>(dir.path());
    assert_eq!(both.refused, done::<former_name::Person>(dir.path()).err());
    assert!(both.refused.expect("a refusal").contains("its former table"));
}

#[test]
fn all_rows_are_read_by_their_lists() {
    let dir = tempfile::tempdir().expect("a directory");
    fill::<first::Person>(dir.path());
    fill_later(dir.path());
    let store = Options::default().read_only(true).create(false).open(dir.path()).expect("a store");
    let document = index_table::schema::<without_default::Person>();
    let changes = store.compare_schema(&document, true).expect("a comparison");
    let unreadable = changes.tables[0].unreadable.clone().expect("rows");
    assert_eq!(unreadable.rows, 19);
    assert_eq!(unreadable.first[0], ("2".to_owned(), "missing field `owner`".to_owned()));
    let document = index_table::schema::<with_option::Person>();
    let changes = store.compare_schema(&document, true).expect("a comparison");
    let unreadable = changes.tables[0].unreadable.clone().expect("rows");
    assert!(unreadable.rows == 1 && unreadable.first[0].1.contains("kind text"), "{unreadable:?}");
    let document = index_table::schema::<with_default::Person>();
    let changes = store.compare_schema(&document, true).expect("a comparison");
    assert_eq!(changes.tables[0].unreadable.as_ref().map(|rows| rows.rows), Some(0));
}

/// Writes the first row with another field.
fn fill_later(dir: &Path) {
    let store = Store::open(dir).expect("a store");
    let people = later::PersonRepository::open(&store).expect("a table");
    let update = |txn: &mut index_table::WriteTxn<'_>| {
        people.update(txn, 1, |row| "Ann".clone_into(&mut row.owner)).map(drop)
    };
    store.transaction(update).expect("a commit");
}

#[test]
fn more_than_twelve_tables_are_in_tuples_of_tuples() {
    type Two = (first::Person, other_name::Person);
    type Eight = (Two, Two, Two, Two);
    let document = index_table::schema::<(Eight, Eight)>();
    assert_eq!(document.tables.len(), 16);
}

#[test]
fn a_document_of_another_form_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let mut value: Value =
        serde_json::to_value(index_table::schema::<first::Person>()).expect("JSON");
    value["form"] = 2.into();
    let document: StoreSchema = serde_json::from_value(value).expect("a document");
    let error = store.compare_schema(&document, false).expect_err("another form");
    assert!(error.to_string().contains("another form"), "{error}");
}
