//! Random closures of 8 and 32 clients have a serial order, also if connections are cut.

use std::sync::atomic::Ordering;

use super::{
    TestResult,
    cuts::Proxy,
    postgres::Schema,
    serial::{prepare, run},
};

#[test]
fn closures_of_8_clients_have_a_serial_order() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    prepare(&direct)?;
    let stores = (0..8).map(|_| schema.open()).collect::<index_table::Result<Vec<_>>>()?;
    let outcomes = run(&stores, 8, |round, _| round < 25, &direct)?;
    assert_eq!(outcomes.committed.load(Ordering::Relaxed), 8 * 25);
    Ok(())
}

#[test]
fn closures_of_32_clients_have_a_serial_order() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    prepare(&direct)?;
    let stores = (0..8).map(|_| schema.open()).collect::<index_table::Result<Vec<_>>>()?;
    let outcomes = run(&stores, 32, |round, _| round < 6, &direct)?;
    assert_eq!(outcomes.committed.load(Ordering::Relaxed), 32 * 6);
    Ok(())
}

#[test]
fn connections_that_are_cut_leave_whole_transactions() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    prepare(&direct)?;
    let proxy = Proxy::start(schema.url())?;
    let stores = (0..4)
        .map(|_| schema.options().connect(proxy.url()))
        .collect::<index_table::Result<Vec<_>>>()?;
    // The cuts begin in the first round, when the tables are open.
    let goes_on = |round, outcomes: &super::serial::Outcomes| {
        proxy.cut(true);
        round < 20 || outcomes.failed.load(Ordering::Relaxed) < 20
    };
    let outcomes = run(&stores, 8, goes_on, &direct)?;
    proxy.cut(false);
    assert!(proxy.cuts() >= 20 && outcomes.committed.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    // The server is never restarted, so the outcome of each commit can be determined.
    assert_eq!(outcomes.unknown.load(Ordering::Relaxed), 0, "{outcomes:?}");
    Ok(())
}
