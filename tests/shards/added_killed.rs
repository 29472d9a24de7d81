//! A process that is killed while it adds a shard, or creates a store with shards.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "countries", reference)]
struct Country {
    #[primary_key]
    code: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    email: String,
}

const ROWS: u32 = 20;

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    Store::options().shard("a", "a").shard("b", "b").map("members", map)
}

fn member(id: u32) -> Member {
    Member { tenant: id, id, email: id.to_string() }
}

/// Adds a shard, or creates a store whose last shard is `c`, in this process.
fn child(shop: &Path, is_created: bool) -> Result<()> {
    if is_created {
        return options().shard("c", "c").open(shop).map(drop);
    }
    let store = Store::open(shop)?;
    let (_countries, _members) =
        (CountryRepository::open(&store)?, MemberRepository::open(&store)?);
    store.add_shard("c", "c").map(drop)
}

/// Opens the directory of the shard as a plain store, and creates a table there. Returns whether this is possible.
fn is_plain(place: &Path) -> Result<bool> {
    if !place.exists() {
        return Ok(false);
    }
    match Store::options().create(true).open(place) {
        Err(Error::ShardRefused { what, reason }) => {
            assert!(what.ends_with("c`") && reason.contains("sharded store"), "{what}: {reason}");
            Ok(false)
        }
        store => MemberRepository::open(&store?).map(|_| true),
    }
}

/// Checks that the store can be opened, and that its keys can be moved to the shard.
fn check(shop: &Path, is_created: bool, is_plain: bool) -> Result<()> {
    let store = match (is_created, is_plain) {
        (false, _) => Store::open(shop)?,
        (true, false) => options().shard("c", "c").open(shop)?,
        (true, true) => options().open(shop)?,
    };
    assert!(store.unavailable_shards().is_empty());
    let (countries, members) = (CountryRepository::open(&store)?, MemberRepository::open(&store)?);
    if is_created {
        fill(&store, &countries, &members)?;
    }
    let to = if is_plain { "d" } else { "c" };
    if store.shard(to).is_err() {
        store.add_shard(to, to)?;
    }
    store.move_range("members", 5u32..15, to).run()?;
    let txn = store.read()?;
    let mut rows = members.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    rows.sort_by_key(|row| row.id);
    assert!(rows.into_iter().eq((0..ROWS).map(member)));
    for shard in store.shard_ids() {
        assert_eq!(countries.all(&store.read_on(&shard)?).count()?, 5, "{shard:?}");
    }
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    drop(txn);
    drop((store, countries, members));
    let left = shop.join("c").join("shard.new");
    assert!(is_plain || !left.exists(), "the claim is left");
    Ok(())
}

fn fill(store: &Store, countries: &CountryRepository, members: &MemberRepository) -> Result<()> {
    store.transaction(|txn| {
        (0..5).try_for_each(|code| countries.insert(txn, &Country { code }))?;
        (0..ROWS).try_for_each(|id| members.insert(txn, &member(id)))
    })
}

const SHOP: &str = "INDEX_TABLE_ADDED_SHOP";
const IS_CREATED: &str = "INDEX_TABLE_ADDED_IS_CREATED";

/// When the process is killed, with the directory of the shard, and the number of milliseconds after that.
const KILLS: [(&str, &str, u64); 7] = [
    ("it has a directory", "", 0),
    ("it is claimed", "shard.new", 0),
    ("it has a data file", "data.mdb", 0),
    ("it joins", "journal.0", 0),
    ("it joins for 1 ms", "journal.0", 1),
    ("it joins for 3 ms", "journal.0", 3),
    ("it is added", "journal.0", 60),
];

#[test]
fn a_process_that_is_killed_while_it_adds_a_shard_leaves_no_plain_store_in_its_place() -> Result<()>
{
    if let Some(shop) = std::env::var_os(SHOP) {
        return child(Path::new(&shop), std::env::var_os(IS_CREATED).is_some());
    }
    let mut kills = 0;
    for (round, (what, name, millis)) in KILLS.into_iter().chain(KILLS).enumerate() {
        let is_created = round >= KILLS.len();
        let dir = tempfile::tempdir().expect("a directory");
        let shop = dir.path().join("shop");
        if !is_created {
            let store = options().open(&shop)?;
            fill(&store, &CountryRepository::open(&store)?, &MemberRepository::open(&store)?)?;
        }
        let name_of_test = "added_killed::a_process_that_is_killed_while_it_adds_a_shard_leaves_no_plain_store_in_its_place";
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", name_of_test]).env(SHOP, &shop);
        if is_created {
            command.env(IS_CREATED, "1");
        }
        let mut child = command.stdout(Stdio::null()).spawn().expect("a process");
        let (begun, place) = (Instant::now(), shop.join("c"));
        while !place.join(name).exists() && child.try_wait().expect("a process").is_none() {
            assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
        }
        thread::sleep(Duration::from_millis(millis));
        child.kill().expect("killed");
        kills += u32::from(!child.wait().expect("a process").success());
        let checked = is_plain(&place).and_then(|is_plain| check(&shop, is_created, is_plain));
        assert!(checked.is_ok(), "killed when {what}, in round {round}: {checked:?}");
    }
    assert!(kills > 0);
    Ok(())
}

/// A claim alone belongs to a process that was killed before the shard map manager had the shard.
#[test]
fn a_claimed_directory_is_refused_until_the_shard_is_added() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let shop = dir.path().join("shop");
    let place = shop.join("c");
    let store = options().open(&shop)?;
    let (countries, members) = (CountryRepository::open(&store)?, MemberRepository::open(&store)?);
    fill(&store, &countries, &members)?;
    fs::create_dir(&place).expect("a directory");
    fs::write(place.join("shard.new"), shop.to_str().expect("a path")).expect("a file");
    assert!(!is_plain(&place)?);
    assert_eq!(fs::read_dir(&place).expect("a directory").count(), 1, "nothing is created");
    drop((store, countries, members));
    check(&shop, false, false)?;

    // A store with tables is not a new shard.
    let plain = dir.path().join("plain");
    assert!(is_plain(&{
        fs::create_dir(&plain).expect("a directory");
        plain.clone()
    })?);
    fs::write(plain.join("shard.new"), "elsewhere").expect("a file");
    assert!(is_plain(&plain)?);
    Ok(())
}

/// A directory that can't be used is not claimed.
#[test]
fn a_shard_that_is_refused_leaves_no_claim() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, plain) = (dir.path().join("shop"), dir.path().join("plain"));
    drop(options().open(&shop)?);
    fs::create_dir(&plain).expect("a directory");
    assert!(is_plain(&plain)?);
    let store = options().open(&shop)?;
    let refused = store.add_shard("c", &plain);
    assert!(matches!(&refused, Err(Error::ShardRefused { .. })), "{refused:?}");
    fs::create_dir_all(shop.join("c/journal.0")).expect("a directory");
    let refused = store.add_shard("c", "c");
    assert!(matches!(&refused, Err(Error::Io { .. })), "{refused:?}");
    drop(store);
    let refused = options().add_shard("c", "c").open(&shop);
    assert!(matches!(&refused, Err(Error::Io { .. })), "{refused:?}");
    for directory in [plain, shop.join("c")] {
        assert!(!directory.join("shard.new").exists(), "{}", directory.display());
    }
    assert_eq!(options().open(&shop)?.shard_ids().len(), 2);
    Ok(())
}
