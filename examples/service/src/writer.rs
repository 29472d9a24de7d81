//! The one place that writes.
//!
//! LMDB has one write transaction at a time, and a durable commit waits for the disk. So a thread
//! of its own takes the commands from a queue, and no request ever waits for a lock or a disk on
//! one of the runtime's threads.
//!
//! What has queued up while a commit was waiting for the disk goes into the next transaction
//! together (group commit): one wait for many commands. Each command still succeeds or fails by
//! itself, because an operation of index-table that returns an error leaves the transaction as it
//! was before. No command is answered before the commit of its transaction.
//!
//! The queue is bounded: when the disk can't keep up, clients are told so at once, and neither
//! memory nor waiting times grow.

use std::{io, thread};

use index_table::{Store, WriteTxn};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{
    failure::Failure,
    model::{Changes, Customer, CustomerRepository},
};

/// The most commands that wait. A request is 16 KiB at most ([`routes`](crate::routes)), so this is
/// 16 MiB.
pub const QUEUE: usize = 1024;

/// The most commands in one transaction. It bounds how long the first of them waits for the last.
const BATCH: usize = 256;

/// A change to the directory.
#[derive(Debug)]
pub enum Command {
    /// A new customer.
    Create(Customer),
    /// A customer, in the place of the one with the same id if there is one.
    Replace(Customer),
    /// Some fields of a customer.
    Change(u64, Changes),
    /// No such customer any more.
    Delete(u64),
}

/// What a command has done.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The customer is new.
    Created(Customer),
    /// The customer was there, and is now this.
    Changed(Customer),
    /// The customer was there.
    Deleted,
}

type Answer = Result<Outcome, Failure>;
type Request = (Command, oneshot::Sender<Answer>);

/// Where commands are handed in. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<Request>,
}

impl Writer {
    /// Starts the thread, with a queue of so many commands, which are one at least. It ends when
    /// every [`Writer`] has been dropped and all that was in the queue is done: join it to wait for
    /// that.
    ///
    /// # Errors
    ///
    /// When the thread can't be started.
    pub fn start(
        store: Store,
        customers: CustomerRepository,
        capacity: usize,
    ) -> io::Result<(Self, thread::JoinHandle<()>)> {
        let (queue, requests) = mpsc::channel(capacity.max(1));
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || run(&store, &customers, requests))?;
        Ok((Self { queue }, thread))
    }

    /// Hands in a command, and waits until it is committed. A request that is given up meanwhile
    /// does not take its command back.
    ///
    /// # Errors
    ///
    /// 503 when the queue is full, and why the command was refused or could not be committed.
    pub async fn write(&self, command: Command) -> Answer {
        let stopped = |_| Failure::internal("the writer has stopped");
        self.hand_in(command)?.await.map_err(stopped)?
    }

    /// Whether there is still a thread that takes commands.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.queue.is_closed()
    }

    fn hand_in(&self, command: Command) -> Result<oneshot::Receiver<Answer>, Failure> {
        let (sender, receiver) = oneshot::channel();
        self.queue.try_send((command, sender)).map_err(|error| match error {
            TrySendError::Full(_) => Failure::unavailable("too many changes are waiting"),
            TrySendError::Closed(_) => Failure::internal("the writer has stopped"),
        })?;
        Ok(receiver)
    }
}

fn run(store: &Store, customers: &CustomerRepository, mut requests: mpsc::Receiver<Request>) {
    let mut batch = Vec::new();
    // Waits for one, and takes what else is there.
    while requests.blocking_recv_many(&mut batch, BATCH) > 0 {
        let (commands, senders): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let answers = commit(store, customers, commands).unwrap_or_else(|failure| {
            // Those too that were refused: maybe by what was never committed.
            senders.iter().map(|_| Err(failure.clone())).collect()
        });
        for (sender, answer) in senders.into_iter().zip(answers) {
            // An error here is a client that is gone.
            let _ = sender.send(answer);
        }
    }
}

/// Runs the commands in one transaction. An error means that none of them has changed anything.
fn commit(
    store: &Store,
    customers: &CustomerRepository,
    commands: Vec<Command>,
) -> Result<Vec<Answer>, Failure> {
    let mut txn = store.write()?;
    let mut answers = Vec::with_capacity(commands.len());
    for command in commands {
        match execute(customers, &mut txn, command) {
            // The store and not the command is at fault, as with a full map: the transaction is of
            // no more use.
            Err(failure) if failure.status().is_server_error() => return Err(failure),
            answer => answers.push(answer),
        }
    }
    txn.commit()?;
    Ok(answers)
}

