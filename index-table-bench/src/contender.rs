//! The trait of contenders.

use std::{error::Error, path::Path};

use crate::workload::{Customer, NameRange, Operation, Position};

/// The reason why there is no figure.
#[derive(Debug)]
pub enum Failure {
    /// The contender's library lacks this operation. The report has `N/A`, because operations are not emulated.
    Lacks,
    /// An error, which ends the run.
    Failed(Box<dyn Error>),
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The return type of a contender's methods.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A way to store the customers and their three indexes in a directory.
///
/// Each implementation uses the best API of its library, as a program for this library alone would. Common
/// rules:
///
/// - A method is one transaction, unless its documentation states otherwise. Queries run in one read transaction, and
///   prepare everything once.
/// - A write transaction that has returned is on disk.
/// - A row of a result is an owned [`Customer`]. Fields of a covering index are borrowed if the library
///   supports it.
/// - Results are added to the [`Digest`] in their order, as is the number of changed rows.
/// - Inserting a row with an existing primary key or email is an error.
///
/// # Errors
///
/// All methods return [`Failure::Lacks`] and do nothing, or return the error of the library.
#[allow(
    clippy::missing_errors_doc,
    reason = "the docs of the trait list the errors of all methods"
)]
pub trait Contender {
    /// Inserts the rows in one transaction.
    fn insert(&mut self, rows: &[Customer]) -> Outcome;
    /// Loads all rows or none into an empty table, by the library's bulk load.
    fn bulk_load(&mut self, _rows: &[Customer]) -> Outcome {
        Err(Failure::Lacks)
    }
    /// Inserts each row in its own transaction.
    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome;
    /// Reads rows by primary key.
    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome;
    /// Reads rows by primary key, each in its own transaction.
    fn get_one_by_one(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        ids.iter().try_for_each(|id| self.get(std::slice::from_ref(id), digest))
    }
    /// Reads rows by email.
    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome;
    /// Reads the rows of each town, in the order of the primary key.
    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome;
    /// Reads primary key, last name and phone number of all customers in each town, in the order of last
    /// name and primary key. A covering index makes look-ups of rows unnecessary.
    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome;
    /// Reads the rows of each town with last names in a range, in the order of last name and primary key.
    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome;
    /// Prepares the state that a program keeps from the previous page, for [`page`](Contender::page).
    /// This is not measured.
    fn prepare_pages(&mut self, _positions: &[Position]) -> Outcome {
        Ok(())
    }
    /// Reads a page of a town's rows after each position, in the order of the primary key. The cost must
    /// not depend on the number of rows before the position.
    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome;
    /// Counts the rows of each town.
    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome;
    /// Changes the first names of rows.
    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome;
    /// Changes the towns of rows.
    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome;
    /// Deletes rows.
    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome;
    /// Does the work that the library would do later in the background, such as moving a log into its
    /// file. It is called before the files are measured.
    fn settle(&mut self) -> Outcome {
        Ok(())
    }
}

/// A kind of contender.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name in the tables of the report.
    pub name: &'static str,
    /// A description for the report.
    pub about: &'static str,
    /// Opens or creates the files in the directory.
    pub open: fn(&Path) -> Outcome<Box<dyn Contender>>,
}

/// Runs an operation.
///
/// # Errors
///
/// The errors of the contender.
pub fn apply(contender: &mut dyn Contender, operation: &Operation) -> Outcome<Digest> {
    let mut digest = Digest::default();
    let out = &mut digest;
    match operation {
        Operation::Insert(rows) => contender.insert(rows)?,
        Operation::BulkLoad(rows) => contender.bulk_load(rows)?,
        Operation::InsertOneByOne(rows) => contender.insert_one_by_one(rows)?,
        Operation::Get(ids) => contender.get(ids, out)?,
        Operation::GetOneByOne(ids) => contender.get_one_by_one(ids, out)?,
        Operation::GetByEmail(emails) => contender.get_by_email(emails, out)?,
        Operation::RowsOfTown(towns) => contender.rows_of_town(towns, out)?,
        Operation::EntriesOfTown(towns) => contender.entries_of_town(towns, out)?,
        Operation::RowsInRange(ranges) => contender.rows_in_range(ranges, out)?,
        Operation::Page(positions) => contender.page(positions, out)?,
        Operation::Count(towns) => contender.count(towns, out)?,
        Operation::SetFirstName(changes) => contender.set_first_name(changes, out)?,
        Operation::SetTown(changes) => contender.set_town(changes, out)?,
        Operation::Delete(ids) => contender.delete(ids, out)?,
    }
    Ok(digest)
}

/// The number of results, and a checksum over every byte of the results in their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    /// The number of rows, entries or counts.
    pub found: u64,
    checksum: u64,
}

impl Digest {
    /// Adds a row, or the absence of a row.
    #[inline]
    pub fn row(&mut self, row: Option<&Customer>) {
        let Some(row) = row else { return self.mix(1) };
        self.found += 1;
        self.mix(row.id);
        for text in [&row.first_name, &row.last_name, &row.town, &row.phone, &row.email] {
            self.text(text);
        }
    }

    /// Adds the fields that the index on town and last name covers.
    #[inline]
    pub fn entry(&mut self, id: u64, last_name: &str, phone: &str) {
        self.found += 1;
        self.mix(id);
        self.text(last_name);
        self.text(phone);
    }

    /// Adds a count.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.found += 1;
        self.mix(number);
    }

    #[inline]
    pub(crate) fn text(&mut self, text: &str) {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.mix(u64::from_le_bytes(last) ^ text.len() as u64);
    }

    #[inline]
    pub(crate) fn mix(&mut self, word: u64) {
        self.checksum = (self.checksum.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
