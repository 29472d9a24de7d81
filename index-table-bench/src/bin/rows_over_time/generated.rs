//! The tables of index-table.

use std::{ops::Range, path::Path};

use index_table::{Durability, Store};

use crate::{CUSTOMERS, Contender, Feature, Outcome, Row};

pub(crate) fn open(dir: &Path, feature: Feature) -> Outcome<Box<dyn Contender>> {
    let store = Store::options().map_size(4 << 30).durability(Durability::None).open(dir)?;
    Ok(match feature {
        Feature::Plain => Box::new(plain::Table::open(store)?),
        Feature::Revision => Box::new(revision::Table::open(store)?),
        Feature::Expiry => Box::new(expiry::Table::open(store)?),
        Feature::References => Box::new(references::Table::open(store)?),
        Feature::Aggregate => Box::new(aggregate::Table::open(store)?),
    })
}

/// Declares the same table with the given attributes.
macro_rules! invoices {
    (
        $module:ident, [$($table:tt)*], [$($aggregate:tt)*], [$($revision:tt)*], [$($reference:tt)*],
        $look_up:expr
    ) => {
        mod $module {
            use std::time::{Duration, SystemTime, UNIX_EPOCH};

            use index_table::IndexTable;
            use serde::{Deserialize, Serialize};

            use super::*;

            #[derive(Serialize, Deserialize, IndexTable)]
            struct Customer {
                #[primary_key]
                id: u64,
            }

            #[derive(Serialize, Deserialize, IndexTable)]
            #[table(name = "invoices" $($table)*)]
            #[index(customer)]
            $($aggregate)*
            struct Invoice {
                #[primary_key]
                number: u64,
                $($revision)*
                revision: u64,
                $($reference)*
                customer: u64,
                amount: i64,
                expires_at: SystemTime,
                text: String,
            }

            fn invoice(Row { number, revision, customer, amount, expires_at, text }: Row) -> Invoice {
                let expires_at = UNIX_EPOCH + Duration::from_secs(expires_at);
                Invoice { number, revision, customer, amount, expires_at, text }
            }

            pub(super) struct Table {
                store: Store,
                invoices: InvoiceRepository,
                _customers: CustomerRepository,
            }

            impl Table {
                pub(super) fn open(store: Store) -> Outcome<Self> {
                    let customers = CustomerRepository::open(&store)?;
                    store.transaction(|txn| {
                        (0..CUSTOMERS).try_for_each(|id| customers.insert(txn, &Customer { id }))
                    })?;
                    let invoices = InvoiceRepository::open(&store)?;
                    Ok(Self { store, invoices, _customers: customers })
                }
            }

            impl Contender for Table {
                fn insert(&mut self, numbers: Range<u64>) -> Outcome<()> {
                    self.store.transaction(|txn| {
                        numbers.clone().try_for_each(|number| {
                            self.invoices.insert(txn, &invoice(Row::new(number)))
                        })
                    })?;
                    Ok(())
                }

                fn edit(&mut self, numbers: Range<u64>) -> Outcome<()> {
                    self.store.transaction(|txn| {
                        for number in numbers.clone() {
                            let Some(mut row) = self.invoices.get(txn, number)? else { continue };
                            row.amount += 1;
                            self.invoices.put(txn, &row)?;
                        }
                        Ok(())
                    })?;
                    Ok(())
                }

                fn delete(&mut self, numbers: Range<u64>) -> Outcome<()> {
                    self.store.transaction(|txn| {
                        numbers.clone().try_for_each(|it| self.invoices.delete(txn, it).map(drop))
                    })?;
                    Ok(())
                }

                fn scan(&mut self, customer: u64) -> Outcome<(u64, i64)> {
                    let txn = self.store.read()?;
                    let (mut count, mut sum) = (0, 0);
                    for row in self.invoices.find_by_customer(&txn, customer).rows() {
                        count += 1;
                        sum += row?.amount;
                    }
                    Ok((count, sum))
                }

                fn look_up(&mut self, customer: u64) -> Outcome<(u64, i64)> {
                    $look_up(&self.store, &self.invoices, customer)
                }
            }

            #[allow(dead_code, reason = "only a table with an aggregate has totals")]
            fn none(_: &Store, _: &InvoiceRepository, _: u64) -> Outcome<(u64, i64)> {
                Err("the table has no totals".into())
            }
        }
    };
}

invoices!(plain, [], [], [], [], none);
invoices!(revision, [], [], [#[revision]], [], none);
invoices!(expiry, [, expires = expires_at], [], [], [], none);
invoices!(references, [], [], [], [#[references(Customer)]], none);
invoices!(
    aggregate,
    [],
    [#[aggregate(customer, sum = [amount])]],
    [],
    [],
    |store: &Store, invoices: &InvoiceRepository, customer| {
        let totals = invoices.aggregate_by_customer(&store.read()?, customer)?;
        Ok((totals.count, totals.sum_amount.try_into()?))
    }
);
