//! The process that has the store open: its threads write, read and consume, beside the steps.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use index_table::{ExpiryWorker, GroupWriter, IndexWorker, OnDuplicate, Result, Store, WriteTxn};

use crate::{
    act::operate,
    book,
    check::{Check, filler_code, if_present},
    consume::{self, Consumers, Leases},
    failure::{Failure, Outcome, wrong},
    model::States,
    random::Random,
    script::Config,
    tables::{
        self, BUILT, Entry, Filler, KINDS, Kind, KindRepository, Progress, SAMPLES, Tables, built,
        first,
    },
};

/// An open store.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) store: Store,
    pub(crate) tables: Tables,
    /// Whether the indexes of fillers are left to a build.
    pub(crate) is_online: bool,
}

struct Threads {
    handle: Handle,
    stop: Arc<AtomicBool>,
    joined: Vec<JoinHandle<()>>,
    workers: Option<(IndexWorker, ExpiryWorker)>,
}

pub(crate) struct App {
    pub(crate) dir: PathBuf,
    pub(crate) config: Config,
    open: Mutex<Option<Threads>>,
    /// The number of shards that began to be detached.
    pub(crate) detaches: AtomicU64,
    gate: Arc<RwLock<()>>,
    copying: Mutex<()>,
    consumers: Mutex<()>,
    pub(crate) leases: Leases,
    /// The acknowledged operations of each tenant.
    acks: Mutex<BTreeMap<u32, u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line for the parent.
pub(crate) fn say(line: &str) {
    println!("{}", line.replace('\n', " | "));
}

/// Opens the store in a directory that exists.
pub(crate) fn open_copy(app: &App, path: &Path, read_only: bool) -> Outcome<Handle> {
    let options = Store::options().create(false).read_only(read_only);
    if app.config.shards == 0 {
        let store = options.durability(index_table::Durability::Journal).open(path)?;
        return app.handle_of(&store);
    }
    app.handle_of(&options.open(path)?)
}

/// Returns the value of the row that records the build of the indexes, if the table has this row now.
fn built_in(store: &Store) -> Option<u64> {
    let kinds = KindRepository::open(store).ok()?;
    built(&kinds, &store.read().ok()?)
}

impl Handle {
    pub(crate) fn of(store: Store, is_online: bool) -> Result<Self> {
        Ok(Self { tables: Tables::open(&store, is_online)?, store, is_online })
    }

    /// Returns the store if it has several data files, or has had several since it was opened.
    pub(crate) fn shards(&self) -> Option<&Store> {
        (self.store.shard_ids().iter().any(|it| it.name() != "main")
            || !self.store.unavailable_shards().is_empty())
        .then_some(&self.store)
    }
}

impl App {
    pub(crate) fn new(dir: PathBuf, config: Config) -> Arc<Self> {
        let (open, gate) = (Mutex::default(), Arc::default());
        let (copying, consumers, acks) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self {
            dir,
            config,
            open,
            detaches: AtomicU64::new(0),
            gate,
            copying,
            consumers,
            leases: Leases::default(),
            acks,
        })
    }

    /// Returns the directories of the store and of its archive. A promotion changes them.
    pub(crate) fn current(&self) -> (PathBuf, PathBuf) {
        let text = fs::read_to_string(self.dir.join("current")).unwrap_or_else(|_| "0".to_owned());
        let number = text.trim();
        (self.dir.join(format!("store.{number}")), self.dir.join(format!("archive.{number}")))
    }

    pub(crate) fn has(&self, mark: &str) -> bool {
        self.dir.join(mark).exists()
    }

    pub(crate) fn mark(&self, mark: &str) -> Outcome {
        Ok(fs::write(self.dir.join(mark), "")?)
    }

    pub(crate) fn unmark(&self, mark: &str) -> Outcome {
        if self.has(mark) { Ok(fs::remove_file(self.dir.join(mark))?) } else { Ok(()) }
    }

    /// Returns whether all shards are of one instant.
    pub(crate) fn is_whole(&self) -> bool {
        !self.has("restored")
    }

