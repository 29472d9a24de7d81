//! Every command in every situation: it does its work, or its error says what to do. The commands are read from the
//! help, so that a new command fails here until it is added.

#[path = "support/matrix.rs"]
mod matrix;
#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use index_table::{Durability, Error, Store};
use matrix::{Done, Expected, FailsWith, Situation, Uses, run, run_each};
use process::{copy, example, json_of, lose_rows};
use support::{
    Customer, CustomerRepository, Order, OrderRepository, PostalCode, customer, order_row, plain,
    sharded,
};
use tempfile::TempDir;

const NO_SHARDS: Expected = FailsWith(3, "the store has no shards");
const NO_SHARD: Expected = FailsWith(3, "no shard `south`");
const NO_MAIN: Expected = FailsWith(3, "there is no shard `main`");
const OTHER_WRITER: Expected = FailsWith(4, "another process writes");
const RESTORE: Expected = FailsWith(1, "from a copy");
const LOST: Expected = FailsWith(1, "`index-table salvage STORE TO`");
const NO_SALVAGE: Expected = FailsWith(5, "`restore_shard` replaces a damaged shard");
const ABSENT: Expected = FailsWith(3, "there is no");
const NO_MOVE: Expected = FailsWith(3, "there is no unfinished move `7`");
/// The page can't be served, so nothing is at its address.
const NO_PAGE: Expected = FailsWith(4, "can't be reached");

/// Returns the expected result for a store without shards that can be read and written.
fn on_a_plain_store(uses: Uses) -> Expected {
    match uses {
        Uses::MovesKeys => NO_SHARD,
        Uses::Absent => ABSENT,
        Uses::Shards | Uses::Plan | Uses::Moves | Uses::Resumes | Uses::Cancels => NO_SHARDS,
        _ => Done,
    }
}

/// Returns the words of a store with customers.
fn customers(place: &Path) -> Situation {
    let row = serde_json::to_string(&customer(900_001)).expect("JSON");
    Situation::new(place, example("rows"))
        .word("TABLE", "customers")
        .word("INDEX", "town")
        .word("VALUE", "Oslo")
        .word("KEY", "1")
        .word("VICTIM", "2")
        .word("OTHER-VICTIM", "3")
        .word("ROW", "1@example.com")
        .word("NEW-INDEX", "customers(score)")
        .schema(&index_table::schema::<Customer>())
        .line(&row)
}

/// Returns the words of a sharded store with orders, of which one has the total 1 in each shard.
fn orders(place: &Path) -> Situation {
    let row = serde_json::to_string(&order_row(7, 900_001)).expect("JSON");
    Situation::new(place, example("rows"))
        .word("TABLE", "orders")
        .word("INDEX", "total")
        .word("VALUE", "1")
        .word("KEY", "7 1")
        .word("VICTIM", "7 2")
        .word("OTHER-VICTIM", "7 3")
        .word("ROW", "n1")
        .word("NEW-INDEX", "orders(total, code)")
        .schema(&index_table::schema::<(Order, PostalCode)>())
        .line(&row)
}

#[test]
fn all_commands_work_on_the_films() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("films");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/movies/films.jsonl");
    let mut load = std::process::Command::new(example("films"));
    let load = load.arg("load").arg(&store).arg("films").arg(data).arg("--create").output();
    assert!(load.expect("a process").status.success());
    let films = Situation::new(&store, example("films"))
        .word("TABLE", "films")
        .word("INDEX", "cast_year")
        .word("NEW-INDEX", "films(each(genres), title)")
        .schema(
            &Store::options()
                .read_only(true)
                .open(&store)
                .and_then(|it| it.recorded_schema())
                .expect("a schema"),
        )
        .word("VALUE", "Charlie Chaplin")
        .words("KEY", &["City Lights", "1931"])
        .words("VICTIM", &["The General", "1926"])
        .words("OTHER-VICTIM", &["Modern Times", "1936"])
        .word("ROW", "Virginia Cherrill")
        .line(r#"{"title":"A Film","year":2025,"cast":[],"genres":[]}"#);
    run("the films", &films, on_a_plain_store);
}

