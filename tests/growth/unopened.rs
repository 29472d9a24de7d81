//! Processes that read tables which no writer has opened since the store has grown.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::basic::{PostalCode, PostalCodeRepository};

const SHOP: &str = "INDEX_TABLE_GROWTH_UNOPENED_SHOP";

const TENANTS: u32 = 100;

/// The number of rows of each tenant.
const ROWS: u32 = 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[table(name = "people", shard_by = tenant)]
#[index(tenant, code, unique)]
#[index(town)]
#[index(email, unique, scope = "global")]
#[index(street, scope = "global")]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    code: u32,
    town: String,
    email: String,
    street: String,
}

fn person(tenant: u32, id: u32) -> Person {
    Person {
        tenant,
        id,
        code: 1000 - id,
        town: format!("town {}", tenant % 4),
        email: format!("{tenant}.{id}@example.com"),
        street: format!("street {}", (tenant + id) % 5),
    }
}

/// Makes a store with rows, which grows while no repository is open.
fn grow(shop: &Path, tenants: u32) -> Result<()> {
    let store = Store::open(shop)?;
    let people = PersonRepository::open(&store)?;
    store.transaction(|txn| {
        (0..tenants).try_for_each(|tenant| {
            (0..ROWS).try_for_each(|id| people.insert(txn, &person(tenant, id)))
        })
    })?;
    drop(people);
    store.add_shard("east", "east").map(drop)
}

/// Compares all rows and entries with those of [`grow`].
fn check(store: &Store, people: &PersonRepository) -> Result<()> {
    let txn = store.read()?;
    assert_eq!(people.all(&txn).count()?, u64::from(TENANTS * ROWS));
    assert_eq!(people.find_by_town(&txn, "town 1").rows().count(), 250);
    assert_eq!(people.find_by_street(&txn, "street 1").count()?, 200);
    for row in people.find_by_street(&txn, "street 2").rows() {
        let row = row?;
        assert_eq!(row, person(row.tenant, row.id));
    }
    for tenant in [0, 49, 50, 99] {
        let found = people.find_by_tenant(&txn, tenant).rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(found, (0..ROWS).map(|id| person(tenant, id)).collect::<Vec<_>>());
        for row in found {
            assert_eq!(people.get_by_tenant_code(&txn, tenant, row.code)?.as_ref(), Some(&row));
            assert_eq!(people.get_by_email(&txn, &row.email)?, Some(row));
        }
    }
    assert!(people.verify(&txn).run()?.is_clean());
    Ok(())
}

/// Does as each line says, and prints `ok`, or `reopen` if the store has to be opened again, which is done.
fn child(shop: &Path) -> Result<()> {
    let options = || Store::options().read_only(true);
    let mut store = options().open(shop)?;
    let mut people = None;
    println!("ok");
    for line in std::io::stdin().lines() {
        let done = match line.expect("a line").as_str() {
            "open" => {
                drop(people.take());
                PersonRepository::open(&store).map(|opened| people = Some(opened))
            }
            "recorded" => store.open_recorded().map(|tables| assert_eq!(tables.tables.len(), 1)),
            "check" => check(&store, people.as_ref().expect("a repository")),
            line => panic!("{line}"),
        };
        match done {
            Ok(()) => println!("ok"),
            Err(Error::ReopenNeeded { .. }) => {
                drop((people.take(), store));
                store = options().open(shop)?;
                people = Some(PersonRepository::open(&store)?);
                println!("reopen");
            }
            Err(error) => println!("error {error}"),
        }
    }
    Ok(())
}

/// A process that reads the store.
struct Reader {
    process: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reader {
    fn start(test: &str, shop: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("unopened::{test}"), "--nocapture"])
            .env(SHOP, shop)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut reader = Self { process, input, lines };
        assert_eq!(reader.answer(), "ok");
        reader
    }

    fn answer(&mut self) -> String {
        let is_answer = |line: &str| {
            line.ends_with("ok") && !line.contains("result")
                || line == "reopen"
                || line.starts_with("error")
        };
        let mut lines = self.lines.by_ref().map_while(std::result::Result::ok);
        let line = lines.find(|line| is_answer(line)).expect("an answer");
        // The first answer follows the name of the test.
        if line.ends_with("ok") { "ok".to_owned() } else { line }
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        self.answer()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.input.take());
        let ended = self.process.wait();
        assert!(std::thread::panicking() || ended.unwrap().success());
    }
}

/// Runs `child` in the process of a reader.
fn is_child() -> Result<bool> {
    let Some(shop) = std::env::var_os(SHOP) else { return Ok(false) };
    child(Path::new(&shop)).map(|()| true)
}

