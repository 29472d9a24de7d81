//! Types inside of rows that a later release declares otherwise, without another version of the table.

use std::{collections::BTreeMap, path::Path};

use index_table::{Durability, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

/// The types as the first release declares them.
mod first {
    use super::{BTreeMap, Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", view)]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town)]
    #[index(town, name = "whole", strategy = "full", allow(redundant))]
    #[index(computed(total: u32))]
    pub(super) struct Order {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) lines: Vec<Line>,
        pub(super) notes: BTreeMap<String, Note>,
        pub(super) state: State,
        pub(super) link: Option<Box<Link>>,
    }

    impl Order {
        fn total(&self) -> u32 {
            self.lines.iter().map(|line| line.price.amount * u32::from(line.count)).sum()
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Line {
        pub(super) name: String,
        pub(super) count: u8,
        pub(super) price: Price,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Price {
        pub(super) amount: u32,
        pub(super) currency: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Note {
        pub(super) by: String,
        pub(super) text: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) enum State {
        Open,
        Paid {
            method: String,
            amount: u32,
        },
        Sent(Parcel),
        /// No row has it.
        Lost,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Parcel {
        pub(super) code: String,
        pub(super) weight: u16,
    }

    /// A type with itself inside.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Link {
        pub(super) order: u32,
        pub(super) next: Option<Box<Self>>,
    }
}

/// The row is as before, and the types inside of it have other fields and variants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", view)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town)]
#[index(town, name = "whole", strategy = "full", allow(redundant))]
#[index(computed(total: u32))]
struct Order {
    #[primary_key]
    id: u32,
    town: String,
    lines: Vec<Line>,
    notes: BTreeMap<String, Note>,
    state: State,
    link: Option<Box<Link>>,
}

impl Order {
    fn total(&self) -> u32 {
        self.lines.iter().map(|line| line.price.amount * u32::from(line.count)).sum()
    }
}

/// In another order, with a new and a renamed field, and around another struct that has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    price: Price,
    #[serde(default = "full_tax")]
    tax: u8,
    count: u8,
    #[serde(alias = "name")]
    title: String,
}

fn full_tax() -> u8 {
    19
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Price {
    currency: String,
    discount: Option<u32>,
    amount: u32,
}

/// Without the field `by`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note {
    text: String,
}

/// In another order, with a new and a renamed variant, and without `Lost`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum State {
    Draft(u8),
    Sent(Parcel),
    #[serde(alias = "Paid")]
    Settled {
        amount: u32,
        #[serde(default)]
        fee: u32,
        method: String,
    },
    Open,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Parcel {
    weight: u16,
    #[serde(alias = "code")]
    number: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Link {
    #[serde(default)]
    reason: String,
    next: Option<Box<Self>>,
    order: u32,
}

const ROWS: u32 = 24;

fn earlier(id: u32) -> first::Order {
    let price = |line: u32| first::Price { amount: id + line, currency: "EUR".into() };
    let line = |line| first::Line {
        name: format!("line {line}"),
        count: line as u8 + 1,
        price: price(line),
    };
    let note = |at| (format!("note {at}"), first::Note { by: "Ada".into(), text: "n".repeat(at) });
    let to = |order, next| Some(Box::new(first::Link { order, next }));
    first::Order {
        id,
        town: ["Rome", "Oslo"][id as usize % 2].into(),
        lines: (0..id % 3).map(line).collect(),
        notes: (0..id as usize % 4).map(note).collect(),
        state: match id % 3 {
            0 => first::State::Open,
            1 => first::State::Paid { method: "cash".into(), amount: id },
            _ => first::State::Sent(first::Parcel { code: format!("P{id}"), weight: 300 }),
        },
        link: match id % 4 {
            0 => None,
            1 => to(id + 1, None),
            _ => to(id + 1, to(id + 2, None)),
        },
    }
}

/// Returns the row of [`earlier`] as the later release reads it.
fn order(id: u32) -> Order {
    fn converted(link: first::Link) -> Link {
        let next = link.next.map(|next| Box::new(converted(*next)));
        Link { reason: String::new(), next, order: link.order }
    }

    let first::Order { id, town, lines, notes, state, link } = earlier(id);
    let line = |line: first::Line| Line {
        price: Price { currency: line.price.currency, discount: None, amount: line.price.amount },
        tax: 19,
        count: line.count,
        title: line.name,
    };
    Order {
        id,
        town,
        lines: lines.into_iter().map(line).collect(),
        notes: notes.into_iter().map(|(key, note)| (key, Note { text: note.text })).collect(),
        state: match state {
            first::State::Open | first::State::Lost => State::Open,
            first::State::Paid { method, amount } => State::Settled { amount, fee: 0, method },
            first::State::Sent(parcel) => {
                State::Sent(Parcel { weight: parcel.weight, number: parcel.code })
            }
        },
        link: link.map(|link| Box::new(converted(*link))),
    }
}

/// Returns a row that has what is new in the later release.
fn later(id: u32) -> Order {
    let mut order = order(id);
    let price = Price { currency: "NOK".into(), discount: Some(2), amount: 70_000 };
    order.lines.push(Line { price, tax: 7, count: 2, title: "new".into() });
    order.notes.insert("later".into(), Note { text: "l".into() });
    order.state = if id.is_multiple_of(2) {
        State::Draft(1)
    } else {
        State::Settled { amount: 5, fee: 1, method: "card".into() }
    };
    let next = order.link.take();
    order.link = Some(Box::new(Link { reason: "again".into(), next, order: 1 }));
    order
}

fn store(path: &Path) -> Result<Store> {
    Store::options().map_size(1 << 24).durability(Durability::None).open(path)
}

/// Writes the rows with the first release.
fn write_earlier(path: &Path) -> Result<()> {
    let store = store(path)?;
    let orders = first::OrderRepository::open(&store)?;
    store.transaction(|txn| (0..ROWS).try_for_each(|id| orders.insert(txn, &earlier(id))))
}

/// Checks that each query of the later release returns these rows.
fn check(store: &Store, orders: &OrderRepository, rows: &BTreeMap<u32, Order>) -> Result<()> {
    let txn = store.read()?;
    let report = orders.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    let all = |rows: &mut dyn Iterator<Item = Result<Order>>| -> Result<BTreeMap<u32, Order>> {
        rows.map(|row| row.map(|row| (row.id, row))).collect()
    };
    assert_eq!(&all(&mut orders.all(&txn).rows())?, rows);
    assert_eq!(&all(&mut orders.by_town(&txn).rows())?, rows);
    assert_eq!(&all(&mut orders.by_whole(&txn).rows())?, rows);
    assert_eq!(&all(&mut orders.by_total(&txn).rows())?, rows);
    for (id, row) in rows {
        assert_eq!(orders.get(&txn, *id)?.as_ref(), Some(row));
        let view = orders.get_view(&txn, *id)?.expect("a row");
        assert_eq!((view.id, view.town), (row.id, row.town.as_str()));
        assert_eq!((&view.lines, &view.notes), (&row.lines, &row.notes));
        assert_eq!((&view.state, &view.link), (&row.state, &row.link));
        assert!(
            orders
                .find_by_total(&txn, row.total())
                .keys()
                .any(|key| key.is_ok_and(|key| key == *id))
        );
    }
    let mut entries = 0;
    for entry in orders.by_whole(&txn).entries() {
        let entry = entry?;
        let row = &rows[&entry.id];
        assert_eq!((&entry.lines, &entry.notes), (&row.lines, &row.notes));
        assert_eq!((&entry.state, &entry.link), (&row.state, &row.link));
        entries += 1;
    }
    assert_eq!(entries, rows.len());
    for view in orders.by_whole(&txn).views() {
        let view = view?;
        assert_eq!(&view.lines, &rows[&view.id].lines);
    }
    Ok(())
}

#[test]
fn types_inside_of_rows_change_without_a_version() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    write_earlier(dir.path())?;
    let mut rows: BTreeMap<u32, Order> = (0..ROWS).map(|id| (id, order(id))).collect();
    {
        let store = store(dir.path())?;
        let orders = OrderRepository::open(&store)?;
        check(&store, &orders, &rows)?;
        // Some rows are replaced, some are updated, some are new, and some are deleted.
        store.transaction(|txn| {
            for id in [0, 1, 2, 3] {
                orders.put(txn, &later(id))?;
            }
            for id in [4, 5, 6, 7] {
                let change = |row: &mut Order| {
                    assert_eq!(*row, order(id));
                    *row = later(id);
                    row.town = "Bonn".into();
                };
                assert!(orders.update(txn, id, change)?);
            }
            // Only a field of the row changes.
            assert!(orders.update(txn, 8, |row| row.town.push('!'))?);
            orders.insert(txn, &later(ROWS))?;
            assert!(orders.delete(txn, 9)?);
            Ok(())
        })?;
        rows.extend((0..8).chain([ROWS]).map(|id| (id, later(id))));
        (4..8).for_each(|id| rows.get_mut(&id).expect("a row").town = "Bonn".into());
        rows.get_mut(&8).expect("a row").town.push('!');
        rows.remove(&9);
        check(&store, &orders, &rows)?;
    }
    let store = store(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    check(&store, &orders, &rows)?;
    let removed = store.transaction(|txn| {
        (0..ROWS).try_fold(0, |n, id| orders.delete(txn, id).map(|found| n + u32::from(found)))
    })?;
    assert_eq!(removed, ROWS - 1);
    rows.retain(|id, _| *id == ROWS);
    check(&store, &orders, &rows)
}

#[test]
fn an_upgrade_rewrites_rows_with_other_types_inside() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    write_earlier(dir.path())?;
    let store = store(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    assert!(store.catalog()?.tables[0].older_versions.is_empty());
    check(&store, &orders, &(0..ROWS).map(|id| (id, order(id))).collect())?;
    assert_eq!(orders.upgrade(&store).run()?.upgraded, u64::from(ROWS));
    // The lists have grown meanwhile, and have other alternatives for some values.
    assert!(orders.upgrade(&store).run()?.upgraded < 4);
    assert_eq!(orders.upgrade(&store).run()?.upgraded, 0);
    check(&store, &orders, &(0..ROWS).map(|id| (id, order(id))).collect())
}

/// The later release has written rows, which the first release reads as far as it has what they need.
#[test]
fn the_first_release_reads_rows_of_the_later_one() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    write_earlier(dir.path())?;
    // The first release calls the field `name` and the variant `Paid`, so only rows without them can be read.
    let open =
        Order { lines: Vec::new(), state: State::Open, notes: BTreeMap::new(), ..later(100) };
    {
        let store = store(dir.path())?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| {
            orders.insert(txn, &open)?;
            orders.insert(txn, &later(101))
        })?;
    }
    let store = store(dir.path())?;
    let orders = first::OrderRepository::open(&store)?;
    let txn = store.read()?;
    for id in 0..ROWS {
        assert_eq!(orders.get(&txn, id)?, Some(earlier(id)));
    }
    let row = orders.get(&txn, 100)?.expect("a row");
    assert_eq!(row.link.map(|link| link.order), open.link.map(|link| link.order));
    let error = orders.get(&txn, 101).expect_err("a field without an alias");
    assert!(matches!(error, Error::Corrupt { table: "orders", .. }), "{error:?}");
    Ok(())
}

/// A partial index carries a type that changes.
mod carried {
    use super::{Deserialize, IndexTable, Serialize, first::Parcel};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "parcels")]
    #[index(town, include = [parcel])]
    pub(super) struct Sent {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) parcel: Parcel,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parcels")]
#[index(town, include = [parcel])]
struct Sent {
    #[primary_key]
    id: u32,
    town: String,
    parcel: Parcel,
}

/// The entries of a partial index have the names of the rows from which they were copied.
#[test]
fn entries_with_a_changed_type_are_read_by_names() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = store(dir.path())?;
        let parcels = carried::SentRepository::open(&store)?;
        let parcel = first::Parcel { code: "P".into(), weight: 7 };
        let sent = carried::Sent { id: 1, town: "Rome".into(), parcel };
        store.transaction(|txn| parcels.insert(txn, &sent))?;
    }
    let store = store(dir.path())?;
    let parcels = SentRepository::open(&store)?;
    let parcel = Parcel { weight: 7, number: "P".into() };
    let txn = store.read()?;
    assert_eq!(parcels.get(&txn, 1)?.map(|row| row.parcel), Some(parcel.clone()));
    let check = || -> Result<()> {
        let txn = store.read()?;
        let report = parcels.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
        let entries = parcels.by_town(&txn).entries().collect::<Result<Vec<_>>>()?;
        let [entry] = entries.as_slice() else { panic!("there is one entry: {entries:?}") };
        assert_eq!(entry.parcel, parcel);
        Ok(())
    };
    drop(txn);
    check()?;
    let row = parcels.get(&store.read()?, 1)?.expect("it is there");
    let moved = Sent { town: "Oslo".into(), ..row };
    store.transaction(|txn| parcels.put(txn, &moved))?;
    check()
}
