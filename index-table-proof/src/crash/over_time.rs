//! Processes that are killed while they write rows with revisions, times of expiry, references, parts and aggregates.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use index_table::{Error, IndexTable, Result, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, say};
use crate::random::Random;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
struct Customer {
    #[primary_key]
    id: u8,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", expires = expires_at)]
#[allow(clippy::duplicated_attributes, reason = "two aggregates may have a field in common")]
#[index(customer, amount)]
#[aggregate(customer, sum = [amount], max = [amount])]
#[aggregate(sum = [amount])]
#[aggregate(customer, amount, consistency = "eventual")]
struct Invoice {
    #[primary_key]
    number: u64,
    #[revision]
    revision: u64,
    #[references(Customer, on_delete = "cascade")]
    customer: u8,
    amount: i64,
    expires_at: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "scans", part_of = Invoice)]
struct Scan {
    #[primary_key]
    number: u64,
    pdf: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "steps")]
struct Steps {
    #[primary_key]
    id: u8,
    steps: u64,
}

/// The number of customers.
const CUSTOMERS: u64 = 12;

/// The number of messages of the eventual aggregate that are applied between two steps.
const MESSAGES: u64 = 20;

/// Rows with greater numbers have expired, and are not edited.
const EXPIRED: u64 = 1 << 32;

/// The number of rows that the process deletes after each step, in a transaction of its own.
const AT_ONCE: u64 = 3;

struct Tables {
    store: Store,
    customers: CustomerRepository,
    invoices: InvoiceRepository,
    scans: ScanRepository,
    steps: StepsRepository,
}

/// An operation of a step.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Insert { number: u64, customer: u8, amount: i64, len: usize },
    Edit { number: u64, amount: i64 },
    Move { number: u64, customer: u8 },
    Delete { number: u64 },
    DeleteCustomer { customer: u8 },
}

#[derive(Debug, PartialEq)]
struct Row {
    customer: u8,
    revision: u64,
    amount: i64,
    len: usize,
}

/// The rows after a number of steps, as if no row had expired.
#[derive(Default)]
struct Model {
    customers: BTreeSet<u8>,
    invoices: BTreeMap<u64, Row>,
}

fn operations(step: u64) -> Vec<Operation> {
    let mut random = Random(step ^ 0x7469_6d65);
    let count = if step % 16 == 9 { 120 } else { 1 + random.below(20) };
    let operation = |at: u64| {
        let customer = random.below(CUSTOMERS) as u8;
        let (number, amount) = (random.below(200), random.below(1_000).cast_signed() - 300);
        let len = [0, 40, 3_000, 9_000][random.below(4) as usize];
        match random.below(16) {
            0..6 => Operation::Insert { number, customer, amount, len },
            6..8 => {
                let number = EXPIRED + step * 1_000 + at;
                Operation::Insert { number, customer, amount, len }
            }
            8..12 => Operation::Edit { number, amount },
            12 => Operation::Move { number, customer },
            13..15 => Operation::Delete { number },
            _ => Operation::DeleteCustomer { customer },
        }
    };
    (0..count).map(operation).collect()
}

impl Model {
    fn of(steps: u64) -> Self {
        let mut model = Self::default();
        (0..steps).flat_map(operations).for_each(|operation| model.apply(operation));
        model
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Insert { number, customer, amount, len } => {
                self.customers.insert(customer);
                let row = Row { customer, revision: 1, amount, len };
                self.invoices.entry(number).or_insert(row);
            }
            Operation::Edit { number, amount } => {
                if let Some(row) = self.invoices.get_mut(&number) {
                    (row.amount, row.revision) = (amount, row.revision + 1);
                }
            }
            Operation::Move { number, customer } => {
                self.customers.insert(customer);
                if let Some(row) = self.invoices.get_mut(&number) {
                    (row.customer, row.revision) = (customer, row.revision + 1);
                }
            }
            Operation::Delete { number } => {
                self.invoices.remove(&number);
            }
            Operation::DeleteCustomer { customer } => {
                self.customers.remove(&customer);
                self.invoices.retain(|_, row| row.customer != customer);
            }
        }
    }
}

impl Tables {
    fn open(path: &Path) -> Result<Self> {
        let store = crate::options().open(path.join("store"))?;
        let customers = CustomerRepository::open(&store)?;
        let invoices = InvoiceRepository::open(&store)?;
        let scans = ScanRepository::open(&store)?;
        let steps = StepsRepository::open(&store)?;
        Ok(Self { store, customers, invoices, scans, steps })
    }

    fn steps(&self) -> Result<u64> {
        Ok(self.steps.get(&self.store.read()?, 0)?.map_or(0, |steps| steps.steps))
    }

