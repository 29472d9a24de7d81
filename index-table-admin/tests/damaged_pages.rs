//! Each page of a store is damaged in turn: every pass over a table ends with an error that names the damage and the commands that
//! help, and never by a signal, which would end this process.
#![cfg(unix)]

mod support;

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use index_table::{
    __private::admin::{checked, repairing},
    Durability, Error, IndexState, IndexTable, Options, Store,
};
use index_table_admin::health;
use serde::{Deserialize, Serialize};
use support::{Customer, CustomerRepository, EventRepository, customer, plain};
use tower::ServiceExt as _;

const PAGE: usize = 4096;

/// The longest time of a pass.
const LIMIT: Duration = Duration::from_secs(10);

fn options() -> Options {
    // Without a journal, the data file is all there is.
    Store::options().durability(Durability::Full)
}

/// Returns a store, and the bytes of its data file of about 2 MiB.
fn intact() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    for from in [1, 3001] {
        store
            .transaction(|txn| {
                (from..from + 3000).try_for_each(|id| customers.insert(txn, &customer(id)))
            })
            .expect("a commit");
    }
    drop((customers, store));
    let bytes = fs::read(dir.path().join("data.mdb")).expect("the file");
    assert!((1 << 20..4 << 20).contains(&bytes.len()), "{} bytes", bytes.len());
    (dir, bytes)
}

/// Damages a page: by zeros, or by bytes that differ from page to page.
fn damage(bytes: &mut [u8], page: usize, by_zeros: bool) {
    let mut random = page as u64 | 1;
    for byte in &mut bytes[page * PAGE..(page + 1) * PAGE] {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = if by_zeros { 0 } else { (random >> 56) as u8 };
    }
}

/// Opens the only table of a store, and calls `pass`.
fn with_table(
    dir: &Path,
    pass: impl FnOnce(&Store, &CustomerRepository) -> Result<(), Error>,
) -> Result<(), Error> {
    let store = options().open(dir)?;
    let customers = CustomerRepository::open(&store)?;
    pass(&store, &customers)
}

type Pass = fn(&Store, &CustomerRepository) -> Result<(), Error>;

const PASSES: [(&str, Pass); 6] = [
    ("check", |store, _| store.check()),
    ("verify", |store, customers| customers.verify(&store.read()?).run().map(drop)),
    ("repair", |store, customers| store.transaction(|txn| customers.repair(txn).run()).map(drop)),
    // As the command `build` does.
    ("build", |store, customers| checked(|| customers.build(store).run().map(drop))),
    ("dump", |store, customers| {
        checked(|| {
            let txn = store.read()?;
            customers.all(&txn).rows().try_for_each(|row| row.map(drop))
        })
    }),
    ("get", |store, customers| {
        checked(|| {
            let txn = store.read()?;
            (1..=6000).step_by(7).try_for_each(|id| customers.get(&txn, id).map(drop))
        })
    }),
];

#[test]
fn each_damaged_page_is_an_error_and_never_a_signal() {
    let (dir, intact) = intact();
    let file = dir.path().join("data.mdb");
    let (mut found, mut named) = ([0; PASSES.len()], 0);
    // All pages take minutes, so each eleventh is damaged without this variable.
    let step = if std::env::var_os("INDEX_TABLE_ALL_PAGES").is_some() { 1 } else { 11 };
    for page in (2..intact.len() / PAGE).step_by(step) {
        // Every page by zeros, and each third by other bytes.
        for by_zeros in [true, false].into_iter().take(1 + usize::from(page.is_multiple_of(3))) {
            let mut bytes = intact.clone();
            damage(&mut bytes, page, by_zeros);
            for (at, (what, pass)) in PASSES.into_iter().enumerate() {
                fs::write(&file, &bytes).expect("the file");
                let begun = Instant::now();
                let outcome = with_table(dir.path(), pass);
                assert!(begun.elapsed() < LIMIT, "page {page}, {what}: {:?}", begun.elapsed());
                let Err(error) = outcome else { continue };
                found[at] += 1;
                let message = error.to_string();
                assert!(
                    matches!(error, Error::Corrupt { .. } | Error::DamagedFile { .. }),
                    "page {page}, {what}: {message}"
                );
                assert!(
                    message.contains(&format!("page {page}")),
                    "page {page}, {what}: {message}"
                );
                if let Error::Corrupt { table, index, .. } = &error {
                    let way_out = match index {
                        Some(index) => format!("build STORE --rebuild {table} {index}"),
                        None => "salvage STORE TO".to_owned(),
                    };
                    assert!(message.contains(&way_out), "page {page}, {what}: {message}");
                    named += 1;
                }
            }
        }
    }
    let [check, verify, repair, build, dump, get] = found;
    // Only `check` reads the second copies of lists, and only passes that write need the lists of free pages.
    assert!(repair == build && (check * 9 / 10..=check).contains(&build), "{found:?}");
    assert!((check * 9 / 10..=build).contains(&verify), "{found:?}");
    assert!(dump > 5 && get > 5 && dump < check, "{found:?}");
    assert!(named > check * 3, "{named} of {found:?}");
}

