//! The model: the rows of a tenant, and the changes in its streams, as a function of the seed and the number of its operations.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use index_table::ChangeKind;

use crate::{
    random::Random,
    tables::{KINDS, Order, Payment, Person, Picture, Session},
};

/// The ids of people and sessions of a tenant are below this number.
const IDS: u64 = 12;

/// Unique keys are numbered below this number. More keys than ids, so that some are free.
pub(crate) const KEYS: u32 = 16;

/// A write of one row, or of rows whose changes don't depend on the order.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Put(Person),
    /// Gives a row another primary key.
    Rename(u32, Person),
    /// Replaces existing rows in a bulk load.
    Load(Vec<Person>),
    /// Deletes a person with its orders and its picture, unless an order has a payment.
    Delete(u32),
    InsertOrder(Order),
    PutOrder(Order),
    /// Deletes an order, unless it has a payment.
    DeleteOrder(u64),
    Pay(Payment),
    DeletePayment(u64),
    PutPicture(Picture),
    DeletePicture(u32),
    PutSession(Session),
    DeleteSession(u32),
    /// Inserts a row whose unique keys are taken by this person: the store has to refuse it.
    Duplicate(Person),
}

/// The rest of an operation, in a savepoint: it fails if a shard is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cross {
    Event,
    Ticket,
    DeleteTickets,
    Kind,
    Ledger,
    Transfer(u32, i64),
}

/// The rows of a tenant after `n` operations.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) tenant: u32,
    pub(crate) n: u64,
    stamp: u64,
    pub(crate) people: BTreeMap<u32, Person>,
    pub(crate) orders: BTreeMap<u64, Order>,
    pub(crate) last_order: u64,
    pub(crate) payments: BTreeMap<u64, Payment>,
    pub(crate) pictures: BTreeMap<u32, Picture>,
    pub(crate) sessions: BTreeMap<u32, Session>,
    /// The hashes of all changes in the streams.
    pub(crate) people_changes: Vec<u64>,
    pub(crate) order_changes: Vec<u64>,
}

