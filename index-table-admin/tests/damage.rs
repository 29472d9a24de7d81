//! Commands on damaged stores: an error with an exit code.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{fs, path::Path};

use process::{admin, copy, lose_rows, typed};
use support::{plain, sharded};

const ANY: [&[&str]; 12] = [
    &["tables"],
    &["indexes"],
    &["sizes"],
    &["keys", "customers"],
    &["keys", "customers", "town"],
    &["analyze"],
    &["check"],
    &["readers"],
    &["catalog"],
    &["consumers"],
    &["lag"],
    &["drop-retired"],
];

const TYPED: [&[&str]; 6] = [
    &["get", "customers", "1000"],
    &["find", "customers", "town", "Oslo", "--limit", "3000"],
    &["dump", "customers"],
    &["verify", "customers"],
    &["repair", "customers"],
    &["delete", "customers", "1001"],
];

/// Runs all commands. Returns the number of those that report damage.
fn run_all(dir: &Path, what: &str) -> usize {
    let mut reports = 0;
    let mut note = |command: &[&str], output: std::process::Output| {
        let error = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| code < 6),
            "{what}: {command:?}: {:?} {error}",
            output.status
        );
        assert!(!error.contains("panicked"), "{what}: {command:?}: {error}");
        if code == Some(1) {
            assert!(!error.is_empty(), "{what}: {command:?}");
            reports += 1;
        }
    };
    for command in ANY {
        let output = admin().arg(command[0]).arg(dir).args(&command[1..]).output();
        note(command, output.expect("a process"));
    }
    for command in TYPED {
        note(command, typed("", &command[..1], dir, &command[1..]));
    }
    reports
}

type Damage = fn(&mut Vec<u8>);

#[test]
fn a_damaged_file_is_an_error_of_each_command_that_reads_the_damage() {
    let intact = plain(2000);
    let length = fs::metadata(intact.path().join("data.mdb")).expect("the file").len() as usize;
    let copies = tempfile::tempdir().expect("a directory");
    let damages: [(&str, Damage); 5] = [
        ("an overwritten head", |bytes| bytes[..8192].fill(0xa5)),
        ("a file that was cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("an overwritten half", |bytes| {
            let length = bytes.len();
            bytes[length / 2..].fill(0xa5);
        }),
        ("pages of zeros", |bytes| assert!(lose_rows(bytes) > 10)),
        ("another file", |bytes| *bytes = b"not a store\n".repeat(2000)),
    ];
    for (at, (what, damage)) in damages.into_iter().enumerate() {
        let dir = copies.path().join(at.to_string());
        copy(intact.path(), &dir);
        let file = dir.join("data.mdb");
        let mut bytes = fs::read(&file).expect("the file");
        assert_eq!(bytes.len(), length);
        damage(&mut bytes);
        fs::write(&file, bytes).expect("the file");
        assert!(run_all(&dir, what) > 0, "{what}: no command reports it");
        let check = admin().arg("check").arg(&dir).output().expect("a process");
        assert_eq!(check.status.code(), Some(1), "{what}");
    }
}

#[test]
fn a_damaged_shard_is_named() {
    let dir = sharded();
    let file = dir.path().join("south").join("data.mdb");
    let mut bytes = fs::read(&file).expect("the file");
    bytes[..8192].fill(0xa5);
    fs::write(&file, bytes).expect("the file");
    for command in [&["tables"][..], &["shards"], &["keys", "orders"], &["check"], &["moves"]] {
        let output = admin().arg(command[0]).arg(dir.path()).args(&command[1..]).output();
        let output = output.expect("a process");
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains("south"), "{command:?}: {all}");
        assert!(output.status.code().is_some_and(|code| code < 6), "{command:?}: {all}");
    }
}
