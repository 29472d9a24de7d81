//! Rows, keys and entries as bytes.

use super::VERSION;
use crate::{Result, data::Customer};

/// The stored bytes of a row. The buffers are reused for the next row.
#[derive(Default)]
pub(super) struct Image {
    pub(super) id: [u8; 8],
    pub(super) fact: Vec<u8>,
    pub(super) town: Vec<u8>,
    /// The key, followed by the primary key, as in the next field.
    pub(super) town_last_name: Vec<u8>,
    pub(super) last_name: Vec<u8>,
    pub(super) email: Vec<u8>,
    pub(super) phone: Vec<u8>,
}

impl Image {
    pub(super) fn load(&mut self, row: &Customer) -> Result<()> {
        self.fact.clear();
        self.fact.push(VERSION);
        append(row, &mut self.fact)?;
        self.load_keys(row)
    }

    pub(super) fn load_stored(&mut self, row: &Customer, fact: &[u8]) -> Result<()> {
        refill(&mut self.fact, fact);
        self.load_keys(row)
    }

    fn load_keys(&mut self, row: &Customer) -> Result<()> {
        self.id = row.id.to_be_bytes();
        self.town.clear();
        escape(&row.town, &mut self.town);
        self.town_last_name.clear();
        escape(&row.town, &mut self.town_last_name);
        escape(&row.last_name, &mut self.town_last_name);
        self.town_last_name.extend_from_slice(&self.id);
        self.last_name.clear();
        escape(&row.last_name, &mut self.last_name);
        self.last_name.extend_from_slice(&self.id);
        self.email.clear();
        escape(&row.email, &mut self.email);
        self.phone.clear();
        append(&row.phone, &mut self.phone)
    }
}

/// A covered entry. The strings of this workload have no escapes, so escaped strings are refused. A real
/// program would copy them.
pub(super) struct Entry<'txn> {
    #[expect(dead_code, reason = "decoded as in generated code, but not used")]
    town: &'txn str,
    pub(super) last_name: &'txn str,
    pub(super) id: u64,
    pub(super) phone: &'txn str,
}

impl<'txn> Entry<'txn> {
    #[inline]
    pub(super) fn read(key: &'txn [u8], phone: &'txn [u8]) -> Result<Self> {
        let (names, id) = key.split_last_chunk::<8>().ok_or("the key is too short")?;
        let (town, rest) = text(names)?;
        let (last_name, _) = text(rest)?;
        let phone = postcard::from_bytes(phone)?;
        Ok(Self { town, last_name, id: u64::from_be_bytes(*id), phone })
    }
}

fn text(key: &[u8]) -> Result<(&str, &[u8])> {
    let end = key.iter().position(|&byte| byte <= 1).ok_or("a string has no terminator")?;
    if key[end] == 1 {
        return Err("an escaped string".into());
    }
    Ok((std::str::from_utf8(&key[..end])?, &key[end + 1..]))
}

pub(super) fn escape(text: &str, key: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte <= 1) {
        key.extend_from_slice(&rest[..at]);
        key.extend_from_slice(&[1, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    key.extend_from_slice(rest);
    key.push(0);
}

pub(super) fn append(value: &impl serde::Serialize, out: &mut Vec<u8>) -> Result<()> {
    *out = postcard::to_extend(value, std::mem::take(out))?;
    Ok(())
}

pub(super) fn decode(fact: &[u8]) -> Result<Customer> {
    match fact.split_first() {
        Some((&VERSION, row)) => Ok(postcard::from_bytes(row)?),
        _ => Err("a row of another version".into()),
    }
}

pub(super) fn refill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}
