//! The tables: every kind of table, index and attribute. The rows of a tenant have its number as shard key.

use std::{
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use index_table::{Durability, IndexTable, Options, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

/// The number of operations of a tenant, and the parts of the model that depend on other shards.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, IndexTable)]
#[table(name = "progress", shard_by = tenant, shard_map = "tenants")]
pub(crate) struct Progress {
    #[primary_key]
    pub(crate) tenant: u32,
    /// The number of operations. All rows of the tenant in tables of the map `tenants` are a function of it.
    pub(crate) n: u64,
    /// The number of writes of events.
    pub(crate) events: u64,
    /// The numbers of the tickets that exist: from the first to the last.
    pub(crate) first_ticket: u64,
    pub(crate) last_ticket: u64,
    /// The value of the row of the reference table.
    pub(crate) kind: u64,
    pub(crate) ledger: u64,
    /// The sums of the transfers to and from each other tenant.
    pub(crate) sent: Vec<(u32, i64)>,
    pub(crate) received: Vec<(u32, i64)>,
    /// The shards in which the changes of people were written, each with the number of earlier changes.
    pub(crate) homes: Vec<(String, u64)>,
}

#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = tenant, shard_map = "tenants", changes)]
#[indexes((tenant, nick, unique), (email, unique, scope = "global"), (kind))]
#[index(town, consistency = "eventual")]
#[aggregate(tenant, sum = [amount])]
#[aggregate(town)]
pub(crate) struct Person {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) nick: String,
    pub(crate) email: String,
    #[references(Kind)]
    pub(crate) kind: u64,
    pub(crate) town: u8,
    pub(crate) amount: i64,
    /// The number of the write of the row: no two changes are equal.
    pub(crate) stamp: u64,
}

#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "tenants", changes(until_consumed))]
#[index(tenant, person)]
#[index(code, scope = "global", consistency = "eventual")]
#[references(Person, fields = [tenant, person], on_delete = "cascade")]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u64,
    pub(crate) person: u32,
    pub(crate) code: u32,
    pub(crate) stamp: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments", shard_by = tenant, shard_map = "tenants")]
#[index(tenant, order)]
#[references(Order, fields = [tenant, order], on_delete = "restrict")]
pub(crate) struct Payment {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u64,
    pub(crate) order: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "pictures", part_of = Person, shard_by = tenant, shard_map = "tenants")]
pub(crate) struct Picture {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) bytes: Vec<u8>,
}

/// A session has ended since 1970, or ends in a hundred years.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sessions", shard_by = tenant, shard_map = "tenants", expires = ends)]
pub(crate) struct Session {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) ends: SystemTime,
}

impl Session {
    pub(crate) fn new(tenant: u32, id: u32, is_live: bool) -> Self {
        let years = if is_live { 160 } else { 1 };
        Self { tenant, id, ends: UNIX_EPOCH + Duration::from_hours(24 * 365 * years) }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.ends > SystemTime::now()
    }
}

/// The accounts as an older release wrote them.
pub(crate) mod first {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "accounts", shard_by = tenant, shard_map = "tenants")]
    pub(crate) struct Account {
        #[primary_key]
        pub(crate) tenant: u32,
        pub(crate) balance: i32,
    }

    /// The fillers without their indexes.
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "fillers", shard_by = tenant, shard_map = "tenants")]
    pub(crate) struct Filler {
        #[primary_key]
        pub(crate) tenant: u32,
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) code: u64,
    }

    /// The samples without their number.
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "samples", shard_by = tenant, shard_map = "tenants")]
    pub(crate) struct Sample {
        #[primary_key]
        pub(crate) tenant: u32,
        #[primary_key]
        pub(crate) id: u32,
    }
}

/// Returns another number each time, in each process.
pub(crate) fn next_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
        AtomicU64::new(now ^ u64::from(process::id()) << 48)
    });
    NEXT.fetch_add(1, Relaxed)
}

/// The number of samples of a tenant before the first ones are deleted.
pub(crate) const SAMPLES: u32 = 60;

/// Rows whose number has a default that is another value each time. The release that writes them does not know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "samples", shard_by = tenant, shard_map = "tenants")]
#[index(tenant, number)]
#[aggregate(tenant, sum = [number])]
pub(crate) struct Sample {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    #[serde(default = "next_number")]
    pub(crate) number: u64,
}

#[derive(Deserialize, RowVersion)]
pub(crate) struct AccountV1 {
    tenant: u32,
    balance: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = tenant, shard_map = "tenants", version = 2, previous = AccountV1)]
#[index(balance)]
pub(crate) struct Account {
    #[primary_key]
    pub(crate) tenant: u32,
    pub(crate) balance: i64,
    pub(crate) transfers: u64,
}

impl From<AccountV1> for Account {
    fn from(old: AccountV1) -> Self {
        Self { tenant: old.tenant, balance: old.balance.into(), transfers: 0 }
    }
}

/// Rows that never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "fillers", shard_by = tenant, shard_map = "tenants")]
#[indexes((code, unique, scope = "global"), (tenant, code))]
pub(crate) struct Filler {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) code: u64,
}

