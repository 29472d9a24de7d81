//! Declarations whose names and types are unusual in the methods of calls.

use std::{marker::PhantomData, rc::Rc};

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, block_on};

/// The fields have the names of the parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(row, unique)]
struct Named {
    #[primary_key]
    store: String,
    #[primary_key]
    change: u32,
    row: Option<u8>,
}

#[test]
fn fields_can_have_the_names_of_parameters() -> TestResult {
    let store = Store::in_memory();
    let named = NamedRepository::open(&store)?;
    let row = Named { store: "a".into(), change: 1, row: Some(1) };
    block_on(named.insert_async(&store, &row))?;
    assert!(block_on(named.update_async(&store, "a", 1, |named| named.row = Some(2)))?);
    assert_eq!(block_on(named.get_by_row_async(&store, Some(1)))?, None);
    assert_eq!(
        block_on(named.get_by_row_async(&store, Some(2)))?,
        block_on(named.get_async(&store, "a", 1))?
    );
    assert!(block_on(named.delete_async(&store, "a", 1))?);
    Ok(())
}

/// Can't be sent to another thread.
#[derive(Serialize, Deserialize, IndexTable)]
struct Local {
    #[primary_key]
    id: u32,
    local: PhantomData<Rc<()>>,
}

#[test]
fn a_row_that_stays_in_its_thread_has_the_other_calls() -> TestResult {
    let store = Store::in_memory();
    let rows = LocalRepository::open(&store)?;
    let own = rows.clone();
    block_on(
        store.transaction_async(move |txn| own.insert(txn, &Local { id: 1, local: PhantomData })),
    )?;
    assert!(block_on(rows.delete_async(&store, 1))?);
    Ok(())
}
