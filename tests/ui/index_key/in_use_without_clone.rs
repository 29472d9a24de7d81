use index_table::{IndexKey, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexKey)]
struct State {
    a: u8,
    b: String,
}
#[derive(Serialize, Deserialize, IndexTable)]
#[index(state)]
struct Ticket {
    #[primary_key]
    id: u64,
    state: State,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let tickets = TicketRepository::open(&store)?;
    store.transaction(|txn| {
        tickets.insert(txn, &Ticket { id: 1, state: State { a: 1, b: String::new() } })
    })?;
    let txn = store.read()?;
    for t in tickets.find_by_state(&txn, &State { a: 1, b: String::new() }).rows() {
        println!("{}", t?.id);
    }
    for t in tickets.find_by_state(&txn, &State { a: 1, b: String::new() }).entries() {
        let s: State = t?.state;
    }
    Ok(())
}
