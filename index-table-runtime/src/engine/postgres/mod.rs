//! An engine over the PostgreSQL wire: the databases of a store are the SQL tables of a schema of a server.
//!
//! `docs/internals/postgres.md` lists the files from the bottom up, the states of a transaction, and the figures of the
//! reactor. The thread that waits for a response does the I/O of its connection, so the store is synchronous, and needs no
//! runtime. A write transaction is SERIALIZABLE, and a read transaction is a snapshot, REPEATABLE READ. Each has a
//! connection until it ends. `BEGIN` and delayed changes are sent with the next statement.
//!
//! After a failed statement, the server refuses all later statements of the transaction. So such a transaction fails,
//! and in normal use no statement depends on an error of the server. Every statement is prepared before anything of its
//! round trip is sent: otherwise, later statements, and even the commit, would overtake it. Every result is checked.

mod arena;
mod batch;
mod catalog;
mod changed;
mod clients;
mod compare;
mod connection;
mod copy;
mod counters;
mod dial;
mod driver;
mod ends;
mod error;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod golden;
#[cfg(feature = "async")]
mod line;
mod lists;
#[cfg(feature = "async")]
mod look_ups;
mod names;
mod numbers;
mod options;
mod outcome;
mod patience;
mod pending;
#[cfg(feature = "async")]
mod pipeline;
mod pool;
mod pooler;
mod queue;
mod read;
mod renamed;
mod select;
mod session;
mod slot;
mod socket;
mod sql;
mod start;
mod stripes;
mod tables;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod texts;
mod tls;
mod token;
mod totals;
#[cfg(test)]
mod traps;
mod trip;
mod txn;
mod write;

pub(crate) use read::{Entries, LentEntries, Reader};
pub(crate) use tables::Tables;
pub(crate) use txn::Txn;
pub(crate) use write::{LAYOUT, Writer};

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc, time::Duration};

use tokio_postgres::{
    Config,
    config::{Host, TargetSessionAttrs},
    error::SqlState,
};

use self::{
    catalog::Catalog,
    clients::Clients,
    compare::Compared,
    connection::column,
    error::Kind,
    names::{CATALOG, FORMAT, FORMAT_KEY, Form, Relation, SEQUENCES, quoted},
    numbers::Blocks,
    options::Limits,
    pool::{Leased, Pool, elsewhere},
    session::Server,
    target::Target,
};
use crate::{
    engine::{Options, Read as _, Records, Rename, Retry, ServerUsage, Space},
    model::{
        error::{Error, Result, StoreError as _},
        reference::{MARK, Referrer},
        schema::{Parts, TableSchema},
    },
};

/// An open store.
pub(crate) struct Engine {
    pool: Arc<Pool>,
    catalog: Catalog,
    /// The numbers that `insert_with` assigns.
    blocks: Blocks,
    clients: Clients,
    #[cfg(feature = "async")]
    pipeline: pipeline::Pipeline,
    schema: String,
    /// See [`Options::retry_for`].
    retry_for: Duration,
    is_read_only: bool,
}

