//! The methods of a store about all tables that are in use.

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[indexes((town), (email, unique, strategy = "full"), (each(tags)))]
struct Person {
    #[primary_key]
    id: u32,
    town: String,
    email: String,
    tags: Vec<u8>,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "orders", repository = OrdersV1)]
struct OrderV1 {
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "orders", version = 2, previous = OrderV1)]
#[index(total)]
struct Order {
    #[primary_key]
    id: u64,
    total: u32,
}

impl From<OrderV1> for Order {
    fn from(old: OrderV1) -> Self {
        Self { id: old.id, total: 0 }
    }
}

fn person(id: u32) -> Person {
    Person { id, town: "Oslo".into(), email: format!("{id}@example.com"), tags: vec![1, 2] }
}

#[test]
fn verify_usage_sizes_and_upgrade_cover_all_tables_in_use() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for (on_disk, store) in [(true, Store::open(dir.path())?), (false, Store::in_memory())] {
        let old = OrdersV1::open(&store)?;
        store.transaction(|txn| (0..3).try_for_each(|id| old.insert(txn, &OrderV1 { id })))?;
        drop(old);

        let orders = OrderRepository::open(&store)?;
        let people = PersonRepository::open(&store)?;
        store.transaction(|txn| (0..500).try_for_each(|id| people.insert(txn, &person(id))))?;

        let upgraded = store.upgrade()?;
        assert_eq!((upgraded.rows, upgraded.upgraded), (503, 3));
        assert_eq!(store.upgrade()?.upgraded, 0);

        let report = store.verify()?;
        assert!(report.is_clean(), "{report}");
        let tables: Vec<_> =
            report.tables.iter().map(|it| (it.table, it.rows, it.entries)).collect();
        assert_eq!(tables, [("orders", 3, 3), ("person", 500, 2000)]);

        let usage = store.usage();
        let inserts: Vec<_> = usage.iter().map(|it| (it.table, it.inserts)).collect();
        assert_eq!(inserts, [("orders", 0), ("person", 500)]);

        let sizes = store.sizes()?;
        let [of_orders, of_people] = &sizes[..] else { panic!("{sizes:?}") };
        assert_eq!((of_orders.table, of_orders.rows), ("orders", 3));
        assert_eq!((of_people.table, of_people.rows), ("person", 500));
        let entries: Vec<_> = of_people.indexes.iter().map(|it| (it.name, it.entries)).collect();
        assert_eq!(entries, [("town", 500), ("email", 500), ("tags", 1000)]);
        let bytes: Vec<u64> = of_people.indexes.iter().map(|it| it.bytes).collect();
        if on_disk {
            // The full index has every byte of the rows.
            assert!(of_people.bytes > 500 * 20 && bytes[1] >= of_people.bytes, "{of_people}");
        } else {
            assert_eq!((of_people.bytes, bytes), (0, vec![0; 3]));
        }

        // A table is not in use without a repository.
        drop(people);
        assert_eq!(store.verify()?.tables.len(), 1);
        drop(orders);
        assert!(store.sizes()?.is_empty());
    }
    Ok(())
}
