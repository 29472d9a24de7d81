//! The binary format of `COPY`: a header, the rows, and an end.

use super::names::Form;

/// The signature, the flags, and the length of the extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// The number of columns that stands for the end.
const END: [u8; 2] = (-1_i16).to_be_bytes();

/// A piece is sent when it has this size.
const PIECE: usize = 1 << 16;

/// Rows in the binary format, in pieces.
pub(super) struct Copied {
    form: Form,
    bytes: Vec<u8>,
}

impl Copied {
    pub(super) fn new(form: Form) -> Self {
        Self { form, bytes: HEADER.to_vec() }
    }

    /// Adds a row. `key` is empty for a fact.
    pub(super) fn push(&mut self, key: &[u8], primary_key: &[u8], data: &[u8]) {
        let columns: &[&[u8]] = match self.form {
            Form::Pairs => &[primary_key, data],
            Form::Entries => &[key, primary_key, data],
            Form::Unique => &[key, &[], primary_key, data],
        };
        let count = i16::try_from(columns.len()).unwrap_or_default();
        self.bytes.extend(count.to_be_bytes());
        for column in columns {
            let len = i32::try_from(column.len()).unwrap_or(i32::MAX);
            self.bytes.extend(len.to_be_bytes());
            self.bytes.extend(*column);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= PIECE
    }

    /// Adds the end.
    pub(super) fn end(&mut self) {
        self.bytes.extend(END);
    }

    /// Returns the bytes since the last piece.
    pub(super) fn piece(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_columns_with_their_lengths_between_a_header_and_an_end() {
        let mut copied = Copied::new(Form::Unique);
        copied.push(b"k", b"id", b"");
        copied.end();
        let row = b"\0\x04\0\0\0\x01k\0\0\0\0\0\0\0\x02id\0\0\0\0";
        assert_eq!(copied.piece(), [HEADER, row, &[0xFF, 0xFF]].concat());
        copied.push(b"k", b"id", &vec![0; PIECE]);
        assert!(copied.is_full());
    }
}
