//! Processes that have the store open for reading while another process restores a shard.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "guests", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct Guest {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    email: String,
}

fn guest(tenant: u32, version: u32) -> Guest {
    Guest { tenant, id: 1, email: format!("{tenant}, version {version}") }
}

/// The tenants with a row, one in each shard.
const TENANTS: [u32; 3] = [1, 11, 21];

/// Creates a store with three shards, and a backup of each of them. Then the rows change.
fn create(shop: &Path, backup: &Path) -> Result<()> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
    let store = options.map("guests", map).open(shop)?;
    let guests = GuestRepository::open(&store)?;
    for version in 0..2 {
        store.transaction(|txn| {
            TENANTS.into_iter().try_for_each(|tenant| guests.put(txn, &guest(tenant, version)))
        })?;
        if version == 0 {
            store.backup_to(backup)?;
        }
    }
    Ok(())
}

fn lose(shop: &Path, shards: &[&str]) {
    for shard in shards {
        fs::remove_dir_all(shop.join(shard)).expect("removed");
    }
}

/// Looks up a row that no process changes.
fn look_up(store: &Store, guests: &GuestRepository) -> &'static str {
    let found = store.read().and_then(|txn| guests.get_by_email(&txn, &guest(1, 1).email));
    match found {
        Ok(Some(_)) => "found",
        Ok(None) => "missing",
        Err(Error::ReopenNeeded { .. }) => "reopen",
        Err(Error::IndexNotReadable { .. }) => "not readable",
        Err(error) => panic!("{error}"),
    }
}

const SHOP: &str = "INDEX_TABLE_RESTORED_READERS_SHOP";

/// Opens the store for reading, and looks up the row for each line of the input.
fn child(shop: &Path) -> Result<()> {
    let store = Store::options().read_only(true).open(shop)?;
    let guests = GuestRepository::open(&store)?;
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    loop {
        eprintln!("{}", look_up(&store, &guests));
        line.clear();
        if input.read_line(&mut line).expect("a line") == 0 {
            return Ok(());
        }
    }
}

/// Another process that has the store open for reading.
struct Reader {
    child: Child,
    output: BufReader<ChildStderr>,
}

impl Reader {
    fn open(shop: &Path) -> Self {
        let name = "restored_readers::readers_open_the_store_again_after_a_shard_was_restored";
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", name, "--nocapture"]).env(SHOP, shop);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let output = BufReader::new(child.stderr.take().expect("the output"));
        let mut reader = Self { child, output };
        assert_eq!(reader.found(), "found");
        reader
    }

    fn found(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn look_up(&mut self) -> String {
        writeln!(self.child.stdin.as_mut().expect("the input"), "next").expect("written");
        self.found()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn readers_open_the_store_again_after_a_shard_was_restored() -> Result<()> {
    if let Some(shop) = std::env::var_os(SHOP) {
        return child(&PathBuf::from(shop));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    create(&shop, &backup)?;
    let mut reader = Reader::open(&shop);
    lose(&shop, &["b", "c"]);
    let store = Store::open(&shop)?;
    let guests = GuestRepository::open(&store)?;
    assert_eq!(reader.look_up(), "found");
    // The index stays emptied, because the last shard is missing.
    store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
    assert_eq!(look_up(&store, &guests), "not readable");
    assert_eq!(reader.look_up(), "reopen");
    store.restore_shard(&store.shard("c")?, backup.join("shard.2"))?;
    assert_eq!(look_up(&store, &guests), "found");
    // The reader still has the lost files open.
    assert_eq!(reader.look_up(), "reopen");
    assert_eq!(Reader::open(&shop).look_up(), "found");
    Ok(())
}

#[test]
fn readers_open_the_store_again_after_the_files_of_a_shard_were_replaced() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    create(&shop, &backup)?;
    let mut reader = Reader::open(&shop);
    lose(&shop, &["b", "c"]);
    Store::restore(backup.join("shard.1"), shop.join("b"))?;
    let store = Store::open(&shop)?;
    let guests = GuestRepository::open(&store)?;
    assert_eq!(store.unavailable_shards().len(), 1);
    assert!(guests.get(&store.read()?, 11, 1)?.is_some());
    assert_eq!(reader.look_up(), "reopen");
    Ok(())
}
