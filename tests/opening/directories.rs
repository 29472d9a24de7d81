//! Directories that are or are not the same store.

use index_table::{Error, Store};

use super::{TestResult, indexed, plain};

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
        assert!(people.get(&again.read()?, 1)?.is_some(), "a repository works with both handles");
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
        let result = options.open(&path);
        let Err(Error::AlreadyOpen { path: open, reason }) = result else {
            return Err(format!("{result:?}").into());
        };
        assert_eq!(open, path.canonicalize()?);
        assert!(reason.contains(option), "{reason}");
    }

    let again = Store::open(&path)?;
    drop(store);
    assert!(
        people.get(&again.read()?, 1)?.is_some(),
        "the store was closed with one of two handles"
    );
    drop(again);
    let store = Store::options().max_databases(5).open(&path)?;
    assert!(plain::PersonRepository::open(&store)?.get(&store.read()?, 1)?.is_some());
    Ok(())
}

/// Threads drop handles while others open the store. Each opening shares the store or opens it again.
#[test]
fn threads_can_open_and_close_a_directory_at_once() -> TestResult {
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
    let result = Store::open(&path);
    assert!(matches!(result, Err(Error::AlreadyOpen { .. })), "{result:?}");
    drop(store);
    Store::open(&path)?;
    Ok(())
}

/// With the file open twice, LMDB would lose its locks when it is closed once.
#[cfg(unix)]
#[test]
fn another_path_to_an_open_file_is_refused() -> TestResult {
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

/// Another library of the process has the environment open.
#[test]
fn a_directory_that_is_open_without_this_crate_is_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other test uses this directory.
    let env = unsafe { heed::EnvOpenOptions::new().open(dir.path())? };
    assert!(matches!(Store::open(dir.path()), Err(Error::AlreadyOpen { .. })));
    drop(env);
    Store::open(dir.path())?;
    Ok(())
}

/// LMDB would wait for the other end of a FIFO, and would write to the target of a link.
#[cfg(unix)]
#[test]
fn files_that_are_not_regular_are_refused() -> TestResult {
    use std::{
        ffi::CString,
        os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
        path::Path,
        sync::mpsc,
        thread,
        time::Duration,
    };

    type Make<'a> = &'a dyn Fn(&Path) -> TestResult;

    let dir = tempfile::tempdir()?;
    drop(Store::open(dir.path().join("other"))?);
    let fifo = |path: &Path| -> TestResult {
        let path = CString::new(path.as_os_str().as_bytes())?;
        #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
        // SAFETY: `path` is a C string that lives until the end of the call.
        let created = unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0;
        if created { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
    };
    let outside = dir.path().join("outside");
    for name in ["data.mdb", "lock.mdb"] {
        let other = dir.path().join("other").join(name);
        let kinds: [(&str, Make<'_>); 6] = [
            ("fifo", &fifo),
            ("device", &|path| Ok(symlink("/dev/null", path)?)),
            ("link", &|path| Ok(symlink(&other, path)?)),
            ("dangling", &|path| Ok(symlink(&outside, path)?)),
            ("directory", &|path| Ok(std::fs::create_dir(path)?)),
            ("socket", &|path| UnixListener::bind(path).map(drop).map_err(Into::into)),
        ];
        for (kind, make) in kinds {
            for is_new in [true, false] {
                let path = dir.path().join(format!("{kind}-{name}-{is_new}"));
                std::fs::create_dir(&path)?;
                if !is_new {
                    drop(Store::open(&path)?);
                    std::fs::remove_file(path.join(name))?;
                }
                make(&path.join(name))?;
                let (done, outcome) = mpsc::channel();
                let store = path.clone();
                thread::spawn(move || done.send(Store::open(store).map(drop)));
                let result = outcome.recv_timeout(Duration::from_secs(20));
                let Ok(Err(Error::Io { path: named, source })) = result else {
                    return Err(format!("{kind} {name} {is_new}: {result:?}").into());
                };
                assert_eq!(named, path.canonicalize()?.join(name));
                assert_eq!(source.kind(), std::io::ErrorKind::InvalidInput);
            }
        }
    }
    assert!(!outside.exists(), "a file was created outside of the directory");
    Ok(())
}
