//! What happens between a file, or a store in use, and another declaration.

use std::path::Path;

use index_table::{Error, Store};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Each module declares the table `people` anew.
macro_rules! declaration {
    ($name:ident, $(#[$attribute:meta])* { $($field:ident: $ty:ty = $value:expr),* }) => {
        mod $name {
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            #[derive(index_table::IndexTable)]
            #[table(name = "people")]
            $(#[$attribute])*
            pub(crate) struct Person {
                #[primary_key]
                pub(crate) id: u32,
                $(pub(crate) $field: $ty,)*
            }

            #[allow(dead_code)]
            pub(crate) fn person(id: u32) -> Person {
                Person { id, $($field: $value),* }
            }
        }
    };
}

declaration!(plain, { town: String = "Rome".into(), age: u8 = 40 });
declaration!(indexed, #[index(town)] #[index(age, strategy = "full")] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(unique, #[index(age, unique)] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(covering, #[index(town, include = [age])] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(descending, #[index(desc(age))] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(computing, #[index(computed(age: u8))] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(filtered, #[index(age, filter = is_even)] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(otherwise, #[index(age, filter = is_odd)] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(nicked, #[index(nick)] { nick: Option<String> = None });
declaration!(sparse, #[index(nick, sparse)] { nick: Option<String> = None });
declaration!(newer, #[table(version = 2)] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(retyped, { town: String = "Rome".into(), age: u16 = 40 });
declaration!(longer, { town: String = "Rome".into(), age: u8 = 40, email: String = String::new() });

mod other {
    #[derive(serde::Serialize, serde::Deserialize, index_table::IndexTable)]
    pub(crate) struct Other {
        #[primary_key]
        pub(crate) id: u32,
    }
}

declaration!(both, #[index(town)] #[index(id, unique, name = "same")] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(one, #[index(id, unique, name = "same")] { town: String = "Rome".into(), age: u8 = 40 });

fn fill(path: &Path) -> index_table::Result<()> {
    let store = Store::open(path)?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| (0..3000).try_for_each(|id| people.insert(txn, &plain::person(id))))
}

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
        // Without the indexes, rows change that they would have to follow.
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

impl computing::Person {
    fn age(&self) -> u8 {
        100 - self.age
    }
}

impl filtered::Person {
    fn is_even(&self) -> bool {
        self.id.is_multiple_of(2)
    }
}

impl otherwise::Person {
    fn is_odd(&self) -> bool {
        !self.id.is_multiple_of(2)
    }
}

/// All of these indexes are called `age`, and each has other entries.
#[test]
fn an_index_of_another_form_or_condition_is_rebuilt() -> TestResult {
    let dir = tempfile::tempdir()?;
    {
        let store = Store::open(dir.path())?;
        let people = indexed::PersonRepository::open(&store)?;
        let person =
            |id| indexed::Person { age: u8::try_from(id).unwrap_or(0), ..indexed::person(id) };
        store.transaction(|txn| (0..20).try_for_each(|id| people.insert(txn, &person(id))))?;
    }
    // The ids in the order of the index, in this declaration and then in that one.
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
fn an_index_is_added_beside_a_unique_one() -> TestResult {
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
    let refused = unique::PersonRepository::open(&store);
    let Err(Error::UniqueViolation { table: "people", index: "age", key, holder }) = refused else {
        return Err(format!("{refused:?}").into());
    };
    assert_eq!((key.as_str(), holder.as_str()), ("40", "0"));
    let people = plain::PersonRepository::open(&store)?;
    assert_eq!(people.all(&store.read()?).count()?, 3000);
    Ok(())
}

#[test]
fn rows_that_dont_fit_are_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    let store = Store::open(dir.path())?;
    let refused = [
        newer::PersonRepository::open(&store).map(drop),
        retyped::PersonRepository::open(&store).map(drop),
        longer::PersonRepository::open(&store).map(drop),
    ];
    let messages = refused.map(|refused| refused.unwrap_err().to_string());
    assert_eq!(
        messages.each_ref().map(|message| message.split(';').next().unwrap_or_default()),
        [
            "table `people` doesn't match its declaration: it may have rows of version 1, and from version 2 no `previous` leads there",
            "table `people` doesn't match its declaration: field 3 of its rows is `age: u8` in the file and `age: u16` in the code",
            "table `people` doesn't match its declaration: field 4 of its rows is none in the file and `email: String` in the code",
        ]
    );
    assert!(messages.iter().all(|message| message.contains("`previous`")), "{messages:?}");
    Ok(())
}

#[test]
fn two_declarations_are_not_in_use_at_the_same_time() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let plain = plain::PersonRepository::open(&store)?;
    let again = plain::PersonRepository::open(&store)?;
    drop(again);
    assert!(matches!(
        indexed::PersonRepository::open(&store),
        Err(Error::SchemaMismatch { table: "people", .. })
    ));
    drop(plain);
    indexed::PersonRepository::open(&store)?;
    Ok(())
}

#[test]
fn misuse_is_an_error() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let file = dir.path().join("file");
    std::fs::write(&file, "no directory")?;
    assert!(matches!(Store::open(&file), Err(Error::Io { .. })));

    let people = plain::PersonRepository::open(&store)?;
    let txn = store.write()?;
    assert!(matches!(store.write(), Err(Error::WriteInProgress)));
    assert!(plain::PersonRepository::open(&store).is_ok(), "it is open already");
    assert!(matches!(other::OtherRepository::open(&store), Err(Error::WriteInProgress)));
    assert!(std::thread::scope(|scope| scope
        .spawn(|| store.read().is_ok())
        .join()
        .unwrap_or(false)));
    drop(txn);

    for other in [Store::open(dir.path().join("other"))?, Store::in_memory()] {
        let mut txn = other.write()?;
        let wrong = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::WrongStore { table: "people" })), "{result:?}");
        };
        wrong(people.insert(&mut txn, &plain::person(1)));
        wrong(people.get(&txn, 1).map(drop));
        wrong(people.all(&txn).count().map(drop));
        wrong(people.all(&txn).rows().collect::<Result<Vec<_>, _>>().map(drop));
    }
    Ok(())
}

