//! Rows of `index-table-rows` beside postcard's, as the runtime calls both.
//!
//! `rows times` prints bytes and times, in one run and in turn. `rows own|postcard encode-TYPE|decode-TYPE` runs the operation inside
//! of [`measured`]; `scripts/instructions` compares the instructions of both sides.

mod format;
mod samples;
mod times;

use serde::{Serialize, de::DeserializeOwned};

use format::{Format, Outcome, Postcard, recorded};
use samples::{Visitor, visit_all};

/// The number of values whose instructions are counted.
const COUNTED: u64 = 200;

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

impl Operation<'_> {
    /// Runs the operation, if it is one. The result is the same for both formats.
    fn run<T: Serialize + DeserializeOwned>(
        &mut self,
        format: &impl Format,
        operation: &str,
        values: &[T],
    ) -> Outcome {
        let rows = format.rows(values)?;
        let mut out = Vec::with_capacity(4096);
        let mut read: Vec<T> = Vec::with_capacity(values.len());
        match operation {
            "encode-" => measured(|| format.encode_all(values, &mut out))?,
            "decode-" => measured(|| format.decode_all(&rows, |value| read.push(value)))?,
            _ => return Ok(()),
        }
        self.result = Some(Postcard.rows(&read)?.iter().map(Vec::len).sum());
        Ok(())
    }
}

impl Visitor for Operation<'_> {
    fn visit<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        _: &str,
        make: fn(u64) -> T,
    ) -> Outcome {
        let Some(operation) = self.name.strip_suffix(name) else { return Ok(()) };
        let values: Vec<T> = (0..COUNTED).map(make).collect();
        if self.side == "own" {
            self.run(&recorded(&values)?, operation, &values)
        } else {
            self.run(&Postcard, operation, &values)
        }
    }
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (side, operation) = (arguments.next(), arguments.next().unwrap_or_default());
    match side.as_deref() {
        Some("times") => times::print(),
        Some(side @ ("own" | "postcard")) => {
            let mut visitor = Operation { side, name: &operation, result: None };
            visit_all(&mut visitor)?;
            let result = visitor.result.ok_or_else(|| format!("no operation `{operation}`"))?;
            println!("{result}");
            Ok(())
        }
        _ => Err("rows times|own|postcard encode-TYPE|decode-TYPE".into()),
    }
}
