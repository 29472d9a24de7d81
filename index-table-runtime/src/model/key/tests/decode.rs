//! Decoding of bytes that are not an encoding.

use std::fmt::Debug;

use proptest::{prelude::*, sample::Index};

use super::{
    arrange::{Sample, any_bytes, for_all, for_every_key_type},
    decode_owned, encoded, skip,
};
use crate::model::key::{DecodeError, Desc, Key, KeyReader, Unescaped, bytes::unescape};

/// Checks that decoding fails, or that the bytes are the encoding of the decoded value.
fn check<T: Sample>(bytes: &[u8])
where
    for<'a> T::Ref<'a>: Debug,
{
    let owned = decode_owned::<T>(bytes);
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    let borrowed = T::decode(&mut reader);
    match owned {
        Ok((value, len)) => {
            assert_eq!(encoded(&value), bytes[..len], "{value:?}");
            assert_eq!(format!("{:?}", borrowed.unwrap()), format!("{value:?}"));
            assert_eq!(bytes.len() - reader.rest().len(), len, "{value:?}");
            assert_eq!(skip::<T>(bytes), Ok(len), "{value:?}");
        }
        Err(error) => assert_eq!(borrowed.map(|value| format!("{value:?}")), Err(error)),
    }
}

pub(super) fn hostile_bytes<T: Sample>()
where
    for<'a> T::Ref<'a>: Debug,
{
    for_all((any_bytes(), T::any(), any::<Index>(), any::<u8>()), |(bytes, value, at, byte)| {
        check::<T>(&bytes);
        check::<T>(&vec![byte; bytes.len()]);

        // An encoding with one changed byte.
        let key = encoded(&value);
        let mut damaged = key.clone();
        *at.get_mut(&mut damaged) = byte;
        check::<T>(&damaged);

        // A truncated encoding.
        let truncated = &key[..at.index(key.len())];
        assert!(decode_owned::<T>(truncated).is_err(), "{value:?} {truncated:02x?}");
        assert_eq!(skip::<T>(truncated), Err(DecodeError::Short), "{value:?} {truncated:02x?}");
        check::<T>(truncated);
    });
}

for_every_key_type!(hostile_bytes);

fn assert_refused<T: Key + Debug>(bytes: &[u8], expected: &DecodeError) {
    assert_eq!(decode_owned::<T>(bytes).map(drop), Err(expected.clone()), "{bytes:02x?}");
}

#[test]
fn values_that_do_not_exist_are_refused() {
    let value = |text| DecodeError::Value(text);
    assert_refused::<bool>(&[2], &value("neither false (00) nor true (01)"));
    assert_refused::<bool>(&[0xFF], &value("neither false (00) nor true (01)"));
    assert_refused::<Option<u8>>(&[2, 7], &value("neither false (00) nor true (01)"));
    let scalar = value("not a Unicode scalar value");
    assert_refused::<char>(&0xD800_u32.to_be_bytes(), &scalar);
    assert_refused::<char>(&0xDFFF_u32.to_be_bytes(), &scalar);
    assert_refused::<char>(&0x0011_0000_u32.to_be_bytes(), &scalar);
    assert_refused::<char>(&u32::MAX.to_be_bytes(), &scalar);
    assert_refused::<String>(&[0xFF, 0], &value("not UTF-8"));
    assert_refused::<String>(&[0xC3, 0], &value("not UTF-8"));
    // An escape in the middle of a character: the unescaped bytes are checked for UTF-8.
    assert_refused::<String>(&[0xC3, 1, 1, 0], &value("not UTF-8"));
    assert_refused::<String>(&[0xED, 0xA0, 0x80, 0], &value("not UTF-8"));
}

#[test]
fn damaged_strings_are_refused() {
    for escape in [&[1, 0][..], &[1, 3, 0], &[1, 0xFF, 0], &[b'a', 1, 0], &[1, 1, 1, 0]] {
        assert_refused::<String>(escape, &DecodeError::Escape);
        assert_refused::<Vec<u8>>(escape, &DecodeError::Escape);
    }
    for short in [&[][..], b"a", &[1], &[1, 1], &[b'a', 1, 2]] {
        assert_refused::<String>(short, &DecodeError::Short);
        assert_refused::<Vec<u8>>(short, &DecodeError::Short);
    }
}

#[test]
fn an_end_inside_a_string_is_refused() {
    assert_eq!(unescape(&[b'a', 0, b'b']), Err(DecodeError::Escape));
    assert_eq!(unescape(&[b'a', 1, 1, 1, 2, b'b']), Ok(vec![b'a', 0, 1, b'b']));
}

/// A shape doesn't decode a value, but has to find the end of the value.
#[test]
fn a_shape_does_not_skip_a_damaged_option() {
    let error = DecodeError::Value("neither false (00) nor true (01)");
    assert_eq!(skip::<Option<u8>>(&[2, 7]), Err(error.clone()));
    assert_eq!(skip::<Option<String>>(&[0xFF, 0]), Err(error.clone()));
    assert_eq!(skip::<(u8, Option<Option<u8>>)>(&[7, 1, 3, 0]), Err(error));
}

#[test]
fn text_is_borrowed_unless_it_is_escaped() {
    let key = [encoded(&"plain".to_owned()), encoded(&"\0".to_owned())].concat();
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(&key, &unescaped);
    let plain = String::decode(&mut reader).unwrap();
    assert_eq!(plain, "plain");
    assert!(std::ptr::eq(plain.as_bytes(), &raw const key[..5]));
    assert_eq!(String::decode(&mut reader).unwrap(), "\0");
    assert!(reader.rest().is_empty());
}

/// The bytes are checked in words of eight and four, and the last word may overlap the one before.
#[test]
fn text_is_escaped_at_every_position_and_length() {
    for len in 1..=26 {
        for at in 0..len {
            for byte in [0, 1, 2, 0x7F] {
                let mut bytes = vec![b'a'; len];
                bytes[at] = byte;
                let escaped = |&byte: &u8| if byte < 2 { vec![1, byte + 1] } else { vec![byte] };
                let mut expected: Vec<u8> = bytes.iter().flat_map(escaped).collect();
                expected.push(0);
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(encoded(&text), expected, "{byte} at {at} of {len}");
            }
        }
    }
}

/// Unescaped strings do not move when others are added.
#[test]
fn unescaped_text_is_kept() {
    let texts: Vec<String> = (0..1000).map(|number| format!("\0{number}")).collect();
    let key: Vec<u8> = texts.iter().flat_map(encoded).collect();
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(&key, &unescaped);
    let read: Vec<&str> = texts.iter().map(|_| String::decode(&mut reader).unwrap()).collect();
    assert_eq!(read, texts);
}