    /// Returns whether each row has the rows on which it depends: no keys of a detached shard belong to another shard, without
    /// their rows. Rows of a shard depend on rows of the same shard and on reference tables.
    pub(crate) fn is_sound(&self) -> bool {
        !self.has("assigned")
    }

    /// Returns the open store, and opens it if it is closed.
    pub(crate) fn handle(self: &Arc<Self>) -> Outcome<Handle> {
        if let Some(open) = &*lock(&self.open) {
            return Ok(open.handle.clone());
        }
        self.open(false, false)
    }

    pub(crate) fn options(&self, archive: &Path) -> index_table::Options {
        let options = tables::options();
        if self.config.archive == 1 { options.archive(archive) } else { options }
    }

    /// Whether indexes may be unreadable although they were built: a shard is being restored, or the manager rebuilt.
    pub(crate) fn can_be_unreadable(&self) -> bool {
        self.has("unreadable")
    }

    /// Whether a thread beside the steps may meet this error, and goes on. `was` is
    /// [`can_be_unreadable`](Self::can_be_unreadable) before the snapshot.
    pub(crate) fn is_expected(&self, failure: &Failure, was: bool) -> bool {
        failure.is_expected() || failure.is_unreadable() && (was || self.can_be_unreadable())
    }

    /// Whether a step may be refused because an index is not readable.
    pub(crate) fn can_be_unbuilt(&self) -> bool {
        self.can_be_unreadable() || !self.has("built")
    }

    /// Opens the tables. All indexes of a read-only store must be readable, unless they are not built.
    pub(crate) fn handle_of(&self, store: &Store) -> Outcome<Handle> {
        let (was, before) = (self.can_be_unreadable(), built_in(store));
        match Handle::of(store.clone(), false) {
            Err(error @ index_table::Error::IndexNotReadable { .. })
                if !was
                    && !self.can_be_unreadable()
                    && before.is_some()
                    && before == built_in(store) =>
            {
                wrong(format!("an index that was built: {error}"))
            }
            opened => Ok(opened?),
        }
    }

    /// Records that all indexes are readable again, but those of fillers that are not built.
    pub(crate) fn record_readable(&self, handle: &Handle) -> Outcome {
        let has_all = handle.store.unavailable_shards().is_empty();
        if has_all { self.unmark("unreadable") } else { Ok(()) }
    }

    /// Records in the store, and beside it, that the indexes of fillers are built.
    pub(crate) fn record_built(&self, handle: &Handle) -> Outcome {
        if !handle.store.unavailable_shards().is_empty() {
            return Ok(());
        }
        let kinds = &handle.tables.kinds;
        let recorded = handle.store.transaction(|txn| {
            let value = kinds.get(txn, BUILT)?.map_or(0, |row| row.value);
            kinds.put(txn, &Kind { id: BUILT, value: value | 1 })
        });
        match recorded.map_err(Failure::from) {
            Err(failure) if failure.is_expected() => Ok(()),
            recorded => {
                recorded?;
                self.mark("built")
            }
        }
    }

    /// Records that the indexes of fillers will not be readable. Returns false if this can't be recorded.
    fn record_unbuilt(&self, store: &Store) -> Outcome<bool> {
        if !self.has("created") {
            return Ok(true);
        }
        let kinds = KindRepository::open(store)?;
        let recorded = store.transaction(|txn| {
            let value = kinds.get(txn, BUILT)?.map_or(0, |row| row.value);
            kinds.put(txn, &Kind { id: BUILT, value: value.next_multiple_of(2) })
        });
        match recorded.map_err(Failure::from) {
            Err(failure) if failure.is_expected() => Ok(false),
            recorded => {
                recorded?;
                self.unmark("built")?;
                Ok(true)
            }
        }
    }

    pub(crate) fn open_store(&self) -> Result<Store> {
        let (path, archive) = self.current();
        let options = self.options(&archive);
        let is_declared = self.config.shards > 0 && !self.has("created");
        let options = if is_declared { self.config.sharded(options) } else { options };
        options.open(path)
    }

