//! The guide, in the order in which a new user needs it. Its examples are tests.

// A chapter's links to others: the first definition of a link counts, so the module's definitions come first.

/// [modelling]: modelling
/// [attributes]: attributes
/// [several indexes]: attributes#several-indexes
/// [composite and multi-valued keys]: keys
/// [costs and rules of each form]: keys#costs-and-rules-of-each-form
/// [values of any length]: keys#values-of-any-length
/// [keys of your own]: own_keys
/// [numbers from the table]: own_keys#numbers-from-the-table
/// [choosing a strategy]: strategies#choosing-a-strategy
/// [measuring the use of an index]: what_not_to_index#measuring-the-use-of-an-index
/// [the generated repository]: repository
/// [which index a prefix query reads]: modelling#which-index-a-prefix-query-reads
/// [combining scans, and distinct values]: modelling#combining-scans-and-distinct-values
/// [views]: strategies#views-whole-rows-without-a-copy
/// [pagination]: pagination
/// [backward]: pagination#backward
/// [watching changes]: watching
/// [transactions]: transactions
/// [errors]: transactions#errors
/// [many rows at once]: bulk_loading
/// [group commit]: group_commit
/// [durability]: durability
/// [one journal for all shards]: sharding#durability
/// [space ahead]: space_ahead
/// [eventual indexes]: eventual
/// [several processes]: transactions#several-processes
/// [when indexes change]: changing_indexes
/// [building while the program runs]: changing_indexes#building-while-the-program-runs
/// [duplicates]: changing_indexes#duplicates
/// [row versions]: versions
/// [upgrading all rows]: versions#upgrading-all-rows
/// [upgrading]: releases#upgrading
/// [backups]: transactions#backups
/// [in an emergency]: damage#in-an-emergency
/// [when something is wrong]: damage
/// [long-lived readers]: transactions#long-lived-readers
/// [the size of the map]: transactions#the-size-of-the-map
/// [opening without creating, and read-only]: transactions#opening-without-creating-and-read-only
/// [dead letters]: eventual#dead-letters
/// [guarantees and limits]: guarantees
/// [what it is not for]: not_for
/// [shards]: sharding
///
/// The index of tasks: what you want to do, and the section about it.
#[doc = include_str!("guide/tasks.md")]
pub mod tasks {}

/// Which index for which query.
#[doc = include_str!("guide/modelling.md")]
pub mod modelling {}

/// [strategies and their costs]: strategies
/// [row versions]: versions
/// [composite and multi-valued keys]: keys
/// [eventual indexes]: eventual
/// [when something is wrong]: damage
/// [keys of your own]: own_keys
/// [what not to index]: what_not_to_index
///
/// All attributes of the derive.
#[doc = include_str!("guide/attributes.md")]
pub mod attributes {}

/// Keys of several fields, and of several values.
#[doc = include_str!("guide/keys.md")]
pub mod keys {}

/// Newtypes, enums, types of other crates, and numbers from the table.
#[doc = include_str!("guide/own_keys.md")]
pub mod own_keys {}

/// The fields that an entry carries, and their cost.
#[doc = include_str!("guide/strategies.md")]
pub mod strategies {}

/// [when indexes change]: changing_indexes
/// [keys of your own]: own_keys
/// [many rows at once]: bulk_loading
/// [strategies and their costs]: strategies
/// [watching changes]: watching
/// [eventual indexes]: eventual
/// [when something is wrong]: damage
/// [row versions]: versions
/// [modelling]: modelling
///
/// All methods of a generated repository, and scans.
#[doc = include_str!("guide/repository.md")]
pub mod repository {}

/// Long results, a page at a time.
#[doc = include_str!("guide/pagination.md")]
pub mod pagination {}

/// [row versions]: versions
/// [when indexes change]: changing_indexes
/// [durability]: durability
///
/// Commits, errors, backups, readers, and opening a table.
#[doc = include_str!("guide/transactions.md")]
pub mod transactions {}

/// When an index costs more than it saves.
#[doc = include_str!("guide/what_not_to_index.md")]
pub mod what_not_to_index {}

/// Filling a table from a file or another table.
#[doc = include_str!("guide/bulk_loading.md")]
pub mod bulk_loading {}

/// [group commit]: group_commit
/// [eventual indexes]: eventual
///
/// The committed changes, for caches and other copies: `watch`.
#[doc = include_str!("guide/watching.md")]
pub mod watching {}

/// One logical store over several environments: shard keys, shard maps, queries and transactions.
#[doc = include_str!("guide/sharding.md")]
pub mod sharding {}

/// [eventual indexes]: eventual
/// [durability]: durability
///
/// Many threads and tasks that share one commit.
#[doc = include_str!("guide/group_commit.md")]
pub mod group_commit {}

/// [group commit]: group_commit
///
/// What a crash of the machine may lose, and the journal: durable commits with one sync.
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

/// Indexes that are new, declared in another way, or removed, and how they are built.
#[doc = include_str!("guide/changing_indexes.md")]
pub mod changing_indexes {}

/// [when indexes change]: changing_indexes
///
/// A struct that changes, and the rows that were written before.
#[doc = include_str!("guide/versions.md")]
pub mod versions {}

/// [row versions]: versions
/// [eventual indexes]: eventual
/// [strategies and their costs]: strategies
/// [when indexes change]: changing_indexes
///
/// Damaged files, and indexes that differ from the rows: `check`, `verify` and `repair`.
#[doc = include_str!("guide/damage.md")]
pub mod damage {}

/// [when something is wrong]: damage
/// [strategies and their costs]: strategies
/// [when indexes change]: changing_indexes
/// [row versions]: versions
/// [what it is not for]: not_for
/// [durability]: durability
///
/// What the library guarantees, and its limits.
#[doc = include_str!("guide/guarantees.md")]
pub mod guarantees {}

/// [row versions]: versions
/// [releases]: releases
/// [group commit]: group_commit
/// [durability]: durability
/// [watching changes]: watching
/// [shards]: sharding
///
/// Encryption, several machines, network file systems, downgrades, other systems.
#[doc = include_str!("guide/not_for.md")]
pub mod not_for {}

/// [row versions]: versions
/// [when indexes change]: changing_indexes
///
/// What a version number promises, and how to upgrade.
#[doc = include_str!("guide/releases.md")]
pub mod releases {}