#[test]
fn a_snapshot_from_before_the_table_is_an_error() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill(dir.path())?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        let before = store.read()?;
        let people = plain::PersonRepository::open(&store)?;
        assert!(matches!(people.get(&before, 1), Err(Error::SnapshotTooOld { table: "people" })));
        assert!(people.get(&store.read()?, 1).is_ok());
        let again = plain::PersonRepository::open(&store)?;
        assert!(again.get(&store.read()?, 1).is_ok());
    }
    Ok(())
}

#[test]
fn repositories_dont_keep_a_store_open() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = plain::PersonRepository::open(&store)?;
    drop(store);
    let store = Store::open(dir.path())?;
    assert!(matches!(people.get(&store.read()?, 1), Err(Error::WrongStore { .. })));
    Ok(())
}

#[test]
fn a_directory_that_is_open_is_shared() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = Store::open(&path)?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &plain::person(1)))?;

    let mut ways = vec![path.clone(), path.join("..").join("store"), path.join(".")];
    #[cfg(unix)]
    {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link)?;
        ways.push(link);
        let mut relative: std::path::PathBuf =
            std::env::current_dir()?.components().skip(1).map(|_| "..").collect();
        relative.extend(path.components().skip(1));
        assert!(relative.is_relative());
        ways.push(relative);
    }
    for way in ways {
        let again = Store::open(way)?;
        assert!(people.get(&again.read()?, 1)?.is_some(), "repositories are good for both");
        let txn = store.write()?;
        assert!(matches!(again.write(), Err(Error::WriteInProgress)));
        drop(txn);
        assert!(matches!(
            indexed::PersonRepository::open(&again),
            Err(Error::SchemaMismatch { table: "people", .. })
        ));
    }

    for (options, option) in [
        (Store::options().map_size(1 << 26), "map_size"),
        (Store::options().max_map_size(1 << 26), "max_map_size"),
        (Store::options().durability(index_table::Durability::None), "durability"),
        (Store::options().max_databases(5), "max_databases"),
        (Store::options().max_readers(5), "max_readers"),
    ] {
        let refused = options.open(&path);
        let Err(Error::AlreadyOpen { path: open, reason }) = refused else {
            return Err(format!("{refused:?}").into());
        };
        assert_eq!(open, path.canonicalize()?);
        assert!(reason.contains(option), "{reason}");
    }

    let again = Store::open(&path)?;
    drop(store);
    assert!(people.get(&again.read()?, 1)?.is_some(), "the other handle keeps it open");
    drop(again);
    let store = Store::options().max_databases(5).open(&path)?;
    assert!(plain::PersonRepository::open(&store)?.get(&store.read()?, 1)?.is_some());
    Ok(())
}

