//! Rows as people write them: two releases of a table, without a version number.

use index_table::Store;
use serde_json::json;

mod one {
    use index_table::{IndexKey, IndexTable};
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
    pub(super) enum State {
        Open,
        Closed,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Line {
        pub(super) sku: String,
        pub(super) count: u16,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "tickets")]
    #[index(state)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Ticket {
        #[primary_key]
        pub(super) id: u64,
        pub(super) state: State,
        pub(super) lines: Vec<Line>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) note: Option<String>,
        pub(super) extra: serde_json::Value,
    }
}

mod two {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    pub(super) use super::one::State;

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "tickets")]
    #[index(state)]
    #[index(owner)]
    pub(super) struct Ticket {
        #[primary_key]
        pub(super) id: u64,
        #[serde(default)]
        pub(super) owner: String,
        pub(super) state: State,
        #[serde(alias = "note")]
        pub(super) remark: Option<String>,
        pub(super) extra: serde_json::Value,
    }
}

#[test]
fn a_later_release_opens_the_file_of_an_earlier_one() -> index_table::Result<()> {
    use one::{Line, State};
    let dir = tempfile::tempdir().expect("a directory");
    let extra = json!({ "tags": ["a", 1, 2.5, null], "ref": { "id": -7 } });
    {
        let store = Store::open(dir.path())?;
        let tickets = one::TicketRepository::open(&store)?;
        store.transaction(|txn| {
            for (id, state, note) in
                [(1, State::Open, None), (2, State::Closed, Some("n".to_owned()))]
            {
                let lines = vec![Line { sku: "S".into(), count: 2 }];
                tickets
                    .insert(txn, &one::Ticket { id, state, lines, note, extra: extra.clone() })?;
            }
            Ok(())
        })?;
        assert_eq!(tickets.get(&store.read()?, 1)?.expect("a row").lines[0].count, 2);
    }
    let store = Store::open(dir.path())?;
    let tickets = two::TicketRepository::open(&store)?;
    let txn = store.read()?;
    let remark = Some("n".to_owned());
    let closed = two::Ticket { id: 2, owner: String::new(), state: State::Closed, remark, extra };
    assert_eq!(tickets.get(&txn, 2)?.as_ref(), Some(&closed));
    assert_eq!(tickets.find_by_owner(&txn, "").count()?, 2);
    assert_eq!(
        tickets.find_by_state(&txn, State::Open).keys().collect::<Result<Vec<_>, _>>()?,
        [1]
    );
    drop(txn);
    store.transaction(|txn| tickets.put(txn, &closed))?;
    store.transaction(|txn| tickets.update(txn, 1, |row| row.owner = "Ada".into()))?;
    let report = tickets.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}
