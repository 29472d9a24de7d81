//! References with `on_delete = "cascade"`, and references of a table to itself.

use std::collections::BTreeMap;

use index_table::{Error, IndexTable, Result, Store, WriteTxn};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{plain_engines, references::raw, stores::plain_stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tenants")]
struct Tenant {
    #[primary_key]
    id: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders")]
#[index(tenant)]
#[aggregate(tenant)]
struct Order {
    #[primary_key]
    id: u32,
    #[references(Tenant, on_delete = "cascade")]
    tenant: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "lines")]
struct Line {
    #[primary_key]
    #[references(Order, on_delete = "cascade")]
    order: u32,
    #[primary_key]
    number: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments")]
#[index(order)]
struct Payment {
    #[primary_key]
    id: u32,
    #[references(Order)]
    order: Option<u32>,
}

/// A tree, and a list of rows that replace each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "nodes")]
#[index(parent)]
#[index(twin)]
struct Node {
    #[primary_key]
    id: u32,
    #[references(Self, on_delete = "cascade")]
    parent: Option<u32>,
    #[references(Node)]
    twin: Option<u32>,
}

struct Repositories {
    tenants: TenantRepository,
    orders: OrderRepository,
    lines: LineRepository,
    payments: PaymentRepository,
}

impl Repositories {
    fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            tenants: TenantRepository::open(store)?,
            orders: OrderRepository::open(store)?,
            lines: LineRepository::open(store)?,
            payments: PaymentRepository::open(store)?,
        })
    }

    /// Opens the tables, with tenants 1 and 2 and their orders, each with two lines.
    fn filled(store: &Store) -> Result<Self> {
        let all = Self::open(store)?;
        store.transaction(|txn| {
            for tenant in [1, 2] {
                all.tenants.insert(txn, &Tenant { id: tenant })?;
                for order in [10 * tenant, 10 * tenant + 1] {
                    all.orders.insert(txn, &Order { id: order, tenant })?;
                    all.lines.insert(txn, &Line { order, number: 1 })?;
                    all.lines.insert(txn, &Line { order, number: 2 })?;
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok(all)
    }
}

#[test]
fn referring_rows_are_deleted_with_the_referenced_row() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { tenants, orders, lines, .. } = Repositories::filled(&store)?;
        assert!(store.transaction(|txn| tenants.delete(txn, 1))?);
        let txn = store.read()?;
        assert_eq!(tenants.all(&txn).keys().collect::<Result<Vec<_>>>()?, [2]);
        assert_eq!(orders.all(&txn).keys().collect::<Result<Vec<_>>>()?, [20, 21]);
        let left = lines.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        assert_eq!(left, [(20, 1), (20, 2), (21, 1), (21, 2)]);
        assert_eq!(orders.aggregate_by_tenant(&txn, 1)?.count, 0);
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn each_way_to_delete_a_row_cascades() -> Result<()> {
    type Delete = fn(&Repositories, &Store) -> Result<()>;
    let ways: [Delete; 4] = [
        |all, store| store.transaction(|txn| all.orders.delete_key(txn, 10).map(drop)),
        |all, store| store.transaction(|txn| all.orders.remove(txn, 10).map(drop)),
        |all, store| {
            store.transaction(|txn| {
                let deleted = all.orders.all(txn).limit(1).query().delete(txn)?;
                assert_eq!(deleted, 1);
                Ok(())
            })
        },
        |all, store| all.orders.delete(&mut store.autocommit()?, 10).map(drop),
    ];
    for delete in ways {
        for store in plain_engines()? {
            let all = Repositories::filled(&store)?;
            delete(&all, &store)?;
            let txn = store.read()?;
            assert_eq!(all.orders.get(&txn, 10)?, None);
            assert_eq!(all.lines.all(&txn).count()?, 6);
            assert!(store.verify()?.is_clean());
        }
    }
    Ok(())
}

#[test]
fn a_restricted_row_stops_the_whole_cascade() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { tenants, orders, lines, payments } = Repositories::filled(&store)?;
        let mut txn = store.write()?;
        payments.insert(&mut txn, &Payment { id: 1, order: Some(11) })?;
        let refused = tenants.delete(&mut txn, 1);
        assert!(matches!(
            &refused,
            Err(Error::Referenced { table: "orders", by: "payments", key, .. }) if key == "11"
        ));
        // Nothing has changed, and the transaction continues.
        assert_eq!((tenants.all(&txn).count()?, orders.all(&txn).count()?), (2, 4));
        assert_eq!(lines.all(&txn).count()?, 8);
        assert!(tenants.delete(&mut txn, 2)?);
        txn.commit()?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn the_primary_key_of_a_referenced_row_cannot_be_changed() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { tenants, .. } = Repositories::filled(&store)?;
        let refused = store.transaction(|txn| tenants.update(txn, 1, |row| row.id = 9));
        assert!(matches!(refused, Err(Error::Referenced { by: "orders", .. })));
    }
    Ok(())
}

#[test]
fn a_cascade_without_the_repository_of_the_referring_rows_names_it() -> Result<()> {
    for store in plain_engines()? {
        drop(Repositories::filled(&store)?);
        let tenants = TenantRepository::open(&store)?;
        let mut txn = store.write()?;
        let error = tenants.delete(&mut txn, 1).expect_err("its orders can't be read");
        assert!(matches!(
            error,
            Error::RepositoryNeeded {
                table: "tenants",
                by: "orders",
                reference: "tenant",
                repository: "OrderRepository",
                ..
            }
        ));
        assert!(
            error.to_string().contains("open `OrderRepository` on this store first"),
            "{error}"
        );
        assert!(tenants.get(&txn, 1)?.is_some());
        tenants.insert(&mut txn, &Tenant { id: 3 })?;
        assert!(tenants.delete(&mut txn, 3)?, "without rows, the repository is not needed");
        txn.commit()?;
        let orders = OrderRepository::open(&store)?;
        let refused = store.transaction(|txn| tenants.delete(txn, 1));
        assert!(matches!(refused, Err(Error::RepositoryNeeded { by: "lines", .. })));
        let _lines = LineRepository::open(&store)?;
        assert!(store.transaction(|txn| tenants.delete(txn, 1))?);
        assert_eq!(orders.all(&store.read()?).count()?, 2);
    }
    Ok(())
}

#[test]
fn a_reference_can_change_from_restrict_to_cascade() -> Result<()> {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", repository = Restricted)]
    #[index(tenant)]
    #[aggregate(tenant)]
    struct RestrictedOrder {
        #[primary_key]
        id: u32,
        #[references(Tenant)]
        tenant: u32,
    }
    for store in plain_engines()? {
        let tenants = TenantRepository::open(&store)?;
        let orders = Restricted::open(&store)?;
        store.transaction(|txn| {
            tenants.insert(txn, &Tenant { id: 1 })?;
            orders.insert(txn, &RestrictedOrder { id: 10, tenant: 1 })
        })?;
        let refused = store.transaction(|txn| tenants.delete(txn, 1));
        assert!(matches!(refused, Err(Error::Referenced { .. })));
        drop(orders);
        let orders = OrderRepository::open(&store)?;
        assert!(store.transaction(|txn| tenants.delete(txn, 1))?);
        assert_eq!(orders.all(&store.read()?).count()?, 0);
    }
    Ok(())
}

#[test]
fn a_cascade_ends_at_an_entry_without_its_row() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Repositories::filled(&Store::open(dir.path())?)?);
    raw(dir.path(), "orders", |orders, txn| {
        orders.delete(txn, &11_u32.to_be_bytes()).map(|deleted| assert!(deleted))
    })
    .expect("a change");

    let store = Store::open(dir.path())?;
    let all = Repositories::open(&store)?;
    let mut txn = store.write()?;
    let refused = all.tenants.delete(&mut txn, 1).expect_err("an entry without its row");
    let Error::Corrupt { table, index, key, .. } = &refused else { panic!("{refused}") };
    assert_eq!((*table, *index, key.as_str()), ("orders", Some("tenant"), "1"));
    assert!(refused.to_string().contains("repair"), "{refused}");
    assert!(all.orders.get(&txn, 10)?.is_some(), "nothing has changed");
    txn.commit()?;

    store.transaction(|txn| all.orders.repair(txn).run().map(drop))?;
    assert!(store.transaction(|txn| all.tenants.delete(txn, 1))?);
    assert!(all.orders.find_by_tenant(&store.read()?, 1).rows().next().is_none());
    Ok(())
}

