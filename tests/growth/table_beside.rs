//! Moves of tables without `shard_by` beside processes that read the store, and in processes that are killed.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Error, Result, Store};

use crate::table::{self, InvoiceRepository, ROWS};

const SHOP: &str = "INDEX_TABLE_GROWTH_TABLE_SHOP";

/// Runs this test in a process of its own, with the path of the store.
fn this_test(name: &str, shop: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", &format!("table_beside::{name}"), "--nocapture"]).env(SHOP, shop);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Opens the store read-only, and reads it once for each line. Prints the number of rows, or `reopen`.
fn reader(shop: &Path) -> Result<()> {
    let options = || Store::options().read_only(true);
    let mut store = options().open(shop)?;
    let mut invoices = InvoiceRepository::open(&store)?;
    println!("open");
    for _ in std::io::stdin().lines() {
        let read = store.read().and_then(|txn| invoices.all(&txn).count());
        match read {
            Ok(rows) => println!("rows {rows}"),
            Err(Error::ReopenNeeded { .. }) => {
                println!("reopen");
                drop((invoices, store));
                store = options().open(shop)?;
                invoices = InvoiceRepository::open(&store)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A process that reads.
struct Reading {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reading {
    fn start(name: &str, shop: &Path) -> Self {
        let mut child = this_test(name, shop).spawn().expect("a process");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let mut own = Self { child, input, lines: BufReader::new(output).lines() };
        own.next(|line| line.ends_with("open"));
        own
    }

    fn next(&mut self, is_wanted: fn(&str) -> bool) -> String {
        let mut lines = self.lines.by_ref().map_while(std::result::Result::ok);
        lines.find(|line| is_wanted(line)).expect("a line")
    }

    fn ask(&mut self) -> String {
        writeln!(self.input.as_mut().expect("a pipe"), "read").expect("written");
        self.next(|line| line.starts_with("rows") || line == "reopen")
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("the end").success());
    }
}

#[test]
fn a_reader_in_another_process_never_lacks_rows_of_a_moved_table() -> Result<()> {
    if let Some(shop) = std::env::var_os(SHOP) {
        return reader(Path::new(&shop));
    }
    let dir = tempfile::tempdir().unwrap();
    let shop = dir.path().join("shop");
    let store = Store::open(&shop)?;
    let (_all, _invoices) = table::fill(&store)?;
    store.add_shard("billing", "billing")?;

    let name = "a_reader_in_another_process_never_lacks_rows_of_a_moved_table";
    let mut reading = Reading::start(name, &shop);
    let rows = format!("rows {ROWS}");
    assert_eq!(reading.ask(), rows);
    let mut reopened = 0;
    let moved = store.move_table("invoices", "billing").progress(|_| {
        let answer = reading.ask();
        assert!(answer == rows || answer == "reopen", "{answer}");
        reopened += u32::from(answer == "reopen");
    });
    moved.run()?;
    assert!(reopened > 0);
    while reading.ask() == "reopen" {}
    // The whole move is between two of its transactions.
    for shard in ["main", "billing", "main"] {
        assert_eq!(reading.ask(), rows);
        store.move_table("invoices", shard).run()?;
        assert_eq!(reading.ask(), "reopen");
    }
    reading.end();

    // Such a reader, and the first move of a table.
    let shop = dir.path().join("other");
    let store = Store::open(&shop)?;
    let (_all, _invoices) = table::fill(&store)?;
    store.add_shard("billing", "billing")?;
    let mut reading = Reading::start(name, &shop);
    store.move_table("invoices", "billing").run()?;
    assert_eq!(reading.ask(), "reopen");
    assert_eq!(reading.ask(), rows);
    reading.end();
    Ok(())
}

/// Moves the table from one shard to the other and back, beside a writer.
fn mover(shop: &Path) -> Result<()> {
    let store = Store::open(shop)?;
    let invoices = InvoiceRepository::open(&store)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let written = store.transaction(|txn| {
                    let number = invoices.insert_with(txn, table::invoice)?;
                    invoices.delete(txn, number)?;
                    Ok(number)
                });
                match written {
                    Ok(number) => println!("written {number}"),
                    Err(error) => println!("error {error}"),
                }
            }
        });
        for round in 0.. {
            println!("moving");
            if let Err(error) = store.move_table("invoices", ["billing", "main"][round % 2]).run() {
                println!("error {error}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_process_that_is_killed_while_it_moves_a_table_loses_no_row() -> Result<()> {
    if let Some(shop) = std::env::var_os(SHOP) {
        return mover(Path::new(&shop));
    }
    let dir = tempfile::tempdir().unwrap();
    let shop = dir.path().join("shop");
    let store = Store::open(&shop)?;
    let (all, invoices) = table::fill(&store)?;
    store.add_shard("billing", "billing")?;
    drop((all, invoices, store));
    let (mut last, mut unfinished) = (ROWS, 0);
    for round in 0..24_u64 {
        let name = "a_process_that_is_killed_while_it_moves_a_table_loses_no_row";
        let mut child = this_test(name, &shop).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_moving = lines.any(|line| line.is_ok_and(|line| line.ends_with("moving")));
        assert!(is_moving);
        let lines = thread::spawn(move || lines.map_while(std::result::Result::ok).collect());
        thread::sleep(
            Duration::from_millis(40 * (round % 12)) + Duration::from_micros(round * 777),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let lines: Vec<String> = lines.join().unwrap();
        let failed = lines.iter().find(|line| line.starts_with("error"));
        assert_eq!(failed, None, "round {round}");
        let number = |line: &String| line.strip_prefix("written ")?.parse::<u64>().ok();
        last = lines.iter().filter_map(number).max().unwrap_or_default().max(last);

        let store = Store::open(&shop)?;
        let invoices = InvoiceRepository::open(&store)?;
        table::check(&store, &invoices)?;
        let next = store.transaction(|txn| {
            let number = invoices.insert_with(txn, table::invoice)?;
            invoices.delete(txn, number)?;
            Ok(number)
        })?;
        assert!(next > last, "{next} was assigned after {last}, round {round}");
        last = next;
        for interrupted in store.moves()? {
            unfinished += 1;
            let can_cancel = interrupted.state == index_table::report::MoveState::Copying;
            if can_cancel && round % 2 == 0 {
                store.cancel_move(interrupted.id)?;
            } else {
                store.resume_move(interrupted.id).run()?;
            }
        }
        table::check(&store, &invoices)?;
    }
    assert!(unfinished > 5, "{unfinished} moves were interrupted");
    Ok(())
}
