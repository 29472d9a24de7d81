//! Compares a snapshot with the model: all rows, all entries by look-ups and by scans, and all totals.

use std::collections::BTreeMap;

use index_table::{Error, ReadTxn, Result};

use crate::{
    act::{EVENT_SLOTS, event},
    failure::{Failure, Outcome, same, wrong},
    model::{KEYS, State, States, email, nick},
    tables::{ENTRIES, Progress, Tables, Ticket, built},
};

/// A snapshot and the model.
pub(crate) struct Check<'a, 't> {
    pub(crate) tables: &'a Tables,
    pub(crate) txn: &'a ReadTxn<'t>,
    pub(crate) tenants: u32,
    pub(crate) fillers: u32,
    /// Whether the shards are of one instant: no shard was restored from a backup.
    pub(crate) is_whole: bool,
    /// Whether keys of a detached shard may belong to another shard, without their rows.
    pub(crate) is_assigned: bool,
}

/// Returns `None` if no shard has the key, or its shard is not available.
pub(crate) fn if_present<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(Error::NoShard { .. } | Error::ShardUnavailable { .. }) => Ok(None),
        result => result.map(Some),
    }
}

pub(crate) fn filler_code(tenant: u32, id: u32) -> u64 {
    (u64::from(id) * 7919 % 10_007) << 32 | u64::from(tenant)
}

fn collected<T>(rows: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    rows.collect()
}

impl Check<'_, '_> {
    /// Returns the progress of each tenant whose shard is present.
    pub(crate) fn progress(&self) -> Outcome<BTreeMap<u32, Progress>> {
        let mut all = BTreeMap::new();
        for tenant in 0..self.tenants {
            match if_present(self.tables.progress.get(self.txn, tenant))? {
                Some(Some(progress)) => drop(all.insert(tenant, progress)),
                Some(None) if self.is_assigned => {}
                Some(None) => return wrong(format!("the progress of tenant {tenant} is missing")),
                None => {}
            }
        }
        Ok(all)
    }

    /// Compares the rows of a tenant, and the entries of its rows.
    pub(crate) fn tenant(&self, states: &mut States, progress: &Progress) -> Outcome {
        let (tables, txn, tenant) = (self.tables, self.txn, progress.tenant);
        let state = states.get(tenant, progress.n);
        let at = |what: &str| format!("{what} of tenant {tenant} after {} operations", progress.n);
        let people: Vec<_> = state.people.values().cloned().collect();
        same(
            || at("people"),
            &collected(tables.people.find_by_tenant(txn, tenant).rows())?,
            &people,
        )?;
        self.keys(state)?;
        let totals = tables.people.aggregate_by_tenant(txn, tenant)?;
        let sum = people.iter().map(|row| i128::from(row.amount)).sum::<i128>();
        same(|| at("totals"), &(totals.count, totals.sum_amount), &(people.len() as u64, sum))?;

        let orders: Vec<_> = state.orders.values().cloned().collect();
        same(
            || at("orders"),
            &collected(tables.orders.find_by_tenant(txn, tenant).rows())?,
            &orders,
        )?;
        for id in state.people.keys() {
            let of_person = orders.iter().filter(|order| order.person == *id).cloned();
            let found = collected(tables.orders.find_by_tenant_person(txn, tenant, *id).rows())?;
            same(|| at("orders by person"), &found, &of_person.collect())?;
        }
        let payments: Vec<_> = state.payments.values().cloned().collect();
        let found = collected(tables.payments.find_by_tenant(txn, tenant).rows())?;
        same(|| at("payments"), &found, &payments)?;
        let pictures: Vec<_> = state.pictures.values().cloned().collect();
        let found = collected(tables.pictures.find_by_tenant(txn, tenant).rows())?;
        same(|| at("pictures"), &found, &pictures)?;

        let found = collected(tables.sessions.find_by_tenant(txn, tenant).rows())?;
        let live = |session: &&crate::tables::Session| session.is_live();
        same(
            || at("live sessions"),
            &found.iter().filter(live).collect::<Vec<_>>(),
            &state.sessions.values().filter(live).collect(),
        )?;
        if let Some(other) = found.iter().find(|row| state.sessions.get(&row.id) != Some(*row)) {
            return wrong(format!("{}: {other:?} was deleted or replaced", at("sessions")));
        }
        self.samples(tenant)?;
        self.others(progress)
    }

