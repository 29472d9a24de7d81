//! The changes of a transaction as bytes: its puts and deletes.
//!
//! This module does no input or output. `docs/FORMAT.md` fixes the bytes ("Changes").

use std::ops::Range;

use super::read::Rest;

const USE: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const CLEAR: u8 = 4;
const CREATE: u8 = 5;
const DROP: u8 = 6;

/// A change of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'b> {
    /// Writes a value, and replaces the value of an existing key.
    Put { key: &'b [u8], value: &'b [u8] },
    /// Removes a key, which may be missing.
    Delete { key: &'b [u8] },
    /// Removes all keys.
    Clear,
    /// Creates the database.
    Create,
    /// Removes the database.
    Drop,
}

/// Changes that are not yet in the journal.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    bytes: Vec<u8>,
    /// The place in `bytes` of the name of the last operation's database.
    database: Range<usize>,
    operations: u64,
}

/// A position in [`Changes`], to which the rollback of a nested transaction returns.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    bytes: usize,
    database: Range<usize>,
    operations: u64,
}

impl Mark {
    /// Returns the number of bytes before it.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Changes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of operations of the transaction. It includes operations whose bytes were removed.
    pub(crate) const fn operations(&self) -> u64 {
        self.operations
    }

    /// Removes all changes, and frees memory beyond a few MiB.
    pub(crate) fn clear(&mut self) {
        self.forget_bytes();
        self.operations = 0;
    }

    /// Removes the bytes, which were appended to the journal. The transaction continues.
    pub(crate) fn forget_bytes(&mut self) {
        const LARGE: usize = 4 << 20;
        self.bytes.clear();
        self.bytes.shrink_to(LARGE);
        self.database = 0..0;
    }

    /// Returns the current position. The next operation names its database, so that a part can begin with it.
    pub(crate) fn mark(&mut self) -> Mark {
        let (bytes, database) = (self.bytes.len(), std::mem::take(&mut self.database));
        Mark { bytes, database, operations: self.operations }
    }

    /// Removes the operations that were added after the mark, if the bytes before it were removed.
    pub(crate) fn forget_after(&mut self, mark: &Mark) {
        self.forget_bytes();
        self.operations = mark.operations;
    }

    /// Removes the operations that were added after the mark.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.database = mark.database;
        self.operations = mark.operations;
    }

    /// Counts an operation without its bytes.
    pub(crate) const fn count(&mut self) {
        self.operations += 1;
    }

    pub(crate) fn add(&mut self, database: &str, operation: Operation<'_>) {
        if self.bytes.get(self.database.clone()) != Some(database.as_bytes()) {
            let [low, high] = short(database);
            self.bytes.extend_from_slice(&[USE, low, high]);
            let start = self.bytes.len();
            self.bytes.extend_from_slice(database.as_bytes());
            self.database = start..self.bytes.len();
        }
        self.operations += 1;
        match operation {
            Operation::Put { key, value } => {
                let [low, high] = short(key);
                // Values of LMDB are not longer.
                let [a, b, c, d] = u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes();
                self.bytes.extend_from_slice(&[PUT, low, high, a, b, c, d]);
                self.bytes.extend_from_slice(key);
                self.bytes.extend_from_slice(value);
            }
            Operation::Delete { key } => {
                let [low, high] = short(key);
                self.bytes.extend_from_slice(&[DELETE, low, high]);
                self.bytes.extend_from_slice(key);
            }
            Operation::Clear => self.bytes.push(CLEAR),
            Operation::Create => self.bytes.push(CREATE),
            Operation::Drop => self.bytes.push(DROP),
        }
    }
}

/// Returns the length of a name or a key. They have at most 511 bytes, since LMDB has refused longer ones before.
fn short(bytes: impl AsRef<[u8]>) -> [u8; 2] {
    u16::try_from(bytes.as_ref().len()).unwrap_or(u16::MAX).to_le_bytes()
}