async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = router.clone().oneshot(request).await.expect("a response");
    let status = response.status();
    let body = to_bytes(response.into_body(), 4 << 20).await.expect("a body");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

/// Returns the metrics by their names and labels.
fn metrics(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).collect()
}

#[tokio::test]
async fn metrics_and_overview_survive_each_damaged_page() {
    let (dir, intact) = intact();
    let file = dir.path().join("data.mdb");
    let store = options().open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store.transaction(|txn| customers.put(txn, &customer(1)).map(drop)).expect("a commit");
    let router = index_table_admin::router(&store);
    let (status, text) = get(&router, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    let all = metrics(&text);
    let failed = |text: &str| -> u64 {
        let own = metrics(text).into_iter().filter(|(name, _)| name.contains("metrics_failed"));
        own.map(|(_, value)| value.parse::<u64>().expect("a number")).sum()
    };
    assert_eq!(failed(&text), 0);
    let is_figure = |name: &str| {
        ["index_table_rows", "index_table_index_entries{", "index_table_index_readable"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let (mut damaged, mut pages) = (0, 0);
    drop(intact);
    // The service has the file open, so the bytes of each page are put back.
    let bytes = fs::read(&file).expect("the file");
    let open = fs::File::options().write(true).open(&file).expect("the file");
    for page in 2..bytes.len() / PAGE {
        let own = &bytes[page * PAGE..(page + 1) * PAGE];
        open.write_all_at(&[0; PAGE], (page * PAGE) as u64).expect("damage");
        // A router has its own cached sizes.
        let router = index_table_admin::router(&store);
        let begun = Instant::now();
        let (status, text) = get(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK, "page {page}");
        assert!(begun.elapsed() < Duration::from_secs(1), "page {page}: {:?}", begun.elapsed());
        let (status, overview) = get(&router, "/").await;
        assert_eq!(status, StatusCode::OK, "page {page}: {overview}");
        let now = metrics(&text);
        for (name, value) in now.iter().filter(|(name, _)| is_figure(name)) {
            assert!(all.contains(&(*name, *value)), "page {page}: {name} {value}");
        }
        pages += 1;
        if failed(&text) > 0 {
            damaged += 1;
            assert!(overview.contains(&format!("page {page}")), "page {page}: {overview}");
        } else {
            assert_eq!(
                now.iter().filter(|(name, _)| is_figure(name)).count(),
                all.iter().filter(|(name, _)| is_figure(name)).count(),
                "page {page}"
            );
        }
        open.write_all_at(own, (page * PAGE) as u64).expect("the page");
    }
    assert!(damaged > 10 && damaged < pages, "{damaged} of {pages}");
}

#[tokio::test]
async fn an_export_ends_without_its_last_chunk_at_a_damaged_page() {
    let (dir, _) = intact();
    let file = dir.path().join("data.mdb");
    let store = options().open(dir.path()).expect("a store");
    let _customers = CustomerRepository::open(&store).expect("a table");
    let router = index_table_admin::router_with_all_rows(&store);
    let bytes = fs::read(&file).expect("the file");
    let open = fs::File::options().write(true).open(&file).expect("the file");
    let (mut complete, mut ended) = (0, 0);
    for page in (2..bytes.len() / PAGE).step_by(5) {
        open.write_all_at(&[0; PAGE], (page * PAGE) as u64).expect("damage");
        let request =
            Request::get("/export/customers?form=jsonl").body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("a response");
        let is_ok = response.status() == StatusCode::OK;
        match to_bytes(response.into_body(), 16 << 20).await {
            Ok(_) if is_ok => complete += 1,
            _ => ended += 1,
        }
        open.write_all_at(&bytes[page * PAGE..(page + 1) * PAGE], (page * PAGE) as u64)
            .expect("the page");
    }
    assert!(complete > 5 && ended > 5, "{complete} {ended}");
}

/// Builds the indexes, and returns the number of rows, and whether the entries agree with them.
fn figures(dir: &Path) -> (u64, bool) {
    figures_of(&options().open(dir).expect("a store"))
}

fn figures_of(store: &Store) -> (u64, bool) {
    let customers = CustomerRepository::open(store).expect("a table");
    customers.build(store).run().expect("built");
    store.check().expect("intact pages");
    let report = customers.verify(&store.read().expect("a snapshot")).run().expect("verified");
    let states = store.catalog().expect("a catalog");
    let mut indexes = states.tables.iter().flat_map(|table| &table.indexes);
    assert!(indexes.all(|index| index.state == IndexState::Readable));
    (report.rows, report.is_clean())
}

#[test]
fn a_damaged_index_is_given_up_and_built_again_without_a_lost_row() {
    let (dir, intact) = intact();
    let file = dir.path().join("data.mdb");
    let (mut built, scrubs) = (0, Duration::from_mins(1));
    for page in (2..intact.len() / PAGE).step_by(11) {
        let mut bytes = intact.clone();
        damage(&mut bytes, page, !page.is_multiple_of(2));
        fs::write(&file, &bytes).expect("the file");
        let Ok(store) = repairing(|| options().open(dir.path())) else { continue };
        let damage = match store.check() {
            Ok(()) => continue,
            Err(error) => error.to_string(),
        };
        let Some((_, rest)) = damage.split_once("--rebuild customers ") else { continue };
        assert!(damage.contains("no row is lost"), "{damage}");
        let index = rest.split('`').next().expect("a name").to_owned();
        if built == 0 {
            let customers = CustomerRepository::open(&store).expect("a table");
            let begun = Instant::now();
            let scrubbed = store.scrub(u64::MAX).expect("a thread").wait();
            assert!(matches!(scrubbed, Err(Error::Corrupt { .. })) && begun.elapsed() < scrubs);
            drop(customers);
        }
        store.give_up_index("customers", &index).expect("given up");
        drop(store);
        assert_eq!(figures(dir.path()), (6000, true), "page {page}, index {index}");
        built += 1;
    }
    assert!(built > 10, "{built}");
}

#[test]
fn a_store_without_a_page_is_salvaged_but_for_the_rows_of_this_page() {
    let (dir, intact) = intact();
    let file = dir.path().join("data.mdb");
    let copies = tempfile::tempdir().expect("a directory");
    let (mut lossless, mut lossy) = (0, 0);
    for page in (2..intact.len() / PAGE).step_by(7) {
        let mut bytes = intact.clone();
        damage(&mut bytes, page, page.is_multiple_of(2));
        fs::write(&file, &bytes).expect("the file");
        let to = copies.path().join(page.to_string());
        let report = Store::salvage(dir.path(), &to).expect("a copy");
        if report.lost.iter().any(|lost| ["", ".catalog"].contains(&&*lost.database)) {
            // Nothing says which rows the pages have.
            fs::remove_dir_all(to).expect("removed");
            continue;
        }
        let (rows, is_clean) = figures(&to);
        assert!(is_clean, "page {page}");
        assert_eq!(report.tables[0].rows, rows, "page {page}");
        if report.lost.iter().all(|lost| lost.database != "customers") {
            assert_eq!(rows, 6000, "page {page}: {report:?}");
            lossless += 1;
        } else {
            // One leaf has fewer rows than these.
            assert!((5800..6000).contains(&rows), "page {page}: {rows}, {report:?}");
            lossy += 1;
        }
        fs::remove_dir_all(to).expect("removed");
    }
    assert!(lossless > lossy && lossy > 3, "{lossless} {lossy}");
    let left = fs::read_dir(copies.path()).expect("a directory").count();
    assert_eq!(left, 0, "no incomplete copy is left");
}

#[tokio::test]
async fn a_store_that_needs_attention_says_why_the_most_urgent_first() {
    let (dir, _) = intact();
    let file = dir.path().join("data.mdb");
    let store = options().open(dir.path()).expect("a store");
    let router = index_table_admin::router(&store);
    assert!(health(&store).is_healthy());
    assert_eq!(get(&router, "/healthz").await, (StatusCode::OK, r#"{"reasons":[]}"#.to_owned()));

    store.give_up_index("customers", "town").expect("given up");
    let _customers = CustomerRepository::open_online(&store).expect("a table");
    let kinds = || health(&store).reasons.iter().map(|own| own.kind).collect::<Vec<_>>();
    assert_eq!(kinds(), ["index"]);
    let (status, reasons) = get(&router, "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reasons.contains("customers.town"), "{reasons}");

    let reader = store.read().expect("a snapshot");
    let bytes = fs::read(&file).expect("the file");
    let open = fs::File::options().write(true).open(&file).expect("the file");
    open.write_all_at(&vec![0; bytes.len() - 2 * PAGE], 2 * PAGE as u64).expect("damage");
    assert_eq!(kinds().first(), Some(&"damage"));
    open.write_all_at(&bytes[2 * PAGE..], 2 * PAGE as u64).expect("the pages");
    assert_eq!(kinds(), ["index"]);
    drop(reader);
}

/// Returns a copy of an open store, as a killed process leaves it.
fn crashed(dir: &Path) -> tempfile::TempDir {
    let crashed = tempfile::tempdir().expect("a directory");
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), crashed.path().join(entry.file_name())).expect("copied");
        }
    }
    crashed
}

#[test]
fn salvage_reads_the_checkpoint_of_a_killed_process_and_writes_nothing() {
    let dir = plain(6000);
    let store = Store::open(dir.path()).expect("a store");
    assert_eq!(store.durability(), Durability::Journal);
    let customers = CustomerRepository::open(&store).expect("a table");
    for id in 6001..=6010 {
        store.transaction(|txn| customers.insert(txn, &customer(id))).expect("a commit");
    }
    let crashed = crashed(dir.path());
    let file = crashed.path().join("data.mdb");
    let bytes = fs::read(&file).expect("the file");
    let to = dir.path().join("copy");
    let report = Store::salvage(crashed.path(), &to).expect("a copy");
    assert!(fs::read(&file).expect("the file") == bytes, "nothing was written");
    assert!((10..13).contains(&report.missing_commits), "{report:?}");
    assert_eq!(figures(&to), (6000, true));
}

#[test]
fn an_index_that_was_given_up_before_a_crash_is_built_after_the_recovery() {
    let dir = plain(6000);
    let file = dir.path().join("data.mdb");
    let intact = fs::read(&file).expect("the file");
    let is_of_index = |page: usize| {
        let mut bytes = intact.clone();
        damage(&mut bytes, page, true);
        fs::write(&file, &bytes).expect("the file");
        let store = checked(|| Store::options().read_only(true).open(dir.path()));
        let damage = store.and_then(|store| store.check());
        damage.is_err_and(|error| error.to_string().contains("--rebuild customers town"))
    };
    let page = (2..intact.len() / PAGE).rev().find(|page| is_of_index(*page));
    assert!(page.is_some());
    let store = repairing(|| Store::open(dir.path())).expect("a store");
    assert_eq!(store.durability(), Durability::Journal);
    store.give_up_index("customers", "town").expect("given up");
    let crashed = crashed(dir.path());
    drop(store);
    let recovered = Store::open(crashed.path()).expect("recovered");
    assert!(recovered.was_recovered());
    assert_eq!(figures_of(&recovered), (6000, true));
    assert_eq!(figures_of(&Store::open(dir.path()).expect("a store")), (6000, true));
}

/// Whether a page is a branch of a tree.
fn is_branch(bytes: &[u8], page: usize) -> bool {
    bytes[page * PAGE + 10..page * PAGE + 12] == [1, 0]
}

#[test]
fn entries_of_a_given_up_index_are_not_salvaged_as_rows() {
    let (dir, intact) = intact();
    let file = dir.path().join("data.mdb");
    let copies = tempfile::tempdir().expect("a directory");
    // The branches of the rows, without which `salvage` loses nothing while each page belongs to something.
    let branches: Vec<_> =
        (2..intact.len() / PAGE).filter(|page| is_branch(&intact, *page)).collect();
    let mut to = 0;
    let mut salvaged = |bytes: &[u8], page: usize| {
        let mut bytes = bytes.to_vec();
        damage(&mut bytes, page, true);
        fs::write(&file, &bytes).expect("the file");
        to += 1;
        let to = copies.path().join(to.to_string());
        let report = Store::salvage(dir.path(), &to).expect("a copy");
        let is_lost = report.lost.iter().any(|lost| lost.database == "customers");
        (is_lost, report.tables[0].rows, to)
    };
    for page in &branches {
        let (is_lost, rows, _) = salvaged(&intact, *page);
        assert!(!is_lost && rows == 6000, "page {page}: {rows}");
    }
    let is_town = |page: usize| {
        let mut bytes = intact.clone();
        damage(&mut bytes, page, true);
        fs::write(&file, &bytes).expect("the file");
        let store = repairing(|| options().open(dir.path()));
        let damage = store.and_then(|store| store.check());
        damage.is_err_and(|error| error.to_string().contains("--rebuild customers town"))
    };
    assert!((2..intact.len() / PAGE).any(is_town));
    let store = repairing(|| options().open(dir.path())).expect("a store");
    store.give_up_index("customers", "town").expect("given up");
    drop(store);
    let given_up = fs::read(&file).expect("the file");
    let mut lossy = 0;
    for page in branches {
        let (is_lost, rows, to) = salvaged(&given_up, page);
        assert_eq!(is_lost, rows < 6000, "page {page}: {rows}");
        assert_eq!(figures(&to), (rows, true), "page {page}");
        lossy += u32::from(is_lost);
    }
    assert!(lossy > 0);
}

#[test]
fn a_leaf_that_a_later_commit_has_freed_is_not_salvaged() {
    let (dir, before) = intact();
    let file = dir.path().join("data.mdb");
    let store = options().open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let moved = |row: &mut Customer| row.town = "elsewhere".to_owned();
    store.transaction(|txn| customers.update(txn, 1, moved)).expect("a commit");
    drop((customers, store));
    let after = fs::read(&file).expect("the file");
    let copies = tempfile::tempdir().expect("a directory");
    let branches = |bytes: &[u8]| -> Vec<usize> {
        (2..bytes.len() / PAGE).filter(|page| is_branch(bytes, *page)).collect()
    };
    let mut stale = 0;
    for page in branches(&after) {
        let begin = page * PAGE;
        for old in branches(&before).into_iter().map(|old| old * PAGE) {
            // The new branch with the contents of the old one, as a copy of a live file can have it. Its number stays.
            let (new, old) = (&after[begin + 8..begin + PAGE], &before[old + 8..old + PAGE]);
            // Between `lower` and `upper`, a page has no contents.
            let upper = usize::from(u16::from_le_bytes([new[6], new[7]])) - 8;
            let differing = (8..PAGE - 8).filter(|at| *at >= upper && new[*at] != old[*at]).count();
            if new[..8] != old[..8] || differing > 32 {
                continue;
            }
            let mut bytes = after.clone();
            bytes[begin + 8..begin + PAGE].copy_from_slice(old);
            fs::write(&file, &bytes).expect("the file");
            let to = copies.path().join("copy");
            let report = Store::salvage(dir.path(), &to).expect("a copy");
            stale += u32::from(report.lost.iter().any(|lost| lost.reason.contains("used twice")));
            let store = options().open(&to).expect("a store");
            if report.tables.iter().any(|table| table.table == "customers" && table.rows > 0) {
                let customers = CustomerRepository::open(&store).expect("a table");
                let found = customers.get(&store.read().expect("a snapshot"), 1).expect("a row");
                assert!(found.is_none_or(|row| row.town == "elsewhere"), "page {page}: {report:?}");
            }
            drop(store);
            fs::remove_dir_all(to).expect("removed");
        }
    }
    assert!(stale > 0);
}

#[test]
fn only_a_repair_opens_a_store_with_a_damaged_root_to_write() {
    let (dir, intact) = intact();
    let file = dir.path().join("data.mdb");
    let mut roots = 0;
    for page in 2..intact.len() / PAGE {
        let mut bytes = intact.clone();
        damage(&mut bytes, page, true);
        fs::write(&file, &bytes).expect("the file");
        let read = || options().read_only(true).open(dir.path());
        if read().is_ok() || checked(read).is_err() {
            continue;
        }
        roots += 1;
        let store = checked(read).expect("a store");
        assert_eq!(health(&store).reasons.first().map(|own| own.kind), Some("damage"));
        drop(store);
        let refused = checked(|| options().open(dir.path()));
        assert!(matches!(refused, Err(Error::DamagedFile { .. })), "page {page}");
        assert!(repairing(|| options().open(dir.path())).is_ok(), "page {page}");
    }
    // The rows, four indexes and maybe others.
    assert!(roots >= 5, "{roots}");
}

#[test]
fn only_indexes_and_aggregates_are_given_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().open(dir.path()).expect("a store");
    drop(EventRepository::open(&store).expect("a table"));
    for name in ["change-stream", "other"] {
        let refused = store.give_up_index("events", name).expect_err("refused");
        let Error::UnknownName { known, .. } = &refused else { panic!("{refused}") };
        assert_eq!(known, "kind, text");
    }
    store.give_up_index("events", "kind").expect("given up");
}

macro_rules! tables {
    ($($table:ident $repository:ident)*) => {
        $(
            #[derive(Serialize, Deserialize, IndexTable)]
            #[index(first)]
            #[index(second)]
            struct $table {
                #[primary_key]
                id: u32,
                first: u32,
                second: u32,
            }
        )*

        fn open_tables(store: &Store) {
            $($repository::open(store).expect("a table");)*
        }
    };
}

tables! {
    A ARepository B BRepository C CRepository D DRepository E ERepository F FRepository G GRepository H HRepository
    I IRepository J JRepository K KRepository L LRepository M MRepository N NRepository O ORepository P PRepository
    Q QRepository R RRepository S SRepository T TRepository U URepository V VRepository W WRepository X XRepository
}

#[test]
fn a_store_of_more_databases_than_the_default_is_salvaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let store = options().max_databases(200).open(&from).expect("a store");
    open_tables(&store);
    drop(store);
    let report = Store::salvage(&from, &to).expect("a copy");
    assert_eq!(report.tables.len(), 24);
    assert!(report.lost.is_empty() && report.to_build.is_empty());
}

#[test]
fn a_checked_scan_beside_a_committing_writer_finds_no_damage() {
    let (dir, _) = intact();
    let store = options().open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    let end = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut id = 0;
            while Instant::now() < end {
                id = id % 6000 + 1;
                store
                    .transaction(|txn| customers.put(txn, &customer(id)).map(drop))
                    .expect("a commit");
            }
        });
        let mut scans = 0;
        while Instant::now() < end {
            let rows = checked(|| {
                let txn = store.read()?;
                customers.all(&txn).rows().try_fold(0, |rows, row| row.map(|_| rows + 1))
            });
            assert_eq!(rows.expect("no damage"), 6000);
            scans += 1;
        }
        assert!(scans > 1, "{scans}");
    });
}
