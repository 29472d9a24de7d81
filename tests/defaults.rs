//! Indexes, aggregates and references over a field that stored rows lack, with a default that is another value each time.

#[path = "support/data_files.rs"]
mod data_files;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use data_files::{Kind, on_each_kind};
use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The tenants of the shards.
const TENANTS: [u32; 3] = [3, 13, 23];

/// A default that is another value each time, as that of a later release is.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    NEXT.fetch_add(1, Relaxed)
}

/// The first release.
mod first {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "places", shard_by = tenant, shard_map = "tenants")]
    #[index(town, name = "whole", strategy = "full", scope = "global")]
    pub(super) struct Place {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "codes", reference)]
    pub(super) struct Code {
        #[primary_key]
        pub(super) code: u32,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "tags", shard_by = tenant, shard_map = "tenants")]
    pub(super) struct Tag {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
    }
}

/// A row of a shard, whose entries in a global index have its bytes.
#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "places", shard_by = tenant, shard_map = "tenants")]
#[index(town, name = "whole", strategy = "full", scope = "global")]
#[index(token)]
#[index(note, include = [token])]
#[aggregate(town, sum = [token])]
struct Place {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    #[serde(default = "next_token")]
    token: u64,
    #[serde(default)]
    note: String,
    town: String,
}

/// A row with a copy in each shard.
#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "codes", reference)]
#[index(token, unique)]
#[aggregate(sum = [token])]
struct Code {
    #[primary_key]
    code: u32,
    #[serde(default = "next_token")]
    token: u64,
}

/// A row with an entry in a global index only.
#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tags", shard_by = tenant, shard_map = "tenants")]
#[index(token, unique, scope = "global")]
struct Tag {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    #[serde(default = "next_token")]
    token: u64,
}

fn open(kind: Kind, path: &Path) -> Result<Store> {
    kind.store("tenants").map_size(1 << 28).open(path)
}

fn fill(kind: Kind, path: &Path, rows: u32) -> Result<()> {
    let store = open(kind, path)?;
    let places = first::PlaceRepository::open(&store)?;
    let codes = first::CodeRepository::open(&store)?;
    let tags = first::TagRepository::open(&store)?;
    for tenant in TENANTS {
        store.transaction(|txn| {
            (0..rows).try_for_each(|id| {
                let town = format!("T{}", id % 7);
                places.insert(txn, &first::Place { tenant, id, town })?;
                tags.insert(txn, &first::Tag { tenant, id })
            })
        })?;
    }
    store.transaction(|txn| (0..rows).try_for_each(|code| codes.insert(txn, &first::Code { code })))
}

