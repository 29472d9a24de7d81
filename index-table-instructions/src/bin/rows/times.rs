//! Bytes and times.

#![allow(clippy::cast_precision_loss, reason = "times")]

use std::{hint::black_box, time::Instant};

use index_table_rows::Catalog;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    encode_postcard, postcard_rows, recorded,
    samples::{Customer, Visitor, customer, visit_all},
};

const ROWS: u64 = 2_000;
const ROUNDS: usize = 61;

#[derive(Deserialize)]
#[allow(dead_code, reason = "read only")]
struct CustomerView<'row> {
    id: u64,
    first_name: &'row str,
    last_name: &'row str,
    town: &'row str,
    phone: &'row str,
    email: &'row str,
    age: u32,
    active: bool,
}

/// Releases of the first two types with a field more, at the end and in front.
mod later {
    #![allow(dead_code, reason = "read only")]

    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct Customer {
        id: u64,
        first_name: String,
        last_name: String,
        town: String,
        phone: String,
        email: String,
        age: u32,
        active: bool,
        #[serde(default)]
        points: u64,
    }

    #[derive(Deserialize)]
    pub(super) struct CustomerInFront {
        #[serde(default)]
        points: u64,
        id: u64,
        first_name: String,
        last_name: String,
        town: String,
        phone: String,
        email: String,
        age: u32,
        active: bool,
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the median time of each function, in nanoseconds for a row.
fn measure(all: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut times = vec![Vec::new(); all.len()];
    for round in 0..=ROUNDS {
        for (work, times) in all.iter_mut().zip(&mut times) {
            let start = Instant::now();
            work();
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e9 / ROWS as f64);
            }
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}

/// Prints a line for each type.
struct Compare;

impl Visitor for Compare {
    fn visit<T: Serialize + DeserializeOwned>(&mut self, _: &str, title: &str, make: fn(u64) -> T) {
        let values: Vec<T> = (0..ROWS).map(make).collect();
        let (catalog, rows) = recorded(&values);
        let catalog = &catalog;
        let postcard = postcard_rows(&values);
        let size = |rows: &[Vec<u8>]| rows.iter().map(Vec::len).sum::<usize>() as f64 / ROWS as f64;
        let (mut own, mut other) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
        let times = measure(&mut [
            &mut || {
                for value in &values {
                    other.clear();
                    encode_postcard(value, &mut other);
                    black_box(&other);
                }
            },
            &mut || {
                for value in &values {
                    own.clear();
                    catalog.encode(value, &mut own).expect("a value");
                    black_box(&own);
                }
            },
            &mut || {
                for row in &postcard {
                    black_box(postcard::from_bytes::<T>(row).expect("a row"));
                }
            },
            &mut || read::<T>(catalog, &rows),
            &mut || {
                for (row, value) in rows.iter().zip(&values) {
                    assert!(catalog.is_same(row, value));
                }
            },
        ]);
        let [encode, own_encode, decode, own_decode, same] = times[..] else { return };
        println!(
            "| {title} | {:.1} | {:.1} | {:.2} | {encode:.0} | {own_encode:.0} | {:.2} | {decode:.0} | {own_decode:.0} | {:.2} | {same:.0} |",
            size(&postcard) + 1.0,
            size(&rows),
            size(&rows) / (size(&postcard) + 1.0),
            own_encode / encode,
            own_decode / decode,
        );
    }
}

fn read<T: DeserializeOwned>(catalog: &Catalog, rows: &[Vec<u8>]) {
    for row in rows {
        black_box(catalog.decode::<T>(row).expect("a row"));
    }
}

/// A field more in the type than in the rows.
fn evolved() {
    let values: Vec<Customer> = (0..ROWS).map(customer).collect();
    let (catalog, rows) = recorded(&values);
    let catalog = &catalog;
    let times = measure(&mut [
        &mut || read::<Customer>(catalog, &rows),
        &mut || read::<later::Customer>(catalog, &rows),
        &mut || read::<later::CustomerInFront>(catalog, &rows),
    ]);
    let [same, behind, front] = times[..] else { return };
    println!(
        "\nA field more at the end: {:.2}; in front, so that the row is read by names: {:.2}",
        behind / same,
        front / same
    );
}

/// The fields of a borrowed view, one by one, beside a struct that borrows.
fn views() {
    let values: Vec<Customer> = (0..ROWS).map(customer).collect();
    let (catalog, rows) = recorded(&values);
    let catalog = &catalog;
    let postcard = postcard_rows(&values);
    let times = measure(&mut [
        &mut || {
            for row in &postcard {
                black_box(postcard::from_bytes::<CustomerView<'_>>(row).expect("a row"));
            }
        },
        &mut || {
            for row in &rows {
                black_box(catalog.decode::<CustomerView<'_>>(row).expect("a row"));
            }
        },
        &mut || {
            for row in &rows {
                black_box(view(catalog, row).expect("a row"));
            }
        },
        &mut || {
            for row in &rows {
                let mut fields = catalog.fields(row).expect("a row");
                black_box(fields.field::<u32>(&["age"]).expect("a row"));
            }
        },
    ]);
    let [postcard, decode, fields, last] = times[..] else { return };
    println!(
        "\nA view of eight fields, ns: postcard {postcard:.0}, decoded {decode:.0}, by fields {fields:.0}; only the seventh field {last:.0}"
    );
}

fn view<'row>(
    catalog: &Catalog,
    row: &'row [u8],
) -> Result<Option<CustomerView<'row>>, index_table_rows::Error> {
    let mut fields = catalog.fields(row)?;
    macro_rules! field {
        ($name:literal) => {
            match fields.field(&[$name])? {
                Some(value) => value,
                None => return Ok(None),
            }
        };
    }
    let view = CustomerView {
        id: field!("id"),
        first_name: field!("first_name"),
        last_name: field!("last_name"),
        town: field!("town"),
        phone: field!("phone"),
        email: field!("email"),
        age: field!("age"),
        active: field!("active"),
    };
    fields.end()?;
    Ok(Some(view))
}

pub(crate) fn print() {
    println!(
        "| row | bytes, postcard with a version | own | ratio | encode, ns: postcard | own | ratio | decode, ns: postcard | own | ratio | compare, ns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    visit_all(&mut Compare);
    evolved();
    views();
}
