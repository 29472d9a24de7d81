//! The lists with which the rows of changes were written, by several releases of a program.

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

mod one {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "tickets", shard_by = hash(id), changes)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Ticket {
        #[primary_key]
        pub(super) id: u32,
        pub(super) short_text: String,
        #[serde(default)]
        pub(super) minutes: u16,
    }
}

mod two {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "tickets", shard_by = hash(id), changes)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Ticket {
        #[primary_key]
        pub(super) id: u32,
        #[serde(default)]
        pub(super) owner: String,
        pub(super) short_text: String,
    }
}

/// The number of a list, and its names.
type Listed = (u32, Vec<String>);

fn by_one(store: &Store, write: &[u32]) -> Result<Vec<(u32, Listed)>> {
    let tickets = one::TicketRepository::open(store)?;
    let short_text = || "leaks".to_owned();
    for id in write {
        let row = one::Ticket { id: *id, short_text: short_text(), minutes: 5 };
        store.transaction(|txn| tickets.insert(txn, &row))?;
    }
    let batch = tickets.changes(store, "one")?.next_batch(100)?;
    let seen = batch.iter().map(|change| {
        assert_eq!(change.row.short_text, short_text());
        (change.key, (change.list, change.names.to_vec()))
    });
    Ok(seen.collect())
}

fn write_by_two(store: &Store, id: u32) -> Result<()> {
    let tickets = two::TicketRepository::open(store)?;
    let row = two::Ticket { id, owner: "ann".to_owned(), short_text: "leaks".to_owned() };
    store.transaction(|txn| tickets.insert(txn, &row))
}

#[test]
fn a_change_names_the_list_that_its_row_was_written_with() -> Result<()> {
    for store in crate::stores::stores("tickets")? {
        by_one(&store, &[1])?;
        write_by_two(&store, 2)?;
        let seen = by_one(&store, &[3])?;
        let (earlier, later) = (["id", "shortText", "minutes"], ["id", "owner", "shortText"]);
        let names: Vec<_> = seen.iter().map(|(id, (_, names))| (*id, names.as_slice())).collect();
        assert_eq!(names.len(), 3);
        for (id, names) in names {
            assert_eq!(names, if id == 2 { later } else { earlier });
        }
        let number = |id: u32| seen.iter().find(|(own, _)| *own == id).map(|(_, (list, _))| *list);
        assert_eq!(number(1), number(3));
        assert!(number(2) > number(1));
    }
    Ok(())
}
