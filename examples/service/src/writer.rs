//! The writer, through which all changes go.
//! LMDB has one write transaction at a time, and a durable commit waits for the disk. So commands go to the
//! store's [`GroupWriter`], whose thread takes them from a queue. No request waits for a lock or a disk on
//! one of the runtime's threads. Commands that are queued while a commit waits for the disk share the next
//! commit. Each command still succeeds or fails separately, and gets its response after the commit. The queue
//! is bounded. If the disk can't keep up, clients get an error at once, and neither memory nor waiting times
//! grow.

use index_table::{GroupWriter, Store, Submitted, WriteTxn};

use crate::{
    changes::Changes,
    failure::Failure,
    model::{Customer, CustomerRepository},
};

/// The maximum number of waiting commands. A request has at most 16 KiB ([`routes`](crate::routes)), so this
/// is 16 MiB.
pub const QUEUE: usize = 1024;

/// A change to the directory.
#[derive(Debug, Clone)]
pub enum Command {
    /// Creates a customer.
    Create(Customer),
    /// Creates a customer, or replaces the customer with the same id if it has the expected revision.
    Replace(Customer, Option<u64>),
    /// Changes some fields of a customer if it has the expected revision.
    Change(u64, Changes, Option<u64>),
    /// Deletes a customer if it has the expected revision.
    Delete(u64, Option<u64>),
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The customer is new.
    Created(Customer),
    /// The customer was changed to this value.
    Changed(Customer),
    /// The customer existed.
    Deleted,
}

type CommandResult = Result<Outcome, Failure>;

/// The sender of commands. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Writer {
    customers: CustomerRepository,
    group: GroupWriter,
}

impl Writer {
    /// Starts the store's writer, with a queue of this number of commands, at least one.
    ///
    /// # Errors
    ///
    /// If the thread can't be started.
    pub fn start(
        store: &Store,
        customers: CustomerRepository,
        capacity: usize,
    ) -> index_table::Result<Self> {
        let group = store.writer()?.queue(capacity);
        Ok(Self { customers, group })
    }

    /// Submits a command, and waits until it is committed. Dropping the request does not cancel the command.
    ///
    /// # Errors
    ///
    /// 503 if the queue is full, or the error of the command or of its commit.
    pub async fn write(&self, command: Command) -> CommandResult {
        self.hand_in(command)?.await
    }

    /// Whether the writer still accepts commands.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.group.is_closed()
    }

    /// Finishes the submitted commands, and accepts no more.
    ///
    /// # Errors
    ///
    /// If the calling thread is the writer's own.
    pub fn close(&self) -> index_table::Result<()> {
        self.group.close()
    }

    fn hand_in(&self, command: Command) -> Result<Submitted<Outcome, Failure>, Failure> {
        let customers = self.customers.clone();
        // A command may run again if the map has to grow.
        let submitted = self.group.try_submit(move |txn| execute(&customers, txn, command.clone()));
        submitted.map_err(|_| Failure::unavailable("too many changes are waiting"))
    }
}

/// Executes a command. It makes at most one change, as its last step, so a failed command changes nothing.
///
/// If the customer has another revision than the expected one, the store returns `Error::Conflict`.
fn execute(
    customers: &CustomerRepository,
    txn: &mut WriteTxn<'_>,
    command: Command,
) -> CommandResult {
    match command {
        Command::Create(customer) => {
            customers.insert(txn, &customer)?;
            stored(customers, txn, customer.id).map(Outcome::Created)
        }
        Command::Replace(mut customer, expected) => {
            let old = customers.get(txn, customer.id)?;
            customer.revision = expected.unwrap_or(old.as_ref().map_or(0, |old| old.revision));
            customers.put(txn, &customer)?;
            let customer = stored(customers, txn, customer.id)?;
            Ok(if old.is_none() { Outcome::Created(customer) } else { Outcome::Changed(customer) })
        }
        Command::Change(id, changes, expected) => {
            let exists = customers.update(txn, id, |customer| {
                changes.apply_to(customer);
                customer.revision = expected.unwrap_or(customer.revision);
            })?;
            if !exists {
                return Err(Failure::no_such_customer());
            }
            stored(customers, txn, id).map(Outcome::Changed)
        }
        Command::Delete(id, expected) => {
            let mut customer = customers.get(txn, id)?.ok_or_else(Failure::no_such_customer)?;
            customer.revision = expected.unwrap_or(customer.revision);
            customers.delete_if(txn, &customer)?;
            Ok(Outcome::Deleted)
        }
    }
}

/// Returns a customer as it was written, with its revision.
fn stored(
    customers: &CustomerRepository,
    txn: &WriteTxn<'_>,
    id: u64,
) -> Result<Customer, Failure> {
    customers.get(txn, id)?.ok_or_else(Failure::no_such_customer)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    /// A customer of any release.
    fn customer(id: u64) -> Customer {
        let customer = serde_json::json!({
            "id": id,
            "revision": 1,
            "first_name": "Alice",
            "last_name": "Smith",
            "town": "Redmond",
            "phone": "555-0101",
            "email": format!("{id}@example.com"),
        });
        serde_json::from_value(customer).expect("a customer")
    }

    fn is_overload(failure: &Failure) -> bool {
        failure.status() == StatusCode::SERVICE_UNAVAILABLE
    }

    #[test]
    fn a_full_queue_refuses_and_accepted_commands_are_committed() -> TestResult {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let writer = Writer::start(&store, customers.clone(), 2)?;

        // While this transaction is open, the writer waits with at most two commands, and two more can wait
        // in the queue.
        let txn = store.write()?;
        let requests: Vec<_> =
            (1..=5).map(|id| (id, writer.hand_in(Command::Create(customer(id))))).collect();
        drop(txn);

        let mut accepted = Vec::new();
        for (id, request) in requests {
            match request {
                Ok(submitted) => {
                    assert_eq!(submitted.wait(), Ok(Outcome::Created(customer(id))));
                    accepted.push(id);
                }
                Err(failure) => assert!(is_overload(&failure), "{failure:?}"),
            }
        }
        assert!((2..=4).contains(&accepted.len()), "{accepted:?}");
        let stored = customers.all(&store.read()?).keys().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(stored, accepted);

        writer.close()?;
        assert!(!writer.is_running());
        Ok(())
    }

    #[test]
    fn a_refused_command_does_not_affect_its_group() -> TestResult {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let writer = Writer::start(&store, customers.clone(), QUEUE)?;
        let taken = Customer { email: customer(1).email, ..customer(2) };
        let txn = store.write()?;
        let commands = [
            Command::Create(customer(1)),
            Command::Create(taken),
            Command::Delete(7, None),
            Command::Replace(customer(3), None),
            Command::Create(customer(1)),
        ];
        let results = commands.map(|command| writer.hand_in(command));
        drop(txn);
        let statuses = results
            .map(|result| result.and_then(Submitted::wait).map_err(|failure| failure.status()));
        assert_eq!(
            statuses,
            [
                Ok(Outcome::Created(customer(1))),
                Err(StatusCode::CONFLICT),
                Err(StatusCode::NOT_FOUND),
                Ok(Outcome::Created(customer(3))),
                Err(StatusCode::CONFLICT),
            ]
        );
        assert_eq!(customers.by_email(&store.read()?).count()?, 2);
        Ok(())
    }
}