/// The number of changes that a consumer has received from a tenant. Changes before its first ones are not compared: those of
/// a shard that was away come late, those of a removed shard are gone, and of orders, consumed changes are removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "received", shard_by = tenant, shard_map = "tenants")]
pub(crate) struct Received {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) consumer: String,
    /// The identity of the consumer.
    pub(crate) created: u64,
    pub(crate) people: u64,
    pub(crate) orders: u64,
    /// The first changes that the consumer has to receive.
    pub(crate) first_people: u64,
    pub(crate) first_orders: u64,
    /// Whether the numbers are those of the position in the shard. It moves before them.
    pub(crate) is_settled: bool,
}

/// Rows with numbers in a shard map of their own. All tickets of a tenant may be deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tickets", shard_by = tenant)]
pub(crate) struct Ticket {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
#[index(tenant)]
pub(crate) struct Event {
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) tenant: u32,
    pub(crate) write: u64,
}

/// The numbers below [`KINDS`] are the kinds of people. A tenant has the number `1000 + tenant`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "kinds", reference)]
pub(crate) struct Kind {
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) value: u64,
}

pub(crate) const KINDS: u64 = 4;

/// The number of the row whose value is positive while the indexes of fillers are built. Each snapshot with such a row must have
/// readable indexes.
pub(crate) const BUILT: u64 = 2000;

/// Returns the value of the row [`BUILT`], if it is positive. No two builds have the same value.
pub(crate) fn built(kinds: &KindRepository, txn: &index_table::ReadTxn<'_>) -> Option<u64> {
    let row = kinds.get(txn, BUILT).ok().flatten();
    row.map(|row| row.value).filter(|value| value % 2 == 1)
}

/// Consumers of both streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "consumers", reference)]
pub(crate) struct Consumer {
    #[primary_key]
    pub(crate) name: String,
    pub(crate) is_shared: bool,
    /// The nanoseconds from 1970 to its addition. A later consumer of the same name has another number.
    pub(crate) created: u64,
    /// Whether both streams have it. Otherwise, it is being added or removed, or a process was killed meanwhile.
    pub(crate) is_settled: bool,
}

/// A table without a shard key, which is placed in a shard, and moves to others. The entries of a tenant have the values from 1
/// on, and the latest are kept. The entries after those of the last tenant never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "ledger", changes)]
#[indexes((tenant, value, unique))]
#[index(value, consistency = "eventual")]
#[aggregate(tenant, sum = [value])]
#[aggregate(sum = [value])]
pub(crate) struct Entry {
    #[primary_key]
    pub(crate) number: u64,
    pub(crate) tenant: u32,
    pub(crate) value: u64,
}

/// The number of entries of a tenant that are kept.
pub(crate) const ENTRIES: u64 = 20;

/// The last value of a tenant of which the consumer of the ledger has received the entry. The table has no shard key, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "bookings")]
pub(crate) struct Booking {
    #[primary_key]
    pub(crate) tenant: u32,
    pub(crate) value: u64,
}

/// The tables without a shard key.
pub(crate) const PLACED: [&str; 2] = ["ledger", "bookings"];

macro_rules! tables {
    ($($field:ident: $repository:ident),* $(,)?) => {
        #[derive(Clone)]
        pub(crate) struct Tables {
            $(pub(crate) $field: $repository,)*
            pub(crate) fillers: FillerRepository,
            pub(crate) samples: SampleRepository,
        }

        impl Tables {
            /// Opens all tables. `online` leaves the building of the indexes of fillers and samples to a later build.
            pub(crate) fn open(store: &Store, online: bool) -> Result<Self> {
                Ok(Self {
                    $($field: $repository::open(store)?,)*
                    fillers: if online {
                        FillerRepository::open_online(store)?
                    } else {
                        FillerRepository::open(store)?
                    },
                    samples: if online {
                        SampleRepository::open_online(store)?
                    } else {
                        SampleRepository::open(store)?
                    },
                })
            }
        }
    };
}

tables! {
    progress: ProgressRepository,
    kinds: KindRepository,
    people: PersonRepository,
    orders: OrderRepository,
    payments: PaymentRepository,
    pictures: PictureRepository,
    sessions: SessionRepository,
    accounts: AccountRepository,
    received: ReceivedRepository,
    tickets: TicketRepository,
    events: EventRepository,
    consumers: ConsumerRepository,
    ledger: EntryRepository,
    bookings: BookingRepository,
}

impl Tables {
    /// Whether a table without a shard key is in the shard of a transaction.
    pub(crate) fn is_placed_in(&self, table: &str, txn: &index_table::ReadTxn<'_>) -> Result<bool> {
        let found = match table {
            "ledger" => self.ledger.get(txn, 0).map(drop),
            _ => self.bookings.get(txn, 0).map(drop),
        };
        match found {
            Err(index_table::Error::OtherShard { .. }) => Ok(false),
            found => found.map(|()| true),
        }
    }
}

/// Returns options with a journal, and a checkpoint every few commits.
pub(crate) fn options() -> Options {
    let options = Store::options().durability(Durability::Journal);
    options.map_size(1 << 20).checkpoint(1 << 20, 1 << 18, Duration::from_millis(200))
}
