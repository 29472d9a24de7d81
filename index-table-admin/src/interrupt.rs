//! Ctrl-C during long work.

use std::{
    future::poll_fn,
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
};

use tokio::{runtime, signal};

use crate::output::Output;

/// The exit code of an interrupted command, by the convention of shells.
pub(crate) const INTERRUPTED: u8 = 130;

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Waits for the end of the process if it was interrupted: the error of its work is then a result of the interruption.
pub(crate) fn wait_if_interrupted() {
    while IS_INTERRUPTED.load(Acquire) {
        thread::park();
    }
}

/// From now on, Ctrl-C runs `clean`, writes `message` as an error, and ends the process.
///
/// Without this function, Ctrl-C ends the process as well. No state depends on `clean`: a store recovers from the end
/// of a process at any moment.
pub(crate) fn on_ctrl_c(
    out: &Output,
    message: &'static str,
    clean: impl FnOnce() + Send + 'static,
) {
    let (out, (installed, wait)) = (out.clone(), mpsc::channel::<()>());
    let watch = move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let outcome = runtime.block_on(async {
            let mut ctrl_c = pin!(signal::ctrl_c());
            // The first poll installs the handler.
            let first = poll_fn(|context| Poll::Ready(ctrl_c.as_mut().poll(context))).await;
            drop(installed);
            match first {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => ctrl_c.await,
            }
        });
        if outcome.is_ok() {
            IS_INTERRUPTED.store(true, Release);
            clean();
            out.error(INTERRUPTED, &format!("interrupted; {message}"));
            process::exit(INTERRUPTED.into());
        }
    };
    if thread::Builder::new().name("ctrl-c".to_owned()).spawn(watch).is_ok() {
        // Returns an error when the handler is installed.
        let _ = wait.recv();
    }
}
