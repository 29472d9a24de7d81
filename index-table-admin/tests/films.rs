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

/// The session in the guide equals the current output in a terminal.
#[cfg(unix)]
#[test]
fn the_session_of_the_guide_equals_the_output() {
    use std::os::unix::fs::symlink;

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = fs::read_to_string(root.join("src/guide/admin.md")).expect("the guide");
    let (_, session) = guide.split_once("## A session\n\n```text\n").expect("the session");
    let (session, _) = session.split_once("```").expect("its end");

    let dir = tempfile::tempdir().expect("a directory");
    let programs = dir.path().join("programs");
    fs::create_dir(&programs).expect("a directory");
    fs::create_dir(dir.path().join("data")).expect("a directory");
    let examples = fs::canonicalize(root.join("examples")).expect("the examples");
    symlink(examples, dir.path().join("examples")).expect("a link");
    symlink(example("films"), programs.join("admin")).expect("a link");
    symlink(assert_cmd::cargo::cargo_bin!("index-table"), programs.join("index-table"))
        .expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.display());

    let mut shown = Vec::new();
    for command in session.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).current_dir(dir.path()).env("PATH", &path);
        let output = shell.env_remove("COLUMNS").output().expect("a shell");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        shown.push(format!("$ {command}\n{}{}", text(output.stdout), text(output.stderr)));
    }
    assert!(shown.len() > 5, "{shown:?}");
    assert_eq!(shown.join("\n"), session);
}
