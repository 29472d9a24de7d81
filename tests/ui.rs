//! What the derive macro answers to mistakes: one program for each, with the messages beside it.
//!
//! The programs also call the repository, so that a message too many is noticed. After a change of the messages,
//! `TRYBUILD=overwrite cargo test --test ui` writes them anew.

#[test]
fn ui() {
    let tests = trybuild::TestCases::new();
    tests.compile_fail("tests/ui/*/*.rs");
}
