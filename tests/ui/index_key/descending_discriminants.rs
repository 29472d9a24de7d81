use index_table::{IndexKey, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
enum State {
    Open = 5,
    Closed = 3,
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
    store.transaction(|txn| tickets.insert(txn, &Ticket { id: 1, state: State::Open }))?;
    let txn = store.read()?;
    for t in tickets.find_by_state(&txn, State::Open).rows() {
        println!("{}", t?.id);
    }
    for t in tickets.find_by_state(&txn, State::Open).entries() {
        let s: State = t?.state;
    }
    Ok(())
}
