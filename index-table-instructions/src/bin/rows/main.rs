//! Rows of `index-table-rows` beside postcard's, as the runtime calls both.
//!
//! `rows times` prints bytes and times, in one run and in turn. `rows own|postcard encode-TYPE|decode-TYPE` runs the operation inside
//! of [`measured`]; `scripts/instructions` compares the instructions of both sides.

mod samples;
mod times;

use std::{error::Error, hint::black_box};

use index_table_rows::Catalog;
use serde::{Serialize, de::DeserializeOwned};

use samples::{Visitor, visit_all};

/// The number of values whose instructions are counted.
const COUNTED: u64 = 200;

/// Appends to a buffer that is used again.
pub(crate) struct Append<'o>(pub(crate) &'o mut Vec<u8>);

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

/// Appends a row of postcard.
#[inline]
pub(crate) fn encode_postcard<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    postcard::serialize_with_flavor(value, Append(out)).expect("a value");
}

/// Returns a catalog with the lists of these values, and their rows.
pub(crate) fn recorded<T: Serialize>(values: &[T]) -> (Catalog, Vec<Vec<u8>>) {
    let mut catalog = Catalog::new();
    for value in values {
        catalog.record(value, &mut Vec::new()).expect("a value");
    }
    let encoded = |value: &T| {
        let mut row = Vec::new();
        catalog.encode(value, &mut row).expect("a value");
        row
    };
    let rows = values.iter().map(encoded).collect();
    (catalog, rows)
}

pub(crate) fn postcard_rows<T: Serialize>(values: &[T]) -> Vec<Vec<u8>> {
    values.iter().map(|value| postcard::to_stdvec(value).expect("a value")).collect()
}

/// Runs the operation whose instructions are counted.
#[inline(never)]
fn measured<T>(operation: impl FnOnce() -> T) -> T {
    operation()
}

/// An operation of one side on the values of one type.
struct Operation<'a> {
    side: &'a str,
    name: &'a str,
    /// A number that both sides have to return.
    result: Option<usize>,
}

impl Visitor for Operation<'_> {
    fn visit<T: Serialize + DeserializeOwned>(&mut self, name: &str, _: &str, make: fn(u64) -> T) {
        let Some(operation) = self.name.strip_suffix(name) else { return };
        let values: Vec<T> = (0..COUNTED).map(make).collect();
        let (catalog, rows) = recorded(&values);
        let postcard = postcard_rows(&values);
        let mut out = Vec::with_capacity(4096);
        let mut read = Vec::with_capacity(values.len());
        match (self.side, operation) {
            ("own", "encode-") => measured(|| {
                for value in &values {
                    out.clear();
                    catalog.encode(value, black_box(&mut out)).expect("a value");
                }
            }),
            ("postcard", "encode-") => measured(|| {
                for value in &values {
                    out.clear();
                    encode_postcard(value, black_box(&mut out));
                }
            }),
            ("own", "decode-") => measured(|| {
                read.extend(rows.iter().map(|row| catalog.decode::<T>(row).expect("a row")));
            }),
            ("postcard", "decode-") => measured(|| {
                let decoded = |row| postcard::from_bytes::<T>(row).expect("a row");
                read.extend(postcard.iter().map(|row| decoded(row)));
            }),
            _ => return,
        }
        self.result = Some(postcard_rows(&read).iter().map(Vec::len).sum());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (side, operation) = (arguments.next(), arguments.next().unwrap_or_default());
    match side.as_deref() {
        Some("times") => times::print(),
        Some(side @ ("own" | "postcard")) => {
            let mut visitor = Operation { side, name: &operation, result: None };
            visit_all(&mut visitor);
            let result = visitor.result.ok_or_else(|| format!("no operation `{operation}`"))?;
            println!("{result}");
        }
        _ => return Err("rows times|own|postcard encode-TYPE|decode-TYPE".into()),
    }
    Ok(())
}
