//! Consumers of the change streams: each receives all changes of a tenant, in their order, without a gap.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use index_table::{ChangeBatch, ChangeWorker, Changes, Error, Result, Store, WriteTxn};

use crate::{
    app::Handle,
    failure::{Failure, Outcome, wrong},
    model::{State, States, change},
    script::{Config, Step},
    tables::{Consumer, Order, Person, Received, Tables},
};

/// The most changes in a batch.
const BATCH: usize = 40;

/// Which of the two streams.
#[derive(Debug, Clone, Copy)]
enum Stream {
    People,
    Orders,
}

enum Reader<R: index_table::__private::Entity> {
    Alone(Changes<R>),
    Worker(ChangeWorker<R>),
}

/// A consumer of both streams, or a worker of it.
struct Consuming {
    name: String,
    is_shared: bool,
    people: Reader<Person>,
    orders: Reader<Order>,
}

impl<R: index_table::__private::Entity + index_table::__private::Streamed> Reader<R> {
    fn open(changes: Changes<R>, is_shared: bool) -> Self {
        if is_shared {
            Self::Worker(changes.share(Duration::from_secs(2)))
        } else {
            Self::Alone(changes)
        }
    }

    fn next_batch(&mut self) -> Result<ChangeBatch<R>> {
        match self {
            Self::Alone(changes) => changes.next_batch(BATCH),
            Self::Worker(worker) => worker.next_batch(BATCH),
        }
    }

    fn leave(self) -> Result<()> {
        match self {
            Self::Alone(_) => Ok(()),
            Self::Worker(worker) => worker.leave(),
        }
    }
}

impl Consuming {
    fn open(tables: &Tables, store: &Store, consumer: &Consumer) -> Result<Self> {
        let name = &consumer.name;
        Ok(Self {
            name: name.clone(),
            is_shared: consumer.is_shared,
            people: Reader::open(tables.people.changes(store, name)?, consumer.is_shared),
            orders: Reader::open(tables.orders.changes(store, name)?, consumer.is_shared),
        })
    }

    /// Receives a batch of each stream, and compares it with the model. Returns the number of changes.
    fn take(&mut self, tables: &Tables, store: &Store, states: &mut States) -> Outcome<usize> {
        let batch = self.people.next_batch()?;
        let hashes: Vec<_> = batch
            .iter()
            .map(|it| {
                (it.row.tenant, change(it.kind, &it.row), format!("{:?} {:?}", it.kind, it.row))
            })
            .collect();
        let mut count = hashes.len();
        if count > 0 {
            let commit = |txn: &mut WriteTxn<'_>| batch.commit_in(txn);
            self.commit(tables, store, states, (Stream::People, &hashes), &commit)?;
        }
        let batch = self.orders.next_batch()?;
        let hashes: Vec<_> = batch
            .iter()
            .map(|it| {
                (it.row.tenant, change(it.kind, &it.row), format!("{:?} {:?}", it.kind, it.row))
            })
            .collect();
        if !hashes.is_empty() {
            let commit = |txn: &mut WriteTxn<'_>| batch.commit_in(txn);
            self.commit(tables, store, states, (Stream::Orders, &hashes), &commit)?;
        }
        count += hashes.len();
        Ok(count)
    }

    fn commit(
        &self,
        tables: &Tables,
        store: &Store,
        states: &mut States,
        (stream, changes): (Stream, &[(u32, u64, String)]),
        commit: &dyn Fn(&mut WriteTxn<'_>) -> Result<()>,
    ) -> Outcome {
        let outcome = store.try_transaction(|txn| {
            commit(txn)?;
            for (tenant, hash, text) in changes {
                self.receive(tables, txn, states, (stream, *tenant, *hash, text))?;
            }
            Ok(())
        });
        match outcome {
            // Another worker has the keys now.
            Err(Failure::Store(Error::BatchSuperseded { .. })) => Ok(()),
            outcome => outcome,
        }
    }

    /// Compares a change with the next change of the tenant.
    fn receive(
        &self,
        tables: &Tables,
        txn: &mut WriteTxn<'_>,
        states: &mut States,
        (stream, tenant, hash, text): (Stream, u32, u64, &str),
    ) -> Outcome {
        let name = &self.name;
        let Some(progress) = tables.progress.get(txn, tenant)? else {
            return wrong(format!("the progress of tenant {tenant} is missing"));
        };
        let state = states.get(tenant, progress.n);
        let all = match stream {
            Stream::People => &state.people_changes,
            Stream::Orders => &state.order_changes,
        };
        let found = all.iter().position(|it| *it == hash).map(|at| at as u64);
        let what =
            format!("consumer {name}, {stream:?} of tenant {tenant} after {}: {text}", progress.n);
        let Some(found) = found else { return wrong(format!("{what}: no such change")) };
        // A shard was attached or restored at this moment.
        let Some(mut row) = tables.received.get(txn, tenant, name)? else { return Ok(()) };
        let (count, first) = match stream {
            Stream::People => (&mut row.people, row.first_people),
            Stream::Orders => (&mut row.orders, row.first_orders),
        };
        if found < first {
            return Ok(());
        }
        // Workers divide the keys, so only the changes of a key have an order.
        if *count != found && !self.is_shared {
            return wrong(format!("{what}: change {found} was received, and not change {count}"));
        }
        *count += 1;
        tables.received.put(txn, &row)?;
        Ok(())
    }
}

/// All consumers of a store.
pub(crate) struct Consumers {
    open: BTreeMap<String, Consuming>,
    states: States,
}

impl Consumers {
    pub(crate) const fn new(config: &Config) -> Self {
        Self { open: BTreeMap::new(), states: States::new(config.seed) }
    }