/// Returns the hash of a change. No two changes of a stream have the same row and kind.
pub(crate) fn change<R: Hash>(kind: ChangeKind, row: &R) -> u64 {
    let mut hasher = DefaultHasher::new();
    let kind = match kind {
        ChangeKind::Inserted => 0_u8,
        ChangeKind::Updated => 1,
        ChangeKind::Deleted => 2,
        ChangeKind::Moved => 3,
    };
    (kind, row).hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn nick(key: u32) -> String {
    format!("k{key}")
}

pub(crate) fn email(tenant: u32, key: u32) -> String {
    format!("{tenant}.{key}@example.com")
}

impl State {
    pub(crate) fn new(tenant: u32) -> Self {
        Self { tenant, ..Self::default() }
    }

    /// Applies operations until `n`.
    pub(crate) fn advance(&mut self, seed: u64, n: u64) {
        while self.n < n {
            let outcome: Result<(), ()> = self.operate(seed, &mut |_, _| Ok(()));
            debug_assert!(outcome.is_ok());
        }
    }

    /// Applies the next operation. `run` gets the state before each act.
    pub(crate) fn operate<E>(
        &mut self,
        seed: u64,
        run: &mut dyn FnMut(&Self, &Act) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut random = Random::new(&[seed, self.tenant.into(), self.n]);
        for _ in 0..=random.below(3) {
            for act in self.choose(&mut random) {
                run(self, &act)?;
                self.apply(&act);
            }
        }
        self.n += 1;
        Ok(())
    }

    /// Returns the other writes of the next operation.
    pub(crate) fn cross(&self, seed: u64, tenants: u32) -> Vec<Cross> {
        let mut random = Random::new(&[seed, self.tenant.into(), self.n, 1]);
        (0..random.below(3))
            .map(|_| match random.below(9) {
                0 | 1 => Cross::Event,
                2 | 3 => Cross::Ticket,
                4 | 5 => Cross::DeleteTickets,
                6 => Cross::Kind,
                7 => Cross::Ledger,
                _ => {
                    let partner = random.below(tenants.into()) as u32;
                    Cross::Transfer(partner, random.below(100).cast_signed())
                }
            })
            .collect()
    }

    fn free_key(&self, random: &mut Random, is_taken: impl Fn(&Person, u32) -> bool) -> u32 {
        let free = (0..KEYS).filter(|key| !self.people.values().any(|row| is_taken(row, *key)));
        random.pick(free).unwrap_or_default()
    }

    /// Returns a row with free unique keys, which may also keep those of an old row.
    fn person(&mut self, random: &mut Random, id: u32) -> Person {
        let tenant = self.tenant;
        let old = self.people.get(&id).cloned();
        let (by_nick, by_email) = (
            self.free_key(random, |row, key| row.nick == nick(key)),
            self.free_key(random, |row, key| row.email == email(tenant, key)),
        );
        let kept = random.below(4);
        let old_nick = old.as_ref().filter(|_| kept & 1 == 1).map(|row| row.nick.clone());
        let old_email = old.filter(|_| kept & 2 == 2).map(|row| row.email);
        Person {
            tenant,
            id,
            nick: old_nick.unwrap_or_else(|| nick(by_nick)),
            email: old_email.unwrap_or_else(|| email(tenant, by_email)),
            kind: random.below(KINDS),
            town: random.below(5) as u8,
            amount: random.below(1000).cast_signed() - 500,
            stamp: self.next_stamp(),
        }
    }

    const fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Returns two to four people, whose keys move on by one.
    fn rotation(&mut self, random: &mut Random) -> Vec<Person> {
        let (mut ids, mut chosen) = (self.people.keys().copied().collect::<Vec<_>>(), Vec::new());
        for _ in 0..2 + random.below(3) {
            if !ids.is_empty() {
                let at = random.below(ids.len() as u64) as usize;
                chosen.extend(self.people.get(&ids.swap_remove(at)).cloned());
            }
        }
        let keys: Vec<_> = chosen.iter().map(|row| (row.nick.clone(), row.email.clone())).collect();
        for (row, (nick, email)) in chosen.iter_mut().zip(keys.into_iter().cycle().skip(1)) {
            row.stamp = self.next_stamp();
            (row.nick, row.email) = (nick, email);
        }
        chosen
    }

    /// Returns whether the row has neither orders nor a picture, so that its primary key can change.
    fn is_alone(&self, id: u32) -> bool {
        !self.pictures.contains_key(&id) && !self.orders.values().any(|order| order.person == id)
    }

    /// Returns whether the deletion of a person is refused.
    pub(crate) fn is_paid(&self, id: u32) -> bool {
        let mut orders = self.orders.values().filter(|order| order.person == id);
        orders.any(|order| self.is_order_paid(order.number))
    }

    pub(crate) fn is_order_paid(&self, number: u64) -> bool {
        self.payments.values().any(|payment| payment.order == number)
    }

    fn choose(&mut self, random: &mut Random) -> Vec<Act> {
        let (tenant, id) = (self.tenant, random.below(IDS) as u32);
        let someone = random.pick(self.people.keys().copied());
        let order = random.pick(self.orders.values().cloned());
        let payment = random.pick(self.payments.keys().copied());
        let act = match (random.below(20), someone, order) {
            (4..6, Some(id), _) => Act::Delete(id),
            (6, Some(from), _) if self.is_alone(from) && !self.people.contains_key(&id) => {
                let mut row =
                    self.people.get(&from).cloned().unwrap_or_else(|| self.person(random, id));
                (row.id, row.stamp) = (id, self.next_stamp());
                Act::Rename(from, row)
            }
            (7, Some(_), _) => {
                let rows = self.rotation(random);
                return self.exchange(random, rows);
            }
            (8, Some(from), _) if from != id && self.is_alone(from) => {
                // A row gives its keys to another row.
                let Some(old) = self.people.get(&from).cloned() else { return Vec::new() };
                let row = Person { id, stamp: self.next_stamp(), ..old };
                return vec![Act::Delete(from), Act::Put(row)];
            }
            (9, Some(_), _) => Act::Load(self.rotation(random)),
            (10..12, Some(person), _) => Act::InsertOrder(Order {
                tenant,
                number: self.last_order + 1,
                person,
                code: random.below(50) as u32,
                stamp: self.next_stamp(),
            }),
            (12, Some(person), Some(order)) => {
                let stamp = self.next_stamp();
                Act::PutOrder(Order { person, code: random.below(50) as u32, stamp, ..order })
            }
            (13, _, Some(order)) => Act::DeleteOrder(order.number),
            (14, _, Some(order)) => {
                let number = self.next_stamp();
                Act::Pay(Payment { tenant, number, order: order.number })
            }
            (15, ..) if payment.is_some() => Act::DeletePayment(payment.unwrap_or_default()),
            (16, Some(id), _) => {
                let bytes = vec![self.stamp as u8; random.below(300) as usize];
                Act::PutPicture(Picture { tenant, id, bytes })
            }
            (17, Some(id), _) => Act::DeletePicture(id),
            (18, ..) => match random.below(4) {
                0 => Act::DeleteSession(id),
                kind => Act::PutSession(Session::new(tenant, id, kind == 1)),
            },
            (19, Some(id), _) => match self.people.get(&id) {
                Some(row) => Act::Duplicate(row.clone()),
                None => return Vec::new(),
            },
            _ => Act::Put(self.person(random, id)),
        };
        vec![act]
    }

    /// Writes a rotation row by row: the first row gets free keys meanwhile.
    fn exchange(&mut self, random: &mut Random, mut rows: Vec<Person>) -> Vec<Act> {
        let Some(first) = rows.first() else { return Vec::new() };
        let away = Person {
            nick: nick(self.free_key(random, |row, key| row.nick == nick(key))),
            email: {
                let tenant = self.tenant;
                email(tenant, self.free_key(random, |row, key| row.email == email(tenant, key)))
            },
            stamp: self.next_stamp(),
            ..first.clone()
        };
        if rows.len() < 2 {
            return vec![Act::Put(away)];
        }
        // The last row gets the keys of the first, and so on.
        rows.reverse();
        std::iter::once(away).chain(rows).map(Act::Put).collect()
    }

    fn put(&mut self, row: &Person) {
        let kind = if self.people.insert(row.id, row.clone()).is_some() {
            ChangeKind::Updated
        } else {
            ChangeKind::Inserted
        };
        self.people_changes.push(change(kind, row));
    }

    fn remove(&mut self, id: u32) {
        if let Some(row) = self.people.remove(&id) {
            self.people_changes.push(change(ChangeKind::Deleted, &row));
        }
    }

    fn remove_order(&mut self, number: u64) {
        if let Some(row) = self.orders.remove(&number) {
            self.order_changes.push(change(ChangeKind::Deleted, &row));
        }
    }

    fn apply(&mut self, act: &Act) {
        match act {
            Act::Put(row) => self.put(row),
            Act::Rename(from, row) => {
                self.remove(*from);
                self.put(row);
            }
            Act::Load(rows) => {
                let rows: BTreeMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
                for row in rows.into_values() {
                    self.put(row);
                }
            }
            Act::Delete(id) if !self.is_paid(*id) => {
                self.remove(*id);
                let of_person = |order: &&Order| order.person == *id;
                let numbers: BTreeSet<_> =
                    self.orders.values().filter(of_person).map(|order| order.number).collect();
                for number in numbers {
                    self.remove_order(number);
                }
                self.pictures.remove(id);
            }
            Act::InsertOrder(order) => {
                self.last_order = order.number;
                self.orders.insert(order.number, order.clone());
                self.order_changes.push(change(ChangeKind::Inserted, order));
            }
            Act::PutOrder(order) => {
                self.orders.insert(order.number, order.clone());
                self.order_changes.push(change(ChangeKind::Updated, order));
            }
            Act::DeleteOrder(number) if !self.is_order_paid(*number) => self.remove_order(*number),
            Act::Pay(payment) => drop(self.payments.insert(payment.number, payment.clone())),
            Act::DeletePayment(number) => drop(self.payments.remove(number)),
            Act::PutPicture(picture) => drop(self.pictures.insert(picture.id, picture.clone())),
            Act::DeletePicture(id) => drop(self.pictures.remove(id)),
            Act::PutSession(session) => drop(self.sessions.insert(session.id, session.clone())),
            Act::DeleteSession(id) => drop(self.sessions.remove(id)),
            Act::Delete(_) | Act::DeleteOrder(_) | Act::Duplicate(_) => {}
        }
    }
}

/// The states of tenants, computed as far as necessary.
pub(crate) struct States {
    seed: u64,
    states: BTreeMap<u32, State>,
}

impl States {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, states: BTreeMap::new() }
    }

    pub(crate) fn get(&mut self, tenant: u32, n: u64) -> &State {
        let state = self.states.entry(tenant).or_insert_with(|| State::new(tenant));
        if state.n > n {
            *state = State::new(tenant);
        }
        state.advance(self.seed, n);
        state
    }
}
