//! Ctrl-C during long work. On Unix, the signal SIGTERM has the same effect.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    process,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
        mpsc,
    },
    task::Poll,
    thread,
    time::Duration,
};

use tokio::{runtime, signal};

use crate::{failure::Code, output::Output};

/// The exit code of an interrupted command.
const INTERRUPTED: u8 = Code::Interrupted as u8;

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// The time in which a command ends by itself.
const GRACE: Duration = Duration::from_secs(3);

/// The error of a command that can't end by itself.
const BLOCKED: &str = "the reader of the output reads nothing, so the last row may be incomplete; run the command again";

/// Waits for the end of the process if it was interrupted: the error of its work is then a result of the interruption.
pub(crate) fn wait_if_interrupted() {
    while IS_INTERRUPTED.load(Acquire) {
        thread::park();
    }
}

/// From now on, Ctrl-C runs `clean`, writes `message` as an error, and ends the process.
///
/// Without this function, Ctrl-C ends the process as well. No state depends on `clean`: a store recovers from the end
/// of a process at any moment. A job of a service ends with the service, which has its own signals.
pub(crate) fn on_ctrl_c(
    out: &Output,
    message: impl Into<String>,
    clean: impl FnOnce() + Send + 'static,
) {
    if out.job.is_some() {
        return;
    }
    let (out, message) = (out.clone(), message.into());
    at_ctrl_c(move || {
        IS_INTERRUPTED.store(true, Release);
        clean();
        out.error(INTERRUPTED, &format!("interrupted; {message}"));
        process::exit(INTERRUPTED.into());
    });
}

/// From now on, Ctrl-C makes [`is_stopping`] true, so that the command can end at a row.
pub(crate) fn stop_on_ctrl_c(out: &Output) {
    if out.job.is_some() {
        return;
    }
    let out = out.clone();
    at_ctrl_c(move || {
        IS_STOPPING.store(true, Release);
        thread::sleep(GRACE);
        out.error(INTERRUPTED, &format!("interrupted; {BLOCKED}"));
        process::exit(INTERRUPTED.into());
    });
}

/// Whether the command was interrupted, and should end.
pub(crate) fn is_stopping() -> bool {
    IS_STOPPING.load(Acquire)
}

/// Ends the process after this time, if the command has not ended by itself a short time later.
pub(crate) fn stop_after(out: &Output, time: Duration) {
    let out = out.clone();
    let watch = move || {
        thread::sleep(time.saturating_add(GRACE));
        let code = Code::TimeLimit as u8;
        out.error(code, &format!("the time limit has passed: {BLOCKED}"));
        process::exit(code.into());
    };
    // Without the thread, the command still ends by itself at a row.
    let _ = thread::Builder::new().name("time-limit".to_owned()).spawn(watch);
}

/// Waits for Ctrl-C, or on Unix for the signal SIGTERM.
async fn ended() -> io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminated = signal::unix::signal(signal::unix::SignalKind::terminate())?;
        tokio::select! {
            outcome = signal::ctrl_c() => outcome,
            _ = terminated.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    signal::ctrl_c().await
}

/// Calls `then` in a thread when Ctrl-C is pressed, or on Unix at the signal SIGTERM.
fn at_ctrl_c(then: impl FnOnce() + Send + 'static) {
    let (installed, wait) = mpsc::channel::<()>();
    let watch = move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let outcome = runtime.block_on(async {
            let mut ended = pin!(ended());
            // The first poll installs the handlers.
            let first = poll_fn(|context| Poll::Ready(ended.as_mut().poll(context))).await;
            drop(installed);
            match first {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => ended.await,
            }
        });
        if outcome.is_ok() {
            then();
        }
    };
    if thread::Builder::new().name("ctrl-c".to_owned()).spawn(watch).is_ok() {
        // Returns an error when the handler is installed.
        let _ = wait.recv();
    }
}
