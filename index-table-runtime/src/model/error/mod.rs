//! The errors of this crate, their conversions ([`convert`]), and parts of their messages ([`message`]).

mod convert;
mod message;
mod server;

pub(crate) use convert::{Boxed, Sealed, is_full};
pub use convert::{EncodeError, StoreError};
pub(crate) use message::{LISTS_KEY, damaged_page, is_damaged_page, way_out};
pub use server::ServerProblem;

use std::{error, io, path::PathBuf, sync::Arc, time::Duration};

use crate::model::{index_state::IndexState, key::MAX_KEY_LEN};
use message::{archive_of, index_or, position, read_only, repaired_by, restored, shown_number};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate, with the table, the index and the key that they concern.
///
/// Keys are shown decoded, as `7` or `("Redmond", "Smith")`.
///
/// Each message is complete: it includes the text of the underlying error, if there is one. The underlying
/// error is also the [`source`](std::error::Error::source), for programs that need its type.
///
/// # Common errors
///
/// The documentation of a method lists the errors that are specific to it. Other errors can occur in nearly
/// every method, and the lists refer to them as a group:
///
/// - **The errors of reading.** The row or the entry can't be used: [`Corrupt`](Error::Corrupt),
///   [`NewerRow`](Error::NewerRow), [`Conversion`](Error::Conversion). The transaction can't be used with this
///   repository: [`WrongStore`](Error::WrongStore), [`SnapshotTooOld`](Error::SnapshotTooOld),
///   [`SchemaMismatch`](Error::SchemaMismatch). The store can't be read: [`Forked`](Error::Forked),
///   [`DamagedFile`](Error::DamagedFile), [`ReopenNeeded`](Error::ReopenNeeded),
///   [`LockFile`](Error::LockFile), [`Io`](Error::Io), [`Unreachable`](Error::Unreachable), [`Engine`](Error::Engine).
/// - **The errors of writing** include the errors of reading. There is no room: [`MapFull`](Error::MapFull),
///   [`DiskFull`](Error::DiskFull), [`TransactionTooLarge`](Error::TransactionTooLarge),
///   [`TooManyDatabases`](Error::TooManyDatabases), [`IndexQueueFull`](Error::IndexQueueFull). The store can't be
///   written to: [`ReadOnly`](Error::ReadOnly), [`WriterElsewhere`](Error::WriterElsewhere),
///   [`FileReplaced`](Error::FileReplaced), [`TransactionFailed`](Error::TransactionFailed). Another client has
///   committed a conflicting change: [`RetriesExhausted`](Error::RetriesExhausted).
/// - **The errors of replacing a row** include the errors of writing. A later release of the program has written the stored row:
///   [`UnknownField`](Error::UnknownField).
/// - A method that begins its own transactions has the errors of [`Store::read`](crate::Store::read), or of
///   [`Store::write`](crate::Store::write) and [`WriteTxn::commit`](crate::WriteTxn::commit), too.
/// - In a sharded store, reading and writing can fail with [`NoShard`](Error::NoShard),
///   [`OtherShard`](Error::OtherShard), [`ShardUnavailable`](Error::ShardUnavailable) and
///   [`NotOffered`](Error::NotOffered).
///
/// [`Internal`](Error::Internal) is a defect of this crate, and can occur in every method.
///
/// # Examples
///
/// ```
/// use index_table::{Error, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(email, unique)]
/// struct User {
///     #[primary_key]
///     id: u32,
///     email: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let users = UserRepository::open(&store)?;
/// let mut txn = store.write()?;
/// users.insert(&mut txn, &User { id: 1, email: "a@example.com".into() })?;
/// match users.insert(&mut txn, &User { id: 2, email: "a@example.com".into() }) {
///     Err(Error::UniqueViolation { index: "email", key, holder, .. }) => {
///         assert_eq!((key.as_str(), holder.as_str()), ("\"a@example.com\"", "1"));
///     }
///     other => panic!("{other:?}"),
/// }
/// // The failed `insert` wrote nothing, and the transaction can continue.
/// users.insert(&mut txn, &User { id: 2, email: "b@example.com".into() })?;
/// txn.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Rows and their keys.
    /// An `insert`, or an `update` that changes the primary key, has the primary key of an existing row.
    #[error("table `{table}` already has a row with primary key {key}; `put` would replace it")]
    DuplicateKey {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
    },

    /// Another row has the same key in a unique index.
    #[error(
        "unique index `{index}` of table `{table}` already has the key {key}, for the row with \
         primary key {holder}; change or delete that row first"
    )]
    UniqueViolation {
        /// The table.
        table: &'static str,
        /// The index.
        index: &'static str,
        /// The key in the index, with the values of hashed fields.
        key: String,
        /// The primary key of the row that has this key.
        holder: String,
    },

    /// The revision of a written row is not the revision of the stored row: another write came between
    /// reading and writing the row.
    #[error(
        "the row with primary key {key} of table `{table}` was written with revision {expected}, and {}; read it \
         again, and repeat the change",
        found.map_or_else(|| "it does not exist".to_owned(), |found| format!("it has revision {found}"))
    )]
    Conflict {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
        /// The revision of the written row.
        expected: u64,
        /// The revision of the stored row; `None` if there is no row.
        found: Option<u64>,
    },

    /// A consumer of a change stream is behind the oldest change that is kept.
    #[error(
        "consumer `{consumer}` of the changes of table `{table}` has missed {missed} changes, which were removed before it \
         committed them; to continue with the oldest change kept, call `skip_removed`; to include the missed changes, read the \
         whole table, and call `skip_to` with its `last_change`"
    )]
    ChangesMissed {
        /// The table.
        table: &'static str,
        /// The consumer.
        consumer: String,
        /// The number of missed changes; at least 1. If the table was written without its stream, there are more.
        missed: u64,
    },

    /// A batch of changes can't be committed, because the consumer has committed other changes since it was read.
    #[error(
        "this batch of consumer `{consumer}` of the changes of table `{table}` was superseded, because another worker has \
         committed since, or has taken over its keys; roll back its effects, and call `next_batch`"
    )]
    BatchSuperseded {
        /// The table.
        table: &'static str,
        /// The consumer.
        consumer: String,
    },

    /// A consumer of a change stream is shared by workers, and was used without `share`.
    #[error(
        "consumer `{consumer}` of the changes of table `{table}` is shared by workers with running leases; call `share` \
         to add a worker, or wait until the leases have ended"
    )]
    ConsumerShared {
        /// The table.
        table: &'static str,
        /// The consumer.
        consumer: String,
    },

    /// A consumer can't continue in another store, because it has not committed all changes.
    #[error(
        "consumer `{consumer}` of the changes of table `{table}` has not committed {changes} changes, which the other store \
         lacks; let it commit all changes before it continues there, or remove it with `remove_change_consumer`"
    )]
    ChangesLeft {
        /// The table.
        table: &'static str,
        /// The consumer.
        consumer: String,
        /// The number of these changes.
        changes: u64,
    },

    /// A consumer of a change stream was removed.
    #[error(
        "the changes of table `{table}` have no consumer `{consumer}`, because it was removed; `changes` of the repository \
         creates it again, at the oldest change kept"
    )]
    NoConsumer {
        /// The table.
        table: &'static str,
        /// The consumer.
        consumer: String,
    },

    /// The row refers to a row that does not exist. From writing a row of a table with `#[references(…)]`.
    #[error(
        "the row with primary key {key} of table `{table}` refers by `{reference}` to the row {referred} of table \
         `{to}`, which does not exist; insert that row first"
    )]
    MissingReference {
        /// The table of the written row.
        table: &'static str,
        /// The primary key of the written row.
        key: String,
        /// The reference: the names of its fields, joined by `_`.
        reference: &'static str,
        /// The table of the missing row.
        to: &'static str,
        /// The primary key of the missing row.
        referred: String,
    },

    /// The row can't be deleted, because rows of another table refer to it by a reference with `on_delete = "restrict"`. Or
    /// its primary key can't be changed, because rows refer to it by any reference.
    #[error(
        "the row with primary key {key} of table `{table}` can't be deleted or get another primary key, because rows of \
         table `{by}` refer to it by `{reference}`; delete or change these rows first"
    )]
    Referenced {
        /// The table of the row.
        table: &'static str,
        /// The primary key of the row.
        key: String,
        /// The table of the referring rows.
        by: &'static str,
        /// The reference: the names of its fields, joined by `_`.
        reference: &'static str,
    },

    /// The row can't be deleted, because rows of another table would be deleted with it (`on_delete = "cascade"`, and
    /// `part_of`), and the repository of that table is not open in this process. If the parts of a table are placed in
    /// another shard, any deletion of a main row needs their repository.
    #[error(
        "the row with primary key {key} of table `{table}` can't be deleted, because a cascade would delete rows of table \
         `{by}`, which refer to it by `{reference}`; open `{repository}` on this store first, and keep it open"
    )]
    RepositoryNeeded {
        /// The table of the row.
        table: &'static str,
        /// The primary key of the row.
        key: String,
        /// The table of the referring rows.
        by: &'static str,
        /// The reference: the names of its fields, joined by `_`.
        reference: &'static str,
        /// The name of the repository of these rows.
        repository: &'static str,
    },

    /// The sum of a group of an aggregate would be out of range. On a server, reading the group returns this error, and not
    /// the write.
    #[error(
        "a sum of the group {key} in aggregate `{aggregate}` of table `{table}` would not fit: a sum of integers has at most 128 bits, and a sum of `Decimal`s at most 96; write a \
         smaller number, or delete rows of the group first"
    )]
    AggregateOverflow {
        /// The table.
        table: &'static str,
        /// The aggregate.
        aggregate: &'static str,
        /// The group.
        key: String,
    },

    /// The type of the field with `#[revision]` has no greater number.
    #[error(
        "the row with primary key {key} of table `{table}` has the greatest revision of its type; delete it and \
         insert it again, or declare the field as `u64` in a new version of the table"
    )]
    RevisionExhausted {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
    },

    /// `insert_with` failed, because the type of the primary key has no greater number than the last number.
    #[error(
        "table `{table}` has no primary key left for `insert_with` above {}; use `insert` with a \
         free key", shown_number(*last)
    )]
    SequenceExhausted {
        /// The table.
        table: &'static str,
        /// The greatest number that was assigned or is in the table. `u64::MAX` also represents greater
        /// numbers, which only 128-bit keys have.
        last: u64,
    },

    /// The closure of `insert_with` returned a row with a primary key other than the assigned one.
    #[error(
        "the closure of `insert_with` was given the primary key {given} for table `{table}`, and \
         returned a row with {key}; use `insert` for explicit keys"
    )]
    OtherKey {
        /// The table.
        table: &'static str,
        /// The assigned key.
        given: String,
        /// The key of the row.
        key: String,
    },

    /// A key is longer than LMDB's limit.
    #[error(
        "the key {key} of {} in table `{table}`{} has {len} bytes, and LMDB's limit is \
         {MAX_KEY_LEN}{}",
        index_or("the primary key", *index),
        row.as_ref().map_or(String::new(), |row| format!(", of the row with primary key {row},")),
        if index.is_some() {
            " (the primary key is part of it unless the index is unique); index a long field as \
             `hash(field)`, which finds equal values, or keep a shortened copy of it to index"
        } else {
            "; choose a shorter field for it"
        },
    )]
    KeyTooLong {
        /// The table.
        table: &'static str,
        /// The index; `None` for the primary key.
        index: Option<&'static str>,
        /// The key, truncated.
        key: String,
        /// The primary key of the row; `None` if the key is not of one row, or is the primary key.
        row: Option<String>,
        /// The length of the key's encoding, with the primary key if it is part of the entry's key.
        len: usize,
    },

    /// A table or an index that doesn't exist was named.
    #[error("{place} has no {kind} `{name}`; it has {known}")]
    UnknownName {
        /// Where it was looked for.
        place: String,
        /// `table` or `index`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },

    /// JSON is not a value of a key's field, or not a row of the table.
    #[error("{place}: {reason}")]
    InvalidJson {
        /// The table, the index and the field.
        place: String,
        /// The value, and the expected form.
        reason: String,
    },

    /// A row can't be encoded.
    #[error("a row of table `{table}` can't be encoded: {reason}")]
    Codec {
        /// The table.
        table: &'static str,
        /// The message of the codec.
        reason: String,
    },

    /// The function that archives expired rows failed. The rows of its batch were not deleted.
    #[error(
        "the expired rows of table `{table}` could not be archived, and were not deleted: {source}; the next \
         expiry archives them again"
    )]
    Archive {
        /// The table.
        table: &'static str,
        /// The error of the function.
        source: Arc<dyn error::Error + Send + Sync>,
    },

    // Stored rows, entries and declarations.
    /// The declaration of the struct does not match the file.
    #[error("table `{table}` doesn't match its declaration: {difference}; {way_out}")]
    SchemaMismatch {
        /// The table.
        table: &'static str,
        /// The difference.
        difference: String,
        /// The remedy.
        way_out: &'static str,
    },

    /// The file contains bytes that this crate did not write. The repository's `verify` lists all damage, and
    /// `repair` corrects it, except for the lists of the names in rows. Other methods can neither replace nor delete a row that can't
    /// be decoded, because its entries are unknown.
    #[error("table `{table}`, {}, {}: {reason}{}", index_or("facts", *index), position(key), repaired_by(key))]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The index; `None` for the fact table.
        index: Option<&'static str>,
        /// The key, in hex if it can't be decoded; for a damaged page, `page` and its number.
        key: String,
        /// The problem.
        reason: String,
    },

    /// A later release of the program has written the row with a field that this release does not know, so the field would be lost
    /// when the row is written. Reading and deleting the row are possible. See
    /// [versions](https://docs.rs/index-table/latest/index_table/guide/versions/index.html).
    #[error(
        "the row with primary key {key} of table `{table}` has the field `{field}`, which this release of the program does not know \
         and a later one has added; write it with that release, or, if the field was removed on purpose, run \
         `upgrade(…).drop_unknown()` with this release"
    )]
    UnknownField {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
        /// The name of the field, as serde writes it.
        field: String,
    },

    /// A row has a later version than the declaration. Another process has opened the table with a later
    /// declaration, or the row is damaged.
    #[error(
        "table `{table}`, {}, key {key}: the row has version {version}, and this program reads \
         versions up to {known}; restart it with the declaration that is in use",
        index_or("facts", *index)
    )]
    NewerRow {
        /// The table.
        table: &'static str,
        /// The index; `None` for the fact table.
        index: Option<&'static str>,
        /// The key.
        key: String,
        /// The version of the row.
        version: u32,
        /// The version of `#[table(version = …)]`.
        known: u32,
    },

    /// The `From` of a later version converts a row of an older version incorrectly, or its `TryFrom` fails.
    #[error(
        "table `{table}`: the row {key} has version {version}, and can't be converted: {reason}; \
         correct the `From` or `TryFrom` of a later version"
    )]
    Conversion {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
        /// The version of the row.
        version: u32,
        /// The problem.
        reason: String,
    },

    /// The index is not readable: it is under construction, disabled or retired, or has duplicates.
    #[error("index `{index}` of table `{table}` is not readable: {}", state.reason())]
    IndexNotReadable {
        /// The table.
        table: &'static str,
        /// The index.
        index: &'static str,
        /// The state of the index, with the progress of a build.
        state: IndexState,
    },

    // Queries.
    /// The cursor belongs to another index, direction or query, or the text is not a cursor.
    #[error("the cursor can't be used here: {reason}")]
    InvalidCursor {
        /// The mismatch.
        reason: &'static str,
    },

    /// A page of 0 rows, or of 0 examined entries, was requested. It would have no cursors, like the only page of a scan.
    #[error(
        "a page of table `{table}` has to have and to examine at least 1 row; pass a greater number to `page` or \
         `examine_at_most`"
    )]
    EmptyPage {
        /// The table.
        table: &'static str,
    },

    /// A scan can't be part of a [`Combined`](crate::Combined), of a watch or of a deletion, or its parts are
    /// incompatible.
    #[error(
        "{} of table `{table}` can't be combined: {reason}",
        index.map_or("these scans".to_owned(), |index| format!("the scan of index `{index}`"))
    )]
    NotCombinable {
        /// The table.
        table: &'static str,
        /// The index; `None` for the fact table, and for several parts.
        index: Option<&'static str>,
        /// The reason.
        reason: &'static str,
    },

    // Transactions.
    /// The transaction and the repository belong to different stores.
    #[error(
        "the repository of table `{table}` was used with a transaction of another store; open a repository \
         on that store"
    )]
    WrongStore {
        /// The table of the repository.
        table: &'static str,
    },

    /// The transaction began before the table or the index had its current declaration. Or it began before
    /// this process first opened a table that another process has created since the store was opened.
    #[error(
        "the transaction began before the current declaration of table `{table}`; begin another transaction"
    )]
    SnapshotTooOld {
        /// The table.
        table: &'static str,
    },

    /// This thread has a write transaction; a second one would wait for it forever.
    #[error("this thread already has a write transaction of the store; commit or drop it first")]
    WriteInProgress,

    /// The transaction can only be dropped, because an earlier write in it has failed.
    #[error("{reason}; the transaction can only be dropped")]
    TransactionFailed {
        /// The failure.
        reason: String,
    },

    /// The transaction changes more than 131,071 pages, LMDB's limit. The transaction can only be dropped.
    #[error(
        "the transaction changes more pages than LMDB allows; split it into several transactions"
    )]
    TransactionTooLarge,

    /// The connection or the disk failed during a commit, so it is unknown whether the commit was applied.
    /// Read the rows before you write them again.
    #[error(
        "it is unknown whether the commit was applied, so read its rows before you write them again: \
         {source}"
    )]
    CommitUnknown {
        /// The failure.
        source: Box<Error>,
    },

    /// The queue of a table's eventual indexes is full, and stayed full for the time of
    /// [`WhenFull::Wait`](crate::WhenFull::Wait).
    #[error(
        "the queue for the eventual indexes of table `{table}` is full, with {messages} \
         messages; start a worker by `store.start_index_worker()`, `drain` it, or raise the \
         limit by `Store::options().index_queue(…)`"
    )]
    IndexQueueFull {
        /// The table.
        table: &'static str,
        /// The number of its messages.
        messages: u64,
    },

    /// A closure of a [`GroupWriter`](crate::GroupWriter), a method that computes keys, or the function of
    /// [`archive_expired`](crate::Table::archive_expired) has panicked.
    #[error("the closure has panicked: {message}; its writes are undone")]
    Panicked {
        /// The message.
        message: String,
    },

    /// The [`GroupWriter`](crate::GroupWriter) is closed.
    #[error(
        "the group writer is closed, and the closure was not run; `store.writer()` starts a new one"
    )]
    WriterClosed,

    /// The future of an asynchronous call with `abort_on_drop` was dropped while its closure ran. Only this closure sees the error.
    #[error("the future of this asynchronous call was dropped; its transaction is rolled back")]
    CallDropped,

    /// The store refuses asynchronous calls, after `Store::close_async`.
    #[error(
        "the store refuses asynchronous calls since `store.close_async()`, and the call has done nothing; open the store again after its \
         last handle is dropped"
    )]
    CallsClosed,

    // Room.
    /// The store has reached its map size. The transaction can only be dropped. No committed row is lost.
    #[error(
        "the store has reached its map size of {map_size} bytes; drop this transaction, and write in `store.transaction(…)`, which enlarges the map up to `Store::options().max_map_size(…)`, or open \
         it with a larger `map_size(…)`"
    )]
    MapFull {
        /// The map size in bytes.
        map_size: usize,
    },

    /// The map has to be replaced by a larger one, but transactions of this process have prevented it.
    /// Replacing the map needs a moment without them.
    #[error(
        "the store has to map more than {map_size} bytes, and transactions of this process block that: {}, the oldest {oldest:.1?} old; drop read transactions sooner, or open \
         the store with a larger `Store::options().map_size(…)`",
        if *readers == 1 { "1 reader".to_owned() } else { format!("{readers} readers") }
    )]
    GrowthBlocked {
        /// The map size in bytes.
        map_size: usize,
        /// The number of read transactions.
        readers: usize,
        /// The age of the oldest read transaction.
        oldest: Duration,
    },

    /// The disk is full, or a quota or a limit on file sizes is reached. No committed row is lost, and the
    /// store works again when there is space. After this error, the transaction can only be dropped.
    #[error(
        "{path}: no room on the disk ({source}); the store works again when there is room",
        path = path.display()
    )]
    DiskFull {
        /// The directory of the store, of the copy, or of temporary files.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// Another process has made the store larger than the map of this process, and there is no address space
    /// for a larger one.
    #[error(
        "another process has made the store larger than the map of this process ({map_size} \
         bytes), and this process has no address space for more; raise its limit"
    )]
    MapTooSmall {
        /// The map size in bytes.
        map_size: usize,
    },

    /// The store has more tables and indexes than `max_databases` allows.
    #[error(
        "the store has no room for another table or index (`max_databases` is {max_databases}); \
         open it with a larger `Store::options().max_databases(…)`"
    )]
    TooManyDatabases {
        /// The limit.
        max_databases: u32,
    },

    /// All reader slots are taken, by this process and others.
    #[error(
        "all {max_readers} reader slots are taken{}; drop read transactions sooner, or open the \
         store with a larger `Store::options().max_readers(…)`",
        oldest.map_or(String::new(), |oldest| {
            format!(" (the oldest in this process is {oldest:.1?} old)")
        })
    )]
    TooManyReaders {
        /// The limit.
        max_readers: u32,
        /// The age of the oldest read transaction in this process.
        oldest: Option<Duration>,
    },

    // Opening a store.
    /// There is no store at the path. [`create(false)`](crate::Options::create) and
    /// [`read_only(true)`](crate::Options::read_only) do not create a store.
    #[error(
        "there is no store at `{path}`; check the path, or open it with `Store::options().create(true)`, the \
         default, to create a store",
        path = path.display()
    )]
    StoreNotFound {
        /// The path.
        path: PathBuf,
    },

    /// The directory is already open in this process with other options, as a shard of a sharded store, or without
    /// this crate; or a process with the same process id, in another pid namespace, has it open.
    #[error("`{path}` is already open {reason}", path = path.display())]
    AlreadyOpen {
        /// The path.
        path: PathBuf,
        /// The reason and the remedy.
        reason: String,
    },

    /// The store or its directory can't be written to. It was opened with
    /// [`read_only`](crate::Options::read_only), or the operating system denies access.
    #[error("`{}` {}", path.display(), read_only(source.as_ref()))]
    ReadOnly {
        /// The store's directory.
        path: PathBuf,
        /// The operating system's error; `None` if the store was opened read-only.
        source: Option<io::Error>,
    },

    /// The store was opened read-only, its lock file can't be written to, and other processes may write to
    /// the store; see [`read_only`](crate::Options::read_only).
    #[error(
        "`{path}` can't be opened for reading: its `lock.mdb` can't be written to ({source}), \
         and a reader without a slot in it may see pages that a writer uses again; allow this \
         process to write to `lock.mdb`, copy `data.mdb` to another directory while no process \
         writes, or mount the whole file system read-only",
        path = path.display()
    )]
    NoReaderSlot {
        /// The store's directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// Another process has the store open, and may write to it. A store with a journal has one writing process; others
    /// can open it with [`read_only`](crate::Options::read_only). Several processes can write a store if all of them open it
    /// with [`Durability::Full`](crate::Durability::Full).
    #[error("{}", message::elsewhere(path, *process, *has_journal))]
    WriterElsewhere {
        /// The store's directory.
        path: PathBuf,
        /// The id of the process; `None` if it is not known.
        process: Option<u32>,
        /// Whether the store has a journal. Without a journal, the process may write with another durability, so that a
        /// journal can't be started.
        has_journal: bool,
    },

    /// The store was opened read-only, but has a journal with commits that its data file may lack, and this process can't
    /// apply them: it may not write the files, the file system is read-only, or the directory is that of a shard or a
    /// follower, whose journal is elsewhere. A process that wrote the store was killed, or the power failed.
    #[error(
        "`{path}` has to be recovered from its journal before it can be read, and this process can't do that; run \
         `index-table recover {path}` as a user who may write it, or open the store (of a shard: the sharded store) for \
         writing",
        path = path.display()
    )]
    RecoveryNeeded {
        /// The store's directory.
        path: PathBuf,
    },

    /// The lock file can't be used while other processes have the store open: it was removed, the process that was
    /// initializing it was killed, or its last transaction is not the last one of `data.mdb`, because one of the two
    /// was replaced. An open store returns this error too, from reads and writes. After a kill, processes that use
    /// this crate recover without intervention.
    #[error(
        "the lock file of `{path}` can't be used, because {reason}; close the store in all processes, and \
         open it again",
        path = path.display()
    )]
    LockFile {
        /// The store's directory.
        path: PathBuf,
        /// The problem.
        reason: &'static str,
    },

    /// The process has no address space for the map of a store.
    #[error(
        "`{path}` can't be mapped, because the process has no address space for {map_size} bytes \
         ({source}); open the store with a smaller `Store::options().map_size(…)`, or raise the limit of \
         the process (`ulimit -v`)",
        path = path.display()
    )]
    NoAddressSpace {
        /// The store's directory.
        path: PathBuf,
        /// The map size in bytes.
        map_size: usize,
        /// The operating system's error.
        source: io::Error,
    },

    /// The process has reached its limit of open files. A store needs five.
    #[error(
        "`{path}` can't be opened, because the process may have {limit} open files and a store \
         needs five ({source}); raise the limit (`ulimit -n`), or close other stores",
        path = path.display()
    )]
    TooManyOpenFiles {
        /// The store's directory.
        path: PathBuf,
        /// The limit.
        limit: u64,
        /// The operating system's error.
        source: io::Error,
    },

    // The state of an open store, and the system.
    /// The file is not an LMDB file, it is damaged, or other files of the directory show commits that it lacks. Opening the
    /// store, [`Store::check`](crate::Store::check) and LMDB detect this.
    #[error("`{path}` can't be used: {reason}{}", restored(reason), path = path.display())]
    DamagedFile {
        /// The store's directory.
        path: PathBuf,
        /// The problem.
        reason: String,
    },

    /// A file of an archive is damaged or missing.
    #[error(
        "the archive `{path}` can't be used: {reason}; restore an earlier commit or time, or use another copy of the \
         archive",
        path = path.display()
    )]
    DamagedArchive {
        /// The directory of the archive.
        path: PathBuf,
        /// The problem.
        reason: String,
    },

    /// An archive does not have the requested commit or time.
    #[error("the archive `{path}` does not have the requested state: {reason}", path = path.display())]
    NotInArchive {
        /// The directory of the archive.
        path: PathBuf,
        /// The commits that it has.
        reason: String,
    },

    /// The store has an archive, and was opened for writing without it, so that the archive would miss commits. Nothing has
    /// changed.
    #[error(
        "the store `{path}` has {archive}, which would miss the commits of this opening; name it with `archive(…)` or \
         `archive_with(…)`, or give it up with `without_archive()` (in the command line tool, `--archive DIR` or \
         `--without-archive`)",
        path = path.display(),
        archive = archive_of(archive.as_deref())
    )]
    ArchiveNotNamed {
        /// The directory of the store.
        path: PathBuf,
        /// The directory of the archive; `None` if a function gets its files, or if the record of the archive is damaged.
        archive: Option<PathBuf>,
    },

    /// The directory has no store, and the archive that the options name has the commits of one. A new store would continue the
    /// archive, whose last state would then be an empty store. No file was created.
    #[error(
        "there is no store at `{path}`, and the archive `{archive}` has the commits of one: check that the disk of the store is \
         mounted, or restore the store from the archive first; for a new store, name another directory for its archive",
        path = path.display(),
        archive = archive.display()
    )]
    ArchiveInUse {
        /// The directory of the store.
        path: PathBuf,
        /// The directory of the archive.
        archive: PathBuf,
    },

    /// The store can't be used until all handles to it are dropped and it is opened again. No committed row
    /// is lost.
    #[error(
        "`{path}`: {reason}; close the store, that is, drop all handles to it, and open it again",
        path = path.display()
    )]
    ReopenNeeded {
        /// The store's directory.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },

    /// A file of the store was removed, renamed or replaced while the store is open. No other process would find the
    /// commits of this process, so it no longer writes. Reads and copies still have all commits.
    #[error(
        "`{path}` was removed, renamed or replaced while this process has it open, so commits would be lost; put the \
         file back, or copy the rows with `Store::backup_to` first; then close the store, that is, drop all handles to \
         it, and open it again",
        path = path.display()
    )]
    FileReplaced {
        /// The path of the file.
        path: PathBuf,
    },

    /// The store was opened before the process was forked, so this process can't use it until it has dropped all inherited
    /// handles. It can't drop those of other threads of its parent. Every path is refused if another thread was opening or
    /// closing a store when the process was forked, and did not finish within a second.
    #[error(
        "`{path}` was opened before this process was forked, or at the same time; drop all inherited handles to the store, \
         and open it again; handles of other threads of the parent can't be dropped, so fork before they have any",
        path = path.display()
    )]
    Forked {
        /// The store's directory.
        path: PathBuf,
    },

    /// A system call failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The directory of the store, of the copy, or of temporary files.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// A thread of this crate could not be started.
    #[error("the thread `{name}` can't be started: {source}")]
    Thread {
        /// The name of the thread.
        name: &'static str,
        /// The operating system's error.
        source: io::Error,
    },

    /// The engine failed with an error that no other variant describes: LMDB, or a server.
    #[error("the engine, on `{path}`: {source}", path = path.display())]
    Engine {
        /// The store's directory, or the server.
        path: PathBuf,
        /// The error of LMDB or its bindings, or of the client of the server.
        source: Arc<dyn error::Error + Send + Sync>,
    },

    // Shards.
    /// The shard map has no shard for a key.
    #[error(
        "no shard has the key {key} of table `{table}`: assign it to a shard of map `{map}` with `move_keys` or \
         `move_range`, or attach the detached shard that has it"
    )]
    NoShard {
        /// The table.
        table: &'static str,
        /// The primary key, or the shard key.
        key: String,
        /// The shard map.
        map: String,
    },

    /// A transaction of one shard needs another shard, for a row, for a query, or because an entry of a
    /// global index changes. Or a closure of [`Store::transaction`](crate::Store::transaction) needs a shard
    /// that precedes a locked shard, and runs again with other locks.
    #[error(
        "{} of table `{table}` needs shard `{shard}`, but the transaction is limited to shard `{own}`; use `transaction` or \
         `read`, which cover all shards",
        key.as_ref().map_or("a part".to_owned(), |key| format!("the row with primary key {key}"))
    )]
    OtherShard {
        /// The table.
        table: &'static str,
        /// The primary key, if the error concerns one row.
        key: Option<String>,
        /// The required shard.
        shard: String,
        /// The shard of the transaction.
        own: String,
    },

    /// A shard is not available: it was left out, or it could not be opened.
    #[error("shard `{shard}` is not available: {reason}")]
    ShardUnavailable {
        /// The shard.
        shard: String,
        /// The reason.
        reason: String,
    },

    /// The row has a shard key, or a key in a global index, that is being moved to another shard
    /// [offline](crate::Move::offline), so it can't be written until the move has ended.
    #[error(
        "the row with primary key {key} of table `{table}` can't be written: its shard key, or a key in a global index, is being moved offline from \
         shard `{shard}` to shard `{to}`, and {rows} rows or entries have been copied; try again after the move, or cancel it \
         (`Store::moves`)"
    )]
    ShardReadOnly {
        /// The table.
        table: &'static str,
        /// The primary key, or the shard key.
        key: String,
        /// The shard that has the row.
        shard: String,
        /// The shard to which the row is being moved.
        to: String,
        /// The number of copied rows, or entries.
        rows: u64,
    },

    /// A bulk load has failed in some shards. Each shard is loaded in a transaction of its own, so the other shards have
    /// their rows.
    #[error(
        "table `{table}` is not loaded in the shards {}: {source}; the loaded shards are: {}",
        not_loaded.join(", "),
        loaded.join(", ")
    )]
    ShardsNotLoaded {
        /// The table.
        table: &'static str,
        /// The names of the shards whose rows are committed.
        loaded: Vec<String>,
        /// The names of the shards without rows of the load.
        not_loaded: Vec<String>,
        /// The error of the first shard that failed.
        source: Box<Error>,
    },

    /// The declaration of a shard map or of a shard is invalid, or a change of the shards or a move of keys is not
    /// possible.
    #[error("{what} is refused: {reason}")]
    ShardRefused {
        /// The shard, the shard map, or the operation.
        what: String,
        /// The reason.
        reason: String,
    },

    // Servers.
    /// The server can't be reached, or the connection was lost. A transaction that was not being committed has changed
    /// nothing.
    #[error("the server {server} can't be reached: {reason}")]
    Unreachable {
        /// The URL without the password, and the schema.
        server: String,
        /// The kind of the failure.
        problem: ServerProblem,
        /// The failure.
        reason: String,
    },

    /// The transaction conflicted with commits of other clients, or has waited too long for their locks, and nothing has changed.
    /// [`Store::transaction`](crate::Store::transaction) has run its closure again, for the time of the option
    /// `retry_for`. A transaction from [`Store::write`](crate::Store::write) has one attempt.
    #[error(
        "the transaction conflicted with other clients in each of {attempts} attempts; use \
         `store.transaction(…)`, make transactions shorter, or raise `Store::options().retry_for(…)`"
    )]
    RetriesExhausted {
        /// The number of attempts.
        attempts: u32,
    },

    // All engines.
    /// The engine of the store does not have this function: a store in memory has no file to copy, a store with one
    /// shard has no other shard, and a sharded store does not offer all functions of a plain store yet.
    #[error("this store does not offer {what}")]
    NotOffered {
        /// The function, and the reason if the function does not show it.
        what: &'static str,
    },

    /// A defect of this crate.
    #[error("a defect in index-table: {reason}; please report it")]
    Internal {
        /// The unexpected event.
        reason: String,
    },
}
