//! Tests of the key encoding. What holds for every key type is written once, as a generic check,
//! and `for_every_key_type!` makes a test of it for each type.

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

/// The encoding of a value.
fn encoded<T: Key>(value: &T) -> Vec<u8> {
    let mut key = KeyBuf::new();
    key.push(value);
    key.as_bytes().to_vec()
}

/// The encoding of a prefix.
fn encoded_prefix(prefix: &str) -> Vec<u8> {
    prefix_of::<String>(prefix)
}

/// The encoding of a prefix for a key of this type.
fn prefix_of<T: PrefixKey>(prefix: T::Prefix<'_>) -> Vec<u8> {
    let mut key = KeyBuf::new();
    T::encode_prefix(prefix, &mut key);
    key.as_bytes().to_vec()
}

/// Reads one owned value; with it, how many bytes it took.
fn decode_owned<T: Key>(bytes: &[u8]) -> Result<(T, usize), DecodeError> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    let value = T::decode_owned(&mut reader)?;
    Ok((value, bytes.len() - reader.rest().len()))
}

/// Goes over one value by its shape alone: how many bytes it takes.
fn skip<T: Key>(bytes: &[u8]) -> Result<usize, DecodeError> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    T::SHAPE.skip(&mut reader)?;
    Ok(bytes.len() - reader.rest().len())
}
