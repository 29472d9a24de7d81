//! The durability of open stores, and the reasons why it is not the journal.

use index_table::{Durability, DurabilityReason, Error, Follower, Options, Store};

use crate::TestResult;

fn of(store: &Store) -> (Durability, Option<DurabilityReason>) {
    (store.durability(), store.durability_reason())
}

#[test]
fn a_store_has_its_durability_and_a_reason() -> TestResult {
    use Durability::{Full, Journal, None, Relaxed};
    use DurabilityReason::{Chosen, ReadOnly};

    let dir = tempfile::tempdir()?;
    let open = |options: Options| options.open(dir.path());
    let reader = || Store::options().read_only(true);
    assert_eq!(of(&Store::open(dir.path())?), (Journal, Option::None));
    // Its data file shows that it had a journal.
    assert_eq!(of(&open(reader())?), (Journal, Option::None));
    // The journal ends.
    assert_eq!(of(&open(Store::options().durability(Full))?), (Full, Some(Chosen)));
    assert_eq!(of(&open(reader())?), (Full, Some(ReadOnly)));
    // No process writes a journal.
    assert_eq!(of(&open(reader().durability(Journal))?), (Full, Some(ReadOnly)));
    for durability in [Full, Relaxed, None] {
        let options = Store::options().durability(durability);
        assert_eq!(of(&open(options)?), (durability, Some(Chosen)));
    }
    assert_eq!(of(&open(Store::options().durability(Journal))?), (Journal, Option::None));
    Ok(())
}

#[test]
fn options_without_a_durability_share_a_store_with_full_or_a_journal() -> TestResult {
    for durability in [Durability::Full, Durability::Journal] {
        let dir = tempfile::tempdir()?;
        let store = Store::options().durability(durability).open(dir.path())?;
        // Another handle to the same store.
        let same = Store::open(dir.path())?;
        assert_eq!((of(&same), same.durability()), (of(&store), durability));
    }
    for durability in [Durability::Relaxed, Durability::None] {
        let dir = tempfile::tempdir()?;
        let _store = Store::options().durability(durability).open(dir.path())?;
        assert!(matches!(Store::open(dir.path()), Err(Error::AlreadyOpen { .. })));
    }
    Ok(())
}

#[test]
fn a_named_durability_is_compared_with_that_of_the_open_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let with = |durability| Store::options().durability(durability).open(dir.path());
    assert_eq!(of(&with(Durability::Journal)?), of(&store));
    for durability in [Durability::Full, Durability::Relaxed, Durability::None] {
        let refused = with(durability).expect_err("another durability").to_string();
        assert!(
            refused.contains(&format!("`durability` Journal and not {durability:?}")),
            "{refused}"
        );
    }
    Ok(())
}

#[test]
fn followers_have_their_reasons() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (shop, archive, standby) =
        (dir.path().join("shop"), dir.path().join("archive"), dir.path().join("standby"));
    drop(Store::options().durability(Durability::Journal).archive(&archive).open(shop)?);
    let follower = Follower::open(&standby, &archive)?;
    let following = (Durability::None, Some(DurabilityReason::Follower));
    assert_eq!(of(follower.store()), following);
    let promoted = follower.promote()?;
    assert_eq!(of(&promoted), (Durability::Full, Some(DurabilityReason::Promoted)));
    Ok(())
}
