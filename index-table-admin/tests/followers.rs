//! The lag of followers: in the command, for the directory of a follower, and in the page of its process.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fs, path::Path};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use index_table::{Durability, Follower, ShardMap, Store};
use process::{json_of, text_of};
use support::{CustomerRepository, Order, OrderRepository, customer};
use tower::ServiceExt as _;

async fn get(router: &Router, path: &str) -> String {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = router.clone().oneshot(request).await.expect("a response");
    let body = to_bytes(response.into_body(), 2 << 20).await.expect("a body");
    String::from_utf8(body.to_vec()).expect("text")
}

/// Checks the lag that the command shows.
fn check_lag(dir: &Path, commits: u64) {
    let lag = json_of(&["lag"], dir, &[])["follower"].clone();
    assert_eq!((&lag["commits"], &lag["error"]), (&commits.into(), &().into()), "{lag}");
    assert_eq!(lag["bytes"].as_u64().map(|it| it > 0), Some(commits > 0), "{lag}");
    assert_eq!(lag["seconds"].as_f64().map(|it| it > 0.0), Some(commits > 0), "{lag}");
    let text = text_of(&["lag"], dir, &[]);
    let shown = format!("follower: {commits} commits");
    assert!(text.starts_with(&shown) && text.contains("behind its archive"), "{text}");
}

/// Checks the page and the metrics of a follower without lag.
async fn check_page(router: &Router) {
    let page = get(router, "/streams").await;
    assert!(page.contains("This follower to its archive"), "{page}");
    let overview = get(router, "/").await;
    assert!(overview.contains("commits behind its archive"), "{overview}");
    let metrics = get(router, "/metrics").await;
    for line in ["index_table_follower_lag_commits 0", "index_table_follower_stopped 0"] {
        assert!(metrics.lines().any(|own| own == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn the_directory_of_a_follower_has_its_lag() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (archive, standby) = (path("archive"), path("standby"));
    let write = |ids: std::ops::Range<u64>| {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(path("store")).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        for id in ids {
            store.transaction(|txn| customers.put(txn, &customer(id))).expect("a commit");
        }
    };
    write(1..4);
    let follower = Follower::open(&standby, &archive).expect("a follower");
    let customers = CustomerRepository::open(follower.store()).expect("a table");
    check_lag(&standby, 0);
    check_page(&index_table_admin::router(follower.store())).await;
    drop((customers, follower));
    write(4..9);
    check_lag(&standby, 5);
    // The page of the command has it too.
    let opened = Store::options().read_only(true).open(&standby).expect("a store");
    let metrics = get(&index_table_admin::router(&opened), "/metrics").await;
    assert!(metrics.contains("index_table_follower_lag_commits 5\n"), "{metrics}");
    drop(opened);

    let moved = path("moved");
    fs::rename(&archive, &moved).expect("renamed");
    let lag = json_of(&["lag"], &standby, &[])["follower"].clone();
    assert!(lag["error"].as_str().is_some_and(|it| it.contains("archive")), "{lag}");
    assert!(json_of(&["lag"], &path("store"), &[])["follower"].is_null(), "no follower");
    fs::rename(&moved, &archive).expect("renamed");
    let promoted = Follower::open(&standby, &archive).expect("a follower").promote();
    drop(promoted.expect("a store"));
    assert!(
        json_of(&["lag"], &standby, &[])["follower"].is_null(),
        "the promoted store is not a follower"
    );
}

#[tokio::test]
async fn the_directory_of_a_sharded_follower_has_its_lag() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (archive, standby) = (path("archive"), path("standby"));
    let write = |numbers: std::ops::Range<u64>| {
        let store = Store::options()
            .shard("north", "north")
            .shard("south", "south")
            .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
            .archive(&archive)
            .open(path("store"))
            .expect("a store");
        let orders = OrderRepository::open(&store).expect("a table");
        for number in numbers {
            let order =
                |tenant| Order { tenant, number, total: 1, code: format!("{tenant}.{number}") };
            let both = store.transaction(|txn| {
                orders.insert(txn, &order(7))?;
                orders.insert(txn, &order(107))
            });
            both.expect("a commit");
        }
    };
    write(1..4);
    let follower = Follower::open(&standby, &archive).expect("a follower");
    let orders = OrderRepository::open(follower.store()).expect("a table");
    check_lag(&standby, 0);
    check_page(&index_table_admin::router(follower.store())).await;
    drop((orders, follower));
    write(4..9);
    check_lag(&standby, 5);
}