/// Handles are dropped while others are made: each either shares or opens anew.
#[test]
fn threads_open_and_close_a_directory() -> TestResult {
    let dir = tempfile::tempdir()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..200).try_for_each(|_| Store::open(dir.path())?.read().map(drop)))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| panic!()))
    })?;
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_directory_that_was_replaced_is_not_shared() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = Store::open(&path)?;
    std::fs::rename(&path, dir.path().join("elsewhere"))?;
    let refused = Store::open(&path);
    assert!(matches!(refused, Err(Error::AlreadyOpen { .. })), "{refused:?}");
    drop(store);
    Store::open(&path)?;
    Ok(())
}

/// LMDB would lose its locks when one of the two is closed.
#[cfg(unix)]
#[test]
fn a_directory_that_is_open_is_known_by_its_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    let [path, hard, soft, renamed] =
        ["store", "hard", "soft", "renamed"].map(|it| dir.path().join(it));
    let store = Store::open(&path)?;
    for other in [&hard, &soft] {
        std::fs::create_dir(other)?;
    }
    for file in ["data.mdb", "lock.mdb"] {
        std::fs::hard_link(path.join(file), hard.join(file))?;
        std::os::unix::fs::symlink(path.join(file), soft.join(file))?;
    }
    std::fs::rename(&path, &renamed)?;
    std::os::unix::fs::symlink(&renamed, &path)?;
    for other in [&hard, &soft, &renamed] {
        let Err(Error::AlreadyOpen { reason, .. }) = Store::open(other) else {
            return Err(format!("{} is opened", other.display()).into());
        };
        assert!(
            reason.contains(&*path.file_name().ok_or("no name")?.to_string_lossy()),
            "{reason}"
        );
    }
    drop(store);
    Store::open(&renamed)?;
    Ok(())
}

/// The environment is not ours.
#[test]
fn a_directory_that_is_open_without_this_crate_is_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: the directory is the test's own.
    let env = unsafe { heed::EnvOpenOptions::new().open(dir.path())? };
    assert!(matches!(Store::open(dir.path()), Err(Error::AlreadyOpen { .. })));
    drop(env);
    Store::open(dir.path())?;
    Ok(())
}

#[test]
fn handles_go_where_services_need_them() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send>() {}
    shared::<Store>();
    shared::<plain::PersonRepository>();
    sent::<index_table::ReadTxn<'_>>();
    sent::<Error>();
    sent::<index_table::Cursor>();
}

/// What the test of this name does in a process of its own.
fn in_another_process(name: &str, path: &Path) -> TestResult {
    let child = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", name])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    Ok(())
}

fn as_other_process() -> Option<std::path::PathBuf> {
    std::env::var_os("INDEX_TABLE_OTHER_PROCESS").map(Into::into)
}

#[test]
fn another_process_that_declares_otherwise_is_noticed() -> TestResult {
    if let Some(path) = as_other_process() {
        indexed::PersonRepository::open(&Store::open(path)?)?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &plain::person(1)))?;
    in_another_process("another_process_that_declares_otherwise_is_noticed", dir.path())?;
    let refused = store.transaction(|txn| people.insert(txn, &plain::person(2)));
    assert!(matches!(refused, Err(Error::SchemaMismatch { table: "people", .. })), "{refused:?}");
    assert_eq!(people.all(&store.read()?).count()?, 1, "reading goes on");
    Ok(())
}