    /// Takes a batch of each consumer that `is_due`. Returns the number of changes.
    pub(crate) fn take(
        &mut self,
        handle: &Handle,
        is_due: &mut dyn FnMut(&str) -> bool,
    ) -> Outcome<usize> {
        let (store, tables) = (&handle.store, &handle.tables);
        let consumers = tables.consumers.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
        self.open.retain(|name, _| consumers.iter().any(|it| it.name == *name));
        let mut count = 0;
        for consumer in consumers.iter().filter(|it| is_due(&it.name)) {
            let open = match self.open.entry(consumer.name.clone()) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(Consuming::open(tables, store, consumer)?),
            };
            count += open.take(tables, store, &mut self.states)?;
        }
        Ok(count)
    }

    /// Releases the keys of the workers.
    pub(crate) fn leave(self) -> Outcome {
        self.open.into_values().try_for_each(|it| {
            it.people.leave()?;
            Ok(it.orders.leave()?)
        })
    }
}

/// Returns how seldom a consumer takes a batch: some are slower than others.
pub(crate) fn pace(name: &str) -> u64 {
    let number = name.bytes().map(u64::from).sum::<u64>();
    [2, 8, 32].get((number % 3) as usize).copied().unwrap_or(1)
}

/// Returns the record of a consumer whose first change of a tenant is the next one.
fn received(state: &State, consumer: String) -> Received {
    let (people, orders) = (state.people_changes.len() as u64, state.order_changes.len() as u64);
    let tenant = state.tenant;
    Received { tenant, consumer, people, orders, first_people: people, first_orders: orders }
}

/// Adds a consumer: `add-consumer NAME [shared] [all]`. It begins with the next change, or with the oldest
/// change kept. `has_history` is whether the shards have all changes of people, which are kept for 7 days.
pub(crate) fn add(
    (tables, store): (&Tables, &Store),
    states: &mut States,
    step: &Step,
    tenants: u32,
    has_history: &dyn Fn() -> bool,
) -> Outcome {
    let (name, is_shared) = (step.word(1), step.has("shared"));
    let txn = store.read()?;
    let is_new = tables.consumers.get(&txn, name)?.is_none();
    let has_all = is_new && step.has("all");
    // The position of a consumer whose addition was killed can be later.
    let is_first = tables.people.change_consumers(&txn)?.iter().all(|it| it.name != name);
    drop(txn);
    // A killed process leaves no consumer whose record doesn't fit.
    store.transaction(|txn| tables.consumers.delete(txn, name).map(drop))?;
    let (mut people, mut orders) =
        (tables.people.changes(store, name)?, tables.orders.changes(store, name)?);
    // A shard that is removed from now on has no change that the consumer lacks.
    let has_history = has_all && is_first && has_history();
    let txn = store.read()?;
    if !has_all {
        people.skip_before(&txn)?;
        orders.skip_before(&txn)?;
    }
    let mut rows = Vec::new();
    for tenant in 0..tenants {
        let progress = crate::check::if_present(tables.progress.get(&txn, tenant))?.flatten();
        if let Some(progress) = progress {
            let state = states.get(tenant, progress.n);
            let row = received(state, name.to_owned());
            let oldest = Received { people: 0, first_people: 0, ..row.clone() };
            rows.push(if has_history { oldest } else { row });
        }
    }
    drop(txn);
    store.try_transaction(|txn| {
        for row in &rows {
            tables.received.put(txn, row)?;
        }
        tables.consumers.put(txn, &Consumer { name: name.to_owned(), is_shared })?;
        Ok::<_, Failure>(())
    })
}

/// Removes a consumer.
pub(crate) fn remove(tables: &Tables, store: &Store, name: &str) -> Outcome {
    store.transaction(|txn| tables.consumers.delete(txn, name).map(drop))?;
    tables.people.remove_change_consumer(store, name)?;
    tables.orders.remove_change_consumer(store, name)?;
    Ok(())
}

/// Records, for each consumer without a change of a tenant, the changes that it must receive. Forgets those of consumers that
/// were removed while the shard of the tenant was away.
pub(crate) fn expect(tables: &Tables, store: &Store, states: &mut States, tenants: u32) -> Outcome {
    store.try_transaction(|txn| {
        let consumers = tables.consumers.all(txn).rows().collect::<Result<Vec<_>>>()?;
        for tenant in 0..tenants {
            let progress = crate::check::if_present(tables.progress.get(txn, tenant))?.flatten();
            let Some(progress) = progress else { continue };
            let state = states.get(tenant, progress.n);
            let known = tables.received.find_by_tenant(txn, tenant).rows();
            for row in known.collect::<Result<Vec<_>>>()? {
                if consumers.iter().all(|it| it.name != row.consumer) {
                    tables.received.delete(txn, tenant, &row.consumer)?;
                }
            }
            for consumer in consumers.iter().map(|it| it.name.clone()) {
                if tables.received.get(txn, tenant, &consumer)?.is_none() {
                    tables.received.insert(txn, &received(state, consumer))?;
                }
            }
        }
        Ok(())
    })
}