impl Engine {
    /// Opens the store in a schema of a database, or creates it.
    pub(crate) fn connect(options: &Options, url: &str) -> Result<Self> {
        let invalid = |reason: String| Error::Io {
            path: "PostgreSQL".into(),
            source: io::Error::new(io::ErrorKind::InvalidInput, reason),
        };
        let unusable = |reason: String| invalid(format!("the URL can't be used: {reason}"));
        let (url, target) = Target::take(url).map_err(unusable)?;
        let config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| unusable(error.to_string()))?;
        // The library decodes more than `take`.
        let target = match config.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite if target == Target::Any => Target::ReadWrite,
            TargetSessionAttrs::ReadOnly if target == Target::Any => Target::ReadOnly,
            _ => target,
        };
        let schema = options.schema.clone();
        if !names::is_schema(&schema) {
            return Err(invalid(format!(
                "`schema` is {schema:?}, and must have 1 to 63 bytes without a zero"
            )));
        }
        let server = server_of(&config, &schema);
        let most = usize::try_from(options.connections).unwrap_or(usize::MAX);
        let tls = tls::tls(options.root_certificates.as_deref())?;
        let limits = Limits {
            connect: options.connect_timeout,
            response: options.response_timeout,
            commit: options.commit_timeout,
            lease: options.retry_for,
        };
        let pool =
            Arc::new(Pool::new((config, target), server, most, limits, tls, !options.read_only));
        pooler::refuse(&pool, pool.refuse_other_servers()?)?;
        let catalog = Catalog::new(&schema);
        let retry_for = options.retry_for;
        let is_read_only = options.read_only;
        let blocks = Blocks::default();
        let clients = Clients::new(&pool, &schema);
        let engine = Self {
            #[cfg(feature = "async")]
            pipeline: pipeline::Pipeline::new(&pool),
            pool,
            catalog,
            blocks,
            clients,
            schema,
            retry_for,
            is_read_only,
        };
        if is_read_only {
            engine.check()?;
        } else {
            match engine.create(options.create) {
                // A fence has no table before the commit that creates it. The second attempt finds what that commit has created.
                Err(Error::CommitUnknown { .. }) => engine.create(options.create)?,
                created => created?,
            }
        }
        Ok(engine)
    }

    const fn server(&self) -> Server<'_> {
        Server { pool: &self.pool, catalog: &self.catalog, blocks: &self.blocks }
    }

    /// Checks that the schema exists with the format of this release.
    fn check(&self) -> Result<()> {
        // The counter can't be read before it is known that the catalog exists.
        let txn = Txn::new(self.server(), Some(self.pool.take()?), false, false)?;
        let (catalog, sequences) = self.own_relations();
        let compared = Compared::new(&txn, &self.schema, [catalog, &sequences].into_iter())?;
        compared.refuse_different(CATALOG)?;
        if !compared.missing.is_empty() || !self.has_format(&txn)? {
            return Err(Error::StoreNotFound { path: self.pool.server().into() });
        }
        Ok(())
    }

    /// Returns the tables of all tables.
    fn own_relations(&self) -> (&Relation, Relation) {
        (&self.catalog.relation, Relation::new(&self.schema, SEQUENCES, Form::Pairs))
    }

    /// Whether the catalog has a format. Another format than that of this release is an error.
    fn has_format(&self, txn: &Txn<'_>) -> Result<bool> {
        let sql = format!("SELECT v FROM {} WHERE k = $1", self.catalog.relation.sql);
        let rows = txn.query(&sql, &[&FORMAT_KEY])?;
        match rows.first().map(|row| column::<&[u8]>(row, 0)).transpose()? {
            None => Ok(false),
            Some(format) if format == FORMAT => Ok(true),
            Some(_) => Err(Error::SchemaMismatch {
                table: CATALOG,
                difference: format!(
                    "the schema {} has the format of another release",
                    quoted(&self.schema)
                ),
                way_out: "use that release, or another schema",
            }),
        }
    }

    /// Creates the schema and the tables of the catalog, or checks their format.
    fn create(&self, creates: bool) -> Result<()> {
        let leased = self.alone()?;
        let (catalog, sequences) = self.own_relations();
        let connection = leased.get()?;
        let of = |error| error::of(self.pool.server(), error);
        let found =
            connection.query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&self.schema]);
        if found.map_err(of)?.is_empty() {
            if !creates {
                return Err(Error::StoreNotFound { path: self.pool.server().into() });
            }
            let sql = format!("CREATE SCHEMA {}", quoted(&self.schema));
            connection.simple(&sql).map_err(of)?;
        }
        let txn = Txn::new(self.server(), Some(leased), true, false)?;
        let needed = [catalog, &sequences, self.clients.relation(), &self.catalog.commits];
        let compared = Compared::new(&txn, &self.schema, needed.into_iter())?;
        compared.refuse_different(CATALOG)?;
        let missing = compared.missing;
        if missing.is_empty() && self.has_format(&txn)? {
            drop(txn);
            self.prepare_tokens();
            return Ok(());
        }
        // A store of an earlier release has no table of tokens.
        let is_incomplete = missing.iter().any(|it| it.name != self.catalog.commits.name);
        if is_incomplete && !creates {
            return Err(Error::StoreNotFound { path: self.pool.server().into() });
        }
        if !missing.is_empty() {
            txn.simple(&sql::create_all(&missing))?;
        }
        // The users of the other tables get the same rights.
        for relation in missing.iter().filter(|_| !is_incomplete) {
            let grants = txn.simple(&sql::grants(relation, &[catalog, self.clients.relation()]))?;
            grants.map_or(Ok(None), |grants| txn.simple(&grants))?;
        }
        if !self.has_format(&txn)? {
            let sql = format!("INSERT INTO {} (k, v) VALUES ($1, $2)", catalog.sql);
            txn.execute(&sql, &[&FORMAT_KEY, &FORMAT])?;
        }
        let committed = txn.commit(|| ());
        committed.map_err(crate::engine::CommitFailure::into_error)?;
        self.prepare_tokens();
        Ok(())
    }

    /// Lets new connections prepare the insertion of a token, and removes the tokens of closed connections.
    fn prepare_tokens(&self) {
        self.pool.know(&token::insert(&self.catalog.commits));
        // Tokens that stay for longer do no harm.
        let _ = elsewhere(&self.pool, |it| it.simple(&token::remove_old(&self.catalog.commits)));
    }

    /// Takes a connection, and waits for a lock on changes of the tables of this schema. The lock is released at the
    /// end of the transaction on this connection.
    fn alone(&self) -> Result<Leased> {
        self.pool.take_locked(None, &format!("index-table {}", self.schema))
    }

    /// Whether the server has this table.
    fn has(&self, leased: &Leased, relation: &Relation) -> Result<bool> {
        let sql = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                   WHERE n.nspname = $1 AND c.relname = $2";
        let found = leased.get()?.query(sql, &[&self.schema, &relation.name]);
        found.map(|rows| !rows.is_empty()).map_err(|error| error::of(self.pool.server(), error))
    }

    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        self.begin(false)
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        self.refuse_read_only()?;
        self.begin(true)
    }

    /// Returns a transaction, which begins with its first statement.
    fn begin(&self, writes: bool) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        Txn::new(self.server(), Some(self.pool.take()?), writes, true)
    }

    /// Begins a read transaction that sees the result of the write transactions in some order, and waits for its snapshot.
    pub(crate) fn read_serializable(&self) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        loop {
            let leased = self.pool.take()?;
            // The snapshot is taken here: a commit of this store, which takes the snapshots of others, must not wait for itself.
            match leased.get()?.simple(sql::BEGIN_SERIALIZABLE_READ) {
                Ok(_) => {
                    let txn = Txn::new(self.server(), None, false, true)?;
                    txn.session().use_begun(leased)?;
                    return Ok(txn);
                }
                // The connection was lost while it was idle.
                Err(error) if error::kind(&error) == Kind::Lost && leased.is_replaceable() => {}
                Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                    let reason = "the server is a standby, which has no serializable transactions";
                    let standby = error::Standby(reason.to_owned());
                    return Err(error::unreachable(self.pool.server(), &standby));
                }
                Err(error) => return Err(error::of(self.pool.server(), error)),
            }
        }
    }

    /// Returns a read transaction, which takes a connection and its snapshot when it is used.
    pub(crate) fn read_later(&self) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        Txn::new(self.server(), None, false, true)
    }

    /// Returns false: a closure runs again only after conflicts, which the caller handles; see
    /// [`Conflicts`](crate::engine::Conflicts).
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn prepare(&self, _: Retry) -> Result<bool> {
        Ok(false)
    }

    pub(crate) const fn retry_for(&self) -> Duration {
        self.retry_for
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn has_catalog(&self) -> bool {
        true
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns an error if the store was opened read-only.
    pub(crate) fn refuse_read_only(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::ReadOnly { path: self.pool.server().into(), source: None });
        }
        Ok(())
    }

    /// Returns the number of read transactions of this store, and the age of the oldest.
    pub(crate) fn readers(&self) -> (usize, Option<Duration>) {
        self.pool.ages()
    }

    /// Returns the use of the server.
    pub(crate) fn usage(&self) -> ServerUsage {
        self.pool.usage()
    }

    /// Counts a closure that runs again after a conflict.
    pub(crate) fn note_retry(&self) {
        self.pool.counters.note_retry();
    }

    /// Runs statements outside of transactions, for tests. Returns the first column of the last row.
    pub(crate) fn run(&self, sql: &str) -> Result<Option<String>> {
        let outcome = self.pool.open()?.simple(sql);
        outcome.map_err(|error| error::of(self.pool.server(), error))
    }

    /// Returns an error if this process has inherited the store in a fork.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        self.pool.refuse_forked()
    }

    /// Returns the server, for errors.
    pub(crate) fn location(&self) -> PathBuf {
        self.pool.server().into()
    }

    pub(crate) fn all_records(&self) -> Result<Records> {
        renamed::records(&self.read()?, &self.schema)
    }

    pub(crate) fn drop_indexes(
        &self,
        _: &BTreeSet<String>,
        choose: &mut dyn FnMut(&Records) -> Vec<String>,
    ) -> Result<Vec<String>, (Error, Option<Retry>)> {
        self.in_transaction(None, |txn| {
            let dropped = choose(&renamed::records(txn, &self.schema)?);
            if dropped.is_empty() {
                return Ok(dropped);
            }
            let remove =
                format!("DELETE FROM {}.{} WHERE k = $1", quoted(&self.schema), quoted(CATALOG));
            for name in &dropped {
                let relation = Relation::new(&self.schema, name, Form::Entries);
                txn.simple(&format!("DROP TABLE IF EXISTS {}", relation.sql))?;
                if let Some((table, part)) = name.split_once('.') {
                    let key = [table.as_bytes(), &[0], part.as_bytes()].concat();
                    txn.execute(&remove, &[&key])?;
                }
            }
            txn.catalog_changed()?;
            Ok(dropped)
        })
    }

    /// Runs `body` in a write transaction while no other client changes the tables of this schema. Writers of the table
    /// `excluded` wait until its end.
    fn in_transaction<T>(
        &self,
        excluded: Option<&Tables>,
        body: impl FnOnce(&mut Txn<'_>) -> Result<T>,
    ) -> Result<T, (Error, Option<Retry>)> {
        let failed = |error| {
            let conflicts = matches!(error, Error::RetriesExhausted { .. });
            (error, conflicts.then_some(Retry::Conflict))
        };
        self.refuse_read_only().map_err(failed)?;
        self.refuse_forked().map_err(failed)?;
        let leased = self.alone().map_err(failed)?;
        let excluded = match excluded {
            // A table that was created in a failed attempt does not exist.
            Some(tables) if self.has(&leased, &tables.facts).map_err(failed)? => Some(tables),
            _ => None,
        };
        let begun = Txn::new(self.server(), Some(leased), true, true);
        let mut txn = begun.map_err(failed)?;
        if let Some(tables) = excluded {
            txn.exclude_writers(tables);
        }
        let value = body(&mut txn).map_err(|error| (error, txn.retry()))?;
        let committed = txn.commit(|| ());
        committed.map_err(|failure| {
            let retry = failure.retry();
            (failure.into_error(), retry)
        })?;
        Ok(value)
    }

    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        excludes_writers: bool,
        rename: &mut Rename<'_>,
        prepare: impl FnOnce(Writer<'_>) -> Result<()>,
    ) -> Result<Tables, (Error, Option<Retry>)> {
        let tables = Tables::new(&self.schema, schema, parts);
        self.in_transaction(excludes_writers.then_some(&tables), |txn| {
            renamed::rename(txn, &self.schema, (&tables, parts), rename)?;
            let mut compared = Compared::new(txn, &self.schema, tables.needed().into_iter())?;
            compared.refuse_lost(txn, &tables)?;
            compared.change(txn, (&self.schema, &tables))?;
            compared.refuse_different(schema.name)?;
            if !compared.missing.is_empty() {
                txn.simple(&sql::create_all(&compared.missing))?;
            }
            self.add_referrers(txn, &tables)?;
            let writer = txn.writer(&tables);
            prepare(writer.ok_or_else(|| Error::internal("a read transaction of a table"))?)
        })?;
        self.know(&tables);
        Ok(tables)
    }

    /// Lets new connections prepare the most frequent statements of a table.
    fn know(&self, tables: &Tables) {
        let parts = tables.indexes.len() + tables.aggregates.len();
        self.pool.texts.add_table(tables.schema.name, parts);
        let facts = &tables.facts.sql;
        self.pool.know(&select::fact(&tables.facts));
        self.pool.know(&format!("SELECT k, v FROM {facts} WHERE k = ANY($1)"));
        for index in tables.indexes.iter().filter(|index| index.form == Form::Unique) {
            self.pool.know(&select::unique_row(index, false, &tables.facts));
        }
        for writes in [false, true] {
            self.pool.know_named(&self.catalog.numbers(writes));
        }
    }

    /// Returns the tables of a read-only store; `None` if some are missing.
    pub(crate) fn find_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
    ) -> Result<Option<Tables>> {
        let (tables, txn) = (Tables::new(&self.schema, schema, parts), self.read()?);
        if !Compared::new(&txn, &self.schema, tables.needed().into_iter())?.missing.is_empty() {
            return Ok(None);
        }
        self.add_referrers(&txn, &tables)?;
        Ok(Some(tables))
    }

    /// Adds the references to a table that the catalog records.
    fn add_referrers(&self, txn: &Txn<'_>, tables: &Tables) -> Result<()> {
        let (reader, mut from) = (txn.reader(tables), MARK.to_string().into_bytes());
        while let Some((part, record)) = reader.at_or_above(Space::Catalog, &from)? {
            let name = str::from_utf8(part).ok().filter(|name| name.starts_with(MARK));
            let Some(name) = name else { break };
            if let Some(by) = Referrer::decode(tables.schema.name, name, record)? {
                tables.add_referrer(&self.schema, by);
            }
            from = [part, &[0]].concat();
        }
        Ok(())
    }
}

/// Returns the URL of a store without the password, for errors.
fn server_of(config: &Config, schema: &str) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(host) => host.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<_> = hosts.collect();
    let ports: Vec<_> = config.get_ports().iter().map(ToString::to_string).collect();
    let database = config.get_dbname().unwrap_or_default();
    let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    format!("postgresql://{}{port}/{database} (schema {})", hosts.join(","), quoted(schema))
}
