//! A small disk.

use std::{
    path::Path,
    process::{Command, Stdio},
};

#[path = "../../../tests/support/privileges.rs"]
mod privileges;

/// A file system of 3 MiB, if the process may mount one.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    pub(crate) fn new() -> Option<Self> {
        let disk = Self(tempfile::tempdir().expect("a directory"));
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(disk.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(disk);
        }
        privileges::not_privileged("this process can't mount a file system").expect("a disk");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Gives the disk more space.
    #[allow(dead_code, reason = "each suite uses a part of it")]
    pub(crate) fn grow(&self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,size=9m"]).arg(self.path());
        assert!(mount.status().is_ok_and(|status| status.success()));
    }

    #[allow(dead_code, reason = "each suite uses a part of it")]
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.path()).expect("a directory").count()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let _ = unmount.arg("--lazy").arg(self.path()).stderr(Stdio::null()).status();
    }
}
