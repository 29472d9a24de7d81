//! Prefixes of strings.

use proptest::prelude::*;

use super::{
    arrange::{Sample, for_all},
    encoded, encoded_prefix, prefix_of,
};
use crate::model::key::Desc;

/// Checks that exactly the encodings of strings with a prefix start with the encoding of the prefix.
fn check(prefix: &str, text: &str) {
    let starts = text.starts_with(prefix);
    let (key, bytes) = (encoded(&text.to_owned()), encoded_prefix(prefix));
    assert_eq!(key.starts_with(&bytes), starts, "{prefix:?} {text:?}: {bytes:02x?} {key:02x?}");
    let (key, bytes) = (encoded(&Desc(text.to_owned())), prefix_of::<Desc<String>>(prefix));
    assert_eq!(key.starts_with(&bytes), starts, "desc {prefix:?} {text:?}");
    check_bytes(prefix.as_bytes(), text.as_bytes());
    let (key, bytes) = (encoded(&Some(text.to_owned())), prefix_of::<Option<String>>(prefix));
    assert_eq!(key.starts_with(&bytes), starts, "some {prefix:?} {text:?}");
    assert!(!encoded(&None::<String>).starts_with(&bytes), "{prefix:?} is a prefix of `None`");
}

/// Like [`check`], for bytes.
fn check_bytes(prefix: &[u8], value: &[u8]) {
    let starts = value.starts_with(prefix);
    let (key, bytes) = (encoded(&value.to_vec()), prefix_of::<Vec<u8>>(prefix));
    assert_eq!(key.starts_with(&bytes), starts, "{prefix:02x?} {value:02x?}");
    let key = encoded(&Desc(Some(value.to_vec())));
    let bytes = prefix_of::<Desc<Option<Vec<u8>>>>(prefix);
    assert_eq!(key.starts_with(&bytes), starts, "desc some {prefix:02x?} {value:02x?}");
    assert!(!encoded(&Desc(None::<Vec<u8>>)).starts_with(&bytes), "{prefix:02x?}");
}

#[test]
fn a_prefix_of_bytes_finds_its_extensions() {
    for_all(Vec::<u8>::pair(), |(a, b)| {
        check_bytes(&a, &b);
        check_bytes(&a, &[a.as_slice(), &b].concat());
        check_bytes(&[], &a);
    });
    check_bytes(&[0xFF], &[0xFF, 0]);
}

#[test]
fn a_prefix_finds_its_extensions() {
    for_all(String::pair(), |(a, b)| {
        check(&a, &b);
        check(&b, &a);
        check(&a, &a);
        check("", &a);
    });
}

#[test]
fn every_head_of_a_string_is_a_prefix() {
    for_all((String::any(), any::<prop::sample::Index>()), |(text, index)| {
        let middle = text.floor_char_boundary(index.index(text.len() + 1));
        let (head, tail) = text.split_at(middle);
        check(head, &text);
        check(&format!("{head}\0"), &text);
        check(&format!("{head}\u{1}"), &text);
        assert_eq!([encoded_prefix(head), encoded(&tail.to_owned())].concat(), encoded(&text));
    });
}

#[test]
fn prefixes_with_special_bytes_are_escaped() {
    let texts =
        ["", "\0", "\0\0", "\0\u{1}", "\u{1}", "\u{1}\0", "\u{1}\u{2}", "\u{2}", "a", "a\0"];
    for prefix in texts {
        for text in texts {
            check(prefix, text);
        }
    }
    assert_eq!(encoded_prefix(""), [0; 0]);
    assert_eq!(encoded_prefix("a\0\u{1}"), [b'a', 1, 1, 1, 2]);
}
