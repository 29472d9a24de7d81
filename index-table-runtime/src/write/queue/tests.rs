//! Compares the bytes of queues with `docs/FORMAT.md`.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use super::message::{DeadLetterRecord, Message, Part, QueueState, decode};

#[expect(clippy::duplicate_mod, reason = "the one of the key tests is private to them")]
#[path = "../../model/key/tests/format.rs"]
mod format;
use format::{documented, hex};

fn assert_bytes<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, row: &str) {
    let expected = row.split('`').nth(3).expect("a value");
    let bytes = postcard::to_stdvec(value).expect("bytes");
    assert_eq!(hex(&bytes), expected, "{value:?}");
    assert_eq!(decode::<T>(&bytes).as_ref(), Some(value));
    assert_eq!(decode::<T>(&[&bytes, &[0][..]].concat()), None);
    assert_eq!(decode::<T>(&bytes[..bytes.len() - 1]), None);
}

/// They never change: files hold these bytes.
#[test]
fn the_bytes_of_queues_match_the_format() {
    let rows = documented("## Queues");
    let rows: Vec<_> =
        rows.iter().filter(|row| row.contains('`') && row.contains("00 00")).collect();
    let [state, message, dead_letter] = &rows[..] else { panic!("{rows:?}") };
    assert_bytes(&QueueState { applied: 1, dead_letters: 0 }, state);
    let part = Part { index: "town".to_owned(), keys: vec![b"Oz\0".to_vec()] };
    let time = 1_700_000_000_000;
    assert_bytes(&Message { time, primary_key: vec![2, 3], indexes: vec![part] }, message);
    assert_bytes(&DeadLetterRecord { error: "no".to_owned(), message: vec![0xff] }, dead_letter);
}
