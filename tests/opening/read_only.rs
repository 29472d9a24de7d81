//! Read-only stores, and `create(false)`.

use std::{fs, path::Path};

use index_table::{Error, Options, Store};

use super::{
    TestResult, covering, fill, in_another_process, indexed, longer, newer, other, plain, role,
};

fn to_read() -> Options {
    Store::options().read_only(true)
}

fn fill_indexed(path: &Path) -> TestResult {
    fill(path)?;
    indexed::PersonRepository::open(&Store::open(path)?)?;
    Ok(())
}

#[test]
fn a_missing_store_is_not_created() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
    fs::create_dir(&empty)?;
    for options in [Store::options().create(false), to_read(), to_read().create(true)] {
        for path in [&missing, &missing.join("below"), &empty] {
            let result = options.open(path);
            let Err(error @ Error::StoreNotFound { .. }) = result else {
                return Err(format!("{result:?}").into());
            };
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
        assert!(!missing.exists());
        assert_eq!(fs::read_dir(&empty)?.count(), 0);
        // An incompletely created file has no commits.
        let file = empty.join("data.mdb");
        fs::write(&file, "")?;
        assert!(matches!(options.open(&empty), Err(Error::StoreNotFound { .. })));
        fs::remove_file(&file)?;
        let _ = fs::remove_file(empty.join("lock.mdb"));
    }
    let store = Store::open(&missing)?;
    // The store exists now, so it is shared.
    Store::options().create(false).open(&missing)?;
    drop(store);
    Store::options().create(false).open(&missing)?;
    Ok(())
}

#[test]
fn a_read_only_store_can_be_read_and_not_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    fill_indexed(&path)?;
    let file = path.join("data.mdb");
    let before = fs::read(&file)?;
    {
        let store = to_read().open(&path)?;
        store.check()?;
        let early = store.read()?;
        let people = indexed::PersonRepository::open(&store)?;
        for txn in [&early, &store.read()?] {
            assert_eq!(people.get(txn, 7)?, Some(indexed::person(7)));
            assert_eq!(people.find_by_town(txn, "Rome").rows().count(), 3000);
            assert_eq!(people.by_age(txn).count()?, 3000);
            assert!(people.verify(txn).run()?.is_clean());
        }
        assert_eq!(store.catalog()?.tables.len(), 1);
        store.backup_to(dir.path().join("backup"))?;
        store.compact_to(dir.path().join("compact"))?;

        let result = [
            store.write().map(drop),
            store.transaction(|txn| people.delete(txn, 7)).map(drop),
            store.writer().map(drop),
            store.start_index_worker().map(drop),
            store.drop_retired().map(drop),
            people.bulk_load(&store, [indexed::person(3000)]).run().map(drop),
            people.build(&store).run().map(drop),
        ];
        for result in result {
            let Err(Error::ReadOnly { path: open, source: None }) = &result else {
                return Err(format!("{result:?}").into());
            };
            assert_eq!(*open, path.canonicalize()?);
        }

        // LMDB must not open the file twice, and all handles are read-only.
        let result = Store::open(&path);
        let Err(Error::AlreadyOpen { reason, .. }) = result else {
            return Err(format!("{result:?}").into());
        };
        assert!(reason.contains("read_only"), "{reason}");
        assert!(people.get(&to_read().open(&path)?.read()?, 7)?.is_some());
    }
    assert!(fs::read(&file)? == before);
    for copy in ["backup", "compact"] {
        let store = Store::open(dir.path().join(copy))?;
        let people = indexed::PersonRepository::open(&store)?;
        assert_eq!(people.by_age(&store.read()?).count()?, 3000);
    }
    Ok(())
}

