//! The two formats behind one trait, so that both do the same work.

use std::{error::Error, hint::black_box};

use index_table_rows::Catalog;
use serde::{Deserialize, Serialize};

/// What may fail.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Writes and reads rows.
pub(crate) trait Format {
    type Error: Error + 'static;

    fn encode<T: Serialize>(&self, value: &T, out: &mut Vec<u8>) -> Result<(), Self::Error>;

    fn decode<'de, T: Deserialize<'de>>(&self, row: &'de [u8]) -> Result<T, Self::Error>;

    /// Writes each value into the same buffer.
    fn encode_all<T: Serialize>(&self, values: &[T], out: &mut Vec<u8>) -> Result<(), Self::Error> {
        for value in values {
            out.clear();
            self.encode(value, black_box(&mut *out))?;
        }
        Ok(())
    }

    /// Returns the rows of the values.
    fn rows<T: Serialize>(&self, values: &[T]) -> Result<Vec<Vec<u8>>, Self::Error> {
        let row = |value| {
            let mut row = Vec::new();
            self.encode(value, &mut row).map(|()| row)
        };
        values.iter().map(row).collect()
    }

    /// Reads each row, and passes its value on.
    fn decode_all<'de, T: Deserialize<'de>>(
        &self,
        rows: &'de [Vec<u8>],
        mut take: impl FnMut(T),
    ) -> Result<(), Self::Error> {
        for row in rows {
            take(self.decode(row)?);
        }
        Ok(())
    }
}

impl Format for Catalog {
    type Error = index_table_rows::Error;

    #[inline]
    fn encode<T: Serialize>(&self, value: &T, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        Self::encode(self, value, out)
    }

    #[inline]
    fn decode<'de, T: Deserialize<'de>>(&self, row: &'de [u8]) -> Result<T, Self::Error> {
        Self::decode(self, row)
    }
}

/// Returns a catalog with the lists of these values.
pub(crate) fn recorded<T: Serialize>(values: &[T]) -> Result<Catalog, index_table_rows::Error> {
    let mut catalog = Catalog::new();
    for value in values {
        catalog.record(value, &mut Vec::new())?;
    }
    Ok(catalog)
}

pub(crate) struct Postcard;

impl Format for Postcard {
    type Error = postcard::Error;

    #[inline]
    fn encode<T: Serialize>(&self, value: &T, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        postcard::serialize_with_flavor(value, Append(out))
    }

    #[inline]
    fn decode<'de, T: Deserialize<'de>>(&self, row: &'de [u8]) -> Result<T, Self::Error> {
        postcard::from_bytes(row)
    }
}

/// Appends to a buffer that is used again.
struct Append<'o>(&'o mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
