//! The commands, through which all changes go.
//!
//! A command is a transaction of the store. Commands that wait at the same time share a commit, and thus a wait for the
//! disk, on a store in a directory. Each command still succeeds or fails separately, and gets its response after the commit. If the disk
//! can't keep up, clients get an error at once, and neither memory nor waiting times grow. A request of a client that has
//! gone is not executed, unless it has begun.

use index_table::{Call, Store, WriteTxn};

use crate::{
    changes::Changes,
    failure::Failure,
    model::{Customer, CustomerRepository},
};

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

/// Submits a command, whose future is ready when it is committed.
///
/// # Errors
///
/// 503 if too many commands wait. The future has the error of the command or of its commit.
pub fn submit(
    store: &Store,
    customers: &CustomerRepository,
    command: Command,
) -> Result<Call<Outcome, Failure>, Failure> {
    let customers = customers.clone();
    // A command may run again, for example if the map has to grow.
    let call = store.try_transaction_async(move |txn| execute(&customers, txn, command.clone()));
    call.try_submit().map_err(|_| Failure::unavailable("too many changes are waiting"))
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

    #[tokio::test]
    async fn a_full_queue_refuses_and_accepted_commands_are_committed() -> TestResult {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;

        // While this transaction is open, the commands wait.
        let txn = store.write()?;
        let requests: Vec<_> = (1..=3000)
            .map(|id| (id, submit(&store, &customers, Command::Create(customer(id)))))
            .collect();
        drop(txn);

        let mut accepted = Vec::new();
        for (id, request) in requests {
            match request {
                Ok(submitted) => {
                    assert_eq!(submitted.await, Ok(Outcome::Created(customer(id))));
                    accepted.push(id);
                }
                Err(failure) => {
                    assert_eq!(failure.status(), StatusCode::SERVICE_UNAVAILABLE, "{failure:?}");
                }
            }
        }
        assert!((1024..3000).contains(&accepted.len()), "{}", accepted.len());
        let stored = customers.all(&store.read()?).keys().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(stored, accepted);

        store.close_async().await?;
        let refused = submit(&store, &customers, Command::Create(customer(1)));
        let status = refused.expect("room").await.map_err(|failure| failure.status());
        assert_eq!(status, Err(StatusCode::SERVICE_UNAVAILABLE));
        Ok(())
    }

    #[tokio::test]
    async fn a_refused_command_does_not_affect_its_group() -> TestResult {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let customers = CustomerRepository::open(&store)?;
        let taken = Customer { email: customer(1).email, ..customer(2) };
        let txn = store.write()?;
        let commands = [
            Command::Create(customer(1)),
            Command::Create(taken),
            Command::Delete(7, None),
            Command::Replace(customer(3), None),
            Command::Create(customer(1)),
        ];
        let submitted = commands.map(|command| submit(&store, &customers, command));
        drop(txn);
        let mut statuses = Vec::new();
        for submitted in submitted {
            statuses.push(submitted.expect("room").await.map_err(|failure| failure.status()));
        }
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