#[test]
fn the_declaration_must_match_a_read_only_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    fill_indexed(dir.path())?;
    {
        let store = to_read().open(dir.path())?;
        // A declaration with fewer indexes matches.
        let people = plain::PersonRepository::open(&store)?;
        assert_eq!(people.all(&store.read()?).count()?, 3000);
        drop(people);
        let result = [
            other::OtherRepository::open(&store).map(drop),
            covering::PersonRepository::open(&store).map(drop),
            newer::PersonRepository::open(&store).map(drop),
            longer::PersonRepository::open(&store).map(drop),
        ];
        let messages = result.map(|result| match result {
            Err(error @ (Error::SchemaMismatch { .. } | Error::IndexNotReadable { .. })) => {
                error.to_string()
            }
            result => format!("{result:?}"),
        });
        assert_eq!(
            messages.each_ref().map(|message| message.split(';').next().unwrap_or_default()),
            [
                "table `other` doesn't match its declaration: the file has no such table",
                "index `town` of table `people` is not readable: the client that has opened the table last for writing does not declare it, or declares it otherwise",
                "table `people` doesn't match its declaration: it may have rows of version 1, and the chain of `previous` from version 2 does not include it",
                "table `people` doesn't match its declaration: the row with primary key 0 can't be read: missing field `email`",
            ]
        );
        assert!(messages.iter().take(1).all(|it| it.contains("without `read_only(true)`")));
        // Without the index.
        let people = covering::PersonRepository::open_online(&store)?;
        assert_eq!(people.all(&store.read()?).count()?, 3000);
    }
    // The file has an index that is not built yet.
    drop(indexed::PersonRepository::open(&Store::open(dir.path())?)?);
    plain::PersonRepository::open(&Store::open(dir.path())?)?;
    indexed::PersonRepository::open_online(&Store::open(dir.path())?)?;
    let store = to_read().open(dir.path())?;
    let result = indexed::PersonRepository::open(&store);
    assert!(matches!(result, Err(Error::IndexNotReadable { .. })), "{result:?}");
    let people = indexed::PersonRepository::open_online(&store)?;
    assert_eq!(people.all(&store.read()?).count()?, 3000);
    let result = people.find_by_town(&store.read()?, "Rome").count();
    assert!(matches!(result, Err(Error::IndexNotReadable { .. })), "{result:?}");
    assert!(matches!(people.build(&store).run(), Err(Error::ReadOnly { .. })));
    Ok(())
}

