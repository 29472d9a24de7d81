//! Indexes that a declaration adds or changes.

use index_table::{Error, Store};

use super::{
    TestResult, both, computing, covering, descending, fill, filtered, indexed, nicked, one,
    otherwise, plain, sparse, unique,
};

#[test]
fn new_indexes_are_built_and_changed_ones_rebuilt() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    {
        let store = Store::open(dir.path())?;
        let people = indexed::PersonRepository::open(&store)?;
        let txn = store.read()?;
        assert_eq!(people.find_by_town(&txn, "Rome").count()?, 3000);
        assert_eq!(people.by_age(&txn).rows().count(), 3000);
        assert_eq!(people.find_by_town(&txn, "Rome").rev().first()?, Some(indexed::person(2999)));
    }
    {
        // Rows change while the indexes are not declared.
        let store = Store::open(dir.path())?;
        let people = plain::PersonRepository::open(&store)?;
        store.transaction(|txn| {
            people.delete(txn, 7)?;
            people.update(txn, 8, |person| person.town = "Oslo".into()).map(drop)
        })?;
    }
    {
        let store = Store::open(dir.path())?;
        let people = covering::PersonRepository::open(&store)?;
        let txn = store.read()?;
        assert_eq!(people.find_by_town(&txn, "Rome").entries().count(), 2998);
        let entry = people.find_by_town(&txn, "Oslo").entries().next().ok_or("none")??;
        assert_eq!((entry.id, entry.age), (8, 40));
    }
    let store = Store::open(dir.path())?;
    let people = indexed::PersonRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(people.find_by_town(&txn, "Rome").count()?, 2998);
    assert_eq!(people.by_age(&txn).count()?, 2999);
    Ok(())
}

/// All these indexes are called `age` and have different entries.
#[test]
fn an_index_with_another_form_or_condition_is_rebuilt() -> TestResult {
    let dir = tempfile::tempdir()?;
    {
        let store = Store::open(dir.path())?;
        let people = indexed::PersonRepository::open(&store)?;
        let person =
            |id| indexed::Person { age: u8::try_from(id).unwrap_or(0), ..indexed::person(id) };
        store.transaction(|txn| (0..20).try_for_each(|id| people.insert(txn, &person(id))))?;
    }
    // The ids in the order of the index, in the first and then in the second declaration.
    macro_rules! ids {
        ($declaration:ident) => {{
            let store = Store::open(dir.path())?;
            let people = $declaration::PersonRepository::open(&store)?;
            let txn = store.read()?;
            people.by_age(&txn).keys().collect::<Result<Vec<u32>, _>>()?
        }};
    }
    let ascending: Vec<u32> = (0..20).collect();
    let descending: Vec<u32> = (0..20).rev().collect();
    for _ in 0..2 {
        assert_eq!(ids!(indexed), ascending);
        assert_eq!(ids!(descending), descending);
        assert_eq!(ids!(computing), descending);
        assert_eq!(ids!(filtered), (0..20).step_by(2).collect::<Vec<_>>());
        assert_eq!(ids!(otherwise), (1..20).step_by(2).collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
fn an_index_that_becomes_sparse_is_rebuilt() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = nicked::PersonRepository::open(&store)?;
    store.transaction(|txn| (0..9).try_for_each(|id| people.insert(txn, &nicked::person(id))))?;
    assert_eq!(people.by_nick(&store.read()?).count()?, 9);
    drop(people);
    let people = sparse::PersonRepository::open(&store)?;
    assert_eq!(people.by_nick(&store.read()?).count()?, 0);
    drop(people);
    let people = nicked::PersonRepository::open(&store)?;
    assert_eq!(people.by_nick(&store.read()?).count()?, 9);
    Ok(())
}

#[test]
fn an_index_is_added_to_a_table_with_a_unique_index() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = one::PersonRepository::open(&store)?;
    store.transaction(|txn| (0..10).try_for_each(|id| people.insert(txn, &one::person(id))))?;
    drop(people);
    let people = both::PersonRepository::open(&store)?;
    assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 10);
    assert_eq!(people.by_same(&store.read()?).count()?, 10);
    Ok(())
}

#[test]
fn an_index_that_cant_be_built_changes_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    let store = Store::open(dir.path())?;
    let result = unique::PersonRepository::open(&store);
    let Err(Error::UniqueViolation { table: "people", index: "age", key, holder }) = result else {
        return Err(format!("{result:?}").into());
    };
    assert_eq!((key.as_str(), holder.as_str()), ("40", "0"));
    let people = plain::PersonRepository::open(&store)?;
    assert_eq!(people.all(&store.read()?).count()?, 3000);
    Ok(())
}
