//! A process that is killed while its store grows, and rows are written beside.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Options, Result, Store};

use crate::{
    archived::archived,
    basic::{All, Order, customer},
};

const SHOP: &str = "INDEX_TABLE_GROWTH_SHOP";
const IS_RELAXED: &str = "INDEX_TABLE_GROWTH_IS_RELAXED";
const ARCHIVE: &str = "INDEX_TABLE_GROWTH_ARCHIVE";

/// The tenant whose orders are written while the store grows.
const TENANT: u32 = 500;

/// The file whose appearance the kill follows, and by how many microseconds.
const KILLS: [(&str, u64); 16] = [
    (".shards.manager.partial", 0),
    ("shards.manager", 0),
    ("shards.manager", 300),
    ("shards.manager", 1000),
    ("writer.lock", 0),
    ("writer.lock", 300),
    ("writer.lock", 2000),
    ("shards.journal.0", 0),
    ("shards.journal.0", 500),
    ("shards.journal.0", 2000),
    ("east", 0),
    ("east/data.mdb", 0),
    ("east/data.mdb", 1000),
    ("east/journal.0", 0),
    ("east/journal.0", 3000),
    ("east/journal.0", 30_000),
];

/// Adds a shard, and moves rows to it. Prints the number of each order that was committed meanwhile.
fn child(shop: &Path) -> Result<()> {
    let relaxed = std::env::var_os(IS_RELAXED).is_some();
    let durability = if relaxed { Durability::Relaxed } else { Durability::Journal };
    let archive = std::env::var_os(ARCHIVE);
    let store = opened(shop, durability, archive.as_ref().map(Path::new))?;
    let all = All::open(&store)?;
    if archive.is_some() {
        archived(&store);
    }
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1.. {
                let order = Order { tenant: TENANT, number, total: 1 };
                let written = store.transaction(|txn| all.orders.insert(txn, &order));
                if let Err(error) = written {
                    println!("error {error}");
                    return;
                }
                println!("written {number}");
            }
        });
        store.add_shard("east", "east")?;
        if !relaxed {
            store.move_range("customers", 50u32.., "east").run()?;
        }
        println!("grown");
        let _ = writer.join();
        Ok(())
    })
}

fn opened(shop: &Path, durability: Durability, archive: Option<&Path>) -> Result<Store> {
    let options = Store::options().durability(durability);
    archive.into_iter().fold(options, Options::archive).open(shop)
}

fn check(shop: &Path, last: u64, archive: Option<&Path>) -> Result<()> {
    let open = || archive.into_iter().fold(Store::options(), Options::archive).open(shop);
    let store = open()?;
    let is_relaxed = store.durability() == Durability::Relaxed;
    assert!(store.unavailable_shards().is_empty());
    let all = All::open(&store)?;
    let txn = store.read()?;
    let numbers = all.orders.find_by_tenant(&txn, TENANT).rows();
    let numbers: Vec<_> = numbers.map(|order| order.map(|it| it.number)).collect::<Result<_>>()?;
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
    assert!(numbers.len() as u64 >= last, "{} of {last} orders", numbers.len());
    let moment = txn.commit_number();
    drop(txn);
    store.transaction(|txn| {
        let orders: Vec<_> = numbers.iter().map(|number| (TENANT, *number)).collect();
        orders
            .into_iter()
            .try_for_each(|(tenant, number)| all.orders.delete(txn, tenant, number).map(drop))
    })?;
    all.check(&store)?;
    // A shard that was being added when the process was killed is added by the next opening, or is not there.
    if store.shard("east").is_err() {
        store.add_shard("east", "east")?;
    }
    for interrupted in store.moves()? {
        store.resume_move(interrupted.id).run()?;
    }
    if !is_relaxed {
        store.move_range("customers", 20u32.., "east").run()?;
        all.check(&store)?;
    }
    drop((all, store));
    let store = open()?;
    All::open(&store)?.check(&store)?;
    if let Some(archive) = archive {
        archived(&store);
        let restored = archive.with_extension("end");
        Store::restore_archive(archive).run(&restored)?;
        let restored = Store::open(&restored)?;
        All::open(&restored)?.check(&restored)?;
        // The moment at which the next process has opened the store.
        let restored = archive.with_extension("moment");
        Store::restore_archive(archive).until_commit(moment).run(&restored)?;
        let restored = Store::open(&restored)?;
        let all = All::open(&restored)?;
        let orders = all.orders.find_by_tenant(&restored.read()?, TENANT).count()?;
        assert_eq!(orders, numbers.len() as u64);
    }
    // The next opening for writing removes what the killed process has left.
    assert!(!shop.join(".shards.manager.partial").exists());
    Ok(())
}

#[test]
fn a_process_that_is_killed_while_its_store_grows_loses_no_commit() {
    if let Some(shop) = std::env::var_os(SHOP) {
        let grown = child(Path::new(&shop));
        println!("error {grown:?}");
        return;
    }
    let template = tempfile::tempdir().expect("a directory");
    let fill = || {
        let store = Store::open(template.path())?;
        let all = All::open(&store)?;
        store.transaction(|txn| all.customers.insert(txn, &customer(0, 0)).map(drop))?;
        store.transaction(|txn| all.customers.delete(txn, 0, 0).map(drop))?;
        all.fill(&store)
    };
    fill().expect("a store");
    let (mut kills, mut written) = (0, 0);
    for (round, (name, micros)) in KILLS.into_iter().chain(KILLS).enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let shop = dir.path().join("shop");
        fs::create_dir(&shop).expect("a directory");
        for file in fs::read_dir(template.path()).expect("a directory") {
            let path = file.expect("a file").path();
            fs::copy(&path, shop.join(path.file_name().expect("a name"))).expect("a copy");
        }
        let name_of_test = "killed::a_process_that_is_killed_while_its_store_grows_loses_no_commit";
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", name_of_test, "--nocapture"]).env(SHOP, &shop);
        let archive = dir.path().join("archive");
        let archive = (round % 3 == 1).then_some(archive.as_path());
        if let Some(archive) = archive {
            command.env(ARCHIVE, archive);
        } else if round % 8 == 4 {
            command.env(IS_RELAXED, "1");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let reader = thread::spawn(move || {
            let lines: Vec<_> = lines.lines().map_while(std::result::Result::ok).collect();
            lines
        });
        let begun = Instant::now();
        // The first file is there for a short time only.
        let is_there =
            || shop.join(name).exists() || (name == KILLS[0].0 && shop.join(KILLS[1].0).exists());
        while !is_there() && child.try_wait().expect("a process").is_none() {
            assert!(begun.elapsed() < Duration::from_mins(1), "{name}");
        }
        thread::sleep(Duration::from_micros(micros));
        child.kill().expect("killed");
        kills += u32::from(!child.wait().expect("a process").success());
        let lines = reader.join().expect("lines");
        let failed = lines.iter().find(|line| line.starts_with("error"));
        assert_eq!(failed, None, "killed {micros} us after {name}");
        let number = |line: &String| line.strip_prefix("written ")?.parse::<u64>().ok();
        let last = lines.iter().filter_map(number).max().unwrap_or_default();
        written += last;
        let checked = check(&shop, last, archive);
        assert!(checked.is_ok(), "killed {micros} us after {name}, round {round}: {checked:?}");
    }
    assert!(kills > 20 && written > 0, "{kills} kills, {written} orders");
}
