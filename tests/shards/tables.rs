//! A table with its two kinds of shard key and with global indexes, and sharded stores for it.

use index_table::{IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// Tenants are below this number.
pub(crate) const TENANTS: u8 = 32;

macro_rules! order {
    ($module:ident, $($shard_by:tt)*) => {
        pub(crate) mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
            #[table(name = "orders", view, shard_map = "tenants", $($shard_by)*)]
            #[index(town, allow(redundant))]
            #[index(tenant, town, include = [size], allow(redundant))]
            #[index(size, town, include = [note])]
            #[index(desc(size), strategy = "full")]
            #[index(tenant, code, unique)]
            #[index(each(tags))]
            #[index(hash(note))]
            #[index(town, tenant, name = "placed")]
            pub(crate) struct Order {
                #[primary_key]
                pub(crate) tenant: u8,
                #[primary_key]
                pub(crate) number: u16,
                pub(crate) town: String,
                pub(crate) size: i8,
                pub(crate) code: u16,
                pub(crate) note: String,
                pub(crate) tags: Vec<String>,
            }
        }
    };
}

order!(by_value, shard_by = tenant);
order!(by_hash, shard_by = hash(tenant));

/// Returns an order. All orders have the same town, no note and no tags.
pub(crate) fn order(tenant: u8, number: u16) -> by_value::Order {
    let (town, note, tags) = ("Oslo".to_owned(), String::new(), Vec::new());
    by_value::Order { tenant, number, town, size: 0, code: number, note, tags }
}

/// The same table with global indexes.
pub(crate) mod global {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[table(name = "orders", view, shard_by = tenant, shard_map = "tenants")]
    #[index(town, scope = "global")]
    #[index(tenant, town, include = [size], scope = "global")]
    #[index(size, town, include = [note], scope = "global")]
    #[index(desc(size), strategy = "full", scope = "global")]
    #[index(tenant, code, unique)]
    #[index(each(tags), scope = "global")]
    #[index(hash(note), scope = "global")]
    #[index(town, tenant, name = "placed", scope = "global")]
    #[index(code, unique, scope = "global", name = "spot")]
    #[index(hash(note), size, code, unique, scope = "global", name = "noted")]
    pub(crate) struct Order {
        #[primary_key]
        pub(crate) tenant: u8,
        #[primary_key]
        pub(crate) number: u16,
        pub(crate) town: String,
        pub(crate) size: i8,
        pub(crate) code: u16,
        pub(crate) note: String,
        pub(crate) tags: Vec<String>,
    }
}

/// Returns the names of this number of shards.
pub(crate) fn names(shards: u8) -> Vec<String> {
    (0..shards).map(|shard| format!("s{shard}")).collect()
}

/// The three kinds of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ranges,
    List,
    Hashed,
}

/// Returns a shard map of all tenants.
pub(crate) fn map(kind: Kind, shards: u8) -> ShardMap {
    let names = names(shards);
    let name = |shard: u8| names[usize::from(shard)].as_str();
    match kind {
        Kind::Ranges => {
            let at =
                |shard: u8| u8::try_from(u16::from(shard) * u16::from(TENANTS) / u16::from(shards));
            let at = |shard| at(shard).expect("a tenant");
            let first = ShardMap::ranges();
            let map = (0..shards - 1)
                .fold(first, |map, shard| map.to(name(shard), at(shard)..at(shard + 1)));
            map.to(name(shards - 1), at(shards - 1)..).into()
        }
        Kind::List => {
            let own = |shard| (0..TENANTS).filter(move |tenant| tenant % shards == shard);
            let map = (0..shards - 1).fold(ShardMap::list().to("s0", [u8::MAX]), |map, shard| {
                map.to(name(shard), own(shard))
            });
            map.otherwise(name(shards - 1)).into()
        }
        Kind::Hashed => ShardMap::hashed(&names),
    }
}

/// Returns the same options with maps of ranges and of a list for some global indexes. The others have hash
/// maps.
pub(crate) fn with_maps_of_indexes(kind: Kind, shards: u8) -> Options {
    let (last, names) = (format!("s{}", shards - 1), names(shards));
    let second = names[usize::from(shards > 1)].as_str();
    options(kind, shards)
        .map("orders.town", ShardMap::ranges().to("s0", .."ab").to(&last, "ab"..))
        .map("orders.size_town", ShardMap::ranges().to(second, ..=0_i8).to("s0", 1_i8..))
        .map(
            "orders.tenant_town",
            ShardMap::ranges()
                .to(&last, ..(7_u8, "b".to_owned()))
                .to("s0", (7_u8, "b".to_owned())..),
        )
        .map("orders.tags", ShardMap::list().to(second, ["a", ""]).otherwise(last.as_str()))
        .map("orders.spot", ShardMap::ranges().to(second, ..103_u16).to("s0", 103_u16..))
}

/// Returns options with this number of shards and one shard map. Makes all tests of the process count in several
/// threads, even few entries.
pub(crate) fn options(kind: Kind, shards: u8) -> Options {
    index_table::__private::count_in_parallel_from(2);
    let all = names(shards).into_iter();
    let options = all.fold(Store::options(), |options, name| options.shard(&name, &name));
    options.map("tenants", map(kind, shards))
}

/// Stores, each with its directory unless it is in memory.
pub(crate) type Stores = Vec<(Option<TempDir>, Store)>;

/// Returns a store in memory with four shards of eight tenants each, and a store on disk with each of these options.
pub(crate) fn stores(on_disk: impl IntoIterator<Item = Options>) -> Result<Stores> {
    let mut stores = vec![(None, options(Kind::Ranges, 4).in_memory()?)];
    for options in on_disk {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options.open(dir.path())?;
        stores.push((Some(dir), store));
    }
    Ok(stores)
}