fn node(id: u32, parent: Option<u32>) -> Node {
    Node { id, parent, twin: None }
}

#[test]
fn a_table_can_refer_to_itself() -> Result<()> {
    for store in plain_engines()? {
        let nodes = NodeRepository::open(&store)?;
        let mut txn = store.write()?;
        let missing = nodes.insert(&mut txn, &node(2, Some(1)));
        assert!(matches!(missing, Err(Error::MissingReference { to: "nodes", .. })));
        // A row can refer to itself.
        nodes.insert(&mut txn, &Node { id: 1, parent: Some(1), twin: Some(1) })?;
        for id in 2..8 {
            nodes.insert(&mut txn, &node(id, Some(id / 2)))?;
        }
        // A cycle.
        nodes.update(&mut txn, 1, |row| row.parent = Some(7))?;
        nodes.insert(&mut txn, &Node { id: 9, parent: None, twin: Some(6) })?;
        let refused = nodes.delete(&mut txn, 3);
        assert!(matches!(refused, Err(Error::Referenced { reference: "twin", .. })));
        assert_eq!(nodes.all(&txn).count()?, 8);
        nodes.update(&mut txn, 9, |row| row.twin = None)?;
        assert!(nodes.delete(&mut txn, 2)?);
        assert_eq!(nodes.all(&txn).keys().collect::<Result<Vec<_>>>()?, [1, 3, 6, 7, 9]);
        assert!(nodes.delete(&mut txn, 6)?);
        assert!(nodes.delete(&mut txn, 3)?);
        assert_eq!(nodes.all(&txn).keys().collect::<Result<Vec<_>>>()?, [9]);
        txn.commit()?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_row_that_refers_to_itself_can_change_its_primary_key() -> Result<()> {
    for store in plain_engines()? {
        let nodes = NodeRepository::open(&store)?;
        let mut txn = store.write()?;
        nodes.insert(&mut txn, &node(1, Some(1)))?;
        let stale = nodes.update(&mut txn, 1, |row| row.id = 2);
        assert!(matches!(stale, Err(Error::MissingReference { .. })));
        assert!(nodes.update(&mut txn, 1, |row| *row = node(2, Some(2)))?);
        assert_eq!(nodes.all(&txn).rows().collect::<Result<Vec<_>>>()?, [node(2, Some(2))]);
        txn.commit()?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn rows_of_a_load_can_refer_to_each_other() -> Result<()> {
    for store in plain_engines()? {
        let nodes = NodeRepository::open(&store)?;
        let rows = [node(1, Some(3)), node(2, Some(1)), node(3, None)];
        nodes.bulk_load(&store, &rows).run()?;
        let missing = nodes.bulk_load(&store, &[node(4, Some(5)), node(6, Some(4))]).run();
        assert!(matches!(missing, Err(Error::MissingReference { .. })));
        assert_eq!(nodes.all(&store.read()?).count()?, 3);
        assert!(store.transaction(|txn| nodes.delete(txn, 3))?);
        assert_eq!(nodes.all(&store.read()?).count()?, 0);
    }
    Ok(())
}

#[test]
fn a_long_chain_and_a_wide_row_are_deleted() -> Result<()> {
    const ROWS: u32 = 20_000;
    for store in plain_stores()? {
        let nodes = NodeRepository::open(&store)?;
        let chain = (0..ROWS).map(|id| node(id, id.checked_sub(1)));
        nodes.bulk_load(&store, chain).run()?;
        assert!(store.transaction(|txn| nodes.delete(txn, 1))?);
        assert_eq!(nodes.all(&store.read()?).count()?, 1);
        let wide = (1..ROWS).map(|id| node(id, Some(0)));
        nodes.bulk_load(&store, wide).run()?;
        assert!(store.transaction(|txn| nodes.delete(txn, 0))?);
        assert_eq!(nodes.all(&store.read()?).count()?, 0);
    }
    Ok(())
}

/// Deletes a node of the model with all nodes below it, in the order of the library. Returns false if another node then
/// has one of these nodes as its twin.
fn cascade(model: &mut BTreeMap<u32, Node>, id: u32) -> bool {
    if model.values().any(|node| node.twin == Some(id) && node.id != id) {
        return false;
    }
    model.remove(&id);
    while let Some(child) = model.values().find(|node| node.parent == Some(id)) {
        let child = child.id;
        if !cascade(model, child) {
            return false;
        }
    }
    true
}

fn change(
    nodes: &NodeRepository,
    txn: &mut WriteTxn<'_>,
    model: &mut BTreeMap<u32, Node>,
    (kind, node): (u8, Node),
) -> Result<()> {
    let exists = |id: Option<u32>| id.is_none_or(|id| id == node.id || model.contains_key(&id));
    let is_complete = exists(node.parent) && exists(node.twin);
    if kind > 0 {
        match nodes.put(txn, &node) {
            Err(Error::MissingReference { .. }) => assert!(!is_complete),
            outcome => {
                outcome?;
                assert!(is_complete);
                model.insert(node.id, node);
            }
        }
        return Ok(());
    }
    let mut left = model.clone();
    let exists = model.contains_key(&node.id);
    match nodes.delete(txn, node.id) {
        Err(Error::Referenced { .. }) => assert!(exists && !cascade(&mut left, node.id)),
        deleted => {
            assert_eq!(deleted?, exists);
            assert!(!exists || cascade(&mut left, node.id));
            *model = left;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn random_trees_agree_with_a_model(
        changes in prop::collection::vec(
            (0..4u8, 0..8u32, prop::option::of(0..8u32), prop::option::weighted(0.2, 0..8u32)),
            1..80,
        )
    ) {
        for store in plain_engines().expect("stores") {
            let nodes = NodeRepository::open(&store).expect("a repository");
            let mut model = BTreeMap::new();
            let mut txn = store.write().expect("a transaction");
            for (kind, id, parent, twin) in &changes {
                let node = Node { id: *id, parent: *parent, twin: *twin };
                change(&nodes, &mut txn, &mut model, (*kind, node)).expect("a change");
                let rows: Result<Vec<_>> = nodes.all(&txn).rows().collect();
                prop_assert_eq!(rows.expect("rows"), model.values().cloned().collect::<Vec<_>>());
            }
            txn.commit().expect("a commit");
            prop_assert!(store.verify().expect("a report").is_clean());
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "badges")]
#[index(tenant)]
#[index(code, unique)]
struct Badge {
    #[primary_key]
    id: u32,
    #[references(Tenant, on_delete = "cascade")]
    tenant: u32,
    code: u32,
}

/// A cascade removes the entries of the rows that it deletes, and no entry of a row that has taken a key of them.
#[test]
fn rows_exchange_unique_keys_around_a_cascade() -> Result<()> {
    for store in plain_engines()? {
        let (tenants, badges) = (TenantRepository::open(&store)?, BadgeRepository::open(&store)?);
        let badge = |id, tenant, code| Badge { id, tenant, code };
        store.transaction(|txn| {
            (1..3).try_for_each(|id| tenants.insert(txn, &Tenant { id }))?;
            badges.insert(txn, &badge(1, 1, 100))?;
            badges.insert(txn, &badge(2, 2, 200))
        })?;
        store.transaction(|txn| {
            badges.put(txn, &badge(1, 1, 0))?;
            badges.put(txn, &badge(2, 2, 100))?;
            badges.put(txn, &badge(1, 1, 200))?;
            assert!(tenants.delete(txn, 1)?);
            badges.insert(txn, &badge(3, 2, 200))
        })?;
        let txn = store.read()?;
        assert_eq!(badges.get_by_code(&txn, 100)?, Some(badge(2, 2, 100)));
        assert_eq!(badges.get_by_code(&txn, 200)?, Some(badge(3, 2, 200)));
        assert_eq!(badges.by_code(&txn).count()?, 2);
        assert!(badges.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