    fn apply(&self, txn: &mut WriteTxn<'_>, operation: Operation) -> Result<()> {
        let customer_exists = |txn: &mut WriteTxn<'_>, id: u8| {
            self.customers.put(txn, &Customer { id, name: format!("customer {id}") })
        };
        match operation {
            Operation::Insert { number, customer, amount, len } => {
                customer_exists(txn, customer)?;
                let expires_at =
                    (number >= EXPIRED).then(|| UNIX_EPOCH + Duration::from_secs(number - EXPIRED));
                let row = Invoice { number, revision: 0, customer, amount, expires_at };
                match self.invoices.insert(txn, &row) {
                    Err(Error::DuplicateKey { .. }) => return Ok(()),
                    outcome => outcome?,
                }
                self.scans.insert(txn, &Scan { number, pdf: vec![7; len] })
            }
            Operation::Edit { number, amount } => {
                let Some(mut row) = self.invoices.get(txn, number)? else { return Ok(()) };
                row.amount = amount;
                self.invoices.put(txn, &row)?;
                // The row in memory has the former revision.
                match self.invoices.put(txn, &row) {
                    Err(Error::Conflict { .. }) => Ok(()),
                    outcome => {
                        say(&format!("error: a stale row was written: {outcome:?}"));
                        Ok(())
                    }
                }
            }
            Operation::Move { number, customer } => {
                customer_exists(txn, customer)?;
                self.invoices.update(txn, number, |row| row.customer = customer).map(drop)
            }
            Operation::Delete { number } => self.invoices.delete(txn, number).map(drop),
            Operation::DeleteCustomer { customer } => {
                self.customers.delete(txn, customer).map(drop)
            }
        }
    }

    fn step(&self, step: u64) -> Result<()> {
        self.store.transaction(|txn| {
            operations(step).into_iter().try_for_each(|operation| self.apply(txn, operation))?;
            self.steps.put(txn, &Steps { id: 0, steps: step + 1 })
        })
    }

    /// Compares the rows with the model after `steps` steps. Rows that have expired may be missing.
    fn compare(&self, steps: u64) -> Result<std::result::Result<(), Failure>> {
        let (model, txn) = (Model::of(steps), self.store.read()?);
        let customers = self.customers.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        if !customers.iter().eq(&model.customers) {
            return Ok(Err(format!("the customers {customers:?}")));
        }
        let mut live = 0;
        for row in self.invoices.all(&txn).rows() {
            let Invoice { number, revision, customer, amount, .. } = row?;
            let len = self.scans.get(&txn, number)?.map_or(usize::MAX, |scan| scan.pdf.len());
            let found = Row { customer, revision, amount, len };
            live += usize::from(number < EXPIRED);
            if model.invoices.get(&number) != Some(&found) {
                let expected = model.invoices.get(&number);
                return Ok(Err(format!("invoice {number}: {found:?} and not {expected:?}")));
            }
        }
        let expected = model.invoices.range(..EXPIRED).count();
        if live != expected {
            return Ok(Err(format!("{live} invoices that don't expire, and not {expected}")));
        }
        if self.scans.all(&txn).count()? != self.invoices.all(&txn).count()? {
            return Ok(Err("a scan without its invoice".to_owned()));
        }
        let (mut all, mut sum) = (0, 0);
        for totals in self.invoices.aggregates_by_customer(&txn) {
            let totals = totals?;
            (all, sum) = (all + totals.count, sum + totals.sum_amount);
        }
        let whole = self.invoices.aggregate(&txn)?;
        if (whole.count, whole.sum_amount) != (all, sum) {
            return Ok(Err(format!("{whole:?}, and the sum of the groups is {all}, {sum}")));
        }
        let report = self.store.verify()?;
        if !report.is_clean() {
            return Ok(Err(report.to_string()));
        }
        drop(txn);
        // The remaining messages are applied to the eventual aggregate, each once.
        self.invoices.drain(&self.store, u64::MAX)?;
        let (txn, mut counted) = (self.store.read()?, 0);
        for totals in self.invoices.aggregates_by_customer_amount(&txn) {
            counted += totals?.count;
        }
        let differs = format!("the eventual aggregate counts {counted} rows, and not {all}");
        Ok(if counted == all { Ok(()) } else { Err(differs) })
    }
}

/// Does one step after another, and deletes expired rows between them.
pub(super) fn write(path: &Path) -> Result<()> {
    let tables = Tables::open(path)?;
    say("open");
    for step in tables.steps()?.. {
        tables.step(step)?;
        say("done");
        tables.invoices.expire(&tables.store, SystemTime::now(), AT_ONCE)?;
        tables.invoices.drain(&tables.store, MESSAGES)?;
    }
    Ok(())
}

pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shown = |error: Error| error.to_string();
    let tables = Tables::open(path).map_err(shown)?;
    let steps = tables.steps().map_err(shown)?;
    known.find(steps, 1)?;
    tables.compare(steps).map_err(shown)?
}
