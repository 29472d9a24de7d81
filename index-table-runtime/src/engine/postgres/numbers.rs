//! The numbers that `insert_with` assigns, in blocks.
//!
//! If each transaction changed the record of a sequence, all of them would conflict. So a store takes a block of
//! numbers in a transaction of its own, on another connection, and assigns them from memory. The record is the last
//! number of the last block. It is committed before a number of the block is used, so no number is assigned twice,
//! regardless of what happens to this process. The rest of a block is never assigned.
//!
//! A block begins above all committed primary keys. Later rows with explicit keys can be inside or above the block. Rows
//! that this store inserts move the block, or end it when they are committed. Until then, and if no block is known, their
//! transaction assigns numbers with the record itself, as other engines do. If another client has inserted a row with a
//! number of the block, the insertion fails, and the block ends.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_postgres::types::ToSql;

use super::{
    connection::{Connection, Outcome, Response},
    error::{self, Kind},
    pool::Pool,
    tables::Tables,
};
use crate::{
    engine::{Conflicts, Space},
    locks::{Mutex, rank::ServerNumbers},
    model::{
        error::{Error, Result},
        key::successor,
        numbering::{self, Numbering},
    },
};

/// The size of the first block, and of the largest.
const SIZE: (u128, u128) = (64, 1024);

/// A block that is used up within this time is followed by a block of twice its size.
const QUICKLY: Duration = Duration::from_secs(1);

/// A block has at most this part of the numbers that are left, so that gaps don't exhaust a small type.
const PART: u128 = 1024;

/// The maximum number of blocks in memory.
const MOST: usize = 1 << 16;

/// The maximum waiting time for a transaction that changes the record of a sequence itself.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 1000";

/// The blocks of a store, by table and leading fields.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: Mutex<BTreeMap<(&'static str, Vec<u8>), Block>>,
    /// Held while a block is taken.
    taking: Mutex<(), ServerNumbers>,
}

struct Block {
    next: u128,
    last: u128,
    /// The size of the block when it was taken.
    size: u128,
    taken: Instant,
    numbering: Numbering<'static>,
}

impl Block {
    fn is_used_up(&self) -> bool {
        self.next > self.last
    }
}

/// The place of a row with an explicit key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Explicit {
    /// No later number is affected.
    Settled,
    /// The row is above the block, or no block is known.
    Above,
}

impl Blocks {
    /// Returns the next number of the block, or of a new block.
    pub(super) fn next(
        &self,
        pool: &Arc<Pool>,
        tables: &Tables,
        numbering: &Numbering<'_>,
    ) -> Result<u128> {
        let key = (tables.schema.name, numbering.leading.to_vec());
        let next = || {
            let mut blocks = self.blocks.lock();
            let block = blocks.get_mut(&key).filter(|block| !block.is_used_up())?;
            block.next += 1;
            Some(block.next - 1)
        };
        if let Some(number) = next() {
            return Ok(number);
        }
        let _taking = self.taking.lock();
        if let Some(number) = next() {
            return Ok(number);
        }
        let before = self.blocks.lock().get(&key).map(|block| (block.size, block.taken.elapsed()));
        let size = match before {
            Some((size, elapsed)) if elapsed < QUICKLY => (size * 2).min(SIZE.1),
            _ => SIZE.0,
        };
        let (first, last) = take_elsewhere(pool, tables, numbering, size)?;
        let numbering = Numbering { leading: &[], ..*numbering };
        let block = Block { next: first + 1, last, size, taken: Instant::now(), numbering };
        let mut blocks = self.blocks.lock();
        if blocks.len() >= MOST {
            blocks.clear();
        }
        blocks.insert(key, block);
        Ok(first)
    }

    /// Moves the block of a table beyond a row with an explicit key.
    pub(super) fn note(&self, tables: &Tables, primary_key: &[u8]) -> Explicit {
        let mut blocks = self.blocks.lock();
        // The leading fields of one table have different ends, so at most one sequence matches.
        let first = (tables.schema.name, Vec::new());
        let found =
            blocks.range_mut(first..=(tables.schema.name, primary_key.to_vec())).next_back();
        let Some(((_, leading), block)) = found.filter(|((_, it), _)| primary_key.starts_with(it))
        else {
            return Explicit::Above;
        };
        match (block.numbering.number_of)(tables.schema, primary_key, leading.len()) {
            Ok(number) if number < block.next => Explicit::Settled,
            Ok(number) if number <= block.last => {
                block.next = number + 1;
                Explicit::Settled
            }
            _ => Explicit::Above,
        }
    }

    /// Ends the blocks of a table. The next block begins above all committed rows.
    pub(super) fn end(&self, table: &'static str) {
        let mut blocks = self.blocks.lock();
        let all = blocks.range_mut((table, Vec::new())..);
        for ((_, _), block) in all.take_while(|((name, _), _)| *name == table) {
            block.next = block.last.saturating_add(1);
        }
    }
}