    /// Compares the samples of a tenant with their entries and totals. A number that is computed again is in neither.
    fn samples(&self, tenant: u32) -> Outcome {
        let (samples, txn) = (&self.tables.samples, self.txn);
        let compare = || -> Outcome {
            let rows = collected(samples.find_by_tenant(txn, tenant).rows())?;
            for row in &rows {
                let found =
                    collected(samples.find_by_tenant_number(txn, tenant, row.number).rows())?;
                same(
                    || format!("the samples by number {}", row.number),
                    &found.first(),
                    &Some(row),
                )?;
            }
            let totals = samples.aggregate_by_tenant(txn, tenant)?;
            let sum = rows.iter().map(|row| i128::from(row.number)).sum::<i128>();
            let what = || format!("the totals of the samples of tenant {tenant}");
            same(what, &(totals.count, totals.sum_number), &(rows.len() as u64, sum))
        };
        // The numbers can be other ones each time until the index is built.
        let is_readable = |scan: Result<u64>| match scan {
            Err(Error::IndexNotReadable { .. }) if built(&self.tables.kinds, txn).is_none() => {
                Ok(false)
            }
            found => found.map(|_| true),
        };
        let has_totals = samples.aggregate_by_tenant(txn, tenant).map(|totals| totals.count);
        let has_entries = samples.find_by_tenant_number(txn, tenant, 0).count();
        if is_readable(has_totals)? && is_readable(has_entries)? { compare() } else { Ok(()) }
    }

    /// Looks up every unique key, also those that no row has.
    fn keys(&self, state: &State) -> Outcome {
        let (tables, txn, tenant) = (self.tables, self.txn, state.tenant);
        let all: Vec<_> = (0..KEYS).map(|key| (nick(key), email(tenant, key))).collect();
        for (nick, email) in &all {
            let at = |index: &str, key: &str| {
                format!("{index} of tenant {tenant} after {} operations by `{key}`", state.n)
            };
            let by_nick = state.people.values().find(|row| row.nick == *nick).cloned();
            same(
                || at("nick", nick),
                &tables.people.get_by_tenant_nick(txn, tenant, nick)?,
                &by_nick,
            )?;
            let by_email = state.people.values().find(|row| row.email == *email).cloned();
            same(|| at("email", email), &tables.people.get_by_email(txn, email)?, &by_email)?;
        }
        Ok(())
    }

    /// Compares the rows that depend on other shards.
    fn others(&self, progress: &Progress) -> Outcome {
        let (tables, txn, tenant) = (self.tables, self.txn, progress.tenant);
        let kind = tables.kinds.get(txn, 1000 + u64::from(tenant))?.map_or(0, |it| it.value);
        if kind < progress.kind {
            // A restored shard can have an older progress, but not an older copy of a reference table.
            return wrong(format!(
                "the kind of tenant {tenant} is {kind}, and not {}",
                progress.kind
            ));
        }
        if !self.is_whole {
            return Ok(());
        }
        let sum = |sums: &[(u32, i64)]| sums.iter().map(|it| it.1).sum::<i64>();
        let balance = sum(&progress.received) - sum(&progress.sent);
        let account = tables.accounts.get(txn, tenant)?.map(|it| it.balance);
        same(|| format!("the balance of tenant {tenant}"), &account, &Some(balance))?;
        if let Some(tickets) =
            if_present(collected(tables.tickets.find_by_tenant(txn, tenant).rows()))?
        {
            let expected = progress.first_ticket..=progress.last_ticket;
            let expected = expected.map(|number| Ticket { tenant, number }).collect();
            same(|| format!("the tickets of tenant {tenant}"), &tickets, &expected)?;
        }
        if let Some(events) =
            if_present(collected(tables.events.find_by_tenant(txn, tenant).rows()))?
        {
            let mut expected = BTreeMap::new();
            for write in progress.events.saturating_sub(EVENT_SLOTS)..progress.events {
                if let Ok(event) = event(tenant, write) {
                    expected.insert(event.id, event);
                }
            }
            let expected = expected.into_values().collect();
            same(|| format!("the events of tenant {tenant}"), &events, &expected)?;
        }
        same(|| format!("the kind of tenant {tenant}"), &kind, &progress.kind)?;
        self.entries(tenant, progress.ledger)
    }

