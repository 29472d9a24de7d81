//! The order of all locks.

/// Declares the ranks, from the first to the last in the order, with a type for each.
macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A place in the order in which a thread takes locks.
        #[cfg(debug_assertions)]
        #[allow(dead_code, reason = "some locks are in engines that are not compiled")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Rank {
            $($(#[$doc])* $name,)*
        }

        $(
            $(#[$doc])*
            #[allow(dead_code, reason = "some locks are in engines that are not compiled")]
            #[derive(Debug)]
            pub(crate) enum $name {}

            impl Ranked for $name {
                #[cfg(debug_assertions)]
                const RANK: Rank = Rank::$name;
            }
        )*
    };
}

/// A type that stands for a rank.
pub(crate) trait Ranked {
    #[cfg(debug_assertions)]
    const RANK: Rank;
}

ranks! {
    /// The commits that a follower applies, and its promotion.
    Follower,
    /// The start of a group writer for each shard.
    GroupStart,
    /// The group writers of the shards.
    GroupWriters,
    /// A running move.
    Moving,
    /// A step of a move, which waits until no thread holds the moves of the store. A thread that holds them has this rank
    /// too, because it may open a table.
    MoveStep,
    /// The opening of tables, and changes of the list of shards. The number is 1 in the store of a single shard.
    Opening,
    /// A thread that holds the moves of a store, which waits until no step is running. A running step has this rank too,
    /// because a thread that opens a table may wait for its end.
    MoveHold,
    /// The sharded stores of this process, while one of them is opened or rebuilt.
    ShardedStores,
    /// The stores of this process, while one of them is opened.
    Stores,
    /// The lock of the file `data.mdb`, from the first read of the file until the store is open. Another process may have
    /// it. All other locks of files and directories are only tried, or are waited for with this lock.
    DataFile,
    /// The commits that a follower applies in several shards. It is the same lock as `Visibility`.
    Following,
    /// The turn to write a data file, together with LMDB's lock of its writer. The shards of a store come in the order of
    /// their numbers, and the shard map manager comes after them.
    Turn,
    /// The turn to make a checkpoint of all shards. A shard is opened or closed by a thread with this turn.
    Checkpoint,
    /// The records that wait for an archive.
    Outbox,
    /// Commits of one shard, shared; a snapshot that they would delay for too long, exclusively.
    CommitGate,
    /// A shard in the journal of all shards, from the append of a record to LMDB's commit, or while it is pinned. Its
    /// number is the number of the shard.
    JournalShard,
    /// Commits of several shards that become visible, shared; a snapshot of all shards, exclusively.
    Visibility,
    /// The state of a journal: its thread, and whether it is closed.
    JournalState,
    /// The log of a journal.
    JournalLog,
    /// The change of a gate. Transactions wait while LMDB's map is replaced.
    Gate,
    /// The locations of tables in a sharded store.
    Locations,
    /// The closures that wait for a group writer.
    GroupQueue,
    /// The length of a queue on a server, while it is counted.
    ServerQueue,
    /// The rows of a client of a server, while they are written.
    ServerClients,
    /// The next block of numbers from a server.
    ServerNumbers,
    /// The start of a transaction on a server, and each of its round trips.
    ServerStart,
    /// The names of the statements of a connection.
    ServerStatements,
    /// The connections that are not in use.
    ServerPool,
    /// A connection that sends or receives.
    ServerDriver,
    /// The job that builds announced indexes, or that renews the rows of a client, while it is started.
    Rollout,
    /// The jobs of the background threads. A thread holds it for a moment, or to start a thread.
    Background,
    /// A value that is used for a moment. No other lock is taken meanwhile, except for `Texts`.
    Leaf,
    /// The texts that are kept as long as the process lives.
    Texts,
}