fn check_places(store: &Store, places: &PlaceRepository, rows: u32) -> TestResult {
    let txn = store.read()?;
    let all = places.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(all.len(), rows as usize * TENANTS.len());
    for row in &all {
        assert_eq!(places.get(&txn, row.tenant, row.id)?.as_ref(), Some(row));
        let found = places.find_by_token(&txn, row.token).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(found.iter().collect::<Vec<_>>(), [row]);
    }
    let mut whole = places.by_whole(&txn).rows().collect::<Result<Vec<_>>>()?;
    whole.sort_by_key(|row| (row.tenant, row.id));
    assert_eq!(whole, all, "full entries have another token");
    let tokens: BTreeSet<u64> = all.iter().map(|row| row.token).collect();
    let entries = places.find_by_note(&txn, "").entries().collect::<Result<Vec<_>>>()?;
    assert_eq!(entries.iter().map(|entry| entry.token).collect::<BTreeSet<_>>(), tokens);
    let totals = places.aggregates_by_town(&txn).collect::<Result<Vec<_>>>()?;
    let sum: i128 = totals.iter().map(|town| town.sum_token).sum();
    assert_eq!(sum, tokens.iter().map(|token| i128::from(*token)).sum::<i128>());
    let report = places.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

fn check_codes(store: &Store, codes: &CodeRepository, rows: u32) -> TestResult {
    let txn = store.read()?;
    let all = codes.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(all.len(), rows as usize);
    for row in &all {
        assert_eq!(codes.get_by_token(&txn, row.token)?.as_ref(), Some(row));
    }
    let sum: i128 = all.iter().map(|row| i128::from(row.token)).sum();
    assert_eq!(codes.aggregate(&txn)?.sum_token, sum);
    let report = codes.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

fn check_tags(store: &Store, tags: &TagRepository, rows: u32) -> TestResult {
    let txn = store.read()?;
    let all = tags.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(all.len(), rows as usize * TENANTS.len());
    for row in &all {
        assert_eq!(tags.get_by_token(&txn, row.token)?.as_ref(), Some(row));
    }
    let report = tags.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

fn check(kind: Kind, path: &Path, rows: u32) -> TestResult {
    let store = open(kind, path)?;
    check_places(&store, &PlaceRepository::open(&store)?, rows)?;
    check_codes(&store, &CodeRepository::open(&store)?, rows)?;
    check_tags(&store, &TagRepository::open(&store)?, rows)
}

on_each_kind!(
    entries_have_the_values_of_their_rows,
    a_build_online_writes_the_values_of_the_rows,
    entries_have_the_values_of_converted_rows,
);

/// A shard can't write these rows again by itself: other shards have copies of them, or data of their entries.
fn entries_have_the_values_of_their_rows(kind: Kind) -> TestResult {
    // Indexes of few rows are built when the table is opened in a shard.
    for rows in [30, 5000] {
        let dir = tempfile::tempdir()?;
        fill(kind, dir.path(), rows)?;
        check(kind, dir.path(), rows)?;
        check(kind, dir.path(), rows)?;
    }
    Ok(())
}

fn a_build_online_writes_the_values_of_the_rows(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    let rows = 300;
    fill(kind, dir.path(), rows)?;
    let store = open(kind, dir.path())?;
    let places = PlaceRepository::open_online(&store)?;
    let codes = CodeRepository::open_online(&store)?;
    // Rows are written before, between and after the batches.
    store.transaction(|txn| {
        codes.update(txn, 7, |code| code.token = 1)?;
        places.update(txn, 13, 7, |place| place.note = "n".into())
    })?;
    places.build(&store).batch_bytes(1000).limit(2).run()?;
    codes.build(&store).batch_bytes(1000).limit(2).run()?;
    store.transaction(|txn| {
        codes.update(txn, 290, |code| code.token = 2)?;
        places.update(txn, 13, 7, |place| place.note = String::new())
    })?;
    assert!(places.build(&store).batch_bytes(1000).run()?.is_readable());
    assert!(codes.build(&store).batch_bytes(1000).run()?.is_readable());
    check_places(&store, &places, rows)?;
    check_codes(&store, &codes, rows)
}

#[test]
fn the_entries_of_an_attached_shard_have_the_values_of_its_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let kind = Kind::Several;
    fill(kind, dir.path(), 30)?;
    {
        let store = open(kind, dir.path())?;
        let _places = first::PlaceRepository::open(&store)?;
        let _codes = first::CodeRepository::open(&store)?;
        let _tags = first::TagRepository::open(&store)?;
        store.detach_shard("b")?;
    }
    let store = Store::open(dir.path())?;
    let (tags, places) = (TagRepository::open(&store)?, PlaceRepository::open(&store)?);
    let codes = CodeRepository::open(&store)?;
    store.attach_shard("b", "b")?;
    check_tags(&store, &tags, 30)?;
    check_places(&store, &places, 30)?;
    check_codes(&store, &codes, 30)?;
    drop((store, tags, places, codes));
    check(kind, dir.path(), 30)
}

/// The second and the third release, which know nothing of each other.
mod branches {
    use super::{Deserialize, IndexTable, Serialize, next_token};

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "tags", repository = Noted)]
    pub(super) struct NotedTag {
        #[primary_key]
        pub(super) id: u32,
        pub(super) note: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "tags", repository = Numbered)]
    #[index(token, unique)]
    pub(super) struct NumberedTag {
        #[primary_key]
        pub(super) id: u32,
        #[serde(default = "next_token")]
        pub(super) token: u64,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "tags", repository = Plain)]
    pub(super) struct PlainTag {
        #[primary_key]
        pub(super) id: u32,
    }
}

