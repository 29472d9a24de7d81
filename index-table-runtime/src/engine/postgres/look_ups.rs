//! The look-ups of asynchronous callers that wait for a line, and the state of the lines.
//!
//! A line is a connection with the thread that sends look-ups on it. A look-up waits here until a line has room for it. A thread
//! that adds a look-up notifies a line only if no line with room is awake: an awake line looks here again before it sleeps.
//!
//! Wakers run code of the program, so no lock is held while one is called or dropped.

use std::{
    collections::BTreeMap,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use super::{error, pool::Pool, socket::Notifier};
use crate::{
    locks::{Mutex, MutexGuard, Origin},
    model::error::{Error, Result, ServerProblem},
};

/// The maximum number of lines of a store.
const LINES: usize = 2;

/// The time after which a further line is tried again that could not be opened.
const PAUSE: Duration = Duration::from_secs(1);

/// The bounds of the lines of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineBounds {
    /// The maximum number of look-ups of a line at the same time.
    pub(super) in_flight: usize,
    /// The number of look-ups for each line above which a further line is opened.
    pub(super) enough: usize,
    /// The time after which an unused line ends.
    pub(super) idle: Duration,
}

/// The result of a look-up.
pub(super) type FoundBytes = Result<Option<Vec<u8>>>;

/// A look-up, which its caller and a line share.
pub(super) struct LookUp {
    pub(super) sql: Arc<str>,
    pub(super) key: Arc<[u8]>,
    progress: Mutex<LookUpProgress>,
}

enum LookUpProgress {
    Pending(Waker),
    Ended(FoundBytes),
    /// The caller has the result, or no longer waits for it.
    Left,
}

impl LookUp {
    pub(super) fn new(sql: Arc<str>, key: Arc<[u8]>, waker: &Waker) -> Self {
        Self { sql, key, progress: Mutex::new(LookUpProgress::Pending(waker.clone())) }
    }

    /// Returns the result. Without one, the waker is called later.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<FoundBytes> {
        let next = LookUpProgress::Pending(waker.clone());
        let before = {
            let mut progress = self.progress.lock();
            let is_pending = matches!(*progress, LookUpProgress::Pending(_));
            mem::replace(&mut *progress, if is_pending { next } else { LookUpProgress::Left })
        };
        match before {
            LookUpProgress::Pending(_) => Poll::Pending,
            LookUpProgress::Ended(found) => Poll::Ready(found),
            LookUpProgress::Left => {
                Poll::Ready(Err(Error::internal("a look-up that has ended before")))
            }
        }
    }

    /// Notes that the caller no longer waits.
    pub(super) fn leave(&self) {
        drop(self.replace(LookUpProgress::Left));
    }

    pub(super) fn is_left(&self) -> bool {
        matches!(*self.progress.lock(), LookUpProgress::Left)
    }

    /// Ends the look-up, unless it was left.
    pub(super) fn end(&self, found: FoundBytes) {
        if self.is_left() {
            return;
        }
        match self.replace(LookUpProgress::Ended(found)) {
            // A panic of the program's code must not end the line.
            LookUpProgress::Pending(waker) => drop(catch_unwind(AssertUnwindSafe(|| waker.wake()))),
            LookUpProgress::Ended(_) => {}
            // It was left in the meantime.
            LookUpProgress::Left => self.leave(),
        }
    }

    fn replace(&self, progress: LookUpProgress) -> LookUpProgress {
        mem::replace(&mut *self.progress.lock(), progress)
    }
}

/// A look-up that waits for a line, or for its response.
pub(super) struct Queued {
    number: u64,
    pub(super) look_up: Arc<LookUp>,
    pub(super) since: Instant,
    /// Whether it was sent on a connection that was lost.
    pub(super) was_lost: bool,
}

/// A line that is to be started, with the pool that opens its connection.
pub(super) type LineStart = (usize, Arc<Pool>);

/// The look-ups that wait for a line, and the state of the lines.
pub(super) struct LookUps {
    state: Mutex<State>,
    /// Whether the thread of each line is about to block, or blocks.
    asleep: [AtomicBool; LINES],
    pub(super) bounds: LineBounds,
    /// The server, without the password, for errors.
    pub(super) server: String,
    /// The process that has opened the store. A forked process has none of the lines.
    origin: Origin,
}

#[derive(Default)]
struct State {
    /// By their numbers, so that a look-up keeps its place when it is sent again.
    waiting: BTreeMap<u64, Queued>,
    next: u64,
    lines: [LineState; LINES],
    /// The time before which no further line is opened, after one could not be.
    not_before: Option<Instant>,
    /// `None` after the end of the store, so that a look-up does not keep the connections.
    pool: Option<Arc<Pool>>,
}

