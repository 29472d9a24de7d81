//! What the type of a row leaves unread of its bytes.
//!
//! The generated code reads a row by [`RowFormat`](crate::model::entity::RowFormat). So that it needs no further functions, the bytes
//! of the row carry a question, which [`whole`](super::whole) answers.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    iter,
};

use index_table_rows::Unknown;
use serde::de::DeserializeOwned;

use super::{RowBody, body, decode};
use crate::model::{entity::Entity, key::DecodeError, lists::Lists};

/// A question to the type of a row, with the place for its answer.
pub(crate) enum Question {
    /// Whether it may leave something unread.
    HasUnread(Cell<bool>),
    /// The fields that it leaves unread, of the lists from this number on.
    Unknown { since: usize, answer: RefCell<Unknown> },
    /// The names that it reads.
    Names(RefCell<BTreeSet<String>>),
}

impl Question {
    #[inline(never)]
    pub(super) fn answer<V: DeserializeOwned>(
        &self,
        lists: &Lists,
        bytes: &[u8],
    ) -> Result<V, DecodeError> {
        match self {
            Self::HasUnread(answer) => {
                let mut has_unread = false;
                let value = lists.decode_whole(bytes, &mut has_unread);
                answer.set(has_unread);
                value
            }
            Self::Unknown { since, answer } => {
                let (value, unknown) = lists.unknown(bytes, *since)?;
                answer.replace(unknown);
                Ok(value)
            }
            Self::Names(answer) => {
                answer.replace(index_table_rows::names::<V>());
                Err(DecodeError::Short)
            }
        }
    }
}

/// Reads a whole row, and sets `has_unread` to whether its type may leave something unread. A row of an older version has nothing
/// that a later release has written.
#[inline]
pub(crate) fn decode_whole<R: Entity>(
    lists: &Lists,
    bytes: &[u8],
    has_unread: &mut bool,
) -> Result<R, DecodeError> {
    let Ok(body) = body(bytes, R::TABLE.version) else { return decode(lists, bytes) };
    let question = Question::HasUnread(Cell::new(false));
    let row = R::decode(RowBody { question: Some(&question), ..RowBody::new(lists, body) });
    if let Question::HasUnread(answer) = question {
        *has_unread = answer.get();
    }
    row
}

/// Returns the fields that the type leaves unread, of the lists from the number `since` on.
pub(crate) fn unknown<R: Entity>(
    lists: &Lists,
    bytes: &[u8],
    since: usize,
) -> Result<Unknown, DecodeError> {
    let question = Question::Unknown { since, answer: RefCell::default() };
    let body = body(bytes, R::TABLE.version)?;
    R::decode(RowBody { question: Some(&question), ..RowBody::new(lists, body) })?;
    let Question::Unknown { answer, .. } = question else { return Ok(Unknown::default()) };
    Ok(answer.into_inner())
}

/// Returns the row `new` with those fields of the row `old` that have these names. Both rows have this version.
pub(crate) fn carry(
    lists: &Lists,
    version: u32,
    [old, new]: [&[u8]; 2],
    names: &[String],
) -> Result<Vec<u8>, DecodeError> {
    let (old, body) = (body(old, version)?, body(new, version)?);
    let mut both = new.get(..new.len() - body.len()).unwrap_or_default().to_vec();
    lists.carry(body, old, names, &mut both)?;
    Ok(both)
}

/// Returns a hash of the names that the type reads, at every depth. The names of the row itself are also those of the declaration: with
/// `flatten`, serde does not ask for them.
pub(crate) fn names<R: Entity>() -> u64 {
    let (question, lists) = (Question::Names(RefCell::default()), Lists::default());
    // It reads no row.
    let _ = R::decode(RowBody { question: Some(&question), ..RowBody::new(&lists, &[]) });
    let Question::Names(answer) = question else { return 0 };
    let declared: Vec<_> = R::TABLE.fields.iter().map(|field| field.stored).collect();
    let mut hasher = blake3::Hasher::new();
    for names in iter::once(declared.join(",")).chain(answer.into_inner()) {
        hasher.update(names.as_bytes()).update(b"\n");
    }
    hasher.finalize().as_bytes().first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
}
