//! The catalog of a store: declared tables and indexes, and retired indexes.

use std::path::Path;

use index_table::{Durability, Error, IndexState, Store};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Declares a module with the table `people` and these variants of `Mood`.
macro_rules! declaration {
    ($name:ident: $($variant:ident)*, $(#[$attribute:meta])*) => {
        mod $name {
            use index_table::{IndexKey, IndexTable};
            use serde::{Deserialize, Serialize};

            #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
            #[allow(dead_code)]
            pub(crate) enum Mood { $($variant),* }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "people")]
            $(#[$attribute])*
            pub(crate) struct Person {
                #[primary_key]
                pub(crate) id: u32,
                pub(crate) town: String,
                pub(crate) mood: Mood,
            }

            #[allow(dead_code)]
            pub(crate) fn person(id: u32) -> Person {
                Person { id, town: format!("town {}", id % 7), mood: Mood::Good }
            }
        }
    };
}

declaration!(plain: Good Bad,);
declaration!(indexed: Good Bad, #[index(town)] #[index(mood, include = [town])] #[index(id, unique, filter = is_odd, name = "odd")]);
declaration!(fewer: Good Bad, #[index(mood, include = [town])]);
declaration!(swapped: Bad Good, #[index(mood, include = [town])]);
declaration!(longer: Good Bad Ugly, #[index(mood, include = [town])]);

impl indexed::Person {
    fn is_odd(&self) -> bool {
        !self.id.is_multiple_of(2)
    }
}

/// Returns the names of the indexes of a table, with their states.
fn states(store: &Store) -> index_table::Result<Vec<String>> {
    let catalog = store.catalog()?;
    let indexes = catalog.tables.iter().flat_map(|table| &table.indexes);
    Ok(indexes.map(|index| format!("{} {}", index.name, index.state)).collect())
}

fn fill(store: &Store) -> index_table::Result<()> {
    let people = indexed::PersonRepository::open(store)?;
    store.transaction(|txn| (0..500).try_for_each(|id| people.insert(txn, &indexed::person(id))))
}

fn on_both(check: impl Fn(&Store) -> TestResult) -> TestResult {
    let dir = tempfile::tempdir()?;
    check(&Store::open(dir.path())?)?;
    check(&Store::in_memory())
}

#[test]
fn a_store_without_tables_has_an_empty_catalog() -> TestResult {
    on_both(|store| {
        assert_eq!(store.catalog()?.tables, []);
        assert_eq!(store.catalog()?.to_string(), "");
        assert!(store.drop_retired()?.is_empty());
        Ok(())
    })
}

#[test]
fn tables_are_listed_as_they_are_declared() -> TestResult {
    on_both(|store| {
        fill(store)?;
        let catalog = store.catalog()?;
        let [people] = catalog.tables.as_slice() else { return Err("one table".into()) };
        assert_eq!((people.name.as_str(), people.format, people.version), ("people", 2, 1));
        assert_eq!(people.fields[1], ("town".to_owned(), "String".to_owned()));
        assert_eq!(people.primary_key[0].shape, "u32");
        let [town, mood, odd] = people.indexes.as_slice() else { return Err("three".into()) };
        assert_eq!(
            (town.name.as_str(), town.strategy, &town.state),
            ("town", "normalized", &IndexState::Readable)
        );
        assert_eq!((mood.strategy, &mood.include[..]), ("partial", &["town".to_owned()][..]));
        assert_eq!(odd.options, ["unique", "filter=is_odd"]);
        let layouts = people.indexes.iter().map(|index| index.layout.as_str());
        let layouts: Vec<_> = layouts.collect();
        assert!(layouts == ["short-blocks", "entries", "short-unique"] || layouts == ["memory"; 3]);
        assert!(catalog.to_string().contains("table `people`, version 1\n  rows: id: u32, "));
        let json = serde_json::to_value(&catalog)?;
        assert_eq!(json["tables"][0]["indexes"][2]["state"], "Readable");
        Ok(())
    })
}

#[test]
fn a_retired_index_is_kept_until_drop_retired() -> TestResult {
    on_both(|store| {
        fill(store)?;
        let people = plain::PersonRepository::open(store)?;
        assert_eq!(states(store)?, ["mood retired", "odd retired", "town retired"]);
        let mut txn = store.write()?;
        people.delete(&mut txn, 3)?;
        assert!(matches!(store.drop_retired(), Err(Error::WriteInProgress)));
        txn.commit()?;
        let dropped = store.drop_retired()?;
        assert_eq!(dropped, ["people.mood", "people.odd", "people.town"]);
        assert!(states(store)?.is_empty());
        assert!(store.drop_retired()?.is_empty());
        assert_eq!(people.all(&store.read()?).count()?, 499);
        drop(people);

        let people = indexed::PersonRepository::open(store)?;
        assert_eq!(states(store)?, ["town readable", "mood readable", "odd readable"]);
        assert_eq!(people.by_odd(&store.read()?).count()?, 249);
        assert!(people.verify(&store.read()?).run()?.is_clean());
        Ok(())
    })
}

/// The entries of a retired index are outdated when it is declared again.
#[test]
fn a_retired_index_that_is_declared_again_is_rebuilt() -> TestResult {
    on_both(|store| {
        fill(store)?;
        let people = fewer::PersonRepository::open(store)?;
        assert_eq!(states(store)?, ["mood readable", "odd retired", "town retired"]);
        store.transaction(|txn| people.update(txn, 5, |row| row.town = "Oslo".into()))?;
        drop(people);
        let people = indexed::PersonRepository::open(store)?;
        assert_eq!(states(store)?, ["town readable", "mood readable", "odd readable"]);
        assert_eq!(people.find_by_town(&store.read()?, "Oslo").count()?, 1);
        assert!(people.verify(&store.read()?).run()?.is_clean());
        Ok(())
    })
}

/// Rows have the names of the variants, and the index is built again.
#[test]
fn a_retired_index_on_other_variants_is_built_again() -> TestResult {
    on_both(|store| {
        fill(store)?;
        drop(plain::PersonRepository::open(store)?);
        let people = swapped::PersonRepository::open(store)?;
        let txn = store.read()?;
        assert_eq!(people.by_mood(&txn).count()?, 500);
        assert!(people.verify(&txn).run()?.is_clean());
        let row = people.get(&txn, 1)?.ok_or("no row")?;
        assert_eq!(format!("{:?}", row.mood), format!("{:?}", indexed::person(1).mood));
        drop((txn, people));
        let people = longer::PersonRepository::open(store)?;
        assert_eq!(people.by_mood(&store.read()?).count()?, 500);
        assert!(people.verify(&store.read()?).run()?.is_clean());
        Ok(())
    })
}

/// Runs `change` on the catalog with heed, while the store is closed.
fn raw_catalog(
    path: &Path,
    change: impl FnOnce(
        &heed::Database<'_, heed::types::Bytes, heed::types::Bytes>,
        &mut heed::RwTxn<'_>,
    ) -> heed::Result<()>,
) -> TestResult {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(20).open(path)? };
    env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let catalog = opener.create_database(txn, Some(".catalog"))?;
        change(&catalog, txn)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

#[test]
fn a_file_of_a_later_format_is_not_changed() -> TestResult {
    // A journal would change its marker in the file.
    let options = || Store::options().durability(Durability::Full);
    let dir = tempfile::tempdir()?;
    {
        // A writer would reserve space after the used pages, so reservation is off.
        let store = options().reserve(0).open(dir.path())?;
        let people = indexed::PersonRepository::open(&store)?;
        store.transaction(|txn| {
            (0..15_000).try_for_each(|id| people.insert(txn, &indexed::person(id)))
        })?;
        drop(people);
        plain::PersonRepository::open(&store)?;
    }
    raw_catalog(dir.path(), |catalog, txn| catalog.put(txn, b"people", &[3, 0xFF, 7]))?;
    let bytes = || std::fs::read(dir.path().join("data.mdb"));
    let before = bytes()?;
    {
        let store = options().open(dir.path())?;
        for result in [
            plain::PersonRepository::open(&store).map(drop),
            indexed::PersonRepository::open(&store).map(drop),
        ] {
            let Err(Error::SchemaMismatch { difference, way_out, .. }) = &result else {
                return Err(format!("{result:?}").into());
            };
            assert_eq!(difference, "the file has format 3, this release reads format 2");
            assert!(way_out.contains("release of index-table"));
        }
        assert_eq!(
            store.catalog()?.to_string(),
            "table `people`: the file has format 3, this release reads format 2\n"
        );
        assert!(store.drop_retired()?.is_empty());
    }
    assert!(bytes()? == before, "the file has changed");
    Ok(())
}

#[test]
fn a_state_that_cant_be_read_is_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(&Store::open(dir.path())?)?;
    raw_catalog(dir.path(), |catalog, txn| catalog.put(txn, b"people.town", &[9, 9]))?;
    let result = indexed::PersonRepository::open(&Store::open(dir.path())?).map(drop);
    let Err(Error::SchemaMismatch { difference, .. }) = &result else {
        return Err(format!("{result:?}").into());
    };
    assert_eq!(difference, "the state of its index `town` can't be read");
    Ok(())
}