#[test]
fn one_thread_writes_at_a_time() -> TestResult {
    let dir = tempfile::tempdir()?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let txn = store.write();
                        assert!(matches!(store.write(), Err(Error::WriteInProgress)));
                        drop(txn);
                    }
                });
            }
        });
    }
    Ok(())
}

#[test]
fn a_row_that_is_there_already_is_not_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = indexed::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &indexed::person(1)))?;
    let bytes = || std::fs::read(dir.path().join("data.mdb"));
    let before = bytes()?;
    store.transaction(|txn| people.put(txn, &indexed::person(1)))?;
    store.transaction(|txn| people.update(txn, 1, |person| person.age = 40))?;
    assert!(bytes()? == before, "a transaction that changes nothing writes nothing");
    store.transaction(|txn| people.update(txn, 1, |person| person.age = 41))?;
    assert!(bytes()? != before);
    Ok(())
}

#[test]
fn limits_say_what_to_set() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().max_databases(2).max_readers(2).open(dir.path())?;
    let refused = indexed::PersonRepository::open(&store).map(drop);
    assert!(matches!(refused, Err(Error::TooManyDatabases { max_databases: 2 })), "{refused:?}");
    let people = plain::PersonRepository::open(&store)?;
    let (_first, _second) = (store.read()?, store.read()?);
    assert!(matches!(store.read(), Err(Error::TooManyReaders { max_readers: 2, oldest: Some(_) })));
    let long = plain::Person { town: "x".repeat(2000), ..plain::person(1) };
    store.transaction(|txn| people.insert(txn, &long))?;
    Ok(())
}

#[test]
fn keys_that_are_too_long_change_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = indexed::PersonRepository::open(&store)?;
    let mut txn = store.write()?;
    people.insert(&mut txn, &indexed::person(1))?;
    // 506 letters, their end, and the primary key make 511.
    for (letters, fits) in [(506, true), (507, false), (5000, false)] {
        let outcome = people.update(&mut txn, 1, |person| person.town = "x".repeat(letters));
        if fits {
            assert!(outcome?);
        } else {
            let Err(Error::KeyTooLong { table: "people", index: Some("town"), key, len }) = outcome
            else {
                return Err(format!("{outcome:?}").into());
            };
            assert_eq!(len, letters + 5);
            assert!(key.len() < 200, "{key}");
        }
    }
    assert_eq!(people.find_by_town(&txn, &"x".repeat(506)).count()?, 1);
    // Asking for what can't be there is no error.
    assert_eq!(people.find_by_town(&txn, &"x".repeat(5000)).rows().count(), 0);
    assert_eq!(people.find_by_town_range(&txn, "x".repeat(5000).as_str()..).rev().count()?, 0);
    assert_eq!(people.find_by_town_range(&txn, ..="x".repeat(5000).as_str()).rows().count(), 1);
    assert_eq!(people.find_by_town_starting_with(&txn, &"x".repeat(506)).rev().rows().count(), 1);
    // Bounds of which LMDB can only be told the first 511 bytes, on both sides of the row.
    let (row, below, above) = ("x".repeat(506), "x".repeat(505) + "w", "x".repeat(507) + "y");
    let cut = "x".repeat(511);
    for (range, count) in [
        ((below.as_str(), row.as_str()), 0),
        ((row.as_str(), above.as_str()), 1),
        ((row.as_str(), cut.as_str()), 1),
        ((cut.as_str(), above.as_str()), 0),
        ((below.as_str(), cut.as_str()), 1),
    ] {
        let scan = || people.find_by_town_range(&txn, range.0..range.1);
        assert_eq!(scan().rows().count(), count, "{range:?}");
        assert_eq!(scan().rev().rows().count(), count, "{range:?}");
        assert_eq!(scan().count()?, count as u64, "{range:?}");
    }
    Ok(())
}
