//! The people of several towns. Each release declares the same indexes by other names.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Deserializer, Serialize};

/// The number of values that were read of each store.
static READ: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// The number of a store in each of its rows. Reading the row counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Watched(u32);

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        *READ.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default() += 1;
        Ok(Self(number))
    }
}

impl Watched {
    /// Returns a number that no other store of this process has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of times that a row with this number was read.
    pub(crate) fn reads(self) -> u64 {
        let read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        read.get(&self.0).copied().unwrap_or_default()
    }
}

/// Defines a module with the tables of a release: the options of the table, the name of the field for the town, and the names of
/// the indexes with the methods that query them.
macro_rules! release {
    (
        $module:ident, $name:literal, [$($table:tt)*], $town:ident, $totals:ident,
        $by_town:tt $in_town:ident, $by_email:tt $of_email:ident, $wide:tt $in_wide:ident,
        $late:tt $in_late:ident, $by_parent:tt $of_parent:ident, $by_region:tt $in_region:ident
    ) => {
        #[allow(dead_code, reason = "each release has the same items")]
        pub(crate) mod $module {
            use index_table::{Error, IndexTable, Result, Store};
            use serde::{Deserialize, Serialize};

            use super::Watched;
            use crate::{TENANTS, TestResult};

            /// Every shard has a copy.
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "regions", reference, repository = Regions)]
            pub(crate) struct Region {
                #[primary_key]
                pub(crate) code: u8,
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = $name, shard_by = tenant, shard_map = "tenants", repository = People, $($table)*)]
            #[indexes(
                ($town, name = $by_town, allow(redundant)),
                (email, unique, scope = "global", name = $by_email),
                ($town, include = [amount], name = $wide),
                ($town, email, consistency = "eventual", name = $late),
                (tenant, parent, name = $by_parent),
                (region, name = $by_region),
            )]
            #[aggregate($town, sum = [amount])]
            #[references(Self, fields = [tenant, parent])]
            pub(crate) struct Person {
                #[primary_key]
                pub(crate) tenant: u32,
                #[primary_key]
                pub(crate) id: u32,
                pub(crate) parent: u32,
                #[serde(rename = "town")]
                pub(crate) $town: String,
                pub(crate) email: String,
                pub(crate) amount: u32,
                #[references(Region)]
                pub(crate) region: u8,
                pub(crate) watched: Watched,
            }

            fn person(watched: Watched, tenant: u32, id: u32) -> Person {
                let $town = ["Oz", "Rome", "Ulm"][id as usize % 3].to_owned();
                let email = format!("{id}@{tenant}.org");
                Person { tenant, id, parent: 1, $town, email, amount: id, region: 1, watched }
            }

            /// Puts a person of each tenant. Messages about them are left in the queue.
            pub(crate) fn put(store: &Store, watched: Watched, id: u32) -> Result<()> {
                let people = People::open(store)?;
                TENANTS.into_iter().try_for_each(|tenant| {
                    store.transaction(|txn| people.put(txn, &person(watched, tenant, id)))
                })
            }

            /// Puts six persons of each tenant into an empty store.
            pub(crate) fn fill(store: &Store, watched: Watched) -> Result<()> {
                let regions = Regions::open(store)?;
                store.transaction(|txn| regions.put(txn, &Region { code: 1 }))?;
                (1..=6).try_for_each(|id| put(store, watched, id))
            }

            /// Opens the tables without reading a row, and checks everything that the store has of `people` persons of each tenant.
            pub(crate) fn check(store: &Store, watched: Watched, people: u32) -> TestResult {
                let reads = watched.reads();
                let opened = People::open(store)?;
                assert_eq!(watched.reads(), reads, "the opening has read rows");
                check_open(store, &opened, people)?;
                let states = crate::indexes::states(store, $name)?;
                assert!(!states.iter().any(|it| it.ends_with("retired")), "{states:?}");
                Ok(())
            }

            /// Checks an open table.
            pub(crate) fn check_open(store: &Store, people: &People, rows: u32) -> TestResult {
                let (regions, release) = (Regions::open(store)?, stringify!($module));
                let rows = u64::from(rows);
                let txn = store.read()?;
                assert_eq!(people.all(&txn).count()?, 3 * rows, "{release}");
                let in_oz = |row: &Person| row.$town == "Oz";
                let all = people.all(&txn).rows().collect::<Result<Vec<_>>>()?;
                let of_oz: Vec<_> = all.iter().filter(|row| in_oz(row)).collect();
                assert_eq!(people.$in_town(&txn, "Oz").count()?, of_oz.len() as u64, "{release}");
                assert_eq!(people.$in_region(&txn, 1).count()?, 3 * rows, "{release}");
                let amounts = people.$in_wide(&txn, "Oz").entries().map(|entry| Ok(entry?.amount));
                let mut amounts = amounts.collect::<Result<Vec<u32>>>()?;
                amounts.sort_unstable();
                let mut expected: Vec<_> = of_oz.iter().map(|row| row.amount).collect();
                expected.sort_unstable();
                assert_eq!(amounts, expected, "{release}");
                let totals = people.$totals(&txn, "Oz")?;
                assert_eq!(totals.count, of_oz.len() as u64, "{release}");
                assert_eq!(totals.sum_amount, expected.iter().map(|it| i128::from(*it)).sum::<i128>());
                for row in &all {
                    let found = people.$of_email(&txn, row.email.as_str())?;
                    assert_eq!(found.as_ref(), Some(row), "{release}");
                }
                for tenant in TENANTS {
                    assert_eq!(people.$of_parent(&txn, tenant, 1).count()?, rows, "{release}");
                }
                drop(txn);
                // The references still use their indexes.
                let refused = store.transaction(|txn| people.delete(txn, 13, 1));
                assert!(matches!(refused, Err(Error::Referenced { by: $name, .. })), "{release}: {refused:?}");
                let refused = store.transaction(|txn| regions.delete(txn, 1));
                assert!(matches!(refused, Err(Error::Referenced { by: $name, .. })), "{release}: {refused:?}");
                // A key is still unique in all shards.
                let twice = Person { id: 99, email: all[0].email.clone(), ..all[all.len() - 1].clone() };
                let refused = store.transaction(|txn| people.insert(txn, &twice));
                assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{release}: {refused:?}");
                let report = people.verify(&store.read()?).run()?;
                assert!(report.is_clean(), "{release}: {report:?}");
                let states = crate::indexes::states(store, $name)?;
                let expected = [$by_town, $by_email, $wide, $late, $by_parent, $by_region, stringify!($totals)];
                for index in expected {
                    assert!(states.contains(&format!("{index} readable")), "{release}: {states:?}");
                }
                Ok(())
            }

            /// Applies all messages, and checks the eventual index.
            pub(crate) fn drain(store: &Store) -> TestResult {
                let people = People::open(store)?;
                assert!(people.lag(&store.read()?)?.messages > 0);
                people.drain(store, u64::MAX)?;
                let txn = store.read()?;
                let in_oz = people.$in_town(&txn, "Oz").count()?;
                assert_eq!(people.$in_late(&txn, "Oz").stale().count()?, in_oz);
                assert!(people.verify(&txn).run()?.is_clean());
                Ok(())
            }
        }
    };
}

release!(
    first, "people", [], town, aggregate_by_town,
    "by_town" find_by_by_town, "by_email" get_by_by_email, "wide" find_by_wide,
    "late" find_by_late_town, "by_parent" find_by_by_parent, "by_region" find_by_by_region
);
release!(
    second, "people", [], city, aggregate_by_city,
    "cities" find_by_cities, "emails" get_by_emails, "broad" find_by_broad,
    "tardy" find_by_tardy_city, "parents" find_by_parents, "regions" find_by_regions
);
release!(
    third, "people", [], place, aggregate_by_place,
    "places" find_by_places, "addresses" get_by_addresses, "with_amount" find_by_with_amount,
    "soon" find_by_soon_place, "children" find_by_children, "of_region" find_by_of_region
);
release!(
    moved, "persons", [was = "people"], city, aggregate_by_city,
    "cities" find_by_cities, "emails" get_by_emails, "broad" find_by_broad,
    "tardy" find_by_tardy_city, "parents" find_by_parents, "regions" find_by_regions
);
