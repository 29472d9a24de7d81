//! Tests of the key encoding. A check for all key types is a generic function, and `for_every_key_type!`
//! generates a test of it for each type.

mod arrange;
mod buf;
mod crates;
mod decode;
mod format;
mod golden;
mod hash;
mod order;
mod prefix;
mod show;
mod through;

use super::{DecodeError, Key, KeyBuf, KeyReader, PrefixKey, Unescaped};

/// Returns the encoding of a value.
fn encoded<T: Key>(value: &T) -> Vec<u8> {
    let mut key = KeyBuf::new();
    key.push(value);
    key.as_bytes().to_vec()
}

/// Returns the encoding of a prefix.
fn encoded_prefix(prefix: &str) -> Vec<u8> {
    prefix_of::<String>(prefix)
}

/// Returns the encoding of a prefix for a key of this type.
fn prefix_of<T: PrefixKey>(prefix: T::Prefix<'_>) -> Vec<u8> {
    let mut key = KeyBuf::new();
    T::encode_prefix(prefix, &mut key);
    key.as_bytes().to_vec()
}

/// Reads one owned value. Returns it with the length of its encoding.
fn decode_owned<T: Key>(bytes: &[u8]) -> Result<(T, usize), DecodeError> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    let value = T::decode_owned(&mut reader)?;
    Ok((value, bytes.len() - reader.rest().len()))
}

/// Skips one value by its shape. Returns the length of its encoding.
fn skip<T: Key>(bytes: &[u8]) -> Result<usize, DecodeError> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    T::SHAPE.skip(&mut reader)?;
    Ok(bytes.len() - reader.rest().len())
}
