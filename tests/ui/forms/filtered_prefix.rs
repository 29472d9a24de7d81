use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(assignee, priority, filter = is_open, name = "open")]
struct Ticket {
    #[primary_key]
    id: u64,
    assignee: String,
    priority: u8,
    open: bool,
}

impl Ticket {
    fn is_open(&self) -> bool {
        self.open
    }
}

fn query(tickets: &TicketRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = tickets.find_by_open_assignee(txn, "Ann").first()?;
    let _ = tickets.find_by_assignee(txn, "Ann").first()?;
    Ok(())
}

fn main() {}
