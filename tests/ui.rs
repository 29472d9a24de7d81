//! The errors of the derive macros. For each mistake, there is a program and a file with the messages.
//! The programs also call the repository, to detect superfluous messages. `TRYBUILD=overwrite cargo test
//! --test ui` accepts changed messages.

/// The folders of programs with mistakes.
const TOPICS: [&str; 21] = [
    "aggregate",
    "attributes",
    "calls",
    "changes",
    "expiry",
    "forms",
    "include",
    "index",
    "index_key",
    "lints",
    "many",
    "names",
    "primary_key",
    "references",
    "revision",
    "serde",
    "shapes",
    "shards",
    "version",
    "view",
    "was",
];

/// Programs in unlisted folders or outside of folders would not be compiled.
#[test]
fn every_program_is_in_a_listed_folder() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let names = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, TOPICS);
    for topic in TOPICS {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui").join(topic);
        let mut entries = std::fs::read_dir(folder).expect("a folder").flatten();
        assert!(entries.any(|it| it.path().extension().is_some_and(|it| it == "rs")), "{topic}");
    }
}

/// A program has one mistake, or its last line has their number: `// 3 mistakes`. Each mistake is one error: uses of the
/// repository add none. A last line `// 3 errors` means that a mistake still has several.
#[test]
fn each_mistake_is_one_error() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    for topic in TOPICS {
        for entry in std::fs::read_dir(folder.join(topic)).expect("a folder") {
            let program = entry.expect("an entry").path();
            if program.extension().is_none_or(|it| it != "rs") {
                continue;
            }
            let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("a text");
            let errors = read(&program.with_extension("stderr"));
            let errors = errors.lines().filter(|line| line.starts_with("error")).count();
            let program_text = read(&program);
            let last = program_text.lines().next_back().and_then(|line| line.strip_prefix("// "));
            let stated = last
                .and_then(|line| line.strip_suffix(" mistakes").or(line.strip_suffix(" errors")));
            let mistakes = stated.map_or(1, |number| number.parse().expect("a number"));
            assert_eq!(errors, mistakes, "{}", program.display());
        }
    }
}

/// Without programs that have to compile, trybuild checks all programs in one call of cargo. These programs are in
/// tests/pass.
#[test]
fn each_mistake_has_its_message() {
    let tests = trybuild::TestCases::new();
    for topic in TOPICS {
        tests.compile_fail(format!("tests/ui/{topic}/*.rs"));
    }
}
