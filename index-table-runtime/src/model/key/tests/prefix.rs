//! Prefixes of strings.

use proptest::prelude::*;

use super::{
    arrange::{Sample, for_all},
    encoded, encoded_prefix, prefix_of,
};
use crate::model::key::Desc;

/// The bytes of a prefix are in front of the strings that start with it, and of no others.
fn check(prefix: &str, text: &str) {
    let starts = text.starts_with(prefix);
    let (key, bytes) = (encoded(&text.to_owned()), encoded_prefix(prefix));
    assert_eq!(key.starts_with(&bytes), starts, "{prefix:?} {text:?}: {bytes:02x?} {key:02x?}");
    let (key, bytes) = (encoded(&Desc(text.to_owned())), prefix_of::<Desc<String>>(prefix));
    assert_eq!(key.starts_with(&bytes), starts, "desc {prefix:?} {text:?}");
}

#[test]
fn a_prefix_finds_what_starts_with_it() {
    for_all(String::pair(), |(a, b)| {
        check(&a, &b);
        check(&b, &a);
        check(&a, &a);
        check("", &a);
    });
}

#[test]
fn every_beginning_of_a_string_is_a_prefix() {
    for_all((String::any(), any::<prop::sample::Index>()), |(text, cut)| {
        let cut = text.floor_char_boundary(cut.index(text.len() + 1));
        let (head, tail) = text.split_at(cut);
        check(head, &text);
        check(&format!("{head}\0"), &text);
        check(&format!("{head}\u{1}"), &text);
        assert_eq!([encoded_prefix(head), encoded(&tail.to_owned())].concat(), encoded(&text));
    });
}

#[test]
fn prefixes_with_special_bytes() {
    let texts =
        ["", "\0", "\0\0", "\0\u{1}", "\u{1}", "\u{1}\0", "\u{1}\u{2}", "\u{2}", "a", "a\0"];
    for prefix in texts {
        for text in texts {
            check(prefix, text);
        }
    }
    assert_eq!(encoded_prefix(""), []);
    assert_eq!(encoded_prefix("a\0\u{1}"), [b'a', 1, 1, 1, 2]);
}
