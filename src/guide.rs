//! The guide. Its examples are tests. [`tasks`] lists the chapters in reading order, and the section for each task.

// A chapter's links to others: the first definition of a link counts, so the module's definitions come first.

/// [modelling]: modelling
/// [attributes]: attributes
/// [the generated repository]: repository
/// [transactions]: transactions
/// [pagination]: pagination
/// [composite and multi-valued keys]: keys
/// [keys of your own]: own_keys
/// [strategies and their costs]: strategies
/// [what not to index]: what_not_to_index
/// [when indexes change]: changing_indexes
/// [row versions]: versions
/// [many rows at once]: bulk_loading
/// [watching changes]: watching
/// [change streams]: changes
/// [revisions]: revisions
/// [expiry]: expiry
/// [references]: references
/// [aggregates]: aggregates
/// [group commit]: group_commit
/// [asynchronous code]: async_calls
/// [durability]: durability
/// [space ahead]: space_ahead
/// [eventual indexes]: eventual
/// [shards]: sharding
/// [from one machine to many]: many_machines
/// [when something is wrong]: damage
/// [the command line tool]: admin
/// [tables without types]: tables
/// [testing your program]: testing
/// [in a container]: containers
/// [guarantees and limits]: guarantees
/// [what it is not for]: not_for
/// [releases]: releases
/// [types of key fields]: attributes#types-of-key-fields
/// [several indexes]: attributes#several-indexes
/// [costs and rules of each form]: keys#costs-and-rules-of-each-form
/// [values of any length]: keys#values-of-any-length
/// [numbers from the table]: own_keys#numbers-from-the-table
/// [choosing a strategy]: strategies#choosing-a-strategy
/// [sets and maps]: strategies#sets-and-maps
/// [measuring the use of an index]: what_not_to_index#measuring-the-use-of-an-index
/// [which index a prefix query reads]: modelling#which-index-a-prefix-query-reads
/// [combining scans, and distinct values]: modelling#combining-scans-and-distinct-values
/// [scans]: repository#scans
/// [views]: strategies#views-whole-rows-without-a-copy
/// [the previous page]: pagination#the-previous-page
/// [backward]: pagination#backward
/// [a copy without gaps]: watching#a-copy-without-gaps
/// [errors]: transactions#errors
/// [applying the messages]: eventual#applying-the-messages
/// [several processes]: transactions#several-processes
/// [the shard key]: sharding#the-shard-key
/// [opening, and changed declarations]: transactions#opening-and-changed-declarations
/// [building while the program runs]: changing_indexes#building-while-the-program-runs
/// [duplicates]: changing_indexes#duplicates
/// [which indexes are rebuilt]: versions#which-indexes-are-rebuilt
/// [upgrading all rows]: versions#upgrading-all-rows
/// [growing a store]: sharding#growing-a-store
/// [upgrading]: releases#upgrading
/// [what a version number promises]: releases#what-a-version-number-promises
/// [backups]: transactions#backups
/// [in an emergency]: damage#in-an-emergency
/// [without a backup]: damage#without-a-backup
/// [wrong index entries]: damage#wrong-index-entries
/// [a large table]: damage#a-large-table
/// [long-lived readers]: transactions#long-lived-readers
/// [the size of the map]: transactions#the-size-of-the-map
/// [opening without creating, and read-only]: transactions#opening-without-creating-and-read-only
/// [dead letters]: eventual#dead-letters
/// [lost shards]: sharding#backups-and-lost-shards
/// [systems other than linux]: not_for#systems-other-than-linux
/// [numbers within a shard key]: sharding#numbers
/// [global indexes]: sharding#global-indexes
/// [reference tables]: sharding#reference-tables
/// [until the deletion]: expiry#until-the-deletion
/// [archiving]: expiry#archiving
/// [transactions across shards]: sharding#transactions
/// [another shard key]: sharding#another-shard-key
/// [moving rows]: sharding#moving-rows
/// [a lost shard map manager]: sharding#a-lost-shard-map-manager
/// [other work in shards]: sharding#other-work-in-several-shards
/// [archives]: durability#archives
/// [followers]: durability#followers
/// [with your types]: admin#with-your-types
/// [health]: admin#health
/// [metrics]: admin#metrics
/// [parts]: references#parts-vertical-partitioning
///
/// The chapters in reading order, and the section for each task.
#[doc = include_str!("guide/tasks.md")]
pub mod tasks {}

/// Which index for which query.
#[doc = include_str!("guide/modelling.md")]
pub mod modelling {}