/// A build writes a row again with the fields of a later release.
#[test]
fn a_build_of_an_earlier_release_keeps_the_fields_of_a_later_one() -> TestResult {
    use branches::{Noted, NotedTag, Numbered, Plain, PlainTag};
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    // The release with tokens is known before a row has a note.
    {
        let tags = Numbered::open(&store)?;
        store.transaction(|txn| tags.delete(txn, 0))?;
    }
    {
        let tags = Plain::open(&store)?;
        store.transaction(|txn| tags.insert(txn, &PlainTag { id: 1 }))?;
        store.transaction(|txn| tags.delete(txn, 1))?;
    }
    let noted = |id: u32| NotedTag { id, note: format!("note {id}") };
    {
        let tags = Noted::open(&store)?;
        store.transaction(|txn| (0..9).try_for_each(|id| tags.insert(txn, &noted(id))))?;
    }
    for _ in 0..2 {
        let tags = Numbered::open(&store)?;
        let txn = store.read()?;
        let all = tags.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(all.len(), 9);
        for row in &all {
            assert_eq!(tags.get_by_token(&txn, row.token)?.as_ref(), Some(row));
        }
        assert!(tags.verify(&txn).run()?.is_clean());
    }
    let tags = Noted::open(&store)?;
    let rows = tags.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(rows, (0..9).map(noted).collect::<Vec<_>>());
    Ok(())
}

/// Two releases with different defaults for a reference.
mod referring {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "owners")]
    pub(super) struct Owner {
        #[primary_key]
        pub(super) id: u32,
    }

    pub(super) mod first {
        use super::{Deserialize, IndexTable, Owner, Serialize};

        fn owner() -> u32 {
            1
        }

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "things", repository = Things)]
        #[index(owner)]
        pub(in super::super) struct Thing {
            #[primary_key]
            pub(in super::super) id: u32,
            #[serde(default = "owner")]
            #[references(Owner)]
            pub(in super::super) owner: u32,
        }
    }

    pub(super) mod second {
        use super::{Deserialize, IndexTable, Owner, Serialize};

        fn owner() -> u32 {
            2
        }

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "things", repository = Things)]
        #[index(owner)]
        pub(in super::super) struct Thing {
            #[primary_key]
            pub(in super::super) id: u32,
            #[serde(default = "owner")]
            #[references(Owner)]
            pub(in super::super) owner: u32,
        }
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "things", repository = Things)]
    pub(super) struct Thing {
        #[primary_key]
        pub(super) id: u32,
    }
}

/// The rows get the default of the release that builds the index of the reference.
#[test]
fn a_build_refuses_a_default_that_refers_to_no_row() -> TestResult {
    use referring::{Owner, OwnerRepository, Thing, Things, first, second};
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let owners = OwnerRepository::open(&store)?;
    store.transaction(|txn| owners.insert(txn, &Owner { id: 1 }))?;
    {
        let things = Things::open(&store)?;
        store.transaction(|txn| (0..9).try_for_each(|id| things.insert(txn, &Thing { id })))?;
    }
    drop(first::Things::open_online(&store)?);
    let refused = second::Things::open(&store).map(drop);
    let Err(Error::MissingReference { table: "things", to: "owners", referred, .. }) = refused
    else {
        return Err(format!("{refused:?}").into());
    };
    assert_eq!(referred, "2");
    store.transaction(|txn| owners.insert(txn, &Owner { id: 2 }))?;
    drop(second::Things::open(&store)?);
    let things = first::Things::open(&store)?;
    let txn = store.read()?;
    let found = things.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert!(found.iter().all(|thing| thing.owner == 2));
    assert!(store.verify()?.is_clean());
    Ok(())
}

/// Rows whose bytes can differ each time that they are written: a map inside of a struct is stored in its own order.
mod unordered {
    use std::collections::HashMap;

    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Counts {
        pub(super) words: HashMap<String, u32>,
    }

    macro_rules! release {
        ($module:ident, [$($index:tt)*]) => {
            pub(super) mod $module {
                use super::{Counts, Deserialize, IndexTable, Serialize};

                #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
                #[table(name = "texts", shard_by = tenant, shard_map = "tenants")]
                #[indexes((town, name = "whole", strategy = "full", scope = "global") $($index)*)]
                pub(in super::super) struct Text {
                    #[primary_key]
                    pub(in super::super) tenant: u32,
                    #[primary_key]
                    pub(in super::super) id: u32,
                    pub(in super::super) town: String,
                    pub(in super::super) counts: Counts,
                }
            }
        };
    }

    release!(first, []);
    release!(second, [, (id, name = "ids")]);
}