    /// Opens the store, and starts the threads. `online` leaves the indexes of fillers to a build. With `adds_field`, an earlier release
    /// has written samples before.
    pub(crate) fn open(self: &Arc<Self>, online: bool, adds_field: bool) -> Outcome<Handle> {
        let mut open = lock(&self.open);
        if let Some(open) = &*open {
            return Ok(open.handle.clone());
        }
        let store = self.open_store()?;
        let is_new = !self.has("created");
        if is_new && !self.has("begun") {
            let accounts = first::AccountRepository::open(&store)?;
            store.transaction(|txn| {
                (0..self.config.tenants).try_for_each(|tenant| {
                    accounts.put(txn, &first::Account { tenant, balance: 0 })
                })
            })?;
            self.mark("begun")?;
        }
        let online = online && self.record_unbuilt(&store)?;
        if online {
            drop(first::FillerRepository::open(&store)?);
            if adds_field && !is_new {
                self.write_samples(&store)?;
            }
        }
        let handle = Handle::of(store, online)?;
        if is_new {
            self.fill(&handle)?;
            // A restored archive has the first rows.
            crate::copies::wait_for_archive(self, &handle)?;
            self.mark("created")?;
        }
        self.record_readable(&handle)?;
        if !online {
            self.record_built(&handle)?;
        }
        self.leases.remove_lost(self, &handle)?;
        let (stop, mut threads) = (Arc::<AtomicBool>::default(), Vec::new());
        let mut start = |run: fn(&Arc<Self>, &Handle, u64, &AtomicBool), number: u64| {
            let (app, handle, stop) = (Arc::clone(self), handle.clone(), Arc::clone(&stop));
            threads.push(thread::spawn(move || run(&app, &handle, number, &stop)));
        };
        (0..self.config.writers).for_each(|number| start(Self::write, number.into()));
        (0..self.config.readers).for_each(|number| start(Self::read, number.into()));
        let workers = if self.config.workers > 0 {
            start(Self::consume, 0);
            Some((handle.store.start_index_worker()?, handle.store.start_expiry_worker()?))
        } else {
            None
        };
        *open = Some(Threads { handle: handle.clone(), stop, joined: threads, workers });
        Ok(handle)
    }

    /// Writes samples without a number, in the place of others if there are many.
    fn write_samples(&self, store: &Store) -> Outcome {
        let samples = first::SampleRepository::open(store)?;
        for tenant in 0..self.config.tenants {
            let written = store.transaction(|txn| {
                let last = samples.find_by_tenant(txn, tenant).rev().keys().next().transpose()?;
                let next = last.map_or(0, |(_, id)| id + 1);
                let old = next.saturating_sub(SAMPLES);
                samples.find_by_tenant_id_range(txn, tenant, ..old).query().delete(txn)?;
                (next..next + 20)
                    .try_for_each(|id| samples.insert(txn, &first::Sample { tenant, id }))
            });
            match written.map_err(Failure::from) {
                Err(failure) if failure.is_expected() => {}
                written => written?,
            }
        }
        Ok(())
    }

    /// Inserts the first rows.
    fn fill(&self, handle: &Handle) -> Outcome {
        let (tables, store) = (&handle.tables, &handle.store);
        store.transaction(|txn| {
            (0..KINDS).try_for_each(|id| tables.kinds.put(txn, &Kind { id, value: 0 }))?;
            (0..self.config.tenants).try_for_each(|tenant| {
                tables
                    .progress
                    .put(txn, &Progress { tenant, first_ticket: 1, ..Progress::default() })
            })
        })?;
        drop(book::open(tables, store)?);
        store.transaction(|txn| {
            // A process that was killed may have inserted them.
            let inserted = tables.ledger.all(txn).count()?;
            let tenant = self.config.tenants;
            (1 + inserted..=self.config.fillers.into()).try_for_each(|value| {
                let entry = |number| Entry { number, tenant, value };
                tables.ledger.insert_with(txn, entry).map(drop)
            })
        })?;
        let fillers = (0..self.config.tenants).flat_map(|tenant| {
            let fillers = 0..self.config.fillers;
            fillers.map(move |id| Filler { tenant, id, code: filler_code(tenant, id) })
        });
        tables.fillers.bulk_load(store, fillers).on_duplicate(OnDuplicate::Skip).run()?;
        Ok(())
    }

