//! The scripts that found bugs run without a failure.

use std::{fs, path::Path, process::Command};

#[test]
fn scripts_that_have_failed_no_longer_fail() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|it| it == "txt"))
        .collect();
    files.sort();
    for file in files {
        let mut program = Command::new(env!("CARGO_BIN_EXE_index-table-lifecycle"));
        let output = program.arg("script").arg(&file).arg("3").output().expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {text}", file.display());
    }
}

#[test]
fn the_first_lifecycles_of_a_store_without_shards_agree_with_the_model() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("script");
    let script = "config seed=3 tenants=2 fillers=20 shards=0 archive=1 writers=1 readers=1 workers=1\n\
                  add-consumer c1\nsleep 100\n&backup\nkill 30\ncheck\nrestore-archive paused\n";
    fs::write(&file, script).expect("written");
    let mut program = Command::new(env!("CARGO_BIN_EXE_index-table-lifecycle"));
    let output = program.arg("script").arg(&file).output().expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