/// Takes a block on an idle connection, or on a new connection if all connections of the pool are in use.
fn take_elsewhere(
    pool: &Arc<Pool>,
    tables: &Tables,
    numbering: &Numbering<'_>,
    size: u128,
) -> Result<(u128, u128)> {
    while let Some(leased) = pool.take_another()? {
        let connection = leased.get()?;
        match take(&connection, pool, tables, numbering, size) {
            // The connection was lost while it was idle.
            Err(Error::Unreachable { .. }) if leased.is_replaceable() => {}
            Err(error) => return Err(error),
            Ok(block) => {
                leased.keep();
                return Ok(block);
            }
        }
    }
    take(&pool.open()?, pool, tables, numbering, size)
}

/// Takes a block of about this size. Returns its first and its last number.
fn take(
    connection: &Connection,
    pool: &Pool,
    tables: &Tables,
    numbering: &Numbering<'_>,
    size: u128,
) -> Result<(u128, u128)> {
    let mut conflicts = Conflicts::default();
    loop {
        match attempt(connection, tables, numbering, size) {
            Ok(Taken::Block(first, last)) => return Ok((first, last)),
            Ok(Taken::Failed(error)) => {
                connection.send("ROLLBACK");
                return Err(error);
            }
            Ok(Taken::Changed) => connection.send("ROLLBACK"),
            Err(error) => {
                connection.send("ROLLBACK");
                if error::kind(&error) != Kind::Conflict {
                    return Err(error::of(pool.server(), error));
                }
            }
        }
        conflicts.back_off(pool.patience())?;
    }
}

enum Taken {
    Block(u128, u128),
    /// Another client has changed the record.
    Changed,
    Failed(Error),
}

/// Reads the record and the greatest primary key, and replaces the record if it has not changed.
fn attempt(
    connection: &Connection,
    tables: &Tables,
    numbering: &Numbering<'_>,
    size: u128,
) -> Outcome<Taken> {
    let Some((relation, prefix)) = tables.space(Space::Sequence) else {
        return Ok(Taken::Failed(Error::internal("a table without a sequence")));
    };
    let (leading, facts) = (numbering.leading, &tables.facts.sql);
    let key = [&prefix, leading].concat();
    let mut end = leading.to_vec();
    let has_end = successor(&mut end);
    let below = if has_end { " AND k < $3" } else { "" };
    let read = format!(
        "SELECT (SELECT v FROM {} WHERE k = $1), \
         (SELECT k FROM {facts} WHERE k >= $2{below} ORDER BY k DESC LIMIT 1)",
        relation.sql
    );
    let replace = format!(
        "INSERT INTO {table} AS s (k, v) VALUES ($1, $2) \
         ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v WHERE s.v = $3",
        table = relation.sql
    );
    let (read, replace) = (connection.prepared(&read)?, connection.prepared(&replace)?);

    let begun = connection.send_simple(BEGIN);
    let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&key, &leading];
    if has_end {
        parameters.push(&end);
    }
    let found = connection.send_query(&read, &parameters);
    begun.wait()?;
    let found = found.wait()?;
    let Response::Rows(rows) = found else { return Ok(Taken::Changed) };
    let Some(row) = rows.first() else { return Ok(Taken::Changed) };
    let record: Option<&[u8]> = row.try_get(0)?;
    let greatest: Option<&[u8]> = row.try_get(1)?;
    let block = || {
        let assigned = numbering::decode(tables.schema, record)?;
        let greatest = match greatest {
            Some(greatest) => (numbering.number_of)(tables.schema, greatest, leading.len())?,
            None => 0,
        };
        let before = assigned.max(greatest);
        let last = last_of(before, size, numbering.can_assign);
        last.map(|last| (before, last))
            .ok_or_else(|| numbering::exhausted(tables.schema.name, before))
    };
    let (before, last) = match block() {
        Ok(block) => block,
        Err(error) => return Ok(Taken::Failed(error)),
    };
    let new = numbering::encode(last, <[u8]>::to_vec);
    let parameters: [&(dyn ToSql + Sync); 3] = [&key, &new, &record];
    let replaced = connection.send_execute(&replace, &parameters);
    let committed = connection.send_simple("COMMIT");
    let replaced = replaced.wait();
    let committed = committed.wait();
    let Response::Count(1) = replaced? else { return Ok(Taken::Changed) };
    committed?;
    Ok(Taken::Block(before + 1, last))
}

/// Returns the last number of a block after `before`; `None` if there is no further number.
fn last_of(before: u128, size: u128, can_assign: fn(u128) -> bool) -> Option<u128> {
    let is_left = |numbers: u128| before.checked_add(numbers).is_some_and(can_assign);
    let mut size = size;
    while size > 1 && !is_left(size * PART) {
        size /= 2;
    }
    is_left(size).then(|| before + size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_a_small_part_of_the_numbers_that_are_left() {
        let small = |number| u128::from(u8::MAX) >= number;
        assert_eq!(last_of(0, 64, small), Some(1));
        assert_eq!(last_of(254, 64, small), Some(255));
        assert_eq!(last_of(255, 64, small), None);
        assert_eq!(last_of(0, 1024, |number| u128::from(u16::MAX) >= number), Some(32));
        assert_eq!(last_of(7, 1024, |number| u128::from(u64::MAX) >= number), Some(1031));
        assert_eq!(last_of(u128::MAX - 1, 64, |_| true), Some(u128::MAX));
        assert_eq!(last_of(u128::MAX, 64, |_| true), None);
    }
}
