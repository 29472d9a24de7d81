//! A line: a connection for the look-ups of asynchronous callers, and the thread that does its I/O.
//!
//! The thread sends a look-up as soon as it is taken, and the responses arrive in the order of sending. So the first request of
//! the queue is the only one that can have a response. The callers wait for the results only: a caller that is slow, or no longer
//! waits, delays no other one.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use tokio_postgres::{Row, Statement};

use super::{
    connection::{Connection, Outcome, column},
    error::{self, Kind},
    look_ups::{FoundBytes, LookUps, Queued},
    pool::Pool,
    sql,
};
use crate::model::error::{Error, Result};

/// Opens connections and sends look-ups until none are left, and runs in a thread of its own.
pub(super) fn run(look_ups: &LookUps, pool: &Pool, line: usize) {
    let _running = Running { look_ups, line };
    loop {
        match Line::open(look_ups, pool, line) {
            Ok(mut line) => {
                if line.serve() {
                    return;
                }
            }
            Err(error) => return look_ups.refuse(line, &error),
        }
        if look_ups.rest(line) {
            return;
        }
    }
}

/// The thread of a line.
struct Running<'l> {
    look_ups: &'l LookUps,
    line: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.look_ups.refuse(self.line, &panicked());
        }
    }
}

fn panicked() -> Error {
    Error::internal("the thread of the look-ups has panicked")
}

/// A request whose first poll has queued it.
struct Sending<T> {
    future: Pin<Box<dyn Future<Output = Outcome<T>> + Send>>,
    ready: Option<Outcome<T>>,
}

impl<T> Sending<T> {
    fn new(future: impl Future<Output = Outcome<T>> + Send + 'static, waker: &Waker) -> Self {
        let mut sending = Self { future: Box::pin(future), ready: None };
        sending.ready = sending.outcome(waker);
        sending
    }

    fn outcome(&mut self, waker: &Waker) -> Option<Outcome<T>> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        match self.future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}

enum LineRequest {
    Prepare(Arc<str>, Sending<Statement>),
    LookUp(Queued, Sending<Vec<Row>>),
}

/// A statement of the connection.
enum LineStatement {
    /// The look-ups that wait until it is prepared.
    Preparing(Vec<Queued>),
    Prepared(Statement),
}

/// Why a connection has ended.
enum End {
    Lost,
    /// There was no response within the time limit. A look-up that has waited for less than half of it can be sent again.
    Late,
    /// A look-up with this statement has waited for too long for a lock of its table. The look-ups behind it may be of other tables.
    Locked(Arc<str>, Error),
    /// The store was closed.
    Closed,
}

/// A connection of a line.
struct Line<'l> {
    look_ups: &'l LookUps,
    number: usize,
    // Before the statements, which otherwise send their ends when they are dropped.
    connection: Arc<Connection>,
    statements: HashMap<Arc<str>, LineStatement>,
    /// In the order of sending.
    requests: VecDeque<LineRequest>,
    /// The number of look-ups that have not ended, also of those that wait for their statement.
    in_flight: usize,
    /// When the last byte was received, or when the first look-up was sent after a time without any.
    since: Instant,
    /// The maximum time without a byte of a response.
    limit: Duration,
    end: Option<End>,
    /// The look-ups that are sent again on another connection.
    again: Vec<Queued>,
    waker: Waker,
}

impl<'l> Line<'l> {
    fn open(look_ups: &'l LookUps, pool: &Pool, number: usize) -> Result<Self> {
        let connection = pool.open()?;
        let failed = |error| error::unreachable(&look_ups.server, &error);
        connection.simple(sql::ALONE).map_err(failed)?;
        let (waker, notifier) = {
            let driver = connection.driver();
            (driver.waker(), driver.notifier())
        };
        let notifier = notifier.map_err(|error| error::unreachable(&look_ups.server, &error))?;
        look_ups.opened(number, notifier);
        Ok(Self {
            look_ups,
            number,
            statements: HashMap::new(),
            requests: VecDeque::new(),
            in_flight: 0,
            since: Instant::now(),
            limit: pool.limits().response,
            end: None,
            again: Vec::new(),
            waker,
            connection: Arc::new(connection),
        })
    }

    /// Sends look-ups until the end of the connection, or until it is unused. Returns whether the line has ended too.
    fn serve(&mut self) -> bool {
        while self.end.is_none() {
            self.turn();
            if self.end.is_some() {
                break;
            }
            let Some(taken) = self.look_ups.take(self.number, self.in_flight) else {
                self.end = Some(End::Closed);
                break;
            };
            if !taken.is_empty() {
                if self.in_flight == 0 {
                    self.since = Instant::now();
                }
                for queued in taken {
                    self.send(queued);
                }
                continue;
            }
            let is_unused = self.in_flight == 0;
            let limit = if is_unused { self.look_ups.bounds.idle } else { self.limit };
            let left = limit.saturating_sub(self.since.elapsed());
            let has_received = self.connection.driver().pause(left);
            self.look_ups.awake(self.number);
            if has_received {
                self.since = Instant::now();
            } else if self.since.elapsed() >= limit {
                if !is_unused {
                    self.end = Some(End::Late);
                } else if self.look_ups.rest(self.number) {
                    return true;
                }
            }
        }
        self.clear();
        false
    }

    /// Sends and receives as much as possible without blocking.
    fn turn(&mut self) {
        loop {
            let is_open = self.connection.driver().advance();
            while self.receive() {}
            if !is_open {
                self.end.get_or_insert(End::Lost);
                return;
            }
            // Otherwise, the connection has room for the next response, or all requests have to fail.
            if self.end.is_none() && !self.connection.driver().was_woken() {
                return;
            }
        }
    }

