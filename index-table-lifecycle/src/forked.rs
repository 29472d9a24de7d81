//! A fork, and a second process that reads the store.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use index_table::Error;

use crate::{
    app::{App, open_copy, read_one},
    failure::{Outcome, wrong},
    model::States,
    random::Random,
};

/// Forks. Each use of the store has to fail in the child with [`Error::Forked`].
#[expect(unsafe_code, reason = "there is no safe fork")]
pub(crate) fn fork(app: &Arc<App>) -> Outcome {
    let handle = app.handle()?;
    // SAFETY: the child uses the store only, prints nothing, and ends without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let is_forked = matches!(handle.store.read(), Err(Error::Forked { .. }))
            && matches!(handle.store.write(), Err(Error::Forked { .. }));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_forked)) };
    }
    if pid < 0 {
        return wrong("no fork");
    }
    let (begun, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: `pid` is a child of this process.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            break;
        }
        if begun.elapsed() > Duration::from_secs(20) {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            return wrong("a forked process hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
    if status == 0 { Ok(()) } else { wrong(format!("a forked process ended with {status}")) }
}

/// Reads the store in another process for a while.
pub(crate) fn read_only(app: &Arc<App>, millis: u64) -> Outcome {
    app.handle()?;
    let mut reader = Command::new(env::current_exe()?);
    reader.arg("reader").arg(&app.dir).arg(app.config.to_string()).arg(millis.to_string());
    let output = reader.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    wrong(format!("a reader in another process: {} {}", output.status, text.trim()))
}

/// The other process.
pub(crate) fn reader(dir: &Path, config: &str, millis: u64) -> Result<(), String> {
    let app = App::new(dir.to_owned(), config.parse()?, true);
    let (begun, mut states) = (Instant::now(), States::new(app.config.seed));
    let (mut random, limit) = (Random::new(&[app.config.seed, 7]), Duration::from_millis(millis));
    while begun.elapsed() < limit {
        // The writer may not have created the tables, or was killed, or changes the shards.
        let Ok(handle) = open_copy(&app.config, &app.current().0, true) else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        while begun.elapsed() < limit {
            match read_one(&app, &handle, &mut states, &mut random) {
                Err(failure) if failure.is_expected() => break,
                outcome => outcome.map_err(|failure| failure.to_string())?,
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}
