//! What is read back from bytes that no encoder wrote.

use std::fmt::Debug;

use proptest::{prelude::*, sample::Index};

use super::{
    arrange::{Sample, any_bytes, for_all, for_every_key_type},
    decode_owned, encoded, skip,
};
use crate::model::key::{DecodeError, Desc, Key, KeyReader, Unescaped, bytes::unescape};

/// Bytes are refused, or they are exactly what the encoder writes for the value that was read.
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

        // An encoding with one byte changed.
        let key = encoded(&value);
        let mut damaged = key.clone();
        *at.get_mut(&mut damaged) = byte;
        check::<T>(&damaged);

        // One that ends too early.
        let cut = &key[..at.index(key.len())];
        assert!(decode_owned::<T>(cut).is_err(), "{value:?} {cut:02x?}");
        assert_eq!(skip::<T>(cut), Err(DecodeError::Short), "{value:?} {cut:02x?}");
        check::<T>(cut);
    });
}

for_every_key_type!(hostile_bytes);

fn refused<T: Key + Debug>(bytes: &[u8], expected: &DecodeError) {
    assert_eq!(decode_owned::<T>(bytes).map(drop), Err(expected.clone()), "{bytes:02x?}");
}

#[test]
fn values_that_do_not_exist_are_refused() {
    let value = |text| DecodeError::Value(text);
    refused::<bool>(&[2], &value("neither false (00) nor true (01)"));
    refused::<bool>(&[0xFF], &value("neither false (00) nor true (01)"));
    refused::<Option<u8>>(&[2, 7], &value("neither false (00) nor true (01)"));
    let scalar = value("not a Unicode scalar value");
    refused::<char>(&0xD800_u32.to_be_bytes(), &scalar);
    refused::<char>(&0xDFFF_u32.to_be_bytes(), &scalar);
    refused::<char>(&0x0011_0000_u32.to_be_bytes(), &scalar);
    refused::<char>(&u32::MAX.to_be_bytes(), &scalar);
    refused::<String>(&[0xFF, 0], &value("not UTF-8"));
    refused::<String>(&[0xC3, 0], &value("not UTF-8"));
    // An escape in the middle of a character: it is the bytes behind it that count.
    refused::<String>(&[0xC3, 1, 1, 0], &value("not UTF-8"));
    refused::<String>(&[0xED, 0xA0, 0x80, 0], &value("not UTF-8"));
}

#[test]
fn damaged_strings_are_refused() {
    for escape in [&[1, 0][..], &[1, 3, 0], &[1, 0xFF, 0], &[b'a', 1, 0], &[1, 1, 1, 0]] {
        refused::<String>(escape, &DecodeError::Escape);
        refused::<Vec<u8>>(escape, &DecodeError::Escape);
    }
    for short in [&[][..], b"a", &[1], &[1, 1], &[b'a', 1, 2]] {
        refused::<String>(short, &DecodeError::Short);
        refused::<Vec<u8>>(short, &DecodeError::Short);
    }
}

#[test]
fn an_end_inside_a_string_is_refused() {
    assert_eq!(unescape(&[b'a', 0, b'b']), Err(DecodeError::Escape));
    assert_eq!(unescape(&[b'a', 1, 1, 1, 2, b'b']), Ok(vec![b'a', 0, 1, b'b']));
}

/// A shape doesn't look into a value, but it has to know where the value ends.
#[test]
fn a_shape_goes_over_no_damaged_option() {
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

/// The bytes are checked in words of eight and four, and the last ones twice.
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

/// Strings that are unescaped stay where they are while others are added.
#[test]
fn unescaped_text_is_kept() {
    let texts: Vec<String> = (0..1000).map(|number| format!("\0{number}")).collect();
    let key: Vec<u8> = texts.iter().flat_map(encoded).collect();
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(&key, &unescaped);
    let read: Vec<&str> = texts.iter().map(|_| String::decode(&mut reader).unwrap()).collect();
    assert_eq!(read, texts);
}
