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
    app::{App, Handle, open_copy, read_one, say},
    copies::is_complete,
    failure::{Failure, Outcome, wrong},
    model::States,
    random::Random,
    script::Step,
};

/// The time in which a forked process has to open the store again.
const OPENING: Duration = Duration::from_secs(10);

/// Forks. In the child, each use of the store has to fail with [`Error::Forked`]: `fork`. Or the child only ends: `fork end`.
/// Or it opens the store again: `fork open`.
pub(crate) fn fork(app: &Arc<App>, step: &Step) -> Outcome {
    let handle = app.handle()?;
    if step.has("open") && app.is_whole() && is_complete(&handle) {
        drop(handle);
        return fork_and_open(app);
    }
    let is_refused = || {
        matches!(handle.store.read(), Err(Error::Forked { .. }))
            && matches!(handle.store.write(), Err(Error::Forked { .. }))
    };
    await_child(start_child(|| step.has("end") || is_refused())?)
}

/// Forks while no other thread has a handle. The child drops its handles, opens the store again, and reads, while this process
/// writes. No other step runs.
fn fork_and_open(app: &Arc<App>) -> Outcome {
    app.close();
    let mut inherited = Some(Handle::of(app.open_store()?, false)?);
    let pid = start_child(|| {
        drop(inherited.take());
        let outcome = open_again(app);
        if let Err(failure) = &outcome {
            say(&format!("fault a forked process: {failure}"));
        }
        outcome.is_ok()
    })?;
    let mut states = States::new(app.config.seed);
    let mut write = || {
        let Some(handle) = &inherited else { return Ok(()) };
        (0..app.config.tenants).try_for_each(|tenant| {
            match app.write_one(handle, &mut states, tenant) {
                Err(failure) if app.is_expected(&failure, false) => Ok(()),
                outcome => outcome,
            }
        })
    };
    let written = (0..5).try_for_each(|_| write());
    await_child(pid).and(written)
}

/// Opens the store in a forked process, and reads.
fn open_again(app: &App) -> Outcome {
    let app = App::new(app.dir.clone(), app.config.clone());
    let (begun, mut states) = (Instant::now(), States::new(app.config.seed));
    let mut random = Random::new(&[app.config.seed, 9]);
    let handle = loop {
        match open_copy(&app, &app.current().0, true) {
            Ok(handle) => break handle,
            Err(failure @ Failure::Wrong(_)) => return Err(failure),
            Err(failure) if begun.elapsed() > OPENING => return Err(failure),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    };
    (0..5).try_for_each(|_| match read_one(&app, &handle, &mut states, &mut random) {
        Err(failure) if app.is_expected(&failure, false) => Ok(()),
        outcome => outcome,
    })
}

/// Forks, and runs a function in the child, which returns whether it succeeded.
#[expect(unsafe_code, reason = "there is no safe fork")]
fn start_child(child: impl FnOnce() -> bool) -> Outcome<libc::pid_t> {
    // SAFETY: the child uses the memory of other threads only as far as the library does, and ends without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let is_right = child();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    if pid < 0 { wrong("no fork") } else { Ok(pid) }
}

#[expect(unsafe_code, reason = "there is no safe wait for a forked child")]
fn await_child(pid: libc::pid_t) -> Outcome {
    let (begun, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: `pid` is a child of this process.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            break;
        }
        if begun.elapsed() > 3 * OPENING {
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
    let app = App::new(dir.to_owned(), config.parse()?);
    let (begun, mut states) = (Instant::now(), States::new(app.config.seed));
    let (mut random, limit) = (Random::new(&[app.config.seed, 7]), Duration::from_millis(millis));
    while begun.elapsed() < limit {
        // The writer may not have created the tables, or was killed, or changes the shards.
        let handle = match open_copy(&app, &app.current().0, true) {
            Err(Failure::Store(_)) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            handle => handle.map_err(|failure| failure.to_string())?,
        };
        while begun.elapsed() < limit {
            let was = app.can_be_unreadable();
            match read_one(&app, &handle, &mut states, &mut random) {
                Err(failure) if app.is_expected(&failure, was) => break,
                outcome => outcome.map_err(|failure| failure.to_string())?,
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}