    /// Handles the response of the first request. Returns false if there is none.
    fn receive(&mut self) -> bool {
        match self.requests.pop_front() {
            None => false,
            Some(LineRequest::Prepare(sql, mut sending)) => match sending.outcome(&self.waker) {
                None => {
                    self.requests.push_front(LineRequest::Prepare(sql, sending));
                    false
                }
                Some(outcome) => {
                    self.prepared(sql, outcome);
                    true
                }
            },
            Some(LineRequest::LookUp(queued, mut sending)) => match sending.outcome(&self.waker) {
                None => {
                    self.requests.push_front(LineRequest::LookUp(queued, sending));
                    false
                }
                Some(Ok(rows)) => {
                    self.end_one(&queued, first(&rows));
                    true
                }
                Some(Err(error)) => {
                    self.fail(vec![queued], error);
                    true
                }
            },
        }
    }

    /// Sends a look-up, or prepares its statement before.
    fn send(&mut self, queued: Queued) {
        self.in_flight += 1;
        let sql = &queued.look_up.sql;
        match self.statements.get_mut(sql) {
            Some(LineStatement::Prepared(statement)) => {
                let statement = statement.clone();
                self.look_up(queued, statement);
            }
            Some(LineStatement::Preparing(parked)) => parked.push(queued),
            None => {
                let sql = Arc::clone(sql);
                let preparing = self.connection.preparing(Arc::clone(&sql));
                let sending = Sending::new(preparing, &self.waker);
                self.statements.insert(Arc::clone(&sql), LineStatement::Preparing(vec![queued]));
                self.requests.push_back(LineRequest::Prepare(sql, sending));
            }
        }
    }

    fn look_up(&mut self, queued: Queued, statement: Statement) {
        let querying = self.connection.querying(statement, Arc::clone(&queued.look_up.key));
        let sending = Sending::new(querying, &self.waker);
        self.requests.push_back(LineRequest::LookUp(queued, sending));
    }

    fn prepared(&mut self, sql: Arc<str>, outcome: Outcome<Statement>) {
        let Some(LineStatement::Preparing(parked)) = self.statements.remove(&sql) else { return };
        match outcome {
            Ok(statement) => {
                self.statements.insert(sql, LineStatement::Prepared(statement.clone()));
                for queued in parked {
                    if queued.look_up.is_left() {
                        self.in_flight -= 1;
                    } else {
                        self.look_up(queued, statement.clone());
                    }
                }
            }
            Err(error) => self.fail(parked, error),
        }
    }

    fn end_one(&mut self, queued: &Queued, found: FoundBytes) {
        self.in_flight -= 1;
        queued.look_up.end(found);
    }

    /// Handles the error of one statement.
    fn fail(&mut self, failed: Vec<Queued>, error: tokio_postgres::Error) {
        let (kind, is_locked) = (error::kind(&error), error::is_locked(&error));
        let error = error::of(&self.look_ups.server, error);
        if kind == Kind::Lost {
            for queued in failed {
                self.lose(queued, &error);
            }
            return;
        }
        for queued in failed {
            if is_locked {
                // The next look-up of the table would wait for as long again.
                let sql = Arc::clone(&queued.look_up.sql);
                self.end.get_or_insert_with(|| End::Locked(sql, error.again()));
                self.connection.driver().end();
            }
            self.end_one(&queued, Err(error.again()));
        }
    }

    /// Ends a look-up whose connection has ended, or lets it be sent again.
    fn lose(&mut self, mut queued: Queued, error: &Error) {
        self.connection.driver().end();
        let error = match self.end.get_or_insert(End::Lost) {
            End::Locked(sql, error) if *sql == queued.look_up.sql => error.again(),
            End::Late if queued.was_lost || queued.since.elapsed() >= self.limit / 2 => {
                error::late(&self.look_ups.server)
            }
            End::Closed => self.look_ups.closed(),
            End::Lost if queued.was_lost => error.again(),
            end => {
                // A lock ends a look-up each time, so this is not repeated for ever.
                queued.was_lost |= !matches!(end, End::Locked(..));
                self.in_flight -= 1;
                self.again.push(queued);
                return;
            }
        };
        self.end_one(&queued, Err(error));
    }

    /// Ends all look-ups, or lets them be sent again on another connection.
    fn clear(&mut self) {
        // An unused connection ends the session when it is dropped.
        if self.in_flight > 0 {
            let lost = self.look_ups.lost();
            for queued in self.left() {
                self.lose(queued, &lost);
            }
        }
        self.look_ups.ended(self.number);
        let mut again = std::mem::take(&mut self.again);
        again.retain(|queued| !queued.look_up.is_left());
        self.look_ups.put_back(again);
        if matches!(self.end, Some(End::Late)) {
            self.look_ups.expire(self.limit / 2);
        }
    }

    /// Returns the look-ups that have not ended.
    fn left(&mut self) -> Vec<Queued> {
        let sent = self.requests.drain(..).filter_map(|request| match request {
            LineRequest::LookUp(queued, _) => Some(queued),
            LineRequest::Prepare(..) => None,
        });
        let parked = self.statements.drain().filter_map(|(_, known)| match known {
            LineStatement::Preparing(parked) => Some(parked),
            LineStatement::Prepared(_) => None,
        });
        sent.chain(parked.flatten()).collect()
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            for queued in self.left() {
                queued.look_up.end(Err(panicked()));
            }
        }
    }
}

/// Returns the first column of the first row.
fn first(rows: &[Row]) -> FoundBytes {
    rows.first().map(|row| column(row, 0).map(<[u8]>::to_vec)).transpose()
}
