//! The errors of the derive macros. Each mistake has a program and a file with its messages.
//!
//! The programs also call the repository, to detect superfluous messages. After a change of the messages,
//! `TRYBUILD=overwrite cargo test --test ui` writes them again.

/// The folders of programs with mistakes.
const TOPICS: [&str; 16] = [
    "attributes",
    "calls",
    "forms",
    "include",
    "index",
    "index_key",
    "lints",
    "many",
    "names",
    "primary_key",
    "revision",
    "serde",
    "shapes",
    "shards",
    "version",
    "view",
];

/// A folder that is not listed would not be tried, and a program in no folder neither.
#[test]
fn every_program_is_tried() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let names = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.retain(|name| name != "pass");
    names.sort();
    assert_eq!(names, TOPICS);
    for topic in TOPICS {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui").join(topic);
        let mut entries = std::fs::read_dir(folder).expect("a folder").flatten();
        assert!(entries.any(|it| it.path().extension().is_some_and(|it| it == "rs")), "{topic}");
    }
}

#[test]
fn ui() {
    let tests = trybuild::TestCases::new();
    for topic in TOPICS {
        tests.compile_fail(format!("tests/ui/{topic}/*.rs"));
    }
    tests.pass("tests/ui/pass/*.rs");
}
