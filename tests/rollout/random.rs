//! Random steps of two clients, each with any release.

use proptest::{collection::vec, prelude::*};

use crate::{TestResult, client::Client, on_both};

const RELEASES: [&str; 6] = ["first", "second", "computed", "changed", "without", "summed"];

/// A step of one of two clients.
#[derive(Debug, Clone)]
enum Step {
    Open(usize),
    Put(u32, u32),
    Delete(u32),
    Age(u32),
    Build,
    Kill(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..RELEASES.len()).prop_map(Step::Open),
        6 => (0..40_u32, 0..8_u32).prop_map(|(from, more)| Step::Put(from, from + more)),
        3 => (0..40_u32).prop_map(Step::Delete),
        3 => (0..40_u32).prop_map(Step::Age),
        2 => Just(Step::Build),
        1 => (0..RELEASES.len()).prop_map(Step::Kill),
    ]
}

/// Whether a client was refused because of what the other one has opened since.
fn is_refused(answer: &str) -> bool {
    answer.contains("is not maintained by this process")
}

fn run(steps: &[(usize, Step)]) -> TestResult {
    on_both(|place| {
        let mut clients = [Client::start(place, "first")?, Client::start(place, "second")?];
        for (at, step) in steps {
            let client = &mut clients[*at];
            let answer = match step {
                Step::Open(release) => client.ask(&format!("open {}", RELEASES[*release])),
                Step::Put(from, to) => client.ask(&format!("put {from} {to}")),
                Step::Delete(id) => client.ask(&format!("delete {id}")),
                Step::Age(id) => client.ask(&format!("age {id}")),
                Step::Build => client
                    .ask("build")
                    .split_once(':')
                    .map_or_else(String::new, |_| "ok".to_owned()),
                Step::Kill(release) => {
                    let next = Client::start(place, RELEASES[*release])?;
                    std::mem::replace(client, next).kill();
                    "ok".to_owned()
                }
            };
            assert!(answer == "ok" || is_refused(&answer), "{step:?}: {answer}");
            for client in &mut clients {
                assert_eq!(client.ask("verify"), "ok", "after {step:?}");
            }
        }
        let [mut first, mut second] = clients;
        assert_eq!(first.ask("count"), second.ask("count"));
        second.end();
        // All of its indexes are readable then.
        assert_eq!(first.ask("open summed"), "ok");
        let sum = first.ask("sum t0");
        assert!(sum.parse::<i64>().is_ok(), "{sum}");
        assert_eq!(first.ask("verify"), "ok");
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn two_clients_keep_the_indexes_of_each_other_right(steps in vec((0..2_usize, step()), 1..25)) {
        run(&steps).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}

/// Each case starts processes.
fn cases() -> u32 {
    let all = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    all.unwrap_or(64_u32).div_ceil(4)
}