/// Runs `body` while a thread writes: for the commands, it is another process.
fn beside(write: impl Fn(u64) + Sync, body: impl FnOnce()) {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1000;
            while !is_over.load(Relaxed) {
                write(number);
                number += 1;
            }
        });
        // Ends the thread even if `body` panics.
        let _end = End(&is_over);
        body();
    });
}

#[test]
fn all_commands_work_beside_a_writer_or_name_it() {
    use Durability::{Full, Journal, None, Relaxed};
    for durability in [Full, Relaxed, None, Journal] {
        let dir = plain(30);
        let store = Store::options().durability(durability).open(dir.path()).expect("a store");
        let table = CustomerRepository::open(&store).expect("a table");
        let write = |id| {
            store.transaction(|txn| table.put(txn, &customer(id % 1000 + 100))).expect("a commit");
        };
        beside(write, || {
            run("beside a writer", &customers(dir.path()).in_use(), |uses| match uses {
                // Only the process with the journal can write.
                uses if durability == Journal && uses.writes() => OTHER_WRITER,
                // With several writers, the durability is `Full`.
                Uses::Grows => FailsWith(5, "`Durability::Journal`"),
                uses => on_a_plain_store(uses),
            });
        });
    }
}

#[test]
fn all_commands_work_beside_a_writer_of_shards_or_name_it() {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let table = OrderRepository::open(&store).expect("a table");
    let write = |number: u64| {
        let order = order_row((number % 200) as u32, number % 1000 + 100);
        match store.transaction(|txn| table.put(txn, &order)) {
            Ok(()) | Err(Error::OtherShard { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    beside(write, || {
        run("beside a writer of shards", &orders(dir.path()).in_use(), |uses| match uses {
            uses if uses.writes() => OTHER_WRITER,
            Uses::Salvage => NO_SALVAGE,
            _ => Done,
        });
    });
}

#[test]
fn all_commands_report_a_damaged_file() {
    let dir = plain(2000);
    // The journal has the first pages of its last checkpoint, and would repair them.
    for number in 0..3 {
        fs::remove_file(dir.path().join(format!("journal.{number}")))
            .expect("a file of the journal");
    }
    let file = dir.path().join("data.mdb");
    let intact = fs::read(&file).expect("the file");
    let damage = |bytes: &mut [u8]| bytes.fill(0xa5);

    let mut bytes = intact.clone();
    damage(&mut bytes[..8192]);
    fs::write(&file, bytes).expect("the file");
    run("a damaged head", &customers(dir.path()), |uses| match uses {
        Uses::Page => NO_PAGE,
        _ => RESTORE,
    });

    // Each leaf with rows is lost. A command that does not read rows works.
    let mut bytes = intact;
    let lost = lose_rows(&mut bytes);
    assert!(lost > 10, "{lost}");
    fs::write(&file, bytes).expect("the file");
    run_each("lost rows", &customers(dir.path()), |command, uses| match command {
        "keys STORE TABLE"
        | "check STORE"
        | "backup STORE COPY"
        | "compact STORE COPY"
        | "get STORE TABLE KEY"
        | "find STORE TABLE INDEX VALUE"
        | "rows STORE TABLE"
        | "dump STORE TABLE"
        | "diff STORE STORE"
        | "whatif STORE --index NEW-INDEX"
        | "build STORE"
        | "verify STORE"
        | "repair STORE"
        | "upgrade STORE" => LOST,
        "salvage STORE COPY" => FailsWith(1, "could not be read"),
        "put STORE TABLE LINES"
        | "load STORE TABLE LINES --on-duplicate skip"
        | "delete STORE TABLE VICTIM" => RESTORE,
        _ => on_a_plain_store(uses),
    });
}

/// Copies of a store at each step of a move of all orders in `north` to `south`, as a killed process leaves them.
fn steps() -> (TempDir, usize) {
    let (dir, copies) = (sharded(), tempfile::tempdir().expect("a directory"));
    let store = Store::open(dir.path()).expect("a store");
    let _orders = OrderRepository::open(&store).expect("a table");
    let mut count = 0;
    let moving = store.move_range("orders", ..50u32, "south").progress(|_| {
        copy(dir.path(), &copies.path().join(count.to_string()));
        count += 1;
    });
    assert_eq!(moving.run().expect("a move").rows, 3);
    (copies, count)
}

/// Returns the state of the unfinished move, and its number.
fn unfinished(dir: &Path) -> Option<(String, String)> {
    let moves = json_of(&["moves"], dir, &[])["moves"].clone();
    let own = moves.as_array().expect("a list").first()?;
    Some((
        own["state"].as_str().expect("text").to_owned(),
        own["move"].as_str().expect("text").to_owned(),
    ))
}

#[test]
fn all_commands_work_in_the_middle_of_a_move() {
    let (copies, count) = steps();
    let step = |at: usize| copies.path().join(at.to_string());
    let mut states: Vec<String> = Vec::new();
    for at in 0..count {
        let killed = step(at).with_extension("killed");
        copy(&step(at), &killed);
        // As after a crash, the next writer replays the journal.
        drop(Store::open(step(at)).expect("a store"));
        let Some((state, id)) = unfinished(&step(at)) else { continue };
        if states.contains(&state) {
            continue;
        }
        let is_switched = state == "cleaning up";
        run(&format!("a move: {state}"), &orders(&step(at)).word("MOVE", &id), |uses| match uses {
            Uses::Cancels if is_switched => FailsWith(5, "finish it with `resume-move`"),
            Uses::Absent => ABSENT,
            Uses::MovesTable => NO_MAIN,
            Uses::Salvage => NO_SALVAGE,
            Uses::Health => FailsWith(1, "is unfinished"),
            _ => Done,
        });
        // Commands that only read recover the store too.
        let killed = orders(&killed).word("MOVE", &id).recovered();
        run(&format!("killed in a move: {state}"), &killed, |uses| match uses {
            Uses::Cancels if is_switched => FailsWith(5, "finish it with `resume-move`"),
            Uses::Absent => ABSENT,
            Uses::MovesTable => NO_MAIN,
            Uses::Salvage => NO_SALVAGE,
            Uses::Health => FailsWith(1, "is unfinished"),
            _ => Done,
        });
        states.push(state);
    }
    assert!(states.len() > 1, "{states:?}");
}

#[test]
fn all_commands_name_a_missing_shard() {
    let dir = sharded();
    fs::rename(dir.path().join("south"), dir.path().join("elsewhere")).expect("renamed");
    run("a missing shard", &orders(dir.path()), |uses| match uses {
        Uses::OneShard
        | Uses::Shards
        | Uses::Catalog
        | Uses::Readers
        | Uses::Page
        | Uses::Drop
        | Uses::Expire
        | Uses::Grows => Done,
        Uses::MovesTable => NO_MAIN,
        Uses::Absent => ABSENT,
        Uses::Resumes | Uses::Cancels => NO_MOVE,
        Uses::Salvage => NO_SALVAGE,
        Uses::Health => FailsWith(1, "shard `south` is not available"),
        _ => FailsWith(4, "move its directory back, or restore it from a backup"),
    });
}

#[cfg(feature = "postgres")]
#[test]
fn all_commands_work_on_a_server_or_name_the_alternative() {
    use index_table::__private::run_sql;

    let Ok(url) = std::env::var("INDEX_TABLE_POSTGRES_URL") else {
        eprintln!("not run on PostgreSQL: INDEX_TABLE_POSTGRES_URL is not set");
        return;
    };
    let name = format!("index_table_matrix_{}", std::process::id());
    let store = Store::options().schema(&name).connect(&url).expect("a store");
    let table = CustomerRepository::open(&store).expect("a table");
    table.bulk_load(&store, (1..=30).map(customer)).run().expect("a load");
    drop(table);
    let mark = if url.contains('?') { '&' } else { '?' };
    let place = PathBuf::from(format!("{url}{mark}schema={name}"));
    run("a server", &customers(&place).in_use(), |uses| match uses {
        Uses::Check => FailsWith(5, "amcheck"),
        Uses::Readers => FailsWith(5, "pg_stat_activity"),
        Uses::Copy => FailsWith(5, "the server's backups"),
        Uses::Salvage => FailsWith(2, "no pages to salvage"),
        Uses::Grows => FailsWith(5, "it is on a PostgreSQL server"),
        uses => on_a_plain_store(uses),
    });
    run_sql(&store, &format!("DROP SCHEMA \"{name}\" CASCADE")).expect("dropped");
}
