use index_table::{IndexTable, ReadTxn, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
enum Kind {
    #[default]
    A,
    B,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Region {
    #[primary_key]
    id: u64,
    name: String,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = id, expires = until, changes, view)]
#[index(kind, unique, scope = "global")]
#[index(town, scope = "global")]
#[index(region, town, include = [year])]
#[index(each(tags))]
#[index(each(kinds), name = "of_kinds")]
#[index(computed(lower: String))]
#[index(town, filter = is_old, name = "old")]
#[index(town, strategy = "full", name = "whole")]
#[index(town, year, name = "for_max")]
#[aggregate(town, sum = [year], max = [year])]
#[aggregate(kind, sum = [year])]
#[aggregate(sum = [year])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    kind: Kind,
    year: u16,
    until: Option<std::time::SystemTime>,
    #[references(Region)]
    region: u64,
    tags: Vec<String>,
    kinds: std::collections::HashSet<String>,
    #[revision]
    revision: u64,
}
impl Customer {
    fn lower(&self) -> String {
        self.town.to_lowercase()
    }
    fn is_old(&self) -> bool {
        true
    }
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    let txn = store.read()?;
    for c in customers.find_by_town(&txn, "a").rows() {
        println!("{}", c?.year);
    }
    for c in customers.find_by_kind(&txn, Kind::A).entries() {
        println!("{:?}", c?.kind);
    }
    let a = customers.aggregate_by_kind(&txn, Kind::A)?;
    let c = customers.get_by_kind(&txn, Kind::A)?;
    let v = customers.get_view(&txn, 1)?;
    Ok(())
}
fn more(customers: &CustomerRepository, txn: &ReadTxn<'_>) -> Result<()> {
    for c in customers.find_by_town(txn, "a").rows() {
        println!("{}", c?.year);
    }
    for c in customers.find_by_kind(txn, Kind::A).entries() {
        println!("{:?}", c?.kind);
    }
    let e: Vec<CustomerByTown<'_>> =
        customers.find_by_town(txn, "a").entries().collect::<Result<_>>()?;
    println!("{:?} {}", e, e[0].town);
    Ok(())
}
fn show(e: &CustomerByKind) {
    println!("{:?} {}", e.kind, e.id);
}
