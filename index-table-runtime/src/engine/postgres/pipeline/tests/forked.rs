//! Processes forked from a process with look-ups.

use std::{env, panic, process::Command};

use super::*;

const ROLE: &str = "INDEX_TABLE_FORK_ROLE";
const NAME: &str = "engine::postgres::pipeline::tests::forked::a_forked_process_is_refused_and_leaves_the_lines_of_its_parent";

/// Forks, and runs `child` in the child. Waits for its end.
#[expect(unsafe_code, reason = "there is no safe fork")]
fn in_child(child: impl FnOnce()) {
    // SAFETY: the child uses the memory of other threads only as far as the library does.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        crate::locks::refuse_inherited_locks();
        let outcome = panic::catch_unwind(panic::AssertUnwindSafe(child));
        // SAFETY: the child ends without running the test harness.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let (begun, mut status) = (Instant::now(), 0);
    // SAFETY: `pid` is a child of this process.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } != pid {
        assert!(begun.elapsed() < LONG * 2, "the child hangs");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(status, 0, "the child failed");
}

fn is_forked(found: &FoundBytes) -> bool {
    matches!(found, Err(Error::Forked { .. }))
}

fn forks(engine: &Engine) -> Result<()> {
    let tables = open(engine);
    put_thousand(engine, &tables)?;
    let delay = Duration::from_millis(20);
    let (_proxy, url) = Proxy::start(&url().expect("a server"), delay, b"").expect("a proxy");
    let parent = through(engine, &url, LONG)?;
    let before = sessions(&parent.pipeline)?;
    let mut pending = Tasks::new(look_ups(&parent.pipeline, &tables, 0..500));
    pending.turn();
    let unpolled = look_ups(&parent.pipeline, &tables, 0..10);
    // Each of the two processes owns its copy.
    let mut inherited = Some((parent, pending, unpolled));
    in_child(|| {
        let (parent, pending, unpolled) = inherited.take().expect("the handles");
        let mut pending = pending;
        assert!(finish(unpolled, SOON).iter().all(is_forked));
        assert!(finish([parent.get_later(&tables, &key(1))], SOON).iter().all(is_forked));
        for number in 0..250 {
            pending.drop_one(number);
        }
        // No thread wakes the others.
        assert!(finish(pending.into_futures(), SOON).iter().all(is_forked));
        drop(parent);
        let own = connected(&engine.schema).expect("a server");
        let found = finish(look_ups(&own.pipeline, &tables, 0..100), LONG);
        assert!(found.iter().all(|found| found.as_ref().is_ok_and(Option::is_some)));
    });
    let (parent, pending, unpolled) = inherited.take().expect("the handles");
    for (id, found) in (0..).zip(pending.finish(LONG)) {
        assert_eq!(found?, Some(text(id)));
    }
    assert_eq!(finish(unpolled, LONG).len(), 10);
    assert_eq!(sessions(&parent.pipeline)?, before);
    Ok(())
}

#[test]
fn a_forked_process_is_refused_and_leaves_the_lines_of_its_parent() {
    if env::var(ROLE).is_ok() {
        on_a_server(forks);
        return;
    }
    // A process of its own has no threads of other tests.
    let mut other = Command::new(env::current_exe().expect("this program"));
    let output = other.args(["--exact", "--nocapture", NAME]).env(ROLE, "forks").output();
    let output = output.expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    let child = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{child}");
}