/// Each command makes one change at most, as its last step: if it fails, nothing has changed.
fn execute(customers: &CustomerRepository, txn: &mut WriteTxn<'_>, command: Command) -> Answer {
    match command {
        Command::Create(customer) => {
            customers.insert(txn, &customer)?;
            Ok(Outcome::Created(customer))
        }
        Command::Replace(customer) => {
            let is_new = customers.get(txn, customer.id)?.is_none();
            customers.put(txn, &customer)?;
            Ok(if is_new { Outcome::Created(customer) } else { Outcome::Changed(customer) })
        }
        Command::Change(id, changes) => {
            let mut result = None;
            customers.update(txn, id, |customer| {
                changes.apply_to(customer);
                result = Some(customer.clone());
            })?;
            result.map(Outcome::Changed).ok_or_else(Failure::no_such_customer)
        }
        Command::Delete(id) => {
            let was_there = customers.delete(txn, id)?;
            was_there.then_some(Outcome::Deleted).ok_or_else(Failure::no_such_customer)
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    fn customer(id: u64) -> Customer {
        Customer {
            id,
            first_name: "Alice".to_owned(),
            last_name: "Smith".to_owned(),
            town: "Redmond".to_owned(),
            phone: "555-0101".to_owned(),
            email: format!("{id}@example.com"),
        }
    }

    fn is_overload(failure: &Failure) -> bool {
        failure.status() == StatusCode::SERVICE_UNAVAILABLE
    }

    #[test]
    fn a_full_queue_refuses_and_what_was_accepted_is_committed() -> TestResult {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let (writer, thread) = Writer::start(store.clone(), customers.clone(), 2)?;

        // While this transaction lives, the writer waits with at most two commands in its hands,
        // and two more can wait in the queue.
        let txn = store.write()?;
        let requests: Vec<_> =
            (1..=5).map(|id| (id, writer.hand_in(Command::Create(customer(id))))).collect();
        drop(txn);

        let mut accepted = Vec::new();
        for (id, request) in requests {
            match request {
                Ok(answer) => {
                    assert_eq!(answer.blocking_recv()?, Ok(Outcome::Created(customer(id))));
                    accepted.push(id);
                }
                Err(failure) => assert!(is_overload(&failure), "{failure:?}"),
            }
        }
        assert!((2..=4).contains(&accepted.len()), "{accepted:?}");
        let stored = customers.all(&store.read()?).keys().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(stored, accepted);

        drop(writer);
        thread.join().map_err(|_| "the writer has panicked")?;
        Ok(())
    }

    #[test]
    fn a_refused_command_leaves_the_others_of_its_batch() -> TestResult {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let taken = Customer { email: customer(1).email, ..customer(2) };
        let commands = vec![
            Command::Create(customer(1)),
            Command::Create(taken),
            Command::Delete(7),
            Command::Replace(customer(3)),
            Command::Create(customer(1)),
        ];
        let answers =
            commit(&store, &customers, commands).map_err(|failure| format!("{failure:?}"))?;
        let statuses: Vec<_> =
            answers.iter().map(|answer| answer.as_ref().map_err(Failure::status)).collect();
        assert_eq!(
            statuses,
            [
                Ok(&Outcome::Created(customer(1))),
                Err(StatusCode::CONFLICT),
                Err(StatusCode::NOT_FOUND),
                Ok(&Outcome::Created(customer(3))),
                Err(StatusCode::CONFLICT),
            ]
        );
        assert_eq!(customers.by_email(&store.read()?).count()?, 2);
        Ok(())
    }

    #[test]
    fn a_full_map_fails_the_batch_and_not_the_writer() -> TestResult {
        let directory = tempfile::tempdir()?;
        let options = Store::options().map_size(1 << 18).max_map_size(1 << 18);
        let store = options.open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let large = Customer { first_name: "A".repeat(1 << 19), ..customer(2) };
        let commands = vec![Command::Create(customer(1)), Command::Create(large)];
        let failure = commit(&store, &customers, commands).map_err(|failure| failure.status());
        assert_eq!(failure, Err(StatusCode::INSUFFICIENT_STORAGE));
        assert_eq!(customers.all(&store.read()?).count()?, 0);

        let answers = commit(&store, &customers, vec![Command::Create(customer(1))]);
        assert_eq!(answers, Ok(vec![Ok(Outcome::Created(customer(1)))]));
        Ok(())
    }
}
