//! Consumers of the change streams: each receives all changes of a tenant, in their order, without a gap.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use index_table::{
    ChangeBatch, ChangeWorker, Changes, Error, ReadTxn, Result, Store, WriteTxn,
    report::ChangeConsumer,
};

use crate::{
    app::{App, Handle},
    book::Bookkeeper,
    failure::{Failure, Outcome, wrong},
    model::{State, States, change},
    script::{Config, Step},
    tables::{Consumer, Order, Person, Progress, Received, Tables},
};

/// The most changes in a batch.
const BATCH: usize = 40;

/// The lease of the workers of a shared consumer. If they are killed, their keys are soon free.
const SHORT: Duration = Duration::from_secs(2);

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
    created: u64,
    people: Reader<Person>,
    orders: Reader<Order>,
}

impl<R: index_table::__private::Entity + index_table::__private::Streamed> Reader<R> {
    fn open(changes: Changes<R>, lease: Option<Duration>) -> Self {
        match lease {
            Some(lease) => Self::Worker(changes.share(lease)),
            None => Self::Alone(changes),
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

/// The leases of consumers that are shared for a while. They don't end by themselves during a lifecycle: a consumer whose worker
/// was killed is not used until it was removed.
#[derive(Default)]
pub(crate) struct Leases(Mutex<BTreeMap<String, Consuming>>);

impl Leases {
    fn workers(&self) -> MutexGuard<'_, BTreeMap<String, Consuming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares a consumer, unless it is shared already.
    pub(crate) fn share(&self, app: &App, handle: &Handle, name: &str) -> Outcome {
        let (store, tables) = (&handle.store, &handle.tables);
        let consumer = tables.consumers.get(&store.read()?, name)?;
        let is_leased = app.has(&lease_of(name));
        let can_share = |it: &Consumer| it.is_settled && !it.is_shared && !is_leased;
        let Some(consumer) = consumer.filter(can_share) else {
            return Ok(());
        };
        app.mark(&lease_of(name))?;
        let mut worker = Consuming::open(tables, store, &consumer, Some(LONG))?;
        worker.take(app, handle, &mut States::new(app.config.seed))?;
        self.workers().insert(name.to_owned(), worker);
        Ok(())
    }

    /// All workers leave.
    pub(crate) fn leave(&self, app: &App) -> Outcome {
        while let Some((name, worker)) = self.workers().pop_first() {
            worker.leave()?;
            app.unmark(&lease_of(&name))?;
        }
        Ok(())
    }

    /// The worker of a consumer continues after the consumer was added again.
    fn follow(&self, consumer: &Consumer) {
        if let Some(worker) = self.workers().get_mut(&consumer.name) {
            (worker.created, worker.is_shared) = (consumer.created, consumer.is_shared);
        }
    }

    fn forget(&self, app: &App, name: &str) -> Outcome {
        self.workers().remove(name);
        app.unmark(&lease_of(name))
    }

    /// Whether the worker of a consumer was killed, or could not leave.
    pub(crate) fn is_lost(&self, app: &App, consumer: &str) -> bool {
        app.has(&lease_of(consumer)) && !self.workers().contains_key(consumer)
    }

    /// Removes the consumers whose workers were killed, unless a shard is missing.
    pub(crate) fn remove_lost(&self, app: &App, handle: &Handle) -> Outcome {
        let txn = handle.store.read()?;
        let consumers = handle.tables.consumers.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        drop(txn);
        for consumer in consumers {
            if self.is_lost(app, &consumer.name) {
                match listing(app, &consumer.name, || remove(app, handle, &consumer.name, &|_| ()))
                {
                    Err(failure) if app.is_expected(&failure, false) => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }
}

/// Adds or removes a consumer. The consumer may be listed in part if this fails or is killed.
pub(crate) fn listing(app: &App, consumer: &str, change: impl FnOnce() -> Outcome) -> Outcome {
    let _consumers = app.consumers();
    let _paused = app.pause();
    let mark = format!("listing.{consumer}");
    app.mark(&mark)?;
    change()?;
    app.unmark(&mark)
}

/// The length of a lease that doesn't end by itself.
const LONG: Duration = Duration::from_hours(1);

fn lease_of(consumer: &str) -> String {
    format!("lease.{consumer}")
}

impl Consuming {
    fn open(
        tables: &Tables,
        store: &Store,
        consumer: &Consumer,
        lease: Option<Duration>,
    ) -> Result<Self> {
        let name = &consumer.name;
        Ok(Self {
            name: name.clone(),
            is_shared: consumer.is_shared,
            created: consumer.created,
            people: Reader::open(tables.people.changes(store, name)?, lease),
            orders: Reader::open(tables.orders.changes(store, name)?, lease),
        })
    }

    fn leave(self) -> Result<()> {
        self.people.leave()?;
        self.orders.leave()
    }

    /// Receives a batch of each stream, and compares it with the model. Returns the number of changes.
    fn take(&mut self, app: &App, handle: &Handle, states: &mut States) -> Outcome<usize> {
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
            self.commit((app, handle), states, (Stream::People, &hashes), &commit)?;
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
            self.commit((app, handle), states, (Stream::Orders, &hashes), &commit)?;
        }
        count += hashes.len();
        Ok(count)
    }

    fn commit(
        &self,
        (app, handle): (&App, &Handle),
        states: &mut States,
        (stream, changes): (Stream, &[(u32, u64, String)]),
        commit: &dyn Fn(&mut WriteTxn<'_>) -> Result<()>,
    ) -> Outcome {
        let outcome = handle.store.try_transaction(|txn| {
            commit(txn)?;
            for (tenant, hash, text) in changes {
                let change = (stream, *tenant, *hash, text.as_str());
                self.receive((app, &handle.tables), txn, states, change)?;
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
        (app, tables): (&App, &Tables),
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
        let row = tables.received.get(txn, tenant, name)?;
        let is_own = |it: &Received| it.is_settled && it.created == self.created;
        let Some(mut row) = row.filter(is_own) else { return Ok(()) };
        if !is_compared(app, &progress, &row) {
            return Ok(());
        }
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
    ledger: Bookkeeper,
    open: BTreeMap<String, Consuming>,
    states: States,
}

impl Consumers {
    pub(crate) const fn new(config: &Config) -> Self {
        Self { ledger: Bookkeeper::new(), open: BTreeMap::new(), states: States::new(config.seed) }
    }

    /// Takes a batch of each consumer that `is_due`. Returns the number of changes.
    pub(crate) fn take(
        &mut self,
        app: &App,
        handle: &Handle,
        is_due: &mut dyn FnMut(&str) -> bool,
    ) -> Outcome<usize> {
        let (store, tables) = (&handle.store, &handle.tables);
        let consumers = tables.consumers.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
        let is_known = |own: &Consuming| {
            consumers.iter().any(|it| (&it.name, it.created) == (&own.name, own.created))
        };
        self.open.retain(|_, own| is_known(own));
        let mut count = 0;
        for consumer in consumers.iter().filter(|it| it.is_settled && is_due(&it.name)) {
            if let Some(worker) = app.leases.workers().get_mut(&consumer.name) {
                count += worker.take(app, handle, &mut self.states)?;
                continue;
            }
            if app.leases.is_lost(app, &consumer.name) {
                continue;
            }
            let lease = consumer.is_shared.then_some(SHORT);
            let open = match self.open.entry(consumer.name.clone()) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(vacant) => {
                    vacant.insert(Consuming::open(tables, store, consumer, lease)?)
                }
            };
            count += open.take(app, handle, &mut self.states)?;
        }
        Ok(count + self.ledger.take(app, handle)?)
    }

    /// Releases the keys of the workers.
    pub(crate) fn leave(self) -> Outcome {
        Ok(self.open.into_values().try_for_each(Consuming::leave)?)
    }
}

/// Returns how seldom a consumer takes a batch: some are slower than others.
pub(crate) fn pace(name: &str) -> u64 {
    let number = name.bytes().map(u64::from).sum::<u64>();
    [2, 8, 32].get((number % 3) as usize).copied().unwrap_or(1)
}

/// Returns the record of a consumer that receives the next changes of a tenant, or its changes of people from `first_people` on.
fn received(state: &State, consumer: &Consumer, first_people: Option<u64>) -> Received {
    let (people, orders) = (state.people_changes.len() as u64, state.order_changes.len() as u64);
    let people = first_people.unwrap_or(people);
    Received {
        tenant: state.tenant,
        consumer: consumer.name.clone(),
        created: consumer.created,
        people,
        orders,
        first_people: people,
        first_orders: orders,
        is_settled: consumer.is_settled,
    }
}

/// Whether the changes that a consumer receives from a tenant are compared. If a shard was restored, its record can be older than
/// the positions in other shards, in which the tenant was before.
pub(crate) fn is_compared(app: &App, progress: &Progress, row: &Received) -> bool {
    app.is_whole() || progress.homes.last().is_none_or(|(_, first)| row.first_people >= *first)
}

/// Returns the first of the last changes of people that are all in these shards.
fn first_in(progress: &Progress, is_present: &dyn Fn(&str) -> bool) -> Option<u64> {
    let last = progress.homes.iter().rev().take_while(|(shard, _)| is_present(shard));
    last.last().map(|(_, first)| *first)
}

/// Returns the first of the last changes of people in this shard.
fn last_in(progress: &Progress, shard: &str) -> Option<u64> {
    let last = progress.homes.iter().rev().find(|(own, _)| own == shard);
    last.map(|(_, first)| *first)
}

/// Returns a function that kills this process at a moment of a step: `killed NUMBER`. The moments of a step are numbered from 1.
pub(crate) fn killing(step: &Step) -> impl Fn(u64) {
    let last = step.words.last().and_then(|it| it.parse().ok());
    let end: Option<u64> = last.filter(|_| step.has("killed"));
    move |moment| {
        if end == Some(moment) {
            // As after a kill, no destructor runs.
            std::process::abort();
        }
    }
}

/// Whether both streams have a consumer. If only one has it, its addition or removal was killed.
fn is_listed(tables: &Tables, txn: &ReadTxn<'_>, name: &str) -> Result<bool> {
    let has_it = |all: Vec<ChangeConsumer>| all.iter().any(|it| it.name == name);
    Ok(has_it(tables.people.change_consumers(txn)?) && has_it(tables.orders.change_consumers(txn)?))
}

/// Removes a consumer from both streams.
fn unlist(tables: &Tables, store: &Store, name: &str, moment: &dyn Fn()) -> Result<()> {
    tables.people.remove_change_consumer(store, name)?;
    moment();
    tables.orders.remove_change_consumer(store, name).map(drop)
}

/// Adds a consumer: `add-consumer NAME [shared] [all] [killed MOMENT]`. It begins with the next change, or with the oldest
/// change kept. Changes of people are kept for 7 days.
pub(crate) fn add(app: &App, handle: &Handle, step: &Step) -> Outcome {
    let (tables, store, tenants) = (&handle.tables, &handle.store, app.config.tenants);
    let (name, is_shared, states) =
        (step.word(1), step.has("shared"), &mut States::new(app.config.seed));
    let killing = killing(step);
    let txn = store.read()?;
    let known = tables.consumers.get(&txn, name)?;
    let has_all = !known.as_ref().is_some_and(|it| it.is_settled) && step.has("all");
    // A known consumer keeps its position in the shards that are away, so what it must receive there stays the same.
    let is_listed = is_listed(tables, &txn, name)?;
    let listed = known.filter(|_| is_listed);
    drop(txn);
    let is_first = listed.is_none();
    if is_first {
        unlist(tables, store, name, &|| ())?;
    }
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let created = listed.map_or(since.as_nanos() as u64, |known| known.created);
    let mut consumer = Consumer { name: name.to_owned(), is_shared, created, is_settled: false };
    // Its positions change before its record. Until then, or after a kill, they are not compared.
    store.try_transaction(|txn| {
        for tenant in 0..tenants {
            let row = crate::check::if_present(tables.received.get(txn, tenant, name))?.flatten();
            if let Some(row) = row {
                tables.received.put(txn, &Received { is_settled: false, ..row })?;
            }
        }
        tables.consumers.put(txn, &consumer)?;
        Ok::<_, Failure>(())
    })?;
    killing(1);
    let mut people = tables.people.changes(store, name)?;
    killing(2);
    let mut orders = tables.orders.changes(store, name)?;
    killing(3);
    // A shard that leaves from now on has no change that the consumer lacks.
    let present = store.shard_ids();
    let is_present = |shard: &str| present.iter().any(|own| own.name() == shard);
    // The position of a consumer whose addition was killed can be later.
    let has_history = has_all && is_first && app.is_whole();
    let txn = store.read()?;
    if !has_all {
        people.skip_before(&txn)?;
        killing(4);
        orders.skip_before(&txn)?;
        killing(5);
    }
    consumer.is_settled = true;
    let mut rows = Vec::new();
    for tenant in 0..tenants {
        let progress = crate::check::if_present(tables.progress.get(&txn, tenant))?.flatten();
        if let Some(progress) = progress {
            let first = if has_history { first_in(&progress, &is_present) } else { None };
            rows.push(received(states.get(tenant, progress.n), &consumer, first));
        }
    }
    drop(txn);
    store.try_transaction(|txn| {
        for row in &rows {
            tables.received.put(txn, row)?;
        }
        tables.consumers.put(txn, &consumer)?;
        Ok::<_, Failure>(())
    })?;
    app.leases.follow(&consumer);
    Ok(())
}

/// Removes a consumer: `remove-consumer NAME [killed MOMENT]`. `killing` is called at each moment.
pub(crate) fn remove(app: &App, handle: &Handle, name: &str, killing: &dyn Fn(u64)) -> Outcome {
    let (tables, store) = (&handle.tables, &handle.store);
    store.transaction(|txn| {
        let known = tables.consumers.get(txn, name)?;
        known.map_or(Ok(()), |it| tables.consumers.put(txn, &Consumer { is_settled: false, ..it }))
    })?;
    killing(1);
    unlist(tables, store, name, &|| killing(2))?;
    killing(3);
    store.transaction(|txn| tables.consumers.delete(txn, name).map(drop))?;
    app.leases.forget(app, name)
}

/// Records, for each consumer without a change of a tenant, the changes that it must receive: the next ones, or, of people in
/// the shard `since`, those since the tenant came to the shard. Forgets those of consumers that were removed while the shard of the
/// tenant was away.
pub(crate) fn expect(app: &App, handle: &Handle, since: Option<&str>) -> Outcome {
    let (tables, store, tenants) = (&handle.tables, &handle.store, app.config.tenants);
    let states = &mut States::new(app.config.seed);
    let since = since.filter(|_| app.is_whole());
    store.try_transaction(|txn| {
        let consumers = tables.consumers.all(txn).rows().collect::<Result<Vec<_>>>()?;
        for tenant in 0..tenants {
            let progress = crate::check::if_present(tables.progress.get(txn, tenant))?.flatten();
            let Some(progress) = progress else { continue };
            let state = states.get(tenant, progress.n);
            let known = tables.received.find_by_tenant(txn, tenant).rows();
            for row in known.collect::<Result<Vec<_>>>()? {
                let is_of = |it: &Consumer| (&it.name, it.created) == (&row.consumer, row.created);
                if !consumers.iter().any(is_of) {
                    tables.received.delete(txn, tenant, &row.consumer)?;
                }
            }
            let first = since.and_then(|shard| last_in(&progress, shard));
            for consumer in &consumers {
                if tables.received.get(txn, tenant, &consumer.name)?.is_none() {
                    tables.received.insert(txn, &received(state, consumer, first))?;
                }
            }
        }
        Ok(())
    })
}