#[test]
fn a_reader_opens_a_table_before_a_writer() -> Result<()> {
    if is_child()? {
        return Ok(());
    }
    let dir = tempfile::tempdir().unwrap();
    grow(dir.path(), TENANTS)?;
    let mut reader = Reader::start("a_reader_opens_a_table_before_a_writer", dir.path());
    for what in ["recorded", "open", "check", "open", "check"] {
        assert_eq!(reader.ask(what), "ok", "{what}");
    }
    let store = Store::open(dir.path())?;
    assert_eq!(reader.ask("check"), "ok");
    let people = PersonRepository::open(&store)?;
    check(&store, &people)?;
    for what in ["check", "open", "check"] {
        assert_eq!(reader.ask(what), "ok", "{what}");
    }

    let mut answers = Vec::new();
    store
        .move_range("people", 50u32.., "east")
        .progress(|_| answers.push(reader.ask("check")))
        .run()?;
    assert!(answers.contains(&"reopen".to_owned()), "{answers:?}");
    assert!(answers.iter().all(|it| !it.starts_with("error")), "{answers:?}");
    let moves = ["people.email", "people.street"];
    for map in moves {
        let asked = |_| assert!(["ok", "reopen"].contains(&&*reader.ask("check")));
        store.move_slots(map, 2048.., "east").progress(asked).run()?;
    }
    assert_eq!(reader.ask("check"), "reopen");
    assert_eq!(reader.ask("check"), "ok");
    check(&store, &people)
}

#[test]
fn a_reader_opens_a_table_after_its_rows_have_moved() -> Result<()> {
    if is_child()? {
        return Ok(());
    }
    let dir = tempfile::tempdir().unwrap();
    grow(dir.path(), TENANTS)?;
    let mut reader = Reader::start("a_reader_opens_a_table_after_its_rows_have_moved", dir.path());
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    store.move_range("people", 50u32.., "east").run()?;
    store.move_slots("people.email", 2048.., "east").run()?;
    drop((people, store));
    for what in ["open", "check"] {
        assert!(["ok", "reopen"].contains(&&*reader.ask(what)), "{what}");
    }
    assert_eq!(reader.ask("check"), "ok");
    Ok(())
}

#[test]
fn a_reader_opens_the_store_again_if_a_writer_declares_other_maps() -> Result<()> {
    if is_child()? {
        return Ok(());
    }
    let dir = tempfile::tempdir().unwrap();
    grow(dir.path(), 0)?;
    let mut reader =
        Reader::start("a_reader_opens_the_store_again_if_a_writer_declares_other_maps", dir.path());
    assert_eq!(reader.ask("open"), "ok");
    let store = Store::options()
        .map("people", ShardMap::ranges().to("main", ..50u32).to("east", 50u32..))
        .map("people.email", ShardMap::ranges().to("main", .."5").to("east", "5"..))
        .open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    store.transaction(|txn| {
        (0..TENANTS).try_for_each(|tenant| {
            (0..ROWS).try_for_each(|id| people.insert(txn, &person(tenant, id)))
        })
    })?;
    check(&store, &people)?;
    assert_eq!(reader.ask("check"), "reopen");
    assert_eq!(reader.ask("check"), "ok");
    Ok(())
}

/// The other shards get their copies when a writer opens the repository.
#[test]
fn a_reader_reads_a_reference_table_that_no_writer_has_opened_since() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let shop = dir.path().join("shop");
    {
        let store = Store::open(&shop)?;
        let codes = PostalCodeRepository::open(&store)?;
        store.transaction(|txn| {
            ["10115", "98052"].into_iter().try_for_each(|code| {
                codes.insert(txn, &PostalCode { code: code.into(), town: "town".into() })
            })
        })?;
        drop(codes);
        store.add_shard("east", "east")?;
    }
    for is_opened in [false, true] {
        if is_opened {
            let store = Store::open(&shop)?;
            drop(PostalCodeRepository::open(&store)?);
        }
        let reader = Store::options().read_only(true).open(&shop)?;
        let recorded = reader.open_recorded()?;
        assert_eq!(recorded.tables.len(), 1, "{recorded:?}");
        drop(recorded);
        let codes = PostalCodeRepository::open(&reader)?;
        let txn = reader.read()?;
        assert_eq!(codes.all(&txn).count()?, 2);
        assert_eq!(codes.all(&txn).rows().count(), 2);
        assert!(codes.get(&txn, "98052")?.is_some());
        assert!(codes.verify(&txn).run()?.is_clean());
        assert!(reader.verify()?.is_clean());
        let east = reader.shard("east")?;
        let read = codes.get(&reader.read_on(&east)?, "98052").map(|row| row.is_some());
        let is_there = if is_opened { matches!(read, Ok(true)) } else { read.is_err() };
        assert!(is_there, "{read:?}");
    }
    Ok(())
}
