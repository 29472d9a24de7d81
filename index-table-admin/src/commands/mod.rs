//! The commands.

pub(crate) mod analyze;
pub(crate) mod archive;
pub(crate) mod copies;
pub(crate) mod diff;
pub(crate) mod dump;
pub(crate) mod keys;
pub(crate) mod moving;
pub(crate) mod overview;
pub(crate) mod readers;
pub(crate) mod recovery;
pub(crate) mod remote;
pub(crate) mod replaced;
mod restored;
pub(crate) mod rows;
pub(crate) mod salvage;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod shards;
pub(crate) mod status;
pub(crate) mod streams;
pub(crate) mod table_rows;
pub(crate) mod upkeep;
pub(crate) mod usage;
pub(crate) mod whatif;
pub(crate) mod writes;
