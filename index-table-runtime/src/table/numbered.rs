//! Rows with numbers that the table assigns.

use super::Table;
use crate::{
    model::{
        entity::Entity,
        error::{Error, Result},
        key::{KeyBuf, Sequence},
    },
    placement::Writer,
    store::WriteTxn,
    write::{
        Scratch, Written,
        rows::{self, LoadRow as _},
        sequence::{self, Next},
    },
};

impl<R: Entity> Table<R> {
    /// [`insert_with`](Table::insert_with), which numbers the last field of the primary key after its leading fields.
    pub(super) fn insert_after<N: Sequence>(
        &self,
        txn: &mut WriteTxn<'_>,
        leading: &[u8],
        row: impl FnOnce(N) -> R,
    ) -> Result<N> {
        let (mut row, mut made) = (Some(row), None::<(Next<N>, R)>);
        // With autocommit, the row is made once.
        let reruns = !txn.is_autocommit();
        txn.operate(|txn| {
            let (mut writer, scratch, written) = txn.row_writer(&self.open)?;
            // If the operation runs again, the row and its number stay.
            let next = match &made {
                Some((next, _)) if next.is_of_block => *next,
                _ => sequence::next::<N>(R::TABLE, &writer, leading)?,
            };
            if let Some(row) = row.take() {
                made = Some((next, row(next.key()?)));
            }
            let made = made.as_ref().filter(|(number, _)| *number == next);
            let (_, row) = made.ok_or_else(sequence::changed)?;
            let inserted = self.insert_numbered(&mut writer, scratch, written, leading, &next, row);
            inserted.map_err(|error| next.after(&writer, reruns, error))?;
            next.key()
        })
    }

    /// Inserts a row with this number.
    fn insert_numbered<N: Sequence>(
        &self,
        writer: &mut Writer<'_, '_>,
        Scratch { new, tried, .. }: &mut Scratch,
        written: &mut Written,
        leading: &[u8],
        next: &Next<N>,
        row: &R,
    ) -> Result<()> {
        self.open.new_row(row).load(new, tried)?;
        let mut given = KeyBuf::new();
        given.extend(leading);
        if given.push(&next.key()?).as_bytes() != new.primary_key() {
            return Err(Error::OtherKey {
                table: R::TABLE.name,
                given: R::TABLE.show_primary_key(given.as_bytes()),
                key: R::TABLE.show_primary_key(new.primary_key()),
            });
        }
        rows::insert(&self.open.rows, writer, new, written)?;
        next.keep(writer, leading)
    }
}
