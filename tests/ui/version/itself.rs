use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = Customer)]
struct Customer {
    #[primary_key]
    id: u64,
}

mod by_self {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(version = 2, previous = Self)]
    struct Customer {
        #[primary_key]
        id: u64,
    }
}

mod by_path {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(version = 2, previous = self::Customer)]
    struct Customer {
        #[primary_key]
        id: u64,
    }
}

fn main() {}

// 3 mistakes