/// An iterator over encoded operations, each with the name of its database. It ends after an error.
pub(crate) struct Operations<'b> {
    rest: Rest<'b>,
    database: &'b str,
}

impl<'b> Operations<'b> {
    pub(crate) const fn of(bytes: &'b [u8]) -> Self {
        Self { rest: Rest(bytes), database: "" }
    }

    fn read(&mut self) -> Option<Operation<'b>> {
        loop {
            let rest = &mut self.rest;
            return Some(match rest.byte()? {
                USE => {
                    let length = rest.short()?;
                    self.database = str::from_utf8(rest.take(length.into())?).ok()?;
                    continue;
                }
                _ if self.database.is_empty() => return None,
                PUT => {
                    let (key, value) = (rest.short()?, rest.long()?);
                    let key = rest.take(key.into())?;
                    Operation::Put { key, value: rest.take(usize::try_from(value).ok()?)? }
                }
                DELETE => {
                    let key = rest.short()?;
                    Operation::Delete { key: rest.take(key.into())? }
                }
                CLEAR => Operation::Clear,
                CREATE => Operation::Create,
                DROP => Operation::Drop,
                _ => return None,
            });
        }
    }
}

/// The error for bytes that are not encoded changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'b> Iterator for Operations<'b> {
    type Item = Result<(&'b str, Operation<'b>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() {
            return None;
        }
        let operation = self.read();
        if operation.is_none() {
            self.rest = Rest(&[]);
        }
        Some(operation.map(|operation| (self.database, operation)).ok_or(Malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Result<(&str, Operation<'_>), Malformed>> {
        Operations::of(bytes).collect()
    }

    #[test]
    fn changes_round_trip_and_truncated_changes_end_with_an_error() {
        let put = Operation::Put { key: b"k", value: &[7; 300] };
        let delete = Operation::Delete { key: b"" };
        let added = [
            ("a", put),
            ("a", delete),
            ("a.b", Operation::Create),
            ("a.b", Operation::Clear),
            ("a", Operation::Drop),
        ];
        let mut changes = Changes::default();
        for (database, operation) in added {
            changes.add(database, operation);
        }
        assert_eq!(all(changes.bytes()), added.map(Ok));
        assert_eq!(changes.operations(), 5);
        for end in 1..changes.bytes().len() {
            let read = all(changes.bytes().get(..end).unwrap_or_default());
            let good = read.iter().take_while(|read| read.is_ok()).count();
            assert_eq!(read[..good], added.map(Ok)[..good]);
            assert!(read.len() <= good + 1);
        }
    }

    #[test]
    fn back_to_removes_later_operations() {
        let mut changes = Changes::default();
        changes.add("a", Operation::Clear);
        let before = changes.bytes().to_vec();
        let mark = changes.mark();
        changes.add("b", Operation::Delete { key: b"x" });
        changes.back_to(mark);
        assert_eq!(changes.bytes(), before);
        changes.add("a", Operation::Create);
        assert_eq!(all(changes.bytes()).last(), Some(&Ok(("a", Operation::Create))));
        assert_eq!(changes.operations(), 2);
    }

    #[test]
    fn each_part_names_its_database() {
        let mut changes = Changes::default();
        changes.add("a", Operation::Clear);
        changes.forget_bytes();
        changes.add("a", Operation::Clear);
        assert_eq!(all(changes.bytes()), [Ok(("a", Operation::Clear))]);
        assert_eq!(changes.operations(), 2);
    }

    #[test]
    fn the_format_has_the_documented_bytes() {
        let mut changes = Changes::default();
        changes.add("t", Operation::Put { key: &[1, 2], value: &[3] });
        changes.add("t", Operation::Delete { key: &[4] });
        changes.add(".catalog", Operation::Create);
        let expected = [
            &[1, 1, 0, b't', 2, 2, 0, 1, 0, 0, 0, 1, 2, 3, 3, 1, 0, 4][..],
            &[1, 8, 0],
            b".catalog",
            &[5],
        ];
        assert_eq!(changes.bytes(), expected.concat());
    }
}