/// A shard can't write the rows again by itself, and does not have to.
#[test]
fn an_index_over_rows_without_an_order_is_built_in_each_shard() -> TestResult {
    use unordered::{Counts, first, second};
    let dir = tempfile::tempdir()?;
    let store = open(Kind::Several, dir.path())?;
    let counts = Counts { words: (0..8).map(|word| (format!("w{word}"), word)).collect() };
    {
        let texts = first::TextRepository::open(&store)?;
        for tenant in TENANTS {
            let text =
                |id| first::Text { tenant, id, town: "Oslo".to_owned(), counts: counts.clone() };
            store.transaction(|txn| (0..20).try_for_each(|id| texts.insert(txn, &text(id))))?;
        }
    }
    let texts = second::TextRepository::open(&store)?;
    let txn = store.read()?;
    for row in texts.find_by_ids(&txn, 7).rows() {
        assert_eq!(row?.counts, counts);
    }
    assert_eq!(texts.find_by_ids(&txn, 7).count()?, 3);
    assert_eq!(texts.find_by_whole(&txn, "Oslo").rows().count(), 60);
    assert!(texts.verify(&txn).run()?.is_clean());
    Ok(())
}

/// Two versions of a row. Its conversion has another result each time.
mod versions {
    use super::{Deserialize, IndexTable, Serialize, next_token};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant, shard_map = "tenants", version = 1)]
    #[index(name, name = "whole", strategy = "full", scope = "global")]
    pub(super) struct PersonV1 {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) name: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "people", shard_by = tenant, shard_map = "tenants", version = 2, previous = PersonV1)]
    #[index(name, name = "whole", strategy = "full", scope = "global")]
    #[index(token)]
    #[aggregate(sum = [token])]
    pub(super) struct Person {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) name: String,
        pub(super) token: u64,
    }

    impl From<PersonV1> for Person {
        fn from(old: PersonV1) -> Self {
            Self { tenant: old.tenant, id: old.id, name: old.name, token: next_token() }
        }
    }
}

fn entries_have_the_values_of_converted_rows(kind: Kind) -> TestResult {
    use versions::{PersonRepository, PersonV1, PersonV1Repository};
    for rows in [30, 3000] {
        let dir = tempfile::tempdir()?;
        {
            let store = open(kind, dir.path())?;
            let people = PersonV1Repository::open(&store)?;
            for tenant in TENANTS {
                let person = |id| PersonV1 { tenant, id, name: format!("N{}", id % 7) };
                store.transaction(|txn| {
                    (0..rows).try_for_each(|id| people.insert(txn, &person(id)))
                })?;
            }
        }
        for _ in 0..2 {
            let store = open(kind, dir.path())?;
            let people = PersonRepository::open(&store)?;
            let txn = store.read()?;
            let all = people.all(&txn).rows().collect::<Result<Vec<_>>>()?;
            assert_eq!(all.len(), rows as usize * TENANTS.len());
            for row in &all {
                let found = people.find_by_token(&txn, row.token).rows();
                assert_eq!(found.collect::<Result<Vec<_>>>()?.iter().collect::<Vec<_>>(), [row]);
            }
            let mut whole = people.by_whole(&txn).rows().collect::<Result<Vec<_>>>()?;
            whole.sort_by_key(|row| (row.tenant, row.id));
            assert_eq!(whole, all, "full entries have another token");
            let sum: i128 = all.iter().map(|row| i128::from(row.token)).sum();
            assert_eq!(people.aggregate(&txn)?.sum_token, sum);
            assert!(people.verify(&txn).run()?.is_clean());
        }
    }
    Ok(())
}

/// Releases with a type inside of the rows to which the latest has added a field.
mod inside {
    use super::{Deserialize, IndexTable, Serialize, next_token};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Earlier {
        pub(super) x: u8,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(super) struct Later {
        #[serde(default)]
        pub(super) y: String,
        pub(super) x: u8,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "shapes", repository = LaterShapes)]
    pub(super) struct LaterShape {
        #[primary_key]
        pub(super) id: u32,
        pub(super) inside: Later,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "shapes", repository = Shapes)]
    #[index(token, unique)]
    pub(super) struct Shape {
        #[primary_key]
        pub(super) id: u32,
        #[serde(default = "next_token")]
        pub(super) token: u64,
        pub(super) inside: Earlier,
    }
}

