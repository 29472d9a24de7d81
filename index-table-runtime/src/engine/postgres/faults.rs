//! Tests on a server for other clients that hold locks, lost connections, and clients that wait no longer.

use std::time::Instant;

use super::{
    tests::{TABLE, connected, cut, ids, on_a_server, open, open_as, put},
    token::Token,
    *,
};
use crate::{engine::CommitFailure, model::schema::TableSchema};

const OTHER: &TableSchema = &TableSchema { name: "other_things", ..*TABLE };

/// A time that is shorter than any limit.
const SOON: Duration = Duration::from_secs(2);

/// Puts a row in a transaction of its own.
fn put_one(engine: &Engine, tables: &Tables, id: u8) -> Result<()> {
    let mut txn = engine.write()?;
    put(&mut txn, tables, id)?;
    txn.simple("SELECT 1")?;
    Ok(txn.commit(|| ())?)
}

/// Another client holds the lock of a table while it loads an index. The statements that change the table are known.
#[test]
fn the_lock_of_a_table_delays_neither_new_connections_nor_fences() {
    on_a_server(|engine| {
        let (tables, others) = (open(engine), open_as(engine, OTHER));
        put_one(engine, &tables, 1)?;
        let holder = engine.pool.open()?;
        let lock = format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.facts.sql);
        holder.simple(&lock).expect("the lock");
        let begun = Instant::now();
        // Most of these connections are new.
        let leased: Vec<_> = (0..6).map(|_| engine.pool.take()).collect::<Result<_>>()?;
        assert!(leased.iter().any(|it| !it.is_replaceable()), "no new connection");
        assert!(leased.iter().all(|it| it.get().is_ok_and(|it| !it.is_closed())));
        leased.into_iter().for_each(Leased::keep);
        put_one(engine, &others, 2)?;
        assert_eq!(ids(engine, &others)?, [2]);
        let fence = Token::new().fence(&engine.catalog.commits, SOON);
        let found = engine.pool.open_within(SOON)?.simple(&fence);
        assert_eq!(found.expect("a fence").as_deref(), Some("0"));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        holder.simple("COMMIT").expect("the end");
        assert_eq!(ids(engine, &tables)?, [1]);
        Ok(())
    });
}