#[derive(Default)]
struct LineState {
    /// Whether it has a thread, or is about to have one.
    is_running: bool,
    /// How its thread is notified, as long as it has a connection.
    notifier: Option<Arc<Notifier>>,
    in_flight: usize,
}

impl State {
    /// Returns the number of a further line that is to be opened.
    fn further(&mut self, enough: usize) -> Option<usize> {
        let running = self.lines.iter().filter(|line| line.is_running).count();
        let in_flight: usize = self.lines.iter().map(|line| line.in_flight).sum();
        let is_enough = self.waiting.len() + in_flight <= enough.saturating_mul(running)
            || self.not_before.is_some_and(|time| Instant::now() < time);
        if running > 0 && is_enough {
            return None;
        }
        let (number, line) = (0..).zip(&mut self.lines).find(|(_, line)| !line.is_running)?;
        line.is_running = true;
        Some(number)
    }

    /// Returns the notifier of the line with the fewest look-ups, unless another line than `except` with room is awake.
    fn sleeper(
        &self,
        asleep: &[AtomicBool; LINES],
        most: usize,
        except: Option<usize>,
    ) -> Option<Arc<Notifier>> {
        let mut sleeper: Option<(usize, &AtomicBool, &Arc<Notifier>)> = None;
        let others = (0..).zip(self.lines.iter().zip(asleep));
        for (_, (line, is_asleep)) in others.filter(|(number, _)| Some(*number) != except) {
            let Some(notifier) = line.notifier.as_ref().filter(|_| line.in_flight < most) else {
                continue;
            };
            if !is_asleep.load(Ordering::Relaxed) {
                return None;
            }
            if sleeper.is_none_or(|(fewest, ..)| line.in_flight < fewest) {
                sleeper = Some((line.in_flight, is_asleep, notifier));
            }
        }
        let (_, is_asleep, notifier) = sleeper?;
        is_asleep.store(false, Ordering::Relaxed);
        Some(Arc::clone(notifier))
    }

    fn line(&mut self, line: usize) -> Option<&mut LineState> {
        self.lines.get_mut(line)
    }
}