/// Another process creates the table after this process has opened the store.
#[test]
fn commits_of_another_process_are_read() -> TestResult {
    const NAME: &str = "read_only::commits_of_another_process_are_read";
    if let Some((path, role)) = role() {
        let store = Store::options().map_size(1 << 18).open(path)?;
        let people = indexed::PersonRepository::open(&store)?;
        let first: u32 = role.parse()?;
        for id in first..first + 500 {
            store.transaction(|txn| people.insert(txn, &indexed::person(id)))?;
        }
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    drop(Store::open(dir.path())?);
    let store = to_read().map_size(1 << 18).open(dir.path())?;
    assert!(store.catalog()?.tables.is_empty());
    assert!(indexed::PersonRepository::open(&store).is_err());
    in_another_process(NAME, "0", dir.path())?;
    assert_eq!(store.catalog()?.tables.len(), 1);
    let people = indexed::PersonRepository::open(&store)?;
    let before = store.read()?;
    assert_eq!(people.find_by_town(&before, "Rome").count()?, 500);
    in_another_process(NAME, "500", dir.path())?;
    // The reader slot prevents reuse of the snapshot's pages.
    let ids = people.find_by_town(&before, "Rome").rows().map(|row| row.map(|row| row.id));
    assert_eq!(ids.collect::<Result<Vec<_>, _>>()?, (0..500).collect::<Vec<_>>());
    drop(before);
    // The other process enlarges the map.
    in_another_process(NAME, "1000", dir.path())?;
    in_another_process(NAME, "1500", dir.path())?;
    assert_eq!(people.find_by_town(&store.read()?, "Rome").rows().count(), 2000);
    store.check()?;
    Ok(())
}

/// Runs as another user with read permission only.
#[cfg(target_os = "linux")]
#[test]
fn read_permission_alone_is_refused() -> TestResult {
    use std::os::unix::fs::PermissionsExt;

    use super::{nobody::as_nobody, privileges::not_privileged};

    const NAME: &str = "read_only::read_permission_alone_is_refused";
    if let Some((path, role)) = role() {
        let result = to_read().open(&path);
        let expected = match &*role {
            "no slot" => matches!(result, Err(Error::NoReaderSlot { .. })),
            "no file" | "no journal" => matches!(result, Err(Error::Io { .. })),
            _ => result.is_ok(),
        };
        assert!(expected, "{result:?}");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    fill(dir.path())?;
    let [data, lock] = ["data.mdb", "lock.mdb"].map(|file| dir.path().join(file));
    let as_other_user = |role| {
        let mut command = as_nobody(NAME);
        command.env("INDEX_TABLE_OTHER_PROCESS", dir.path()).env("INDEX_TABLE_ROLE", role).output()
    };
    allow(dir.path(), 0o755)?;
    for (role, modes) in [
        ("no journal", [0o444, 0o666, 0o000]),
        ("slots", [0o444, 0o666, 0o444]),
        ("no slot", [0o666, 0o444, 0o444]),
        ("no slot", [0o444, 0o000, 0o444]),
        ("no file", [0o000, 0o666, 0o444]),
    ] {
        allow(&data, modes[0])?;
        allow(&lock, modes[1])?;
        for number in 0..3 {
            allow(&dir.path().join(format!("journal.{number}")), modes[2])?;
        }
        let output = match as_other_user(role) {
            Ok(output) => output,
            Err(error) => {
                return not_privileged(&format!("no process of another user starts: {error}"));
            }
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{role} {modes:?}: {said}");
    }
    // The user can't create the lock file either.
    fs::remove_file(&lock)?;
    allow(&data, 0o444)?;
    let output = as_other_user("no slot")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// Runs as another user, after the process that wrote a journal was killed.
#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_may_not_recover_a_store_names_the_command_that_does() -> TestResult {
    use std::os::unix::fs::PermissionsExt;

    use index_table::Durability;

    use super::{nobody::as_nobody, privileges::not_privileged};

    const NAME: &str =
        "read_only::a_reader_that_may_not_recover_a_store_names_the_command_that_does";
    if let Some((path, role)) = role() {
        let result = to_read().open(&path);
        if role == "recovers" {
            assert!(result?.was_recovered());
            return Ok(());
        }
        let command = format!("`index-table recover {}`", path.canonicalize()?.display());
        let is_named = matches!(&result, Err(error @ Error::RecoveryNeeded { .. })
            if error.to_string().contains(&command));
        assert!(is_named, "{result:?}");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let open = dir.path().join("open");
    allow(dir.path(), 0o755)?;
    let store = Store::options().durability(Durability::Journal).open(&open)?;
    plain::PersonRepository::open(&store)?;
    // The modes of the directory, data.mdb, lock.mdb and the journal; 0: there is no lock file.
    for (number, (role, [directory, data, lock, journal])) in [
        ("refused", [0o755, 0o444, 0o666, 0o644]),
        ("refused", [0o777, 0o444, 0o666, 0o644]),
        ("refused", [0o755, 0o666, 0o444, 0o644]),
        ("refused", [0o755, 0o666, 0, 0o644]),
        ("refused", [0o755, 0o666, 0o666, 0o200]),
        ("recovers", [0o755, 0o666, 0o666, 0o644]),
    ]
    .into_iter()
    .enumerate()
    {
        let left = dir.path().join(number.to_string());
        fs::create_dir(&left)?;
        for (name, mode) in [
            ("data.mdb", data),
            ("journal.0", journal),
            ("journal.1", journal),
            ("journal.2", journal),
        ] {
            if open.join(name).exists() {
                fs::copy(open.join(name), left.join(name))?;
                allow(&left.join(name), mode)?;
            }
        }
        if lock > 0 {
            fs::write(left.join("lock.mdb"), "")?;
            allow(&left.join("lock.mdb"), lock)?;
        }
        allow(&left, directory)?;
        let before = fs::read(left.join("data.mdb"))?;
        let mut command = as_nobody(NAME);
        command.env("INDEX_TABLE_OTHER_PROCESS", &left).env("INDEX_TABLE_ROLE", role);
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                return not_privileged(&format!("no process of another user starts: {error}"));
            }
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{role} {number}: {said}");
        assert_eq!(role == "refused", fs::read(left.join("data.mdb"))? == before, "{number}");
    }
    Ok(())
}
