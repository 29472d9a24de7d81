//! The trait of contenders.

use std::{error::Error, path::Path};

use crate::workload::{Customer, NameRange, Operation, Place};

/// The reason why there is no figure.
#[derive(Debug)]
pub enum Failure {
    /// The contender has nothing for this operation: `N/A`, rather than an imitation of it.
    Lacks,
    /// It went wrong, which ends the run.
    Failed(Box<dyn Error>),
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The return type of a contender's methods.
pub type Outcome<T = ()> = Result<T, Failure>;

/// One way to keep the customers with their three indexes in a directory.
///
/// Each implementation uses the best API of its library, as a program for this library alone would. Common
/// rules:
///
/// - A method is one transaction, unless it says otherwise. Queries run in one read transaction, and prepare
///   everything once.
/// - A write transaction that has returned is on disk.
/// - A row of a result is an owned [`Customer`]. Fields of a covering index are borrowed if the library
///   supports it.
/// - Results are added to the [`Answer`], in order, and so is the number of changed rows.
/// - Inserting a row with an existing primary key or email is an error.
///
/// # Errors
///
/// Of all methods: [`Failure::Lacks`] without an effect, or the error of the library.
#[allow(clippy::missing_errors_doc, reason = "they are above, for all of them")]
pub trait Contender {
    /// Inserts the rows in one transaction.
    fn insert(&mut self, rows: &[Customer]) -> Outcome;
    /// Loads the rows into an empty table by a way of the library's own, all or nothing.
    fn bulk_load(&mut self, _rows: &[Customer]) -> Outcome {
        Err(Failure::Lacks)
    }
    /// Inserts each row in a transaction of its own.
    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome;
    /// Rows by primary key.
    fn get(&mut self, ids: &[u64], answer: &mut Answer) -> Outcome;
    /// Rows by primary key, each in a transaction of its own.
    fn get_one_by_one(&mut self, ids: &[u64], answer: &mut Answer) -> Outcome {
        ids.iter().try_for_each(|id| self.get(std::slice::from_ref(id), answer))
    }
    /// Rows by email.
    fn get_by_email(&mut self, emails: &[String], answer: &mut Answer) -> Outcome;
    /// The rows of each town by primary key.
    fn rows_of_town(&mut self, towns: &[String], answer: &mut Answer) -> Outcome;
    /// Primary key, last name and phone number of all in each town, by last name and primary key;
    /// without a look at the rows where an index covers it.
    fn entries_of_town(&mut self, towns: &[String], answer: &mut Answer) -> Outcome;
    /// The rows of each town with last names in a range, by last name and primary key.
    fn rows_in_range(&mut self, ranges: &[NameRange], answer: &mut Answer) -> Outcome;
    /// Makes ready for [`page`](Contender::page), which is not measured: the state that a program would keep
    /// from the page before.
    fn prepare_pages(&mut self, _places: &[Place]) -> Outcome {
        Ok(())
    }
    /// A page of rows of a town from each place on, by primary key; at a cost that does not depend
    /// on how deep the place is.
    fn page(&mut self, places: &[Place], answer: &mut Answer) -> Outcome;
    /// The number of rows of each town.
    fn count(&mut self, towns: &[String], answer: &mut Answer) -> Outcome;
    /// Gives rows another first name.
    fn set_first_name(&mut self, changes: &[(u64, String)], answer: &mut Answer) -> Outcome;
    /// Gives rows another town.
    fn set_town(&mut self, changes: &[(u64, String)], answer: &mut Answer) -> Outcome;
    /// Deletes rows.
    fn delete(&mut self, ids: &[u64], answer: &mut Answer) -> Outcome;
    /// Called before the files are measured: work that the library would do later by itself, such as moving a
    /// log into its file.
    fn settle(&mut self) -> Outcome {
        Ok(())
    }
}

/// A contender by its name.
#[derive(Clone, Copy)]
pub struct Kind {
    /// As in the tables of the report.
    pub name: &'static str,
    /// One sentence for the report.
    pub about: &'static str,
    /// Opens or creates the files in the directory.
    pub open: fn(&Path) -> Outcome<Box<dyn Contender>>,
}

/// Runs an operation.
///
/// # Errors
///
/// Those of the contender.
pub fn apply(contender: &mut dyn Contender, operation: &Operation) -> Outcome<Answer> {
    let mut answer = Answer::default();
    let out = &mut answer;
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
        Operation::Page(places) => contender.page(places, out)?,
        Operation::Count(towns) => contender.count(towns, out)?,
        Operation::SetFirstName(changes) => contender.set_first_name(changes, out)?,
        Operation::SetTown(changes) => contender.set_town(changes, out)?,
        Operation::Delete(ids) => contender.delete(ids, out)?,
    }
    Ok(answer)
}

/// How much was found, and a checksum over every byte of it, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// How many rows, entries or numbers.
    pub found: u64,
    checksum: u64,
}

impl Answer {
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

    /// The fields that the index on town and last name covers.
    #[inline]
    pub fn entry(&mut self, id: u64, last_name: &str, phone: &str) {
        self.found += 1;
        self.mix(id);
        self.text(last_name);
        self.text(phone);
    }

    /// A count.
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
