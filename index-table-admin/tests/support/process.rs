//! The command as a process.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use assert_cmd::Command;
use serde_json::Value;

pub(crate) fn admin() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("index-table"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

fn run(command: &[&str], dir: &Path, rest: &[&str]) -> Output {
    admin().args(command).arg(dir).args(rest).output().expect("a process")
}

/// Runs a command that succeeds, and returns its output.
pub(crate) fn text_of(command: &[&str], dir: &Path, rest: &[&str]) -> String {
    let output = run(command, dir, rest);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} {rest:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn json_of(command: &[&str], dir: &Path, rest: &[&str]) -> Value {
    let text = text_of(&[&["--json"], command].concat(), dir, rest);
    serde_json::from_str(&text).expect("JSON")
}

pub(crate) fn json_lines(command: &[&str], dir: &Path, rest: &[&str]) -> Vec<Value> {
    let text = text_of(&[&["--json"], command].concat(), dir, rest);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs a command that fails with this exit code, and returns the error.
pub(crate) fn fails(code: i32, command: &[&str], dir: &Path, rest: &[&str]) -> String {
    let output = run(command, dir, rest);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?} {rest:?}: {error}");
    assert!(output.stdout.is_empty(), "{command:?}");
    error
}

/// Returns the path of an example, which is built with the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let own = assert_cmd::cargo::cargo_bin!("index-table");
    own.parent().expect("a directory").join("examples").join(name)
}

/// Runs the tool with types, with this input.
pub(crate) fn typed(input: &str, command: &[&str], dir: &Path, rest: &[&str]) -> Output {
    let mut process = Command::new(example("rows"));
    process.env_remove("COLUMNS").env_remove("NO_COLOR");
    process.args(command).arg(dir).args(rest).write_stdin(input).output().expect("a process")
}

pub(crate) fn typed_text(command: &[&str], dir: &Path, rest: &[&str]) -> String {
    let output = typed("", command, dir, rest);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} {rest:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn typed_json(command: &[&str], dir: &Path, rest: &[&str]) -> Value {
    let text = typed_text(&[&["--json"], command].concat(), dir, rest);
    serde_json::from_str(&text).expect("JSON")
}

pub(crate) fn typed_input(input: &str, command: &[&str], dir: &Path, rest: &[&str]) -> Value {
    let output = typed(input, command, dir, rest);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} {rest:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub(crate) fn typed_fails(code: i32, command: &[&str], dir: &Path, rest: &[&str]) -> String {
    let output = typed("", command, dir, rest);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?} {rest:?}: {error}");
    error
}

/// Makes a row unreadable, while the store is closed.
pub(crate) fn damage_row(dir: &Path, table: &str, id: u64) {
    use heed::types::Bytes;
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(40).map_size(1 << 30).open(dir) };
    let env = env.expect("a file of LMDB");
    let txn = env.write_txn().expect("a transaction");
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let rows: heed::Database<'_, Bytes, Bytes> =
            opener.open_database(txn, Some(table))?.expect("a table");
        rows.put(txn, &id.to_be_bytes(), &[1, 2, 0xff])?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
    });
    done.expect("a commit");
}

/// Copies a directory with everything in it.
pub(crate) fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copied");
        }
    }
}

/// Waits until a process ends. Returns whether it has ended within ten seconds.
pub(crate) fn ends(process: &mut std::process::Child) -> bool {
    let begun = std::time::Instant::now();
    while process.try_wait().expect("the process").is_none() {
        if begun.elapsed() > std::time::Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    true
}

/// Overwrites each leaf with rows of customers by zeros, and returns the number of these pages.
pub(crate) fn lose_rows(file: &mut [u8]) -> usize {
    let mut lost = 0;
    for page in file.chunks_mut(4096).filter(|page| has_rows(page)) {
        page.fill(0);
        lost += 1;
    }
    lost
}

/// Whether a page of LMDB is a leaf with rows of customers: their entries don't have both the town and the address.
pub(crate) fn has_rows(page: &[u8]) -> bool {
    is_leaf_with(page, &["@example.com", "Oslo"])
}

/// Whether a page of LMDB is a leaf whose nodes have these texts.
pub(crate) fn is_leaf_with(page: &[u8], texts: &[&str]) -> bool {
    const LEAF: u8 = 0x02;
    // The free space before the nodes can have old bytes.
    let nodes = usize::from(u16::from_le_bytes([page[14], page[15]])).min(page.len());
    let has = |text: &&str| page[nodes..].windows(text.len()).any(|part| part == text.as_bytes());
    page[10] & LEAF != 0 && texts.iter().all(has)
}
