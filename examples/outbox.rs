//! An outbox: a mail for each new order, sent by a worker that can be stopped at any point.
//!
//! ```text
//! cargo run --example outbox
//! ```
//!
//! The order and its change are written in one transaction. The worker sends a mail for each inserted order, and then
//! commits the batch. If it ends in between, it sends these mails again. The number and the time of the change are
//! the id of the mail, by which the mail server recognizes the second one.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::ExitCode,
    time::SystemTime,
};

use index_table::{ChangeKind, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", changes(until_consumed))]
struct Order {
    #[primary_key]
    number: u64,
    email: String,
    amount: i64,
}

/// A mail server that ignores a mail whose id it has had.
#[derive(Default)]
struct MailServer {
    delivered: BTreeMap<(u64, SystemTime), String>,
    duplicates: u64,
}

impl MailServer {
    fn send(&mut self, id: (u64, SystemTime), to: &str, text: &str) {
        if self.delivered.insert(id, format!("{to}: {text}")).is_some() {
            self.duplicates += 1;
        }
    }
}

/// Sends the mails of all changes, in batches. With `stops`, ends before the first commit, as a crash would.
fn work(
    store: &Store,
    orders: &OrderRepository,
    server: &mut MailServer,
    stops: bool,
) -> Result<()> {
    let mut changes = orders.changes(store, "mailer")?;
    loop {
        let batch = changes.next_batch(2)?;
        if batch.is_empty() {
            return Ok(());
        }
        for change in batch.iter().filter(|change| change.kind == ChangeKind::Inserted) {
            let text = format!("order {} for {} is confirmed", change.key, change.row.amount);
            server.send((change.number, change.time), &change.row.email, &text);
        }
        if stops {
            return Ok(());
        }
        batch.commit(store)?;
    }
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path())?;
    let orders = OrderRepository::open(&store)?;
    orders.changes(&store, "mailer")?;
    let order = |number, email: &str, amount| Order { number, email: email.to_owned(), amount };
    store.transaction(|txn| {
        orders.insert(txn, &order(1, "ann@example.com", 30))?;
        orders.insert(txn, &order(2, "bob@example.com", 50))
    })?;
    store.transaction(|txn| orders.update(txn, 1, |order| order.amount = 35))?;
    // An order that is rolled back has no mail.
    let mut txn = store.write()?;
    orders.insert(&mut txn, &order(3, "eve@example.com", 1))?;
    drop(txn);
    store.transaction(|txn| orders.insert(txn, &order(3, "cid@example.com", 70)))?;

    let mut server = MailServer::default();
    work(&store, &orders, &mut server, true)?;
    writeln!(out, "the worker stopped after {} mails", server.delivered.len())?;
    for consumer in orders.change_consumers(&store.read()?)? {
        writeln!(out, "{} has {} changes to go", consumer.name, consumer.lag.changes)?;
    }
    work(&store, &orders, &mut server, false)?;
    writeln!(out, "{} mails, {} duplicates ignored", server.delivered.len(), server.duplicates)?;
    for ((id, _), mail) in &server.delivered {
        writeln!(out, "  {id} {mail}")?;
    }
    writeln!(out, "{} changes removed", orders.remove_old_changes(&store, u64::MAX)?)?;
    Ok(())
}

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
