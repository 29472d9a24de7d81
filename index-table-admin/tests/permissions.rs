//! Paths that the tool can't use: the errors say what to do.
#![cfg(target_os = "linux")]

#[path = "../../tests/support/privileges.rs"]
mod privileges;
#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};

use privileges::not_privileged;
use process::example;
use support::plain;

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// Runs the tool with types, as another user if there is one. Returns the exit code and the errors.
fn run(program: &Path, user: Option<u32>, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.args(arguments).current_dir("/").output().expect("a process");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_file_in_the_place_of_a_directory_is_an_error() {
    let dir = plain(3);
    let file = dir.path().join("file");
    fs::write(&file, "{}\n").expect("a file");
    let (store, file, inside) = (text(dir.path()), text(&file), file.join("copy"));
    let inside = text(&inside);
    let is_file = "is a file, not the directory of a store";
    let cases: [(&[&str], i32, &str); 8] = [
        (&["tables", file], 3, is_file),
        (&["lag", file], 3, is_file),
        (&["drop-retired", file], 3, is_file),
        (&["restore", file, inside], 3, is_file),
        (&["verify", file], 3, is_file),
        (&["backup", store, file], 5, "give a directory that does not exist"),
        (&["backup", store, inside], 5, "is in a file, and not in a directory"),
        (&["load", store, "customers", store], 2, "give a file of JSON lines"),
    ];
    for (arguments, code, part) in cases {
        let (found, error) = run(&example("rows"), None, arguments);
        assert!(found == Some(code) && error.contains(part), "{arguments:?}: {found:?} {error}");
    }
    let (code, error) = run(&example("rows"), None, &["load", file, "customers", "--create"]);
    assert!(code.is_some_and(|it| it > 1) && error.contains(file), "{code:?} {error}");
}

#[test]
fn a_copy_needs_an_existing_parent_outside_of_the_store() {
    let (dir, root) = (plain(3), tempfile::tempdir().expect("a directory"));
    let (store, backup) = (dir.path(), root.path().join("backup"));
    let tool =
        |command: &[&str], to: &Path| run(&example("rows"), None, &[command, &[text(to)]].concat());
    assert_eq!(tool(&["backup", text(store)], &backup).0, Some(0));
    std::os::unix::fs::symlink(store, root.path().join("link")).expect("a link");
    fs::create_dir(store.join("copies")).expect("a directory");
    // LMDB creates its lock file when a copy is opened.
    tool(&["tables"], &backup);
    let contents = |dir: &Path| fs::read_dir(dir).expect("a directory").count();
    let before = [store, &backup, root.path()].map(contents);
    for from in [store, &backup] {
        for command in ["backup", "restore", "compact"] {
            let misspelt = root.path().join("bakcups/today");
            let (code, error) = tool(&[command, text(from)], &misspelt);
            let reason = format!(
                "there is no directory `{0}`; check the path, or create the directory with `mkdir -p {0}`",
                root.path().join("bakcups").display()
            );
            assert!(code == Some(5) && error.contains(&reason), "{command}: {code:?} {error}");
            for inside in [
                store.join("copy"),
                store.join("copies/one"),
                root.path().join("link/copy"),
                backup.join("copy"),
            ] {
                let (code, error) = tool(&[command, text(from)], &inside);
                let reason = "of a store; give a path outside of it";
                assert!(code == Some(5) && error.contains(reason), "{command}: {code:?} {error}");
            }
        }
    }
    let inside = store.join("new/store");
    let (code, error) =
        run(&example("rows"), None, &["load", text(&inside), "customers", "/dev/null", "--create"]);
    assert!(code == Some(5) && error.contains("give a path outside of it"), "{code:?} {error}");
    assert_eq!([store, &backup, root.path()].map(contents), before);
}

/// A store of this user, and the tool where another user can run it.
struct Place {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        mode(dir.path(), 0o755);
        let program = dir.path().join("tool");
        // A file that this process has written could not always run: while another thread starts a process, that process has it open.
        let copied = Command::new("cp").arg(example("rows")).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()), "a copy");
        mode(&program, 0o755);
        let own = Self { dir, program };
        for (name, of_directory, of_files) in
            [("closed", 0o700, 0o600), ("unreadable", 0o755, 0o600), ("readable", 0o755, 0o644)]
        {
            let store = own.path(name);
            process::copy(plain(3).path(), &store);
            for entry in fs::read_dir(&store).expect("a directory") {
                mode(&entry.expect("an entry").path(), of_files);
            }
            mode(&store, of_directory);
        }
        // A store of the other user.
        let theirs = own.path("theirs");
        process::copy(plain(3).path(), &theirs);
        let entries = fs::read_dir(&theirs).expect("a directory");
        let files = entries.map(|entry| entry.expect("an entry").path());
        for path in files.chain([theirs.clone()]) {
            chown(&path, Some(NOBODY), Some(NOBODY)).expect("another owner");
        }
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn a_store_of_another_user_is_an_error_that_says_what_to_do()
-> Result<(), Box<dyn std::error::Error>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return not_privileged("only root can run the tool as another user");
    }
    let place = Place::new();
    if run(&place.program, Some(NOBODY), &["--version"]).0 != Some(0) {
        return not_privileged("another user can't run programs in the temporary directory");
    }
    let [closed, unreadable, readable, theirs, lines] =
        ["closed", "unreadable", "readable", "theirs", "closed/data.mdb"].map(|it| place.path(it));
    let other_user = "run the command as the user that runs the service";
    let mut cases: Vec<(Vec<&str>, &str)> = Vec::new();
    for store in [&closed, &unreadable] {
        for command in
            ["tables", "keys", "check", "lag", "drop-retired", "recover", "verify", "repair"]
        {
            let rest: &[&str] = if command == "keys" { &["customers"] } else { &[] };
            cases.push(([&[command, text(store)], rest].concat(), other_user));
        }
    }
    for command in ["drop-retired", "repair", "build", "upgrade", "expire"] {
        cases.push((vec![command, text(&readable)], other_user));
    }
    cases.push((vec!["delete", text(&readable), "customers", "1"], other_user));
    cases.push((
        vec!["load", text(&readable), "customers", text(&lines)],
        "as a user that can read the file",
    ));
    for (arguments, part) in cases {
        let (code, error) = run(&place.program, Some(NOBODY), &arguments);
        assert!(code == Some(5) && error.contains(part), "{arguments:?}: {code:?} {error}");
        assert!(!error.contains("there is no"), "{arguments:?}: {error}");
    }
    // The owner of a store can do all of this.
    for (store, user) in [(&closed, None), (&theirs, Some(NOBODY))] {
        for command in ["tables", "drop-retired", "verify"] {
            let (code, error) = run(&place.program, user, &[command, text(store)]);
            assert_eq!(code, Some(0), "{command}: {error}");
        }
    }
    Ok(())
}
