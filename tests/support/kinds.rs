//! The methods of shards, called on each kind of store.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    future::Future,
    path::Path,
    pin::pin,
    task::{Context, Poll, Waker},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
pub(crate) struct Event {
    #[primary_key]
    pub(crate) id: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices")]
pub(crate) struct Invoice {
    #[primary_key]
    pub(crate) number: u32,
}

/// A store with one row of tenant 7.
pub(crate) struct Shop<'a> {
    pub(crate) store: Store,
    pub(crate) orders: OrderRepository,
    /// A directory for files.
    pub(crate) directory: &'a Path,
}

type Call = fn(Shop<'_>) -> Result<()>;

/// The methods in the order of the guide's table, each with a call that checks what the method has done.
pub(crate) const METHODS: [(&str, Call); 28] = [
    ("`shard`, `shard_ids`", |shop| {
        let ids = shop.store.shard_ids();
        assert_eq!(shop.store.shard(ids[0].name())?, ids[0]);
        assert!(matches!(shop.store.shard("nowhere"), Err(Error::ShardRefused { .. })));
        Ok(())
    }),
    ("`shards`", |shop| {
        let before: u64 = shop.store.shards()?.iter().map(|shard| shard.writes).sum();
        shop.insert(8)?;
        let shards = shop.store.shards()?;
        assert_eq!(shards.iter().map(|shard| shard.rows).sum::<u64>(), 2);
        assert_eq!(shards.iter().map(|shard| shard.writes).sum::<u64>(), before + 1);
        assert!(shards.iter().any(|shard| shard.reads > 0));
        assert!(shards.iter().any(|shard| shard.row_share > 0.9));
        Ok(())
    }),
    ("`unavailable_shards`", |shop| {
        assert!(shop.store.unavailable_shards().is_empty());
        Ok(())
    }),
    ("`shard_of`", |shop| {
        let shard = shop.orders.shard_of(&shop.store, 7)?;
        assert!(shop.store.shard_ids().contains(&shard));
        Ok(())
    }),
    ("`read_on`", |shop| {
        let txn = shop.store.read_on(&shop.orders.shard_of(&shop.store, 7)?)?;
        assert!(shop.orders.get(&txn, 7, 1)?.is_some());
        Ok(())
    }),
    ("`write_on`", |shop| {
        let mut txn = shop.store.write_on(&shop.orders.shard_of(&shop.store, 7)?)?;
        shop.orders.delete(&mut txn, 7, 1)?;
        txn.commit()?;
        shop.has(&[])
    }),
    ("`transaction_on`, `try_transaction_on`", |shop| {
        let shard = shop.orders.shard_of(&shop.store, 7)?;
        let order = |number| Order { tenant: 7, number };
        shop.store.transaction_on(&shard, |txn| shop.orders.insert(txn, &order(2)))?;
        shop.store.try_transaction_on(&shard, |txn| shop.orders.insert(txn, &order(3)))?;
        shop.has(&[(7, 1), (7, 2), (7, 3)])
    }),
    ("`submit_on`, `on` of a group writer", |shop| {
        let (writer, shard) = (shop.store.writer()?, shop.orders.shard_of(&shop.store, 7)?);
        writer.submit_on(&shard, shop.inserting(7, 2)).wait()?;
        writer.on(&shard)?.submit(shop.inserting(7, 3)).wait()?;
        shop.has(&[(7, 1), (7, 2), (7, 3)])
    }),
    ("`submit_for`, `try_submit_for`, `submit_for_async`", |shop| {
        let (writer, orders) = (shop.store.writer()?, &shop.orders);
        orders.submit_for(&writer, 7, shop.inserting(7, 2)).wait()?;
        // A row that may be in another shard.
        orders.submit_for(&writer, 7, shop.inserting(107, 3)).wait()?;
        let submitted = orders.try_submit_for(&writer, 107, shop.inserting(7, 4));
        submitted.expect("room").wait()?;
        finish(orders.submit_for_async(&writer, 107, shop.inserting(107, 5)))?;
        shop.has(&[(7, 1), (7, 2), (7, 4), (107, 3), (107, 5)])
    }),
    ("`verify_on`", |shop| {
        let report = shop.store.verify_on(&shop.orders.shard_of(&shop.store, 7)?)?;
        assert_eq!((report.is_clean(), report.tables[0].rows), (true, 1));
        Ok(())
    }),
    ("`sizes_on`", |shop| {
        let sizes = shop.store.sizes_on(&shop.orders.shard_of(&shop.store, 7)?)?;
        assert_eq!(sizes[0].rows, 1);
        Ok(())
    }),
    ("`upgrade().on`", |shop| {
        let shard = shop.orders.shard_of(&shop.store, 7)?;
        shop.orders.upgrade(&shop.store).on(&shard).run().map(drop)
    }),
    ("`ranges`", |shop| {
        let ranges = shop.store.ranges("orders")?;
        assert_eq!(ranges.iter().map(|range| range.rows).sum::<u64>(), 1);
        assert_eq!(ranges[0].shard, shop.orders.shard_of(&shop.store, 7)?.name());
        assert!(matches!(shop.store.ranges("nothing"), Err(Error::ShardRefused { .. })));
        Ok(())
    }),
    ("`hot_keys`", |shop| shop.store.hot_keys("orders", 10).map(drop)),
    ("`shard_advice`", |shop| shop.store.shard_advice("orders").map(drop)),
    ("`rebalance`", |shop| {
        shop.insert(8)?;
        let plan = shop.store.rebalance("orders").plan()?;
        plan.run()?;
        assert!(shop.store.shards()?.iter().all(|shard| shard.rows == 1));
        Ok(())
    }),
    ("`move_range`, `move_keys`", |shop| {
        let to = shop.last();
        shop.store.move_range("orders", ..50_u32, to.as_str()).run()?;
        shop.store.move_keys("orders", [7_u32], to.as_str()).run()?;
        assert_eq!(shop.orders.shard_of(&shop.store, 7)?.name(), to);
        shop.has(&[(7, 1)])
    }),
    ("`move_slots`", |shop| {
        let events = EventRepository::open(&shop.store)?;
        shop.store.move_slots("events", .., &shop.last()).run()?;
        assert_eq!(events.shard_of(&shop.store, 1)?.name(), shop.last());
        Ok(())
    }),
    ("`move_table`", |shop| {
        let invoices = InvoiceRepository::open(&shop.store)?;
        shop.store.transaction(|txn| invoices.insert(txn, &Invoice { number: 1 }))?;
        for to in [shop.last(), shop.store.shard_ids()[0].name().to_owned()] {
            shop.store.move_table("invoices", &to).run()?;
            let shard = shop.store.shard(&to)?;
            assert_eq!(invoices.all(&shop.store.read_on(&shard)?).count()?, 1);
        }
        Ok(())
    }),
    ("`moves`", |shop| {
        assert!(shop.store.moves()?.is_empty());
        Ok(())
    }),
    ("`resume_move`", |shop| found(shop.store.resume_move(1).run().map(drop))),
    ("`cancel_move`", |shop| found(shop.store.cancel_move(1))),
    ("`add_shard`", |shop| {
        shop.store.add_shard("east", "east")?;
        assert_eq!(shop.last(), "east");
        Ok(())
    }),
    ("`remove_shard`", |shop| {
        shop.store.add_shard("east", "east")?;
        shop.store.remove_shard("east")?;
        assert!(shop.store.shard("east").is_err());
        Ok(())
    }),
    ("`detach_shard`", |shop| {
        shop.store.detach_shard(shop.last())?;
        assert_eq!(shop.store.shard_ids().len(), 1);
        Ok(())
    }),
    ("`attach_shard`", |shop| {
        let name = shop.last();
        shop.store.detach_shard(&name)?;
        shop.store.attach_shard(&name, &name)?;
        assert_eq!(shop.last(), name);
        Ok(())
    }),
    ("`backup_shard`", |shop| {
        let shard = shop.orders.shard_of(&shop.store, 7)?;
        shop.store.backup_shard(&shard, shop.directory.join("part"))?;
        assert!(shop.directory.join("part").is_dir());
        Ok(())
    }),
    ("`restore_shard`", |shop| {
        let shard = shop.orders.shard_of(&shop.store, 7)?;
        // Only a shard that is not available is restored.
        found(shop.store.restore_shard(&shard, shop.directory))
    }),
];

impl<'a> Shop<'a> {
    pub(crate) fn of(store: Store, directory: &'a Path) -> Result<Self> {
        let orders = OrderRepository::open(&store)?;
        let shop = Self { store, orders, directory };
        shop.insert(7)?;
        Ok(shop)
    }

    fn insert(&self, tenant: u32) -> Result<()> {
        self.store.transaction(|txn| self.orders.insert(txn, &Order { tenant, number: 1 }))
    }

    fn inserting(
        &self,
        tenant: u32,
        number: u32,
    ) -> impl FnMut(&mut index_table::WriteTxn<'_>) -> Result<()> + Send + 'static {
        let orders = self.orders.clone();
        move |txn| orders.insert(txn, &Order { tenant, number })
    }

    fn has(&self, keys: &[(u32, u32)]) -> Result<()> {
        let rows = self.orders.all(&self.store.read()?).rows().collect::<Result<Vec<_>>>()?;
        let found: Vec<_> = rows.iter().map(|row| (row.tenant, row.number)).collect();
        assert_eq!(found, keys);
        Ok(())
    }

    /// The name of the last shard.
    fn last(&self) -> String {
        self.store.shard_ids().last().expect("a shard").name().to_owned()
    }
}

/// Declares two shards and their maps.
pub(crate) fn two_shards() -> index_table::Options {
    Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .map("events", ShardMap::hashed(["north", "south"]))
}

/// Accepts the error of a method that was called for nothing.
fn found(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::ShardRefused { .. }) => Ok(()),
        outcome => outcome,
    }
}

/// Polls a future until it is ready.
fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// Returns the cell of a call: `yes`, or `no` with the error.
pub(crate) fn cell(call: Call, shop: Shop<'_>) -> (bool, String) {
    match call(shop) {
        Ok(()) => (true, "yes".to_owned()),
        Err(error @ Error::NotOffered { .. }) => (false, error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the cells of a column of the guide's table, by the names of the methods.
pub(crate) fn column(name: &str) -> Vec<(String, String)> {
    let guide = include_str!("../../src/guide/sharding.md");
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = guide.lines().skip_while(|line| !line.starts_with("| method |"));
    let head = cells(lines.next().expect("the table"));
    let at = head.iter().position(|cell| cell == name).expect("the column");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    rows.map(|row| (row[0].clone(), row[at].clone())).collect()
}
