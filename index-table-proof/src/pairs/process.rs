//! A process of a pair: it writes or reads the store until it is killed, or its input ends.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Result, Store};

use super::{
    Failure, Known,
    access::{Access, Outcome, store},
};
use crate::{
    crash::say,
    shop::{Model, Shop},
};

/// The maximum time to wait for a line of a process.
const PATIENCE: Duration = Duration::from_mins(1);

/// The work of a process.
pub(crate) fn child(access: &str, path: &str) -> Result<(), Failure> {
    let (access, path) = (Access::find(access).ok_or("no such access")?, Path::new(path));
    match access.options(path).open(store(path)) {
        Ok(store) => work(access, store).map_err(|error| error.to_string())?,
        Err(Error::WriterElsewhere { process, has_journal, .. }) => {
            say(&format!("elsewhere {} {has_journal}", process.unwrap_or_default()));
            Ok(())
        }
        Err(Error::ArchiveNotNamed { .. }) => {
            say("unnamed");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn work(access: Access, store: Store) -> Result<Result<(), Failure>> {
    let shop = Shop::new(store)?;
    say("opened");
    let (is_over, mut model) = (Arc::new(AtomicBool::new(false)), Model::default());
    let ends = Arc::clone(&is_over);
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        ends.store(true, Relaxed);
    });
    while !is_over.load(Relaxed) {
        if access.writes() {
            match shop.step_beside(&mut model) {
                Ok(steps) => say(&format!("done {}", steps?)),
                Err(wrong) => return Ok(Err(wrong)),
            }
        } else {
            let txn = shop.store.read()?;
            let (steps, before) = (shop.steps_in(&txn)?, model.steps);
            model.advance(steps);
            if steps < before {
                return Ok(Err(format!("step {steps} is read after step {before}")));
            }
            if let Some(difference) = shop.differs(&txn, &model.rows)? {
                return Ok(Err(format!("after {steps} steps: {difference}")));
            }
            say(&format!("read {steps}"));
        }
    }
    Ok(Ok(()))
}

/// A process that has the store open, or is opening it.
pub(super) struct Process {
    pub(super) access: Access,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    pub(super) fn start(path: &Path, access: Access) -> Result<Self, Failure> {
        let shown = |error: std::io::Error| error.to_string();
        let mut child = Command::new(std::env::current_exe().map_err(shown)?)
            .args(["pairs-child", &format!("{access:?}")])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(shown)?;
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        thread::spawn(move || {
            output.lines().map_while(std::io::Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { access, input: child.stdin.take(), child, lines })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the outcome of opening the store.
    pub(super) fn outcome(&self) -> Result<Outcome, Failure> {
        let line = self.lines.recv_timeout(PATIENCE).map_err(|_| self.says("nothing"))?;
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["opened"] => Ok(Outcome::Opened),
            ["unnamed"] => Ok(Outcome::NotNamed),
            ["elsewhere", process, has_journal] => Ok(Outcome::Elsewhere {
                process: process.parse().map_err(|_| self.says(&line))?,
                has_journal: *has_journal == "true",
            }),
            _ => Err(self.says(&line)),
        }
    }

    fn says(&self, line: &str) -> Failure {
        format!("{:?} says `{line}`", self.access)
    }

    /// Takes a line of a process that has the store open.
    fn take(&self, line: &str, known: &mut Known) -> Result<u64, Failure> {
        let number = |text: &str| text.parse().map_err(|_| self.says(line));
        match line.split_once(' ') {
            Some(("done", steps)) => {
                let steps = number(steps)?;
                known.acknowledge(steps)?;
                Ok(steps)
            }
            Some(("read", steps)) => {
                known.reads += 1;
                number(steps)
            }
            _ => Err(self.says(line)),
        }
    }

    /// Waits for this number of commits or reads. The last of them has all commits that were acknowledged before.
    pub(super) fn go_on(&self, count: u64, known: &mut Known) -> Result<(), Failure> {
        let (begun, least, mut left) = (Instant::now(), known.acknowledged(), count);
        loop {
            let line = match self.lines.recv_timeout(PATIENCE) {
                Err(RecvTimeoutError::Timeout) => return Err(self.says("nothing")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.says("its end")),
                Ok(line) => line,
            };
            let steps = self.take(&line, known)?;
            left = left.saturating_sub(1);
            if left == 0 && steps >= least {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "{:?} is at step {steps}, and {least} were acknowledged",
                    self.access
                ));
            }
        }
    }

    /// Kills the process. Takes the lines that it has written.
    pub(super) fn kill(mut self, known: &mut Known) -> Result<(), Failure> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map_err(|error| error.to_string())?;
        known.killed += u64::from(self.access.writes());
        self.take_rest(known)
    }

    /// Ends the process, which closes the store.
    pub(super) fn end(mut self, known: &mut Known) -> Result<(), Failure> {
        self.input = None;
        let (begun, mut rest) = (Instant::now(), Vec::new());
        loop {
            rest.extend(self.lines.try_iter());
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => break,
                Some(status) => {
                    return Err(format!("{:?} ended with {status}: {rest:?}", self.access));
                }
                None if begun.elapsed() > PATIENCE => return Err(self.says("that it does not end")),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        rest.iter().try_for_each(|line| self.take(line, known).map(drop))?;
        self.take_rest(known)
    }

    fn take_rest(&mut self, known: &mut Known) -> Result<(), Failure> {
        // The process has ended, so the thread that reads its output ends too.
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if !["opened", "unnamed"].contains(&line.as_str()) && !line.starts_with("elsewhere ") {
                self.take(&line, known)?;
            }
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
