//! What the derive macro answers to mistakes: one program for each, with the messages beside it.
//!
//! The programs also call the repository, so that a message too many is noticed. After a change of
//! the messages, `TRYBUILD=overwrite cargo test --test ui` writes them anew.

/// The folders of programs with mistakes.
const TOPICS: [&str; 13] = [
    "attributes",
    "forms",
    "include",
    "index",
    "index_key",
    "lints",
    "many",
    "names",
    "primary_key",
    "serde",
    "shapes",
    "version",
    "view",
];

#[test]
fn ui() {
    let tests = trybuild::TestCases::new();
    for topic in TOPICS {
        tests.compile_fail(format!("tests/ui/{topic}/*.rs"));
    }
    tests.pass("tests/ui/pass/*.rs");
}
