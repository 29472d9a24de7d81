//! The hashes of `docs/FORMAT.md`. A vector never changes, because files contain these bytes.

use std::fmt::Debug;

use super::{
    encoded,
    format::{documented, hex},
};
use crate::model::{
    key::{Key, KeyBuf, KeyShape, hash, show_hashed_key, show_key},
    maintain::EntryBuffer,
    schema::KeyField,
};

fn vector<T: Key + Debug>(name: &str, value: &T, bytes: &str) -> String {
    vector_shown(name, &format!("{value:?}"), value, bytes)
}

fn vector_shown<T: Key>(name: &str, shown: &str, value: &T, bytes: &str) -> String {
    assert_eq!(hex(&hash(&encoded(value))), bytes, "{name} {shown}");
    assert_eq!(hex(&EntryBuffer::default().hash(value)), bytes, "{name} {shown}");
    format!("| `hash {name}` | `{shown}` | `{bytes}` |")
}

#[test]
fn hashes_match_the_test_vectors() {
    let text = str::to_owned;
    let rows = [
        // BLAKE3's own test vector for one byte `00` begins with these bytes.
        vector("String", &text(""), "2d 3a de df f1 1b 61 f1 4c 88 6e 35 af a0 36 73"),
        vector("String", &text("a"), "7e b5 f2 76 0c 89 1d dc 18 f5 a2 87 55 8f c4 87"),
        vector(
            "String",
            &text("https://example.com/"),
            "f6 57 09 21 83 80 74 b6 32 02 e7 c2 8d 68 0f e2",
        ),
        vector("String", &text("\0"), "44 c6 59 d1 45 ea 57 00 68 6e 4b 14 56 4a 7a b0"),
        vector_shown(
            "String",
            "\"x\".repeat(5000)",
            &"x".repeat(5000),
            "3e c5 cd 79 80 6e 51 94 c1 d1 f7 69 58 8a e6 0a",
        ),
        vector("Vec<u8>", &vec![b'a'], "7e b5 f2 76 0c 89 1d dc 18 f5 a2 87 55 8f c4 87"),
        vector(
            "Option<String>",
            &None::<String>,
            "2d 3a de df f1 1b 61 f1 4c 88 6e 35 af a0 36 73",
        ),
        vector(
            "Option<String>",
            &Some(text("a")),
            "19 23 10 c1 0a 2b 16 dc 70 63 d4 56 5d 39 86 d3",
        ),
        vector(
            "(String, u16)",
            &(text("a"), 258_u16),
            "3a 58 8c 7f f4 89 51 bf 30 3a 91 78 73 e5 d4 cd",
        ),
    ];
    assert_eq!(documented("### Test vectors of hashes"), rows);
}

#[test]
fn shapes_of_hashes_match_the_documentation() {
    let row = |name: &str, shape: KeyShape| format!("| `{name}` | `{shape}` | 16 |");
    let rows = [
        row("hash String", KeyField::hash::<String>("").shape),
        row("hash Option<Vec<u8>>", KeyField::hash::<Option<Vec<u8>>>("").shape),
    ];
    assert_eq!(documented("### Shapes of hashes"), rows);
    assert_eq!(KeyField::hash::<String>("").shape.fixed_len(), Some(16));
}

#[test]
fn messages_show_hashed_values() {
    let shapes = [u8::SHAPE, KeyField::hash::<String>("").shape, bool::SHAPE];
    let (mut key, mut value) = (KeyBuf::new(), KeyBuf::new());
    key.push(&7_u8).push(&hash(value.push(&"a".to_owned()).as_bytes())).push(&true);
    let shown = show_hashed_key(shapes.iter(), key.as_bytes(), value.as_bytes());
    assert_eq!(shown, r#"(7, "a", true)"#);
    let shown = show_key(shapes.iter(), key.as_bytes());
    assert!(shown.starts_with("(7, 0x") && shown.ends_with(", true)"), "{shown}");
    // If the values can't be decoded, the message shows the bytes of the key.
    let shown = show_hashed_key(shapes.iter(), key.as_bytes(), b"a");
    assert!(shown.starts_with("0x07"), "{shown}");

    let long = "x".repeat(1000);
    let shapes = [KeyField::hash::<String>("").shape];
    let shown = show_hashed_key(shapes.iter(), &hash(&encoded(&long)), &encoded(&long));
    assert_eq!(shown, format!("\"{}… (1001 bytes)", "x".repeat(119)));
}
