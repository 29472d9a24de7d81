//! Hand-written encodings of keys and rows for the contenders that store bytes: the encodings of
//! `docs/FORMAT.md` for these types.

use std::borrow::Cow;

use crate::{contender::Outcome, workload::Customer};

/// The version at the start of every row.
const VERSION: u8 = 1;

/// Appends a self-delimiting, order-preserving string: `00` and `01` are escaped, and `00` is the terminator.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    prefix(out, text);
    out.push(0);
}

/// Appends the encoded prefix of a string, without its terminator.
fn prefix(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte > 1) {
        return out.extend_from_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            0 | 1 => out.extend([1, byte + 1]),
            _ => out.push(byte),
        }
    }
}

/// Returns the string at the start of a key, and the bytes after it.
fn split_text(key: &[u8]) -> Outcome<(Cow<'_, str>, &[u8])> {
    let end = key.iter().position(|&byte| byte == 0).ok_or("a string without a terminator")?;
    let (text, rest) = (&key[..end], &key[end + 1..]);
    if !text.contains(&1) {
        return Ok((Cow::Borrowed(std::str::from_utf8(text)?), rest));
    }
    let mut plain = Vec::new();
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == 1 { bytes.next().ok_or("half an escape")? - 1 } else { byte });
    }
    Ok((Cow::Owned(String::from_utf8(plain)?), rest))
}

/// Returns the index key of a town or of an email.
pub(crate) fn one_text<'k>(buffer: &'k mut Vec<u8>, key: &str) -> &'k [u8] {
    buffer.clear();
    text(buffer, key);
    buffer
}

/// Returns the lowest key after all keys that start with the [`one_text`] of a town.
pub(crate) fn after_text<'k>(buffer: &'k mut Vec<u8>, key: &str) -> &'k [u8] {
    buffer.clear();
    prefix(buffer, key);
    buffer.push(1);
    buffer
}

/// Returns the key of an entry by town.
pub(crate) fn by_town<'k>(buffer: &'k mut Vec<u8>, town: &str, id: u64) -> &'k [u8] {
    buffer.clear();
    text(buffer, town);
    buffer.extend(id.to_be_bytes());
    buffer
}

/// Returns the key of an entry by town and last name.
pub(crate) fn by_name<'k>(buffer: &'k mut Vec<u8>, town: &str, name: &str, id: u64) -> &'k [u8] {
    buffer.clear();
    text(buffer, town);
    text(buffer, name);
    buffer.extend(id.to_be_bytes());
    buffer
}

/// Returns the lowest key of a last name in a town.
pub(crate) fn from_name<'k>(buffer: &'k mut Vec<u8>, town: &str, name: &str) -> &'k [u8] {
    buffer.clear();
    text(buffer, town);
    // Without the terminator, no longer name with this prefix is lower.
    prefix(buffer, name);
    buffer
}

/// Returns the last name and the primary key in a key by town and last name. `skip` is the length of the
/// town.
pub(crate) fn split_name(key: &[u8], skip: usize) -> Outcome<(Cow<'_, str>, u64)> {
    let (name, rest) = split_text(key.get(skip..).ok_or("a short key")?)?;
    Ok((name, id(rest)?))
}

/// Returns the primary key in a key or value.
pub(crate) fn id(bytes: &[u8]) -> Outcome<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

/// Returns the primary key at the end of a key.
pub(crate) fn last_id(key: &[u8]) -> Outcome<u64> {
    Ok(u64::from_be_bytes(*key.last_chunk().ok_or("a short key")?))
}

/// Encodes the text that a covering entry carries.
pub(crate) fn carried<'v>(buffer: &'v mut Vec<u8>, text: &str) -> Outcome<&'v [u8]> {
    buffer.clear();
    *buffer = postcard::to_extend(text, std::mem::take(buffer))?;
    Ok(buffer)
}

/// Reads the output of [`carried`].
pub(crate) fn read_carried(value: &[u8]) -> Outcome<&str> {
    Ok(postcard::from_bytes(value)?)
}

/// Encodes a row, with its version.
pub(crate) fn fact<'v>(buffer: &'v mut Vec<u8>, row: &Customer) -> Outcome<&'v [u8]> {
    buffer.clear();
    buffer.push(VERSION);
    *buffer = postcard::to_extend(row, std::mem::take(buffer))?;
    Ok(buffer)
}

/// Decodes the output of [`fact`].
pub(crate) fn read_fact(value: &[u8]) -> Outcome<Customer> {
    match value.split_first() {
        Some((&VERSION, row)) => Ok(postcard::from_bytes(row)?),
        _ => Err("a row of another version".into()),
    }
}

/// The keys and rows of films.
pub(crate) mod films {
    use super::{Outcome, VERSION, text};
    use crate::films::Film;

    /// Returns the key of an entry by year.
    pub(crate) fn by_year(year: u16, id: u32) -> [u8; 6] {
        let mut key = [0; 6];
        key[..2].copy_from_slice(&year.to_be_bytes());
        key[2..].copy_from_slice(&id.to_be_bytes());
        key
    }

    /// Returns the key of an entry by actor and year.
    pub(crate) fn by_actor<'k>(
        buffer: &'k mut Vec<u8>,
        actor: &str,
        year: u16,
        id: u32,
    ) -> &'k [u8] {
        buffer.clear();
        text(buffer, actor);
        buffer.extend(by_year(year, id));
        buffer
    }

    /// Returns the year and the primary key at the end of a key.
    pub(crate) fn split(key: &[u8]) -> Outcome<(u16, u32)> {
        let key = key.last_chunk::<6>().ok_or("a short key")?;
        let (year, id) = key.split_first_chunk().ok_or("a short key")?;
        Ok((u16::from_be_bytes(*year), u32::from_be_bytes(id.try_into()?)))
    }

    /// Encodes a row, with its version.
    pub(crate) fn fact<'v>(buffer: &'v mut Vec<u8>, film: &Film) -> Outcome<&'v [u8]> {
        buffer.clear();
        buffer.push(VERSION);
        *buffer = postcard::to_extend(film, std::mem::take(buffer))?;
        Ok(buffer)
    }

    /// Decodes the output of [`fact`].
    pub(crate) fn read_fact(value: &[u8]) -> Outcome<Film> {
        match value.split_first() {
            Some((&VERSION, row)) => Ok(postcard::from_bytes(row)?),
            _ => Err("a film of another version".into()),
        }
    }
}
