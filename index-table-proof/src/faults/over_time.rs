//! System calls that fail while rows expire, cascade, and change aggregates and revisions.
//!
//! The steps of the child are numbered, and the number of committed steps determines all rows. Four steps are a round: insert
//! a customer with orders and their notes; edit an order; expire half of the orders; delete the customer of the round
//! before, with its orders. An expiry can have several transactions, so after an error it may be half done.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use index_table::{Error, IndexTable, ReadTxn, Result, Store};
use serde::{Deserialize, Serialize};

use super::Failure;

/// The result of a comparison: the difference.
type Compared = std::result::Result<(), Failure>;

/// The orders of a customer. The first half of them expires.
const ORDERS: u32 = 6;

/// The number of steps of a round.
const ROUND: u32 = 4;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
struct Customer {
    #[primary_key]
    id: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", expires = ends)]
#[index(customer)]
#[aggregate(customer, sum = [amount])]
#[aggregate(sum = [amount])]
struct Order {
    #[primary_key]
    number: u32,
    #[revision]
    revision: u32,
    #[references(Customer, on_delete = "cascade")]
    customer: u32,
    amount: i64,
    ends: Option<SystemTime>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", part_of = Order)]
struct Note {
    #[primary_key]
    number: u32,
    text: String,
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000)
}

/// Returns an order as it is inserted.
fn order(customer: u32, at: u32) -> Order {
    let ends = (at < ORDERS / 2).then(|| now() - Duration::from_secs(u64::from(at) + 1));
    let number = customer * ORDERS + at;
    let text = "x".repeat(500 * (at as usize % 4));
    Order { number, revision: 0, customer, amount: i64::from(number) - 7, ends, text }
}

/// The orders after this number of steps.
fn orders_after(steps: u32) -> BTreeMap<u32, Order> {
    let mut orders = BTreeMap::new();
    for step in 0..steps {
        let round = step / ROUND;
        match step % ROUND {
            0 => orders.extend((0..ORDERS).map(|at| {
                let order = Order { revision: 1, ..order(round, at) };
                (order.number, order)
            })),
            1 => {
                if let Some(order) = orders.get_mut(&(round * ORDERS + ORDERS - 1)) {
                    order.amount += 100;
                    order.revision += 1;
                }
            }
            2 => orders.retain(|_, order| order.ends.is_none()),
            _ => orders.retain(|_, order| order.customer + 1 != round),
        }
    }
    orders
}

/// The customers after this number of steps.
fn customers_after(steps: u32) -> Vec<u32> {
    let [inserted, deleted] = [steps.div_ceil(ROUND), (steps / ROUND).saturating_sub(1)];
    (deleted..inserted).collect()
}

struct Opened {
    store: Store,
    customers: CustomerRepository,
    orders: OrderRepository,
    notes: NoteRepository,
}

impl Opened {
    fn open(path: &Path) -> Result<Self> {
        let store = Store::options().map_size(1 << 17).open(path)?;
        Ok(Self {
            customers: CustomerRepository::open(&store)?,
            orders: OrderRepository::open(&store)?,
            notes: NoteRepository::open(&store)?,
            store,
        })
    }

    /// Commits the step with this number.
    fn step(&self, step: u32) -> Result<()> {
        let round = step / ROUND;
        match step % ROUND {
            0 => self.store.transaction(|txn| {
                self.customers.insert(txn, &Customer { id: round })?;
                (0..ORDERS).try_for_each(|at| {
                    let order = order(round, at);
                    self.orders.insert(txn, &order)?;
                    let (number, text) = (order.number, "y".repeat(900));
                    self.notes.insert(txn, &Note { number, text })
                })
            }),
            1 => {
                let number = round * ORDERS + ORDERS - 1;
                let edit = |order: &mut Order| order.amount += 100;
                self.store.transaction(|txn| self.orders.update(txn, number, edit)).map(drop)
            }
            2 => self.orders.expire(&self.store, now(), 1_000).map(drop),
            _ => match round.checked_sub(1) {
                Some(before) => {
                    self.store.transaction(|txn| self.customers.delete(txn, before)).map(drop)
                }
                None => Ok(()),
            },
        }
    }

    /// Whether the store has the rows of this number of steps, and totals that match. A store with other rows is a
    /// difference.
    fn is_after(&self, steps: u32) -> Result<Compared> {
        let txn = self.store.read()?;
        let mut found = BTreeMap::new();
        for order in self.orders.all(&txn).rows() {
            let order = order?;
            found.insert(order.number, order);
        }
        let customers = self.customers.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        let mut expected = orders_after(steps);
        if steps % ROUND == 2 {
            // The next step is an expiry, of which a part may be done.
            expected.retain(|number, order| order.ends.is_none() || found.contains_key(number));
        }
        if found != expected || customers != customers_after(steps) {
            return Ok(Err(format!(
                "after {steps} steps: customers {customers:?}, orders {:?} instead of {:?}",
                found.keys(),
                expected.keys()
            )));
        }
        let notes = self.notes.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        if !notes.iter().eq(found.keys()) {
            return Ok(Err(format!("the notes are {notes:?}, of the orders {:?}", found.keys())));
        }
        self.compare_totals(&txn, &found)
    }

