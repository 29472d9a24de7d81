//! Changes of a declaration beside clients of the release of before.

use index_table::IndexState;

use crate::{
    TestResult,
    client::Client,
    on_both,
    release::{by_town, second},
};

const NEVER_SEEN: &str = "it is built when they have ended";
const RETIRED: &str = "does not declare it, or declares it otherwise";

#[test]
fn a_removed_index_is_not_readable_for_the_earlier_release() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let mut later = Client::start(place, "without")?;
        let refused = earlier.ask("town t0");
        assert!(refused.ends_with(RETIRED), "{refused}");
        assert_eq!(earlier.ask("put 51 60"), "ok");
        assert_eq!(later.ask("put 61 70"), "ok");
        assert_eq!(later.ask("delete 5"), "ok");
        for client in [&mut earlier, &mut later] {
            assert_eq!(client.ask("count"), "69");
            assert_eq!(client.ask("verify"), "ok");
        }
        // An opening of the earlier release announces it again.
        assert_eq!(earlier.ask("open first"), "ok");
        let refused = earlier.ask("town t0");
        assert!(refused.ends_with(NEVER_SEEN), "{refused}");
        later.end();
        assert_eq!(earlier.ask("open first"), "ok");
        assert_eq!(earlier.ask("town t0"), "13");
        assert_eq!(earlier.ask("verify"), "ok");
        Ok(())
    })
}

#[test]
fn an_index_with_another_definition_is_not_readable_for_both() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let mut later = Client::start(place, "changed")?;
        for (client, reason) in [(&mut earlier, NEVER_SEEN), (&mut later, NEVER_SEEN)] {
            let refused = client.ask("town t0");
            assert!(refused.ends_with(reason), "{refused}");
            assert_eq!(client.ask("put 51 60"), "ok");
            assert_eq!(client.ask("verify"), "ok");
        }
        earlier.end();
        assert_eq!(later.ask("open changed"), "ok");
        assert_eq!(later.ask("town t0"), "12");
        assert_eq!(later.ask("verify"), "ok");
        Ok(())
    })
}

/// A method can depend on a field that the earlier release does not have.
#[test]
fn a_computed_index_is_not_readable_while_the_fields_differ() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "second")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let mut later = Client::start(place, "computed")?;
        let refused = later.ask("label t0/o0");
        assert!(refused.ends_with(NEVER_SEEN), "{refused}");
        // The index that it does not declare.
        let refused = earlier.ask("owner o3");
        assert!(refused.ends_with(RETIRED), "{refused}");
        assert_eq!(earlier.ask("put 51 60"), "ok");
        earlier.end();
        assert_eq!(later.ask("open computed"), "ok");
        assert_eq!(later.ask("label t0/o0"), "1");
        let mut without = Client::start(place, "first")?;
        let refused = later.ask("label t0/o0");
        assert!(refused.ends_with(RETIRED), "{refused}");
        assert_eq!(without.ask("put 61 62"), "ok");
        assert_eq!(later.ask("verify"), "ok");
        Ok(())
    })
}

#[test]
fn an_aggregate_is_announced() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let mut later = Client::start(place, "summed")?;
        let refused = later.ask("sum t0");
        assert!(refused.ends_with(NEVER_SEEN), "{refused}");
        assert_eq!(earlier.ask("put 55"), "ok");
        assert_eq!(later.ask("put 60"), "ok");
        assert_eq!(later.ask("delete 5"), "ok");
        earlier.end();
        assert_eq!(later.ask("open summed"), "ok");
        assert_eq!(later.ask("sum t0"), (10..=60).step_by(5).sum::<u32>().to_string());
        assert_eq!(later.ask("verify"), "ok");
        Ok(())
    })
}

/// The first query already knows that the state belongs to an index with another definition.
#[test]
fn a_violated_index_of_another_release_is_not_read() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "by_age")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let store = place.open()?;
        let users = by_town::UserRepository::open_online(&store)?;
        let report = users.build(&store).refuse_earlier_releases().run()?;
        assert!(matches!(report.indexes[0].state, IndexState::Violated(_)), "{report}");
        let refused = earlier.ask("key");
        assert!(refused.ends_with(RETIRED), "{refused}");
        Ok(())
    })
}

/// The process writes the record of the users when it opens a table that refers to them.
#[test]
fn a_reference_does_not_let_an_earlier_release_write() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let store = place.open()?;
        let users = second::UserRepository::open(&store)?;
        users.build(&store).refuse_earlier_releases().run()?;
        assert_eq!(earlier.ask("town t0"), "10");
        assert_eq!(earlier.ask("refer"), "ok");
        let refused = earlier.ask("put 51");
        assert!(refused.contains("its index `owner`, added by"), "{refused}");
        Ok(())
    })
}
