//! The rows, which are the same for both sides and in every run.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

/// A row with an index of each strategy and a unique index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(town)]
#[index(town, last_name, strategy = "partial", include = [phone])]
#[index(last_name, strategy = "full")]
#[index(email, unique)]
pub(crate) struct Customer {
    #[primary_key]
    pub id: u64,
    pub first_name: String,
    pub last_name: String,
    pub town: String,
    pub phone: String,
    pub email: String,
}

const FIRST_NAMES: [&str; 8] =
    ["Alice", "Bob", "Carol", "Dmitri", "Eve", "François", "Grace", "Heidi"];
const LAST_NAMES: [&str; 10] = [
    "Smith",
    "Jones",
    "Brown",
    "Nguyen",
    "García",
    "Okafor",
    "Li",
    "Petrov",
    "Hansen",
    "Kowalczyk",
];
const TOWNS: [&str; 20] = [
    "Redmond",
    "Bellevue",
    "Seattle",
    "Kirkland",
    "Tacoma",
    "Renton",
    "Everett",
    "Spokane",
    "Olympia",
    "Yakima",
    "Vancouver",
    "Kent",
    "Auburn",
    "Marysville",
    "Pasco",
    "Lynnwood",
    "Burien",
    "Bothell",
    "Issaquah",
    "Sammamish",
];

impl Customer {
    /// Returns the row with this number. Primary keys and names are scattered.
    #[must_use]
    pub(crate) fn number(number: u64) -> Self {
        let scattered = scatter(number);
        let pick = |shift: u32, of: usize| (scattered >> shift) as usize % of;
        let first_name = FIRST_NAMES[pick(8, FIRST_NAMES.len())];
        let last_name = LAST_NAMES[pick(16, LAST_NAMES.len())];
        Self {
            id: scattered >> 16,
            first_name: first_name.to_owned(),
            last_name: last_name.to_owned(),
            town: TOWNS[pick(24, TOWNS.len())].to_owned(),
            phone: format!("555-{:04}", pick(32, 10_000)),
            email: format!("{number}.{last_name}@example.com"),
        }
    }

    /// Returns the last name and the town of query `round`. All combinations occur.
    #[must_use]
    pub(crate) fn names(round: usize) -> (&'static str, &'static str) {
        (LAST_NAMES[round % LAST_NAMES.len()], TOWNS[round / LAST_NAMES.len() % TOWNS.len()])
    }
}

/// Scatters a number by the output function of splitmix64.
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