    fn compare_totals(&self, txn: &ReadTxn<'_>, orders: &BTreeMap<u32, Order>) -> Result<Compared> {
        let mut groups: BTreeMap<u32, (u64, i128)> = BTreeMap::new();
        for order in orders.values() {
            let (count, sum) = groups.entry(order.customer).or_default();
            *count += 1;
            *sum += i128::from(order.amount);
        }
        let mut found = BTreeMap::new();
        for totals in self.orders.aggregates_by_customer(txn) {
            let totals = totals?;
            found.insert(totals.customer, (totals.count, totals.sum_amount));
        }
        let whole = self.orders.aggregate(txn)?;
        let sum = groups.values().map(|(_, sum)| sum).sum::<i128>();
        if found != groups || (whole.count, whole.sum_amount) != (orders.len() as u64, sum) {
            return Ok(Err(format!("the totals are {found:?} and {whole:?}, of {groups:?}")));
        }
        Ok(Ok(()))
    }

    /// Compares all rows. If the outcome of a step is unknown, the rows determine it.
    fn compare(&self, steps: &mut u32, is_unknown: &mut bool) -> Result<Compared> {
        let Err(difference) = self.is_after(*steps)? else {
            *is_unknown = false;
            return Ok(Ok(()));
        };
        if *is_unknown && self.is_after(*steps + 1)?.is_ok() {
            (*steps, *is_unknown) = (*steps + 1, false);
            return Ok(Ok(()));
        }
        Ok(Err(difference))
    }
}

/// A store of the child, and its expected contents.
struct Run {
    path: PathBuf,
    opened: Option<Opened>,
    steps: u32,
    is_unknown: bool,
}

/// The work of the child.
pub(super) fn child(path: &Path) -> Compared {
    let path = path.join("store");
    let mut run = Run { path, opened: None, steps: 0, is_unknown: false };
    run.attempts(9)?;
    run.opened = None;
    run.attempts(7)
}

impl Run {
    fn attempts(&mut self, attempts: u32) -> Compared {
        (0..attempts).try_for_each(|_| self.attempt())
    }

    /// Opens the store if it is closed, and commits the next step.
    fn attempt(&mut self) -> Compared {
        let Some(opened) = self.open()? else { return Ok(()) };
        match opened.step(self.steps) {
            Ok(()) => {
                self.steps += 1;
                println!("done {}", self.steps);
                self.opened = Some(opened);
                Ok(())
            }
            Err(error) => self.met(opened, &error),
        }
    }

    /// Opens the store, or takes the open one; `None` if it can't be opened.
    fn open(&mut self) -> std::result::Result<Option<Opened>, Failure> {
        if let Some(opened) = self.opened.take() {
            return Ok(Some(opened));
        }
        let compared = Opened::open(&self.path).and_then(|opened| {
            let compared = opened.compare(&mut self.steps, &mut self.is_unknown)?;
            Ok((opened, compared))
        });
        match compared {
            Ok((opened, compared)) => {
                compared?;
                println!("done {}", self.steps);
                Ok(Some(opened))
            }
            Err(error) => {
                refuse_damage(&error)?;
                println!("error: {error}");
                Ok(None)
            }
        }
    }

    /// Checks that the last commit is present after an error, if necessary after reopening the store.
    fn met(&mut self, opened: Opened, error: &Error) -> Compared {
        println!("error: {error}");
        refuse_damage(error)?;
        if let Error::CommitUnknown { .. } = error {
            println!("unknown");
            self.is_unknown = true;
        }
        if matches!(error, Error::CommitUnknown { .. } | Error::ReopenNeeded { .. }) {
            println!("reopened");
            return Ok(());
        }
        match opened.compare(&mut self.steps, &mut self.is_unknown) {
            Ok(compared) => {
                compared?;
                self.opened = Some(opened);
            }
            Err(error) => {
                println!("error: {error}");
                println!("reopened");
            }
        }
        Ok(())
    }
}

fn refuse_damage(error: &Error) -> Compared {
    match error {
        Error::DamagedFile { .. } | Error::Corrupt { .. } => {
            Err(format!("nothing is damaged: {error}"))
        }
        _ => Ok(()),
    }
}

/// Opens the store without faults, and compares it with the output of the child.
pub(super) fn judge(said: &str, files: &Path) -> Compared {
    let (mut steps, mut is_unknown) = (0, false);
    for line in said.lines() {
        if let Some(done) = line.strip_prefix("done ") {
            (steps, is_unknown) = (done.parse().map_err(|_| format!("no number: {line}"))?, false);
        }
        is_unknown |= line == "unknown";
    }
    let shown = |error: Error| error.to_string();
    let opened = Opened::open(&files.join("store")).map_err(shown)?;
    opened.compare(&mut steps, &mut is_unknown).map_err(shown)??;
    // The store can be written.
    for step in steps..steps + ROUND {
        opened.step(step).map_err(shown)?;
        opened.is_after(step + 1).map_err(shown)??;
    }
    let report = opened.store.verify().map_err(shown)?;
    if report.is_clean() { Ok(()) } else { Err(report.to_string()) }
}
