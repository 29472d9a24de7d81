//! A process of another user.

use std::{os::unix::process::CommandExt as _, process::Command};

/// A user that owns nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// Returns a command that runs the test of this name as [`NOBODY`].
///
/// With its path, the directories above the program may be private. A copy of the program could not always run: while another thread
/// starts a process, that process has the file open for writing.
pub(crate) fn as_nobody(test: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", test, "--nocapture"]).current_dir("/").uid(NOBODY).gid(NOBODY);
    command
}
