use std::{
    any::Any,
    cell::{Cell, OnceCell},
    sync::Arc,
};

use crate::model::entry::ShortKey;

/// The reason why bytes can't be decoded. The caller adds the table, the index and the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the bytes end too early")]
    Short,
    /// There are further bytes after the end.
    #[error("there are bytes left over")]
    Long,
    /// A string has an escape that no encoder writes.
    #[error("a string has a damaged escape")]
    Escape,
    /// The bytes are not a value of the type.
    #[error("{0}")]
    Value(&'static str),
    /// A row without a version.
    #[error("the number at the start of the row: {0}")]
    Header(postcard::Error),
    /// A row that can't be read with its list.
    #[error("{0}")]
    Fields(index_table_rows::Error),
    /// The lists of rows could not be read.
    #[error("{0}")]
    Store(StoreFailure),
    /// A row that lacks a field.
    #[error("the row has no field `{0}`")]
    Missing(&'static str),
    /// A row that can't be written again as it was read.
    #[error("{0}")]
    Again(Box<str>),
    /// A row of an unknown version.
    #[error(
        "the row has version {found}, {}",
        if found > expected {
            format!(
                "the code reads versions up to {expected}: a later release has written it, or it is \
                 damaged"
            )
        } else {
            format!("and the chain of `previous` from version {expected} does not include it")
        }
    )]
    Version {
        /// The version in the file.
        found: u32,
        /// The version of `#[table(version = …)]`.
        expected: u32,
    },
    /// A conversion changes a field that must keep its value.
    #[error(
        "its conversion from version {version} changes `{field}`, a field that `changed` does \
         not name"
    )]
    Altered {
        /// The version of the row.
        version: u32,
        /// The name of the field.
        field: &'static str,
    },
    /// The conversion of a row of an older version fails.
    #[error("its conversion from version {version} fails: {reason}")]
    Unconvertible {
        /// The version of the row.
        version: u32,
        /// The error of the `TryFrom`.
        reason: Box<str>,
    },
}

impl DecodeError {
    /// Whether a row of an older version can't be converted, though its bytes are not damaged.
    pub(crate) const fn is_of_conversion(&self) -> bool {
        matches!(self, Self::Altered { .. } | Self::Unconvertible { .. })
    }
}

/// An error of the store, which is no fault of the bytes. Two of them are equal if they are the same.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.text)]
pub struct StoreFailure(Arc<Failure>);

#[derive(Debug)]
struct Failure {
    text: String,
    error: Box<dyn Any + Send + Sync>,
}

impl StoreFailure {
    pub(crate) fn new<E: Any + ToString + Send + Sync>(error: E) -> Self {
        Self(Arc::new(Failure { text: error.to_string(), error: Box::new(error) }))
    }

    /// Returns the error, or its text if this is a copy.
    pub(crate) fn into_error<E: Any>(self) -> Result<E, String> {
        let text = self.0.text.clone();
        let error = Arc::into_inner(self.0).and_then(|failure| failure.error.downcast().ok());
        error.map(|error| *error).ok_or(text)
    }
}

impl PartialEq for StoreFailure {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StoreFailure {}

/// Reads the fields of an encoded key one after another.
#[derive(Debug, Clone, Copy)]
pub struct KeyReader<'a> {
    rest: &'a [u8],
    /// The number of `00` bytes to be read before `rest`. Only primary keys of a fixed length lack such bytes.
    zeros: usize,
    unescaped: &'a Unescaped,
}

impl<'a> KeyReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], unescaped: &'a Unescaped) -> Self {
        Self { rest: bytes, zeros: 0, unescaped }
    }

    /// Reads a primary key that may lack `00` bytes.
    #[inline]
    pub(crate) const fn of_primary_key(key: ShortKey<'a>, unescaped: &'a Unescaped) -> Self {
        Self { rest: key.bytes, zeros: key.zeros, unescaped }
    }

    /// Returns the bytes that are not yet read, without missing zeros.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of bytes that are not yet read.
    pub(super) const fn len(&self) -> usize {
        self.zeros + self.rest.len()
    }

    /// Continues with `rest`, the end of the remaining bytes.
    #[inline]
    pub(super) const fn go_on_at(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if self.zeros > 0 {
            return self.take_after_zeros(len);
        }
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        if self.zeros > 0 {
            let mut array = [0; N];
            self.read_after_zeros(&mut array)?;
            return Ok(array);
        }
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Fills `bytes` with missing zeros and the bytes after them.
    fn read_after_zeros(&mut self, bytes: &mut [u8]) -> Result<(), DecodeError> {
        let zeros = self.zeros.min(bytes.len());
        let (first, last) = bytes.split_at_mut_checked(zeros).ok_or(DecodeError::Short)?;
        let (taken, rest) = self.rest.split_at_checked(last.len()).ok_or(DecodeError::Short)?;
        first.fill(0);
        last.copy_from_slice(taken);
        (self.zeros, self.rest) = (self.zeros - zeros, rest);
        Ok(())
    }

    /// Takes bytes of which the first are missing zeros. Types of a fixed length are read by [`array`](Self::array), so
    /// only values that are shown or converted one by one get here.
    #[cold]
    fn take_after_zeros(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let mut bytes = vec![0; len];
        self.read_after_zeros(&mut bytes)?;
        Ok(self.keep(bytes))
    }

    /// Skips bytes.
    #[inline]
    pub(super) fn skip(&mut self, len: usize) -> Result<(), DecodeError> {
        let zeros = self.zeros.min(len);
        self.rest = self.rest.get(len - zeros..).ok_or(DecodeError::Short)?;
        self.zeros -= zeros;
        Ok(())
    }

    pub(super) fn keep(&self, bytes: Vec<u8>) -> &'a [u8] {
        self.unescaped.keep(bytes)
    }
}

/// Memory of a transaction for values that can't be borrowed from a page: unescaped strings, and converted
/// rows of older versions. The chunks double in size and never move.
#[derive(Debug, Default)]
pub(crate) struct Unescaped {
    len: Cell<usize>,
    /// Created for the first value: almost no transaction has one.
    chunks: OnceCell<Box<[OnceCell<Chunk>; usize::BITS as usize]>>,
}

type Chunk = Box<[OnceCell<Vec<u8>>]>;

impl Unescaped {
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        // Value number n, counted from 1, is in chunk log2(n), which has 2^chunk slots.
        let number = self.len.get() + 1;
        self.len.set(number);
        let chunk = number.ilog2();
        let size = 1 << chunk;
        let chunks = self.chunks.get_or_init(|| Box::new([const { OnceCell::new() }; _]));
        chunks
            .get(chunk as usize)
            .map(|chunk| chunk.get_or_init(|| (0..size).map(|_| OnceCell::new()).collect()))
            .and_then(|chunk| chunk.get(number - size))
            .map_or(&[], |slot| slot.get_or_init(|| bytes))
    }
}