impl LookUps {
    pub(super) fn new(pool: &Arc<Pool>, bounds: LineBounds) -> Self {
        let state = State { pool: Some(Arc::clone(pool)), ..State::default() };
        Self {
            state: Mutex::new(state),
            asleep: Default::default(),
            bounds,
            server: pool.server().to_owned(),
            origin: Origin::here(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether this process has inherited the look-ups in a fork. Then it must not use their locks.
    pub(super) fn is_inherited(&self) -> bool {
        self.origin.is_inherited()
    }

    fn unreachable(&self, reason: &str) -> Error {
        let (server, reason) = (self.server.clone(), reason.to_owned());
        Error::Unreachable { server, problem: ServerProblem::Network, reason }
    }

    /// The error of a look-up whose connection was lost.
    pub(super) fn lost(&self) -> Error {
        self.unreachable("the connection was lost")
    }

    /// The error of a look-up at the end of the store.
    pub(super) fn closed(&self) -> Error {
        self.unreachable("the store was closed")
    }

    /// Adds a look-up. Returns its number, and the line that is to be started.
    pub(super) fn add(&self, look_up: &Arc<LookUp>) -> (u64, Option<LineStart>) {
        let (number, start, sleeper) = {
            let mut state = self.state();
            let number = state.next;
            state.next += 1;
            let Some(pool) = state.pool.clone() else {
                drop(state);
                look_up.end(Err(self.closed()));
                return (number, None);
            };
            let look_up = Arc::clone(look_up);
            let queued = Queued { number, look_up, since: Instant::now(), was_lost: false };
            state.waiting.insert(number, queued);
            let start = state.further(self.bounds.enough).map(|line| (line, pool));
            (number, start, state.sleeper(&self.asleep, self.bounds.in_flight, None))
        };
        if let Some(sleeper) = sleeper {
            sleeper.notify();
        }
        (number, start)
    }

    /// Removes a look-up that its caller no longer waits for, if it is waiting.
    pub(super) fn remove(&self, number: u64) {
        // The guard ends first.
        let removed = self.state().waiting.remove(&number);
        drop(removed);
    }

    /// Adds look-ups that were sent on a connection that has ended, in their places.
    pub(super) fn put_back(&self, again: Vec<Queued>) {
        let (sleeper, refused) = {
            let mut state = self.state();
            if state.pool.is_some() {
                state.waiting.extend(again.into_iter().map(|queued| (queued.number, queued)));
                (state.sleeper(&self.asleep, self.bounds.in_flight, None), Vec::new())
            } else {
                (None, again)
            }
        };
        for queued in refused {
            queued.look_up.end(Err(self.closed()));
        }
        if let Some(sleeper) = sleeper {
            sleeper.notify();
        }
    }

    /// Notes that a line has a connection.
    pub(super) fn opened(&self, line: usize, notifier: Notifier) {
        if let Some(line) = self.state().line(line) {
            line.notifier = Some(Arc::new(notifier));
        }
    }

    /// Returns the next look-ups for a line with this number of look-ups; `None` at the end of the store. If there are none, the line
    /// is asleep until it calls [`awake`](Self::awake). The rest is left to the other lines.
    pub(super) fn take(&self, line: usize, in_flight: usize) -> Option<Vec<Queued>> {
        let most = self.bounds.in_flight;
        let (taken, sleeper) = {
            let mut state = self.state();
            state.pool.as_ref()?;
            let open = state.lines.iter().filter(|line| line.notifier.is_some()).count();
            let share = state.waiting.len().div_ceil(open.max(1));
            let next = (0..share.min(most.saturating_sub(in_flight)))
                .map_while(|_| state.waiting.pop_first());
            let taken: Vec<_> = next.map(|(_, queued)| queued).collect();
            if let Some(line) = state.line(line) {
                line.in_flight = in_flight + taken.len();
            }
            if let Some(asleep) = self.asleep.get(line) {
                asleep.store(taken.is_empty(), Ordering::Relaxed);
            }
            let others_wait = !state.waiting.is_empty();
            let sleeper = others_wait.then(|| state.sleeper(&self.asleep, most, Some(line)));
            (taken, sleeper.flatten())
        };
        if let Some(sleeper) = sleeper {
            sleeper.notify();
        }
        Some(taken)
    }

    /// Notes that a line no longer blocks. It takes look-ups before it blocks again.
    pub(super) fn awake(&self, line: usize) {
        if let Some(asleep) = self.asleep.get(line) {
            asleep.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that the connection of a line has ended.
    pub(super) fn ended(&self, line: usize) {
        if let Some(line) = self.state().line(line) {
            (line.notifier, line.in_flight) = (None, 0);
        }
    }

    /// Ends a line unless look-ups are waiting. Returns whether it ends.
    pub(super) fn rest(&self, line: usize) -> bool {
        let mut state = self.state();
        if state.pool.is_some() && !state.waiting.is_empty() {
            return false;
        }
        if let Some(line) = state.line(line) {
            *line = LineState::default();
        }
        true
    }

    /// Ends a line that can't be opened, and all waiting look-ups with its error unless there is another line.
    pub(super) fn refuse(&self, line: usize, error: &Error) {
        let refused = {
            let mut state = self.state();
            if let Some(line) = state.line(line) {
                *line = LineState::default();
            }
            if state.lines.iter().any(|line| line.is_running) {
                state.not_before = Some(Instant::now() + PAUSE);
                return;
            }
            mem::take(&mut state.waiting)
        };
        for queued in refused.into_values() {
            queued.look_up.end(Err(error.again()));
        }
    }

    /// Ends the look-ups that have waited for at least this time.
    pub(super) fn expire(&self, limit: Duration) {
        let mut expired = Vec::new();
        {
            let mut state = self.state();
            while let Some(first) = state.waiting.first_entry() {
                if first.get().since.elapsed() < limit {
                    break;
                }
                expired.push(first.remove());
            }
        }
        for queued in expired {
            queued.look_up.end(Err(error::late(&self.server)));
        }
    }

    /// Ends all look-ups and lines with the store.
    pub(super) fn close(&self) {
        let (pool, refused, notifiers) = {
            let mut state = self.state();
            let notifiers: Vec<_> =
                state.lines.iter().filter_map(|line| line.notifier.clone()).collect();
            (state.pool.take(), mem::take(&mut state.waiting), notifiers)
        };
        drop(pool);
        for notifier in notifiers {
            notifier.notify();
        }
        for queued in refused.into_values() {
            queued.look_up.end(Err(self.closed()));
        }
    }

    /// Returns how many look-ups wait, how many are sent, and how many lines run.
    #[cfg(test)]
    pub(super) fn counts(&self) -> [usize; 3] {
        let state = self.state();
        let in_flight = state.lines.iter().map(|line| line.in_flight).sum();
        [state.waiting.len(), in_flight, state.lines.iter().filter(|it| it.is_running).count()]
    }
}