/// A build adds the missing fields to a row that it can't write as a whole.
#[test]
fn a_build_of_an_earlier_release_keeps_the_fields_inside_of_others() -> TestResult {
    use inside::{Earlier, Later, LaterShape, LaterShapes, Shape, Shapes};
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    // The release with tokens is known before a row has `y`.
    {
        let shapes = Shapes::open(&store)?;
        let shape = Shape { id: 0, token: 1, inside: Earlier { x: 1 } };
        store.transaction(|txn| shapes.insert(txn, &shape))?;
        store.transaction(|txn| shapes.delete(txn, 0))?;
    }
    let later = |id: u32| LaterShape { id, inside: Later { y: format!("y{id}"), x: 7 } };
    {
        let shapes = LaterShapes::open(&store)?;
        store.transaction(|txn| (0..9).try_for_each(|id| shapes.insert(txn, &later(id))))?;
    }
    for _ in 0..2 {
        let shapes = Shapes::open(&store)?;
        let txn = store.read()?;
        let all = shapes.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(all.len(), 9);
        for row in &all {
            assert_eq!(row.inside, Earlier { x: 7 });
            assert_eq!(shapes.get_by_token(&txn, row.token)?.as_ref(), Some(row));
        }
        assert!(shapes.verify(&txn).run()?.is_clean());
        drop(txn);
        let refused = store.transaction(|txn| shapes.update(txn, 3, |shape| shape.token = 3));
        assert!(matches!(refused, Err(Error::UnknownField { .. })), "{refused:?}");
    }
    let shapes = LaterShapes::open(&store)?;
    let rows = shapes.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(rows, (0..9).map(later).collect::<Vec<_>>());
    Ok(())
}

/// Releases of a table whose rows several shards have to write again at the same time.
mod letters {
    use super::{Deserialize, IndexTable, Serialize, first};

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "letters", shard_by = tenant, shard_map = "tenants", repository = Letters)]
    #[index(town, name = "whole", strategy = "full", scope = "global")]
    pub(super) struct Letter {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }

    macro_rules! referring {
        ($repository:ident, $name:ident, $default:literal) => {
            #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "letters", shard_by = tenant, shard_map = "tenants", repository = $repository)]
            #[index(town, name = "whole", strategy = "full", scope = "global")]
            #[index(code)]
            pub(super) struct $name {
                #[primary_key]
                pub(super) tenant: u32,
                #[primary_key]
                pub(super) id: u32,
                pub(super) town: String,
                #[serde(default = $default)]
                #[references(first::Code)]
                pub(super) code: u32,
            }
        };
    }

    fn one() -> u32 {
        1
    }

    fn two() -> u32 {
        2
    }

    referring!(ToOne, LetterToOne, "one");
    referring!(ToTwo, LetterToTwo, "two");
}

/// All shards write the rows again before the index is built.
#[test]
fn shards_refuse_a_default_that_refers_to_no_row() -> TestResult {
    use letters::{Letter, Letters, ToOne, ToTwo};
    let dir = tempfile::tempdir()?;
    let store = open(Kind::Several, dir.path())?;
    let codes = first::CodeRepository::open(&store)?;
    store.transaction(|txn| codes.insert(txn, &first::Code { code: 1 }))?;
    {
        let letters = Letters::open(&store)?;
        for tenant in TENANTS {
            let letter = |id| Letter { tenant, id, town: "Oslo".to_owned() };
            store.transaction(|txn| (0..9).try_for_each(|id| letters.insert(txn, &letter(id))))?;
        }
    }
    drop(ToOne::open_online(&store)?);
    let refused = ToTwo::open(&store).map(drop);
    let Err(Error::MissingReference { table: "letters", key, to: "codes", referred, .. }) = refused
    else {
        return Err(format!("{refused:?}").into());
    };
    assert_eq!((key.as_str(), referred.as_str()), ("(3, 0)", "2"));
    // No row was written with it.
    let letters = ToOne::open(&store)?;
    let txn = store.read()?;
    assert_eq!(letters.find_by_code(&txn, 1).count()?, 27);
    assert!(letters.all(&txn).rows().all(|letter| letter.is_ok_and(|letter| letter.code == 1)));
    assert!(store.verify()?.is_clean());
    Ok(())
}