    /// Compares the entries of a tenant in the ledger.
    fn entries(&self, tenant: u32, last: u64) -> Outcome {
        let (tables, txn) = (self.tables, self.txn);
        let rows = if_present(collected(tables.ledger.find_by_tenant(txn, tenant).rows()))?;
        let Some(rows) = rows else { return Ok(()) };
        let kept = if tenant < self.tenants { ENTRIES } else { u64::MAX };
        let expected: Vec<_> = (last.saturating_sub(kept) + 1..=last).collect();
        let values: Vec<_> = rows.iter().map(|row| row.value).collect();
        same(|| format!("the ledger of tenant {tenant}"), &values, &expected)?;
        if !rows.is_sorted_by(|a, b| a.number < b.number) {
            return wrong(format!("the numbers of the ledger of tenant {tenant}: {rows:?}"));
        }
        let totals = tables.ledger.aggregate_by_tenant(txn, tenant)?;
        let sum = expected.iter().copied().map(i128::from).sum::<i128>();
        let what = || format!("the totals of the ledger of tenant {tenant}");
        same(what, &(totals.count, totals.sum_value), &(expected.len() as u64, sum))?;
        let booking = if_present(tables.bookings.get(txn, tenant))?.flatten();
        let booked = booking.map_or(0, |it| it.value);
        if booked > last {
            return wrong(format!("{booked} of {last} entries of tenant {tenant} were received"));
        }
        Ok(())
    }

    /// Compares the whole ledger.
    fn ledger(&self, progress: &BTreeMap<u32, Progress>) -> Outcome {
        let (tables, txn) = (self.tables, self.txn);
        if !self.is_whole {
            return Ok(());
        }
        self.entries(self.tenants, self.fillers.into())?;
        if progress.len() < self.tenants as usize {
            return Ok(());
        }
        let Some(mut rows) = if_present(collected(tables.ledger.all(txn).rows()))? else {
            return Ok(());
        };
        // Each entry has taken one number.
        let numbers =
            progress.values().map(|row| row.ledger).sum::<u64>() + u64::from(self.fillers);
        let last = rows.last().map_or(0, |row| row.number);
        same(|| "the last number of the ledger".to_owned(), &last, &numbers)?;
        let totals = tables.ledger.aggregate(txn)?;
        let sum = rows.iter().map(|row| i128::from(row.value)).sum::<i128>();
        let expected = (rows.len() as u64, sum);
        same(
            || "the totals of the ledger".to_owned(),
            &(totals.count, totals.sum_value),
            &expected,
        )?;
        if tables.ledger.lag(txn)?.messages == 0 {
            rows.sort_by_key(|row| (row.value, row.number));
            let found = collected(tables.ledger.by_value(txn).stale().rows())?;
            same(|| "the ledger by value".to_owned(), &found, &rows)?;
        }
        Ok(())
    }

    /// Compares everything that the snapshot has. Returns the progress of the tenants that are present.
    pub(crate) fn all(&self, states: &mut States) -> Outcome<BTreeMap<u32, Progress>> {
        let progress = self.progress()?;
        for row in progress.values() {
            self.tenant(states, row)?;
        }
        self.transfers(&progress)?;
        self.ledger(&progress)?;
        match self.scans(states, &progress) {
            // A scan needs all shards.
            Err(Failure::Store(Error::ShardUnavailable { .. })) => {}
            outcome => outcome?,
        }
        Ok(progress)
    }

