//! Executes the operations of the model in a store.

use index_table::{Error, OnDuplicate, Result, Store, WriteTxn};

use crate::{
    failure::{Outcome, same, wrong},
    model::{Act, Cross, KEYS, State, email},
    tables::{ENTRIES, Entry, Event, Kind, Person, Progress, Tables, Ticket},
};

/// The writes of events of a tenant have this many slots.
pub(crate) const EVENT_SLOTS: u64 = 21;

/// Returns the event of a write, or the id of the event that it deletes.
pub(crate) fn event(tenant: u32, write: u64) -> std::result::Result<Event, u64> {
    let slot = write % EVENT_SLOTS;
    let id = u64::from(tenant) * 1000 + slot;
    if write % 5 == 4 { Err(id) } else { Ok(Event { id, tenant, write }) }
}

/// Writes the next operation of a tenant, with rows of others unless this is `None`. `state` is the state after `progress.n` operations, and then after the next one.
pub(crate) fn operate(
    (tables, store): (&Tables, &Store),
    txn: &mut WriteTxn<'_>,
    (seed, others): (u64, Option<u32>),
    state: &mut State,
    progress: &mut Progress,
) -> Outcome {
    for cross in others.map(|tenants| state.cross(seed, tenants)).unwrap_or_default() {
        let mut next = progress.clone();
        let outcome = txn.nested(|txn| write(tables, txn, cross, &mut next));
        match outcome {
            Ok(()) => *progress = next,
            Err(failure) if failure.is_expected() => {}
            Err(failure) => return Err(failure),
        }
    }
    let changes = state.people_changes.len() as u64;
    state.operate(seed, &mut |state, act| execute(tables, txn, state, act))?;
    progress.n = state.n;
    let expected = progress.clone();
    if !tables.progress.update(txn, progress.tenant, |row| *row = expected)? {
        return wrong(format!("the progress of tenant {} is missing", progress.tenant));
    }
    // The shard is locked now, so the rows don't move until the transaction ends.
    let shard = tables.progress.shard_of(store, progress.tenant)?.name().to_owned();
    if progress.homes.last().is_none_or(|(name, _)| *name != shard) {
        progress.homes.push((shard, changes));
        let homes = progress.homes.clone();
        tables.progress.update(txn, progress.tenant, |row| row.homes = homes)?;
    }
    Ok(())
}

fn execute(tables: &Tables, txn: &mut WriteTxn<'_>, state: &State, act: &Act) -> Outcome {
    let tenant = state.tenant;
    let what = || format!("tenant {tenant}, operation {}: {act:?}", state.n);
    match act {
        Act::Put(row) => put(tables, txn, state, row),
        Act::Rename(from, row) => {
            let renamed = tables.people.update(txn, tenant, *from, |old| *old = row.clone())?;
            same(what, &renamed, &true)
        }
        Act::Load(rows) => {
            let load = tables.people.bulk_load_in(txn, rows).on_duplicate(OnDuplicate::Replace);
            same(what, &load.run()?.replaced, &(rows.len() as u64))
        }
        Act::Delete(id) => {
            let expected =
                if state.is_paid(*id) { None } else { Some(state.people.contains_key(id)) };
            let deleted = txn.nested(|txn| tables.people.delete(txn, tenant, *id));
            same(what, &unless_referenced(deleted)?, &expected)
        }
        Act::InsertOrder(order) => {
            let number = tables.orders.insert_with(txn, tenant, |number| crate::tables::Order {
                number,
                ..order.clone()
            })?;
            same(what, &number, &order.number)
        }
        Act::PutOrder(order) => Ok(tables.orders.put(txn, order)?),
        Act::DeleteOrder(number) => {
            let expected = if state.is_order_paid(*number) { None } else { Some(true) };
            let deleted = txn.nested(|txn| tables.orders.delete(txn, tenant, *number));
            same(what, &unless_referenced(deleted)?, &expected)
        }
        Act::Pay(payment) => Ok(tables.payments.insert(txn, payment)?),
        Act::DeletePayment(number) => {
            same(what, &tables.payments.delete(txn, tenant, *number)?, &true)
        }
        Act::PutPicture(picture) => Ok(tables.pictures.put(txn, picture)?),
        Act::DeletePicture(id) => {
            let deleted = tables.pictures.delete(txn, tenant, *id)?;
            same(what, &deleted, &state.pictures.contains_key(id))
        }
        Act::PutSession(session) => Ok(tables.sessions.put(txn, session)?),
        // A session that has ended may have expired.
        Act::DeleteSession(id) => Ok(tables.sessions.delete(txn, tenant, *id).map(drop)?),
        Act::Duplicate(row) => {
            duplicate(tables, txn, &Person { id: 900, email: email(tenant, KEYS), ..row.clone() })?;
            duplicate(tables, txn, &Person { id: 900, nick: "other".to_owned(), ..row.clone() })
        }
    }
}

