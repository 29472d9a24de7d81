//! Followers that are promoted, and stores that a follower must not replace.

use index_table::{Durability, Error, Follower, Store};

use crate::{
    Kind, OrderRepository, Rows, TestResult, dirs, following::copy, on_each_kind, opened, options,
    rows_of, wait, wait_for_archive, write,
};

on_each_kind! {
    a_follower_is_read_only_until_it_is_promoted,
    the_original_is_not_written_after_a_promotion,
    a_promoted_follower_does_not_continue_an_interrupted_generation_of_the_original,
    a_store_is_never_replaced_by_a_follower,
}

fn a_follower_is_read_only_until_it_is_promoted(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    let (follower, orders) = dirs.follow()?;
    assert!(matches!(follower.store().write(), Err(Error::ReadOnly { .. })));
    let outcome = write(follower.store(), &orders, &mut rows.clone(), 20..21);
    assert!(matches!(outcome, Err(Error::ReadOnly { .. })), "{outcome:?}");
    let outcome = Follower::open(&dirs.standby, &dirs.archive);
    assert!(matches!(outcome, Err(Error::AlreadyOpen { .. })), "{outcome:?}");

    let store = follower.promote()?;
    write(&store, &orders, &mut rows, 20..40)?;
    assert!(rows_of(&store, &orders)? == rows);
    drop((store, orders));
    let store = Store::options().create(false).open(&dirs.standby)?;
    store.check()?;
    dirs.has(&store, &rows)?;
    drop(store);
    let outcome = Follower::open(&dirs.standby, &dirs.archive);
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    Ok(())
}

fn the_original_is_not_written_after_a_promotion(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    let (first, orders) = dirs.open()?;
    let (follower, copies) = dirs.follow()?;
    let second = follower.promote()?;
    write(&second, &copies, &mut rows, 20..30)?;
    assert!(rows_of(&second, &copies)? == rows);

    let mut outcome = Ok(());
    wait(|| {
        outcome = write(&first, &orders, &mut Rows::new(), 30..31);
        outcome.is_err()
    });
    assert!(matches!(outcome, Err(Error::ReopenNeeded { .. })), "{outcome:?}");
    drop((first, orders));
    // From the first write, the writes also fail after a restart with the same archive.
    let first = options(kind, &dirs.archive).open(&dirs.store)?;
    let outcome = first.write().map(drop);
    assert!(matches!(outcome, Err(Error::ReopenNeeded { .. })), "{outcome:?}");
    drop(first);

    // The files that a crash would leave: with several data files, only the journal has the last commits.
    let crashed = dirs.path("crashed");
    copy(&dirs.standby, &crashed)?;
    dirs.has(&Store::open(&crashed)?, &rows)?;
    drop((second, copies));

    // The promoted store continues the archive.
    let (second, orders) = opened(dirs.promoted().open(&dirs.standby)?)?;
    write(&second, &orders, &mut rows, 30..50)?;
    wait_for_archive(&second);
    drop((second, orders));
    dirs.archive_has(&rows)
}

fn a_promoted_follower_does_not_continue_an_interrupted_generation_of_the_original(
    kind: Kind,
) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    dirs.write_without_archive(&mut rows, 20..30)?;
    // The archive has a new base after the gap, but no segment that follows the base.
    let (first, orders) = dirs.open()?;
    wait_for_archive(&first);
    let (follower, copies) = dirs.follow()?;
    let second = follower.promote()?;
    write(&second, &copies, &mut rows, 30..40)?;
    assert!(rows_of(&second, &copies)? == rows);
    wait(|| first.archive_lag().is_some_and(|lag| lag.error.is_some()));
    drop((second, copies, first, orders));
    // The promoted store needs a base of its own: the original's base lacks the last rows.
    let (second, orders) = opened(dirs.promoted().open(&dirs.standby)?)?;
    wait(|| second.archive_lag().is_some_and(|lag| lag.has_base));
    write(&second, &orders, &mut rows, 40..50)?;
    drop((second, orders));
    dirs.archive_has(&rows)
}

fn a_store_is_never_replaced_by_a_follower(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    let (synced, journalled) = (dirs.path("synced"), dirs.path("journalled"));
    let synced_as = kind.of(Durability::Full, Durability::Relaxed);
    let refused = |path| {
        let outcome = Follower::open(path, &dirs.archive);
        let is_refused = matches!(&outcome, Err(Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists);
        assert!(is_refused, "{outcome:?}");
    };
    refused(&dirs.store);
    for (path, durability) in [(&synced, synced_as), (&journalled, Durability::Journal)] {
        // A follower that was written as a store.
        drop(Follower::open(path, &dirs.archive)?);
        let store = Store::options().durability(durability).open(path)?;
        write(&store, &OrderRepository::open(&store)?, &mut rows.clone(), 20..21)?;
        drop(store);
        refused(path);
        assert!(Store::options().read_only(true).open(path).is_ok());
    }
    // After a gap, the archive would be copied again.
    dirs.write_without_archive(&mut rows, 30..31)?;
    dirs.write(&mut rows, 31..32)?;
    refused(&synced);
    refused(&journalled);
    Ok(())
}
