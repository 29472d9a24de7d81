//! Moves beside readers in other processes, and processes that are killed during moves.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Error, Result, Store, report::MoveState};

use crate::moves::{AccountRepository, Tables, account, options};

const STORE: &str = "INDEX_TABLE_MOVES";

/// The number of processes that are killed during moves.
const KILLS: &str = "INDEX_TABLE_MOVE_KILLS";

/// The number of kills of the processes of one store.
const EACH: u64 = 50;

/// Runs this test in another process, on the same store.
fn other_process(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("the test"))
        .args(["--exact", test, "--nocapture"])
        .env(STORE, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Reads the store until its directory has a file `stop`. Returns how often it has read and opened it.
fn read_on(path: &Path) -> Result<(u32, u32)> {
    let (mut reads, mut opened) = (0, 0);
    while !path.join("stop").exists() {
        opened += 1;
        let store = Store::options().read_only(true).open(path)?;
        let accounts = match AccountRepository::open(&store) {
            Err(Error::ReopenNeeded { .. }) => continue,
            accounts => accounts?,
        };
        loop {
            let txn = match store.read() {
                Err(Error::ReopenNeeded { .. }) => break,
                txn => txn?,
            };
            // Each shard has a snapshot of its own, so only the rows are the same in all of them.
            let count = accounts.all(&txn).count()?;
            assert_eq!(count, 1000, "rows of all shards");
            assert_eq!(accounts.find_by_tenant(&txn, 15).rows().count(), 25);
            reads += 1;
            if reads == 1 {
                println!("reads");
            }
            if path.join("stop").exists() {
                break;
            }
        }
    }
    Ok((reads, opened))
}

#[test]
fn a_reader_in_another_process_never_misses_or_repeats_a_row() -> Result<()> {
    if let Some(path) = std::env::var_os(STORE) {
        let (reads, opened) = read_on(Path::new(&path))?;
        assert!(reads > 0 && opened > 1, "{reads} reads, opened {opened} times");
        return Ok(());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let tables = Tables::open(&store)?;
    tables.fill(&store)?;
    let test = "moves_otherwise::a_reader_in_another_process_never_misses_or_repeats_a_row";
    let mut reader = other_process(test, &path);
    let mut lines = BufReader::new(reader.stdout.take().expect("output")).lines();
    assert!(lines.by_ref().map_while(std::result::Result::ok).any(|line| line.contains("reads")));
    let moves = || -> Result<()> {
        for (range, to) in [(10u32..30, "c"), (0..25, "b"), (5..35, "a"), (0..20, "c")] {
            store.move_range("accounts", range, to).run()?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    let outcome = moves();
    std::fs::write(path.join("stop"), []).expect("a file");
    let rest: Vec<_> = lines.map_while(std::result::Result::ok).collect();
    assert!(reader.wait().expect("the reader").success(), "{rest:?}");
    outcome
}

/// Moves ranges back and forth beside a writer, whose commits are printed.
fn move_on(path: &Path) -> Result<()> {
    let store = Store::open(path)?;
    let tables = Tables::open(&store)?;
    for begun in store.moves()? {
        store.resume_move(begun.id).run()?;
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 100.. {
                for tenant in [3, 14, 15, 27] {
                    // Numbers of earlier runs exist.
                    let new = account(tenant, number);
                    let inserted = store.transaction(|txn| {
                        tables.accounts.update(txn, tenant, 5, |row| row.balance += 1)?;
                        tables.accounts.insert(txn, &new)
                    });
                    if inserted.is_ok() {
                        let mut out = std::io::stdout();
                        writeln!(out, "acknowledged {tenant} {number}").expect("output");
                    }
                }
            }
        });
        for round in 0.. {
            let to = ["a", "b", "c"][round % 3];
            store.move_range("accounts", 12u32..30, to).run().expect("a move");
            let slots = if round % 2 == 0 { 0..1000 } else { 500..4096 };
            store.move_slots("accounts.code", slots, to).run().expect("a move of entries");
        }
    });
    Ok(())
}

#[test]
fn a_process_that_is_killed_during_moves_loses_and_duplicates_no_row() -> Result<()> {
    if let Some(path) = std::env::var_os(STORE) {
        return move_on(Path::new(&path));
    }
    let kills = std::env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let (mut left, mut interrupted, mut acknowledged) = (kills, 0, 0);
    while left > 0 {
        let (moves, rows) = kill_during_moves(left.min(EACH))?;
        (interrupted, acknowledged) = (interrupted + moves, acknowledged + rows);
        left = left.saturating_sub(EACH);
    }
    println!("{kills} kills, {interrupted} of them in a move, {acknowledged} acknowledged rows");
    assert!(interrupted > 2 && acknowledged > 50, "{interrupted} {acknowledged}");
    Ok(())
}

/// Returns the number of interrupted moves and of acknowledged rows.
fn kill_during_moves(kills: u64) -> Result<(usize, usize)> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    {
        let store = options().open(&path)?;
        Tables::open(&store)?.fill(&store)?;
    }
    let test = "moves_otherwise::a_process_that_is_killed_during_moves_loses_and_duplicates_no_row";
    let (mut acknowledged, mut interrupted) = (Vec::new(), 0);
    for round in 0..kills {
        let mut child = other_process(test, &path);
        let lines = BufReader::new(child.stdout.take().expect("output")).lines();
        let mut lines = lines.map_while(std::result::Result::ok);
        // The first commit of this round, and then a random number of them.
        let most = usize::try_from(1 + round * 7 % 40).unwrap_or(1);
        let mut seen = lines.by_ref().filter(|line| line.starts_with("acknowledged")).take(most);
        let first: Vec<_> = seen.by_ref().collect();
        child.kill().expect("killed");
        child.wait().expect("ended");
        let rest = lines.filter(|line| line.starts_with("acknowledged"));
        for line in first.into_iter().chain(rest) {
            let mut words = line.split(' ').skip(1);
            let mut next = || words.next().expect("a number").parse::<u64>().expect("a number");
            acknowledged.push((next() as u32, next()));
        }
        let store = Store::open(&path)?;
        let tables = Tables::open(&store)?;
        tables.accounts.drain(&store, u64::MAX)?;
        interrupted += store.moves()?.len();
        let check = || -> Result<()> {
            let txn = store.read()?;
            for (tenant, number) in &acknowledged {
                assert_eq!(
                    tables.accounts.get(&txn, *tenant, *number)?,
                    Some(account(*tenant, *number))
                );
                let code = account(*tenant, *number).code;
                assert_eq!(
                    tables.accounts.get_by_code(&txn, code)?,
                    Some(account(*tenant, *number))
                );
            }
            let rows = tables.accounts.all(&txn).keys().collect::<Result<Vec<_>>>()?;
            assert!(rows.windows(2).all(|two| two[0] < two[1]), "each row once");
            let of_towns = ["t0", "t1", "t2", "t3", "t4"]
                .map(|town| tables.accounts.find_by_town(&txn, town).rows().count());
            assert_eq!(of_towns.iter().sum::<usize>(), rows.len());
            assert!(store.verify()?.is_clean());
            Ok(())
        };
        check()?;
        for begun in store.moves()? {
            match begun.state {
                MoveState::Copying if round % 2 == 0 => store.cancel_move(begun.id)?,
                // The next process resumes every third move.
                _ if round % 3 != 0 => store.resume_move(begun.id).run().map(drop)?,
                _ => {}
            }
        }
        check()?;
    }
    Ok((interrupted, acknowledged.len()))
}

#[test]
fn rows_of_a_grown_store_can_be_moved_and_rebalanced() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path())?;
        let accounts = AccountRepository::open(&store)?;
        store
            .transaction(|txn| (0..40).try_for_each(|it| accounts.insert(txn, &account(it, 1))))?;
    }
    let store = Store::options().add_shard("b", "b").open(dir.path())?;
    let tables = Tables::open(&store)?;
    assert_eq!(store.move_range("accounts", 30u32..40, "b").run()?.rows, 10);
    store.rebalance("accounts").tolerance(0).plan()?.run()?;
    let shards: Vec<u64> = store.ranges("accounts")?.iter().map(|range| range.rows).collect();
    assert_eq!(shards.iter().sum::<u64>(), 40);
    assert_eq!(store.shards()?.iter().map(|shard| shard.rows).collect::<Vec<_>>(), [20, 20]);
    let txn = store.read()?;
    assert_eq!(
        tables.accounts.find_by_tenant(&txn, 35).rows().next().transpose()?,
        Some(account(35, 1))
    );
    assert!(tables.accounts.verify(&txn).run()?.is_clean());
    Ok(())
}