    fn transfers(&self, progress: &BTreeMap<u32, Progress>) -> Outcome {
        if !self.is_whole {
            return Ok(());
        }
        for (from, row) in progress {
            for (to, sent) in &row.sent {
                let Some(partner) = progress.get(to) else { continue };
                let received = partner.received.iter().find(|it| it.0 == *from);
                let what = || format!("the transfers from tenant {from} to {to}");
                same(what, &received.map(|it| it.1), &Some(*sent))?;
            }
        }
        Ok(())
    }

    /// Compares whole tables and indexes.
    fn scans(&self, states: &mut States, progress: &BTreeMap<u32, Progress>) -> Outcome {
        let (tables, txn) = (self.tables, self.txn);
        let (mut people, mut orders) = (Vec::new(), Vec::new());
        for (tenant, row) in progress {
            let state = states.get(*tenant, row.n);
            people.extend(state.people.values().cloned());
            orders.extend(state.orders.values().cloned());
        }
        same(|| "all people".to_owned(), &collected(tables.people.all(txn).rows())?, &people)?;
        same(|| "all orders".to_owned(), &collected(tables.orders.all(txn).rows())?, &orders)?;
        people.sort_by(|a, b| a.email.cmp(&b.email));
        let found = collected(tables.people.by_email(txn).rows())?;
        same(|| "all people by email".to_owned(), &found, &people)?;
        people.sort_by_key(|row| (row.kind, row.tenant, row.id));
        let found = collected(tables.people.by_kind(txn).rows())?;
        same(|| "all people by kind".to_owned(), &found, &people)?;
        people.sort_by(|a, b| (a.tenant, &a.nick).cmp(&(b.tenant, &b.nick)));
        let found = collected(tables.people.by_tenant_nick(txn).rows())?;
        same(|| "all people by nick".to_owned(), &found, &people)?;
        for town in 0..5 {
            let expected = people.iter().filter(|row| row.town == town).count() as u64;
            let count = tables.people.aggregate_by_town(txn, town)?.count;
            same(|| format!("the people of town {town}"), &count, &expected)?;
        }
        if tables.people.lag(txn)?.messages == 0 {
            people.sort_by_key(|row| (row.town, row.tenant, row.id));
            let found = collected(tables.people.by_town(txn).stale().rows())?;
            same(|| "all people by town".to_owned(), &found, &people)?;
        }
        if tables.orders.lag(txn)?.messages == 0 {
            orders.sort_by_key(|row| (row.code, row.tenant, row.number));
            let found = collected(tables.orders.by_code(txn).stale().rows())?;
            same(|| "all orders by code".to_owned(), &found, &orders)?;
        }
        self.fillers(progress.keys().copied())
    }

    fn fillers(&self, present: impl Iterator<Item = u32>) -> Outcome {
        let (tables, txn) = (self.tables, self.txn);
        let mut expected = Vec::new();
        for tenant in present {
            expected.extend((0..self.fillers).map(|id| (filler_code(tenant, id), (tenant, id))));
        }
        same(
            || "the fillers".to_owned(),
            &tables.fillers.all(txn).count()?,
            &(expected.len() as u64),
        )?;
        expected.sort_unstable();
        let found = match collected(tables.fillers.by_code(txn).entries()) {
            // The index is not built yet.
            Err(Error::IndexNotReadable { .. }) if built(&tables.kinds, txn).is_none() => {
                return Ok(());
            }
            found => found?,
        };
        let found: Vec<_> = found.into_iter().map(|it| (it.code, (it.tenant, it.id))).collect();
        if found != expected {
            let mut both = found.iter().zip(&expected);
            let first = both.find(|(found, expected)| found != expected);
            let counts = (found.len(), expected.len());
            return wrong(format!("the fillers by code: {counts:?}, first difference {first:?}"));
        }
        Ok(())
    }
}