/// [shards]: sharding
/// [reference tables]: sharding#reference-tables
/// [values of any length]: keys#values-of-any-length
/// [strategies and their costs]: strategies
/// [row versions]: versions
/// [composite and multi-valued keys]: keys
/// [eventual indexes]: eventual
/// [when something is wrong]: damage
/// [keys of your own]: own_keys
/// [what not to index]: what_not_to_index
/// [revisions]: revisions
/// [expiry]: expiry
/// [aggregates]: aggregates
/// [references]: references
/// [change streams]: changes
/// [global indexes]: sharding#global-indexes
///
/// All attributes of the derive.
#[doc = include_str!("guide/attributes.md")]
pub mod attributes {}

/// [shards]: sharding
/// [what not to index]: what_not_to_index
/// [composite and multi-valued keys]: keys
/// [when indexes change]: changing_indexes
/// [keys of your own]: own_keys
/// [many rows at once]: bulk_loading
/// [strategies and their costs]: strategies
/// [watching changes]: watching
/// [change streams]: changes
/// [eventual indexes]: eventual
/// [when something is wrong]: damage
/// [row versions]: versions
/// [modelling]: modelling
/// [revisions]: revisions
/// [expiry]: expiry
/// [aggregates]: aggregates
/// [asynchronous code]: async_calls
/// [pagination]: pagination
///
/// All methods of a generated repository, and scans.
#[doc = include_str!("guide/repository.md")]
pub mod repository {}

/// [when something is wrong]: damage
/// [row versions]: versions
/// [when indexes change]: changing_indexes
/// [durability]: durability
///
/// Commits, errors, backups, readers, and opening a table.
#[doc = include_str!("guide/transactions.md")]
pub mod transactions {}

/// [modelling]: modelling
///
/// Long results, a page at a time.
#[doc = include_str!("guide/pagination.md")]
pub mod pagination {}

/// [attributes]: attributes
///
/// Keys of several fields, and several keys for a row.
#[doc = include_str!("guide/keys.md")]
pub mod keys {}

/// [attributes]: attributes
/// [many machines]: many_machines
///
/// Newtypes, enums, types of other crates, and numbers from the table.
#[doc = include_str!("guide/own_keys.md")]
pub mod own_keys {}

/// The fields that an entry carries, and their cost.
#[doc = include_str!("guide/strategies.md")]
pub mod strategies {}

/// [combining scans, and distinct values]: modelling#combining-scans-and-distinct-values
/// [command line tool]: admin
///
/// When an index costs more than it saves.
#[doc = include_str!("guide/what_not_to_index.md")]
pub mod what_not_to_index {}

/// [aggregates]: aggregates
/// [opening, and changed declarations]: transactions#opening-and-changed-declarations
///
/// Indexes that are new, declared in another way, or removed, and how they are built.
#[doc = include_str!("guide/changing_indexes.md")]
pub mod changing_indexes {}

/// [when indexes change]: changing_indexes
///
/// A struct that changes, and the rows that were written before.
#[doc = include_str!("guide/versions.md")]
pub mod versions {}

/// [changes]: changes
///
/// Filling a table from a file or another table.
#[doc = include_str!("guide/bulk_loading.md")]
pub mod bulk_loading {}

/// [change streams]: changes
/// [group commit]: group_commit
/// [eventual indexes]: eventual
///
/// The committed changes, for caches and other copies: `watch`.
#[doc = include_str!("guide/watching.md")]
pub mod watching {}

/// [row versions]: versions
///
/// Rows that users edit: a write is refused if the row has changed since it was read.
#[doc = include_str!("guide/revisions.md")]
pub mod revisions {}

/// Rows that are deleted after their time.
#[doc = include_str!("guide/expiry.md")]
pub mod expiry {}

/// [watching]: watching
/// [expiry]: expiry
/// [bulk loading]: bulk_loading
/// [moving]: many_machines#moving-a-store
/// [row versions]: versions
/// [damage]: damage
/// [shards]: sharding
///
/// Durable streams of the changes of a table, for outboxes and copies.
#[doc = include_str!("guide/changes.md")]
pub mod changes {}

/// [row versions]: versions
/// [when something is wrong]: damage
/// [changing indexes]: changing_indexes
/// [eventual indexes]: eventual
///
/// Counts and sums of groups of rows, which change with the rows.
#[doc = include_str!("guide/aggregates.md")]
pub mod aggregates {}

/// [expiry]: expiry
///
/// Rows that refer to rows of other tables.
#[doc = include_str!("guide/references.md")]
pub mod references {}

/// [eventual indexes]: eventual
/// [durability]: durability
///
/// Many threads and tasks that share one commit.
#[doc = include_str!("guide/group_commit.md")]
pub mod group_commit {}

/// [group commit]: group_commit
///
/// Transactions for tasks of any executor (Cargo feature `async`).
#[doc = include_str!("guide/async_calls.md")]
pub mod async_calls {}

