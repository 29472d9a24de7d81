use index_table::RowVersion;

#[derive(RowVersion)]
struct CustomerV1 {
    id: u64,
}

fn main() {}
