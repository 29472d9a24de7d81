//! The guide: what to declare, what it costs, and how the answers are used. Its examples are tests.

// A chapter's links to others: the first definition of a link counts, so it is the one here.

/// Which index for which question.
#[doc = include_str!("guide/modelling.md")]
pub mod modelling {}

/// What an entry carries, and what that costs.
#[doc = include_str!("guide/strategies.md")]
pub mod strategies {}

/// Keys of several fields, and of several values.
#[doc = include_str!("guide/keys.md")]
pub mod keys {}

/// Long answers, a page at a time.
#[doc = include_str!("guide/pagination.md")]
pub mod pagination {}

/// Newtypes, enums, types of other crates, and numbers from the table.
#[doc = include_str!("guide/own_keys.md")]
pub mod own_keys {}

/// [row versions]: versions
/// [when indexes change]: changing_indexes
///
/// What a commit and an error leave behind, and what opening a table does.
#[doc = include_str!("guide/transactions.md")]
pub mod transactions {}

/// Indexes that are new, declared in another way, or gone, and how they are built.
#[doc = include_str!("guide/changing_indexes.md")]
pub mod changing_indexes {}

/// [eventual indexes]: eventual
///
/// Many threads and tasks that write, and one commit for them.
#[doc = include_str!("guide/group_commit.md")]
pub mod group_commit {}

/// [group commit]: group_commit
///
/// A file that doesn't have to grow at each commit.
#[doc = include_str!("guide/space_ahead.md")]
pub mod space_ahead {}

/// [when indexes change]: changing_indexes
///
/// A struct that changes, and the rows that it has written.
#[doc = include_str!("guide/versions.md")]
pub mod versions {}

/// [group commit]: group_commit
/// [eventual indexes]: eventual
///
/// What was committed, for caches and other copies: `watch`.
#[doc = include_str!("guide/watching.md")]
pub mod watching {}

/// Filling a table from a file or another table.
#[doc = include_str!("guide/bulk_loading.md")]
pub mod bulk_loading {}

/// Indexes that follow the rows in their own time.
#[doc = include_str!("guide/eventual.md")]
pub mod eventual {}

/// [row versions]: versions
/// [eventual indexes]: eventual
/// [strategies and their costs]: strategies
///
/// Indexes that are not what the rows say: `verify` and `repair`.
#[doc = include_str!("guide/damage.md")]
pub mod damage {}

/// Where an index costs more than it saves.
#[doc = include_str!("guide/what_not_to_index.md")]
pub mod what_not_to_index {}
