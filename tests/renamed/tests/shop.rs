//! The repository from another crate.

use index_table_renamed_test::shop::{Order, OrderByOdd, OrderByTown, Orders};
use tables::Store;

#[test]
fn the_derive_finds_a_renamed_crate() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    let order = Order {
        row: 1,
        number: "A-1".into(),
        total: 9.5,
        town: "Redmond".into(),
        txn: 4,
        r#type: true,
        note: Some("fragile".into()),
        labels: vec!["new".into(), "new".into(), "old".into()],
        groups: [3, 1].into(),
    };
    store.transaction(|txn| orders.insert(txn, &order))?;

    let txn = store.read()?;
    assert_eq!(orders.get(&txn, 1, "A-1")?.as_ref(), Some(&order));
    assert_eq!(orders.get_by_number(&txn, "A-1")?.as_ref(), Some(&order));
    let entry = orders.find_by_town(&txn, "Redmond").entries().next().ok_or("no entry")??;
    let OrderByTown { town, row, number, total, note, groups } = entry;
    assert_eq!(
        (town, row, number, note, groups),
        ("Redmond", 1, "A-1", Some("fragile"), [3, 1].into())
    );
    assert_eq!(total.to_bits(), 9.5_f64.to_bits());
    let OrderByOdd { txn: four, r#type, .. } =
        orders.find_by_odd(&txn, 4, true).entries().next().ok_or("no entry")??;
    assert_eq!((four, r#type), (4, true));
    assert_eq!(orders.find_by_odd_txn(&txn, 4).count()?, 1);
    assert_eq!(orders.by_labels(&txn).count()?, 2);
    assert_eq!(index_table_renamed_test::count(&store)?, 1);
    Ok(())
}