/// [one journal for all shards]: sharding#durability
/// [sharded store]: sharding#other-work-in-several-shards
/// [group commit]: group_commit
/// [systems]: not_for#systems-other-than-linux
///
/// The commits that a crash of the machine can lose, and the journal: durable commits with one sync.
#[doc = include_str!("guide/durability.md")]
pub mod durability {}

/// [group commit]: group_commit
/// [durability]: durability
///
/// A file that doesn't have to grow at each commit.
#[doc = include_str!("guide/space_ahead.md")]
pub mod space_ahead {}

/// Indexes that a worker updates after the commit.
#[doc = include_str!("guide/eventual.md")]
pub mod eventual {}

/// [backups]: transactions#backups
/// [group commit]: group_commit
/// [from one machine to many]: many_machines
/// [change streams]: changes
/// [archives]: durability#archives
/// [followers]: durability#followers
/// [eventual indexes]: eventual
/// [references]: references
/// [with your types]: admin#with-your-types
///
/// A file that gets large: more data files, added and filled while the store is used.
#[doc = include_str!("guide/sharding.md")]
pub mod sharding {}

/// [asynchronous code]: async_calls
/// [group commit]: group_commit
/// [change streams]: changes
///
/// A store on a PostgreSQL server.
#[doc = include_str!("guide/many_machines.md")]
pub mod many_machines {}

/// [a lost shard map manager]: sharding#a-lost-shard-map-manager
/// [durability]: durability
/// [containers]: containers#process-ids
/// [shards]: sharding
/// [row versions]: versions
/// [eventual indexes]: eventual
/// [strategies and their costs]: strategies
/// [when indexes change]: changing_indexes
/// [aggregates]: aggregates
/// [references]: references
/// [archives]: durability#archives
/// [the command line tool]: admin
/// [followers]: durability#followers
/// [from one machine to many]: many_machines
/// [with your types]: admin#with-your-types
/// [health]: admin#health
/// [metrics]: admin#metrics
///
/// Damaged files, and indexes that differ from the rows: `check`, `verify` and `repair`.
#[doc = include_str!("guide/damage.md")]
pub mod damage {}

/// [PostgreSQL]: many_machines
/// [archive]: durability#archives
/// [shards]: sharding
/// [many rows at once]: bulk_loading
/// [when something is wrong]: damage
/// [analysis]: what_not_to_index#the-distribution-of-the-keys
/// [follower]: durability#followers
/// [durability]: durability
/// [change streams]: changes
/// [eventual indexes]: eventual
/// [a lost shard map manager]: sharding#a-lost-shard-map-manager
///
/// `index-table`, a command that works on any store without its structs.
#[doc = include_str!("guide/admin.md")]
pub mod admin {}

/// [exact form]: admin#with-your-types
/// [command line tool]: admin#rows
///
/// Rows as JSON, without the structs.
#[doc = include_str!("guide/tables.md")]
pub mod tables {}

/// [processes in containers]: containers#process-ids
/// [shards]: sharding
/// [opening without creating, and read-only]: transactions#opening-without-creating-and-read-only
/// [long-lived readers]: transactions#long-lived-readers
/// [several processes]: transactions#several-processes
/// [backups]: transactions#backups
/// [the size of the map]: transactions#the-size-of-the-map
/// [errors]: transactions#errors
/// [when something is wrong]: damage
/// [strategies and their costs]: strategies
/// [when indexes change]: changing_indexes
/// [row versions]: versions
/// [what it is not for]: not_for
/// [durability]: durability
///
/// The guarantees of the library, and its limits.
#[doc = include_str!("guide/guarantees.md")]
pub mod guarantees {}

/// [when something is wrong]: damage
/// [the command line tool]: admin
///
/// Stores, times and failures for tests.
#[doc = include_str!("guide/testing.md")]
pub mod testing {}

/// [network file systems]: not_for#network-file-systems
/// [the command line tool]: admin
///
/// A program in a container: its volume, process id, memory and end.
#[doc = include_str!("guide/containers.md")]
pub mod containers {}

/// [row versions]: versions
/// [releases]: releases
/// [group commit]: group_commit
/// [durability]: durability
/// [watching changes]: watching
/// [change streams]: changes
/// [shards]: sharding
/// [followers]: durability#followers
/// [from one machine to many]: many_machines
///
/// Encryption, several machines, network file systems, downgrades, other systems.
#[doc = include_str!("guide/not_for.md")]
pub mod not_for {}

/// [the command line tool]: admin
/// [row versions]: versions
/// [when indexes change]: changing_indexes
///
/// The promises of a version number, and how to upgrade.
#[doc = include_str!("guide/releases.md")]
pub mod releases {}