    /// Stops the threads, and closes the store.
    pub(crate) fn close(&self) {
        let Some(open) = lock(&self.open).take() else { return };
        open.stop.store(true, SeqCst);
        open.joined.into_iter().for_each(|thread| drop(thread.join()));
        // A worker that can't leave keeps its lease.
        let _ = self.leases.leave(self);
        drop(open.workers);
    }

    /// Stops the writers until the guard is dropped.
    pub(crate) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits after a batch of a long operation, so that other steps run meanwhile.
    pub(crate) fn rest(&self) {
        thread::sleep(Duration::from_millis(self.config.pause.into()));
    }

    /// Lets one step at a time use the directories of copies.
    pub(crate) fn copying(&self) -> MutexGuard<'_, ()> {
        lock(&self.copying)
    }

    /// Lets one step at a time change the list of consumers, or the shards with their changes.
    pub(crate) fn consumers(&self) -> MutexGuard<'_, ()> {
        lock(&self.consumers)
    }

    fn go_on(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn acknowledged(&self) -> BTreeMap<u32, u64> {
        lock(&self.acks).clone()
    }

    pub(crate) fn acknowledge(&self, tenant: u32, n: u64) {
        say(&format!("ack {tenant} {n}"));
        lock(&self.acks).insert(tenant, n);
    }

    /// Forgets them: a restored shard is older.
    pub(crate) fn forget_acknowledged(&self) {
        say("reset");
        lock(&self.acks).clear();
    }

    /// Records an operation that the parent knows.
    pub(crate) fn remember(&self, tenant: u32, n: u64) {
        lock(&self.acks).insert(tenant, n);
    }

    /// Returns the check of a snapshot.
    pub(crate) fn check<'a, 't>(
        &self,
        tables: &'a Tables,
        txn: &'a index_table::ReadTxn<'t>,
    ) -> Check<'a, 't> {
        let Config { tenants, fillers, .. } = self.config;
        Check {
            tables,
            txn,
            tenants,
            fillers,
            is_whole: self.is_whole(),
            is_assigned: self.has("assigned"),
        }
    }

    /// Writes the operations of some tenants. One in four is submitted to a group writer.
    fn write(self: &Arc<Self>, handle: &Handle, number: u64, stop: &AtomicBool) {
        let (config, mut random) = (&self.config, Random::new(&[self.config.seed, 3, number]));
        let states = Arc::new(Mutex::new(States::new(config.seed)));
        let group = handle.store.writer();
        if let Err(error) = &group {
            say(&format!("fault the group writer: {error}"));
        }
        while !stop.load(SeqCst) {
            for tenant in (0..config.tenants)
                .filter(|it| u64::from(*it) % u64::from(config.writers) == number)
            {
                if stop.load(SeqCst) {
                    return;
                }
                let (gate, was) = (self.go_on(), self.can_be_unreadable());
                let outcome = match group.as_ref().ok().filter(|_| random.below(4) == 0) {
                    Some(group) => self.submit_one(handle, group, &states, tenant),
                    None => self.write_one(handle, &mut lock(&states), tenant),
                };
                drop(gate);
                if self.report(&format!("writer of tenant {tenant}"), outcome, (was, stop)) {
                    thread::sleep(Duration::from_millis(5));
                }
                thread::sleep(Duration::from_micros(random.below(1500)));
            }
        }
    }

    pub(crate) fn write_one(&self, handle: &Handle, states: &mut States, tenant: u32) -> Outcome {
        let written =
            handle.store.try_transaction(|txn| self.write_in(txn, handle, states, tenant))?;
        self.acknowledge_written(tenant, written);
        Ok(())
    }

    /// Submits an operation of a tenant to the group writer, and waits for it.
    fn submit_one(
        self: &Arc<Self>,
        handle: &Handle,
        group: &GroupWriter,
        states: &Arc<Mutex<States>>,
        tenant: u32,
    ) -> Outcome {
        let (app, own, states) = (Arc::clone(self), handle.clone(), Arc::clone(states));
        let body =
            move |txn: &mut WriteTxn<'_>| app.write_in(txn, &own, &mut lock(&states), tenant);
        let written = handle.tables.progress.submit_for(group, tenant, body).wait()?;
        self.acknowledge_written(tenant, written);
        Ok(())
    }

    /// Writes the next operation of a tenant. Returns the number of its operations, or `None` if the tenant is not there.
    fn write_in(
        &self,
        txn: &mut WriteTxn<'_>,
        handle: &Handle,
        states: &mut States,
        tenant: u32,
    ) -> Outcome<Option<u64>> {
        let (tables, config) = (&handle.tables, &self.config);
        let others = self.is_whole().then_some(config.tenants);
        let Some(mut progress) = tables.progress.get(txn, tenant)? else {
            if self.has("assigned") {
                return Ok(None);
            }
            return wrong(format!("the progress of tenant {tenant} is missing"));
        };
        let mut state = states.get(tenant, progress.n).clone();
        let tables = (tables, &handle.store);
        operate(tables, txn, (config.seed, others), &mut state, &mut progress)?;
        Ok(Some(progress.n))
    }

    fn acknowledge_written(&self, tenant: u32, written: Option<u64>) {
        if let Some(n) = written {
            self.acknowledge(tenant, n);
        }
    }

    /// Compares snapshots with the model.
    fn read(self: &Arc<Self>, handle: &Handle, number: u64, stop: &AtomicBool) {
        let (config, mut random) = (&self.config, Random::new(&[self.config.seed, 4, number]));
        let mut states = States::new(config.seed);
        while !stop.load(SeqCst) {
            let was = self.can_be_unreadable();
            let outcome = read_one(self, handle, &mut states, &mut random);
            self.report("reader", outcome, (was, stop));
            thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }

    /// Takes changes as consumers do: some are slower than others, and all stay open.
    fn consume(self: &Arc<Self>, handle: &Handle, _: u64, stop: &AtomicBool) {
        let mut consumers = Consumers::new(&self.config);
        let mut random = Random::new(&[self.config.seed, 5]);
        while !stop.load(SeqCst) {
            let (gate, was) = (self.go_on(), self.can_be_unreadable());
            let is_due = &mut |name: &str| random.one_in(consume::pace(name));
            let outcome = consumers.take(self, handle, is_due);
            drop(gate);
            self.report("consumers", outcome.map(drop), (was, stop));
            thread::sleep(Duration::from_millis(3));
        }
        let outcome = consumers.leave();
        self.report("consumers", outcome, (true, stop));
    }

    /// Reports a failure of a thread. Returns whether it has to wait: a failure that is expected ends.
    fn report(&self, who: &str, outcome: Outcome, (was, stop): (bool, &AtomicBool)) -> bool {
        let Err(failure) = outcome else { return false };
        if !self.is_expected(&failure, was) && !stop.load(SeqCst) {
            say(&format!("fault {who}: {failure}"));
        }
        true
    }
}

/// Compares a tenant with the model, or, once in a while, all tenants.
pub(crate) fn read_one(
    app: &App,
    handle: &Handle,
    states: &mut States,
    random: &mut Random,
) -> Outcome {
    let txn = handle.store.read()?;
    let check = app.check(&handle.tables, &txn);
    if random.one_in(30) {
        return check.all(states).map(drop);
    }
    let tenant = random.below(app.config.tenants.into()) as u32;
    match if_present(handle.tables.progress.get(&txn, tenant))? {
        Some(Some(progress)) => check.tenant(states, &progress),
        Some(None) if app.has("assigned") => Ok(()),
        Some(None) => wrong(format!("the progress of tenant {tenant} is missing")),
        None => Ok(()),
    }
}
