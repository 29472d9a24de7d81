//! The record of a table's lists in the catalog of a data file.
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | the format, 1 |
//! | 8 | the start of BLAKE3's hash of the rest |
//! | rest | [`Catalog::to_bytes`] |

use index_table_rows::Catalog;

/// The name of the record among the records of a table.
pub(crate) const LISTS: &str = "@lists";

const FORMAT: u8 = 1;
const HASH: usize = 8;

pub(super) fn encode(catalog: &Catalog) -> Vec<u8> {
    let body = catalog.to_bytes();
    let mut record = vec![FORMAT];
    record.extend(hash(&body));
    record.extend(body);
    record
}

/// Returns the hash in a record as a number.
pub(super) fn hash_of(record: &[u8]) -> u64 {
    let hash = record.get(1..=HASH).and_then(|hash| hash.try_into().ok());
    hash.map_or(0, u64::from_le_bytes)
}

/// Reads a record; `None` if it is damaged.
pub(crate) fn decode(record: &[u8]) -> Option<Catalog> {
    let rest = record.strip_prefix(&[FORMAT])?;
    let (expected, body) = rest.split_at_checked(HASH)?;
    if expected != hash(body) {
        return None;
    }
    Catalog::from_bytes(body).ok()
}

fn hash(body: &[u8]) -> [u8; HASH] {
    let mut start = [0; HASH];
    for (byte, from) in start.iter_mut().zip(blake3::hash(body).as_bytes()) {
        *byte = *from;
    }
    start
}
