//! Indexes that are built, and not renamed.

use index_table::Store;

use super::{people::Watched, states};
use crate::{Place, TestResult};

/// Declares a module with the table `items`, the `methods` of its rows, and these indexes.
macro_rules! items {
    ($module:ident, [$($index:tt)*], $factor:literal) => {
        pub(crate) mod $module {
            use index_table::{IndexTable, Result, Store};
            use serde::{Deserialize, Serialize};

            use super::Watched;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "items", repository = Items)]
            #[indexes($($index)*)]
            pub(crate) struct Item {
                #[primary_key]
                pub(crate) id: u32,
                pub(crate) code: u32,
                pub(crate) town: String,
                pub(crate) watched: Watched,
            }

            #[allow(dead_code, reason = "not all declarations have an index on a method")]
            impl Item {
                fn product(&self) -> u32 {
                    self.code * $factor
                }

                fn is_chosen(&self) -> bool {
                    self.code.is_multiple_of($factor)
                }
            }

            #[allow(dead_code, reason = "not all declarations write rows")]
            pub(crate) fn fill(store: &Store, watched: Watched, ids: std::ops::Range<u32>) -> Result<Items> {
                let items = Items::open(store)?;
                store.transaction(|txn| {
                    ids.clone().try_for_each(|id| {
                        let item = Item { id, code: id % 10, town: format!("town {}", id % 7), watched };
                        items.insert(txn, &item)
                    })
                })?;
                Ok(items)
            }
        }
    };
}
pub(crate) use items;

items!(plain, [(town, name = "first"), (computed(product: u32), name = "by_product"), (code, filter = is_chosen, name = "chosen")], 2);
// The methods have changed. The guide says that other names build the indexes again.
items!(methods, [(town, name = "first"), (computed(product: u32), name = "products"), (code, filter = is_chosen, name = "selected")], 5);
items!(included, [(town, name = "second", include = [code])], 2);
items!(one, [(town, name = "first"), (code, name = "other")], 2);
items!(swapped, [(code, name = "first"), (town, name = "other")], 2);
items!(two, [(town, name = "second")], 2);
items!(none, [(code, name = "other")], 2);
items!(three, [(town, name = "third")], 2);
items!(taken, [(code, name = "first"), (town, name = "last")], 2);

/// Returns the number of rows that `open` reads.
fn reads<T>(
    watched: Watched,
    open: impl FnOnce() -> index_table::Result<T>,
) -> index_table::Result<(T, u64)> {
    let before = watched.reads();
    let opened = open()?;
    Ok((opened, watched.reads() - before))
}

fn has(store: &Store, index: &str, state: &str) -> index_table::Result<bool> {
    Ok(states(store, "items")?.contains(&format!("{index} {state}")))
}

/// The only sign of another method is another name.
#[test]
fn an_index_on_a_method_is_built() -> TestResult {
    for place in Place::all()? {
        let (store, watched) = (place.open()?, Watched::new());
        drop(plain::fill(&store, watched, 0..100)?);
        let (items, read) = reads(watched, || methods::Items::open(&store))?;
        assert!(read > 0);
        let txn = store.read()?;
        assert_eq!(items.find_by_products(&txn, 45).count()?, 10);
        assert_eq!(items.by_selected(&txn).count()?, 20);
        assert!(items.verify(&txn).run()?.is_clean());
        drop((txn, items));
        assert!(has(&store, "by_product", "retired")? && has(&store, "chosen", "retired")?);
    }
    Ok(())
}

#[test]
fn an_index_with_another_definition_is_built() -> TestResult {
    for place in Place::all()? {
        let (store, watched) = (place.open()?, Watched::new());
        drop(plain::fill(&store, watched, 0..100)?);
        let (items, read) = reads(watched, || included::Items::open(&store))?;
        assert!(read > 0);
        let txn = store.read()?;
        assert_eq!(items.find_by_second(&txn, "town 1").entries().count(), 15);
        assert!(items.verify(&txn).run()?.is_clean());
        drop((txn, items));
        assert!(has(&store, "first", "retired")?);
    }
    Ok(())
}

#[test]
fn an_index_whose_former_name_is_declared_is_built() -> TestResult {
    for place in Place::all()? {
        let (store, watched) = (place.open()?, Watched::new());
        drop(one::fill(&store, watched, 0..100)?);
        let (items, read) = reads(watched, || swapped::Items::open(&store))?;
        assert!(read > 0);
        assert_eq!(items.find_by_first(&store.read()?, 3).count()?, 10);
        drop(items);
        let (items, read) = reads(watched, || taken::Items::open(&store))?;
        // `other` was renamed to `last`.
        assert_eq!(read, 0);
        let txn = store.read()?;
        assert_eq!(items.find_by_last(&txn, "town 1").count()?, 15);
        assert_eq!(items.find_by_first(&txn, 3).count()?, 10);
        assert!(items.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_retired_index_is_built() -> TestResult {
    for place in Place::all()? {
        let (store, watched) = (place.open()?, Watched::new());
        drop(one::fill(&store, watched, 0..100)?);
        let items = none::fill(&store, watched, 100..200)?;
        drop(items);
        assert!(has(&store, "first", "retired")?);
        let (items, read) = reads(watched, || two::Items::open(&store))?;
        assert!(read > 0);
        assert_eq!(items.find_by_second(&store.read()?, "town 1").count()?, 29);
        drop(items);
        // The name belongs to an index that is retired, so its entries are not replaced by those of the other.
        let (items, read) = reads(watched, || one::Items::open(&store))?;
        assert!(read > 0);
        let txn = store.read()?;
        assert_eq!(items.find_by_first(&txn, "town 1").count()?, 29);
        assert!(items.verify(&txn).run()?.is_clean());
        drop((txn, items));
        assert!(has(&store, "second", "retired")?);
        let dropped = store.drop_retired()?;
        assert_eq!(dropped, ["items.second"]);
        // Now it is renamed.
        let (items, read) = reads(watched, || three::Items::open(&store))?;
        assert_eq!(read, 0);
        assert!(items.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}
