use index_table::IndexKey;

#[derive(IndexKey)]
union Number {
    integer: u32,
    float: f32,
}

fn main() {}
