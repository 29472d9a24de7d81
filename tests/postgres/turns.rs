//! Two clients of one program that open a table and a table that refers to it in turn.

use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parents")]
#[index(name)]
struct Parent {
    #[primary_key]
    id: u32,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "children")]
#[index(parent)]
struct Child {
    #[primary_key]
    id: u32,

    #[references(Parent)]
    parent: u32,
}

/// A client with the tables that it has opened.
struct Client {
    store: Store,
    parents: Option<ParentRepository>,
    children: Option<ChildRepository>,
}

impl Client {
    fn new(schema: &Schema) -> Result<Self> {
        Ok(Self { store: schema.open()?, parents: None, children: None })
    }

    fn open(&mut self, children: bool) -> Result<()> {
        if children {
            self.children = Some(ChildRepository::open(&self.store)?);
        } else {
            self.parents = Some(ParentRepository::open(&self.store)?);
        }
        Ok(())
    }

    /// Writes a row of each open table, and removes one.
    fn write(&self, id: u32) -> Result<()> {
        if let Some(parents) = &self.parents {
            let parent = |id| Parent { id, name: format!("parent {id}") };
            self.store.transaction(|txn| parents.put(txn, &parent(id)))?;
            self.store.transaction(|txn| parents.put(txn, &parent(id + 1)))?;
            assert!(self.store.transaction(|txn| parents.delete(txn, id + 1))?);
        }
        if let Some(children) = &self.children {
            let child = Child { id, parent: id };
            match self.store.transaction(|txn| children.put(txn, &child)) {
                Err(Error::MissingReference { .. }) if self.parents.is_none() => {}
                put => drop(put?),
            }
        }
        Ok(())
    }
}

/// Returns all orders of these steps.
fn orders(steps: &[(usize, bool)]) -> Vec<Vec<(usize, bool)>> {
    let [] = steps else {
        let firsts = (0..steps.len()).flat_map(|at| {
            let mut rest = steps.to_vec();
            let first = rest.remove(at);
            orders(&rest).into_iter().map(move |rest| [vec![first], rest].concat())
        });
        return firsts.collect();
    };
    vec![Vec::new()]
}

#[test]
fn clients_that_open_parents_and_children_in_any_order_write_both() -> TestResult {
    let steps = [(0, false), (0, true), (1, false), (1, true)];
    for order in orders(&steps) {
        // With writes between the steps, each client knows the records of then.
        for writes in [false, true] {
            let Some(schema) = Schema::new() else { return Ok(()) };
            let mut clients = [Client::new(&schema)?, Client::new(&schema)?];
            for (step, (at, children)) in order.iter().enumerate() {
                clients[*at].open(*children)?;
                for (number, client) in clients.iter().enumerate().filter(|_| writes) {
                    let written = client.write(step as u32 * 20 + number as u32 * 10);
                    // It could remove a parent that the other client's children refer to.
                    let is_refused =
                        matches!(&written, Err(Error::SchemaMismatch { table: "parents", .. }));
                    let may_be_refused = client.children.is_none();
                    assert!(
                        written.is_ok() || is_refused && may_be_refused,
                        "{order:?}: {written:?}"
                    );
                }
            }
            for (number, client) in clients.iter().enumerate() {
                for round in 0..3 {
                    let id = 1_000 + round * 100 + number as u32 * 10;
                    let written = client.write(id);
                    assert!(written.is_ok(), "{order:?}, {writes}, {number}: {written:?}");
                    let parents = client.parents.as_ref().expect("it is open");
                    let referred = client.store.transaction(|txn| parents.delete(txn, id));
                    assert!(
                        matches!(referred, Err(Error::Referenced { .. })),
                        "{order:?}: {referred:?}"
                    );
                }
            }
            let [first, _] = &clients;
            assert!(first.store.verify()?.is_clean());
        }
    }
    Ok(())
}
