use super::*;

#[test]
fn a_journal_that_cannot_be_had_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path();
    let full = Options::default().durability(Durability::Full);
    Engine::open(&full, path).map(drop).expect("a store");
    DataFile(path).wait_until_closed();
    let prepared = |options: &Options| {
        // As in a directory that can't be locked.
        let prepared = prepare(options, path, &mut Presence::none(), None);
        prepared.map(|it| (it.plan, it.without_journal))
    };
    let refused = prepared(&Options::default().durability(Durability::Journal));
    assert!(
        matches!(&refused, Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::Unsupported),
        "{:?}",
        refused.map(drop)
    );
    let archived = prepared(&Options::default().archive("archive"));
    assert!(matches!(archived, Err(Error::Io { .. })));
    assert!(matches!(prepared(&full), Ok((Plan::Open, None))));
    let unset = prepared(&Options::default());
    assert!(matches!(unset, Ok((Plan::Open, Some(DurabilityReason::NoLocks)))));
}

#[test]
fn a_shard_can_be_written_after_the_journal_could_not_be_started() {
    let dir = tempfile::tempdir().expect("a directory");
    let (manager, path) = (dir.path().join("manager"), dir.path().join("shard"));
    for directory in [&manager, &path] {
        std::fs::create_dir(directory).expect("a directory");
    }
    let full = Options::default().durability(Durability::Full);
    let engine = Engine::open(&full, &path).expect("a store");
    std::fs::create_dir(path.join("journal.0")).expect("a directory");
    let begun = SharedJournal::begin_for_follower(&manager, [7; 16], &[(0, &engine)]);
    assert!(matches!(&begun, Err(Error::Io { .. })), "{begun:?}");
    engine.write().map(drop).expect("a transaction");
}