/// Returns `None` if a deletion was refused, because a row refers to the row.
fn unless_referenced(deleted: Result<bool>) -> Result<Option<bool>> {
    match deleted {
        Err(Error::Referenced { .. }) => Ok(None),
        deleted => deleted.map(Some),
    }
}

fn put(tables: &Tables, txn: &mut WriteTxn<'_>, state: &State, row: &Person) -> Outcome {
    let what = || format!("put of {row:?} after operation {}", state.n);
    let old = state.people.get(&row.id);
    match (old, row.stamp % 3) {
        (None, 0 | 1) => Ok(tables.people.insert(txn, row)?),
        (Some(_), 0) => {
            let updated =
                tables.people.update(txn, row.tenant, row.id, |old| *old = row.clone())?;
            same(what, &updated, &true)
        }
        (_, 1) => Ok(tables.people.put(txn, row)?),
        _ => same(what, &tables.people.replace(txn, row)?, &old.cloned()),
    }
}

/// Inserts a row with a taken key: it must be refused.
fn duplicate(tables: &Tables, txn: &mut WriteTxn<'_>, row: &Person) -> Outcome {
    let inserted = txn.nested(|txn| tables.people.insert(txn, row));
    match inserted {
        Err(Error::UniqueViolation { .. }) => Ok(()),
        Ok(()) => wrong(format!("a second row with a unique key was accepted: {row:?}")),
        Err(error) => Err(error.into()),
    }
}

fn write(tables: &Tables, txn: &mut WriteTxn<'_>, cross: Cross, next: &mut Progress) -> Outcome {
    let tenant = next.tenant;
    match cross {
        Cross::Event => {
            match event(tenant, next.events) {
                Ok(event) => tables.events.put(txn, &event)?,
                Err(id) => drop(tables.events.delete(txn, id)?),
            }
            next.events += 1;
        }
        Cross::Ticket => {
            let ticket = |number| Ticket { tenant, number };
            let number = tables.tickets.insert_with(txn, tenant, ticket)?;
            next.last_ticket += 1;
            same(
                || format!("the number of a ticket of tenant {tenant}"),
                &number,
                &next.last_ticket,
            )?;
        }
        Cross::DeleteTickets => {
            let deleted = tables.tickets.find_by_tenant(txn, tenant).query().delete(txn)?;
            let expected = next.last_ticket + 1 - next.first_ticket;
            next.first_ticket = next.last_ticket + 1;
            same(|| format!("the deleted tickets of tenant {tenant}"), &deleted, &expected)?;
        }
        Cross::Kind => {
            next.kind += 1;
            tables.kinds.put(txn, &Kind { id: 1000 + u64::from(tenant), value: next.kind })?;
        }
        Cross::Ledger => {
            next.ledger += 1;
            let value = next.ledger;
            tables.ledger.insert_with(txn, |number| Entry { number, tenant, value })?;
            if let Some(old) = value.checked_sub(ENTRIES).filter(|it| *it > 0) {
                let entries = tables.ledger.find_by_tenant_value(txn, tenant, old);
                let deleted = entries.query().delete(txn)?;
                same(|| format!("the deleted entries of tenant {tenant}"), &deleted, &1)?;
            }
        }
        Cross::Transfer(partner, _) if partner == tenant => {}
        Cross::Transfer(partner, amount) => {
            let exists = tables
                .progress
                .update(txn, partner, |row| add(&mut row.received, tenant, amount))?;
            if !exists {
                return wrong(format!("the progress of tenant {partner} is missing"));
            }
            add(&mut next.sent, partner, amount);
            for (tenant, amount) in [(tenant, -amount), (partner, amount)] {
                tables.accounts.update(txn, tenant, |row| {
                    row.balance += amount;
                    row.transfers += 1;
                })?;
            }
        }
    }
    Ok(())
}

fn add(sums: &mut Vec<(u32, i64)>, tenant: u32, amount: i64) {
    match sums.iter_mut().find(|sum| sum.0 == tenant) {
        Some(sum) => sum.1 += amount,
        None => sums.push((tenant, amount)),
    }
}
