//! The tool with the films of the example `movies`.

#[path = "support/process.rs"]
mod process;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use process::{example, json_lines, json_of};
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/movies/films.jsonl")
}

/// Runs the program with the type of the films.
fn films(command: &[&str], dir: &Path, rest: &[&str]) -> String {
    let mut process = Command::new(example("films"));
    let output = process.args(command).arg(dir).args(rest).output().expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn find(dir: &Path, rest: &[&str]) -> Vec<String> {
    let page = films(&["--json", "find"], dir, &[&["films"], rest].concat());
    let page: Value = serde_json::from_str(&page).expect("JSON");
    let items = page["items"].as_array().expect("a list").iter();
    items.map(|film| film["title"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn films_are_loaded_found_checked_and_copied() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("films");
    let data = data();
    let lines = fs::read_to_string(&data).expect("the films").lines().count();
    let loaded = films(&["load"], &store, &["films", data.to_str().expect("text"), "--create"]);
    assert_eq!(loaded, format!("{lines} rows read, {lines} written, 0 skipped, 0 replaced\n"));

    assert_eq!(json_of(&["tables"], &store, &[])["tables"][0]["rows"], lines);
    assert_eq!(find(&store, &["cast_year", "Buster Keaton"]), ["The General"]);
    assert_eq!(
        find(&store, &["cast_year", "Charlie Chaplin", "--range", "1930..1935"]),
        ["City Lights"]
    );
    assert_eq!(find(&store, &["primary_key", "--starting-with", "City "]), ["City Lights"]);
    let years = json_lines(&["keys"], &store, &["films", "year", "--from", "1936", "--to", "1937"]);
    assert!(years.iter().all(|key| key["key"]["year"] == 1936), "{years:?}");
    assert!(years.iter().any(|key| key["primary_key"]["title"] == "Modern Times"), "{years:?}");
    let films_by_year = films(&["dump"], &store, &["films"]);
    films(&["verify"], &store, &[]);
    json_of(&["check"], &store, &[]);

    // A dump is sorted, has all films, and loads as an equal store.
    let copy = dir.path().join("copy");
    let dump = dir.path().join("dump.jsonl");
    fs::write(&dump, &films_by_year).expect("a file");
    let dump = dump.to_str().expect("text");
    films(&["load"], &copy, &["films", dump, "--create"]);
    assert_eq!(films(&["dump"], &copy, &["films"]), films_by_year);
    let again = films(&["load"], &copy, &["films", dump, "--on-duplicate", "skip"]);
    assert_eq!(again, format!("{lines} rows read, 0 written, {lines} skipped, 0 replaced\n"));
    let sizes = |store: &Path| {
        let sizes = json_of(&["sizes"], store, &[])["tables"][0]["indexes"].clone();
        let sizes = sizes.as_array().expect("a list").clone();
        sizes.iter().map(|it| (it["name"].clone(), it["entries"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&store), sizes(&copy));
}
