//! Bytes and times.

#![allow(clippy::cast_precision_loss, reason = "times")]

use std::{hint::black_box, time::Instant};

use index_table_rows::Catalog;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    format::{Format, Outcome, Postcard, recorded},
    samples::{Customer, CustomerAndPoints, PointsAndCustomer, Visitor, customer, visit_all},
};

const ROWS: u64 = 2_000;
const ROUNDS: usize = 61;

type View<'row> = Customer<&'row str>;

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the median time of each function, in nanoseconds for a row.
fn measure<const N: usize>(all: [&mut dyn FnMut() -> Outcome; N]) -> Outcome<[f64; N]> {
    let mut all = all.map(|work| (work, Vec::with_capacity(ROUNDS)));
    for round in 0..=ROUNDS {
        for (work, times) in &mut all {
            let start = Instant::now();
            work()?;
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e9 / ROWS as f64);
            }
        }
    }
    Ok(all.map(|(_, mut times)| median(&mut times)))
}

fn read<'de, T: Deserialize<'de>>(format: &impl Format, rows: &'de [Vec<u8>]) -> Outcome {
    Ok(format.decode_all(rows, |value: T| drop(black_box(value)))?)
}

/// Prints a line for each type.
struct Compare;

impl Visitor for Compare {
    fn visit<T: Serialize + DeserializeOwned>(
        &mut self,
        _: &str,
        title: &str,
        make: fn(u64) -> T,
    ) -> Outcome {
        let values: Vec<T> = (0..ROWS).map(make).collect();
        let catalog = recorded(&values)?;
        let (rows, postcard) = (catalog.rows(&values)?, Postcard.rows(&values)?);
        let size = |rows: &[Vec<u8>]| rows.iter().map(Vec::len).sum::<usize>() as f64 / ROWS as f64;
        let (mut own, mut other) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
        let [encode, own_encode, decode, own_decode, same] = measure([
            &mut || Ok(Postcard.encode_all(&values, &mut other)?),
            &mut || Ok(catalog.encode_all(&values, &mut own)?),
            &mut || read::<T>(&Postcard, &postcard),
            &mut || read::<T>(&catalog, &rows),
            &mut || {
                let is_same = |(row, value): (&Vec<u8>, _)| catalog.is_same(row, value);
                let are_same = rows.iter().zip(&values).all(is_same);
                are_same.then_some(()).ok_or_else(|| "a row differs from its value".into())
            },
        ])?;
        println!(
            "| {title} | {:.1} | {:.1} | {:.2} | {encode:.0} | {own_encode:.0} | {:.2} | {decode:.0} | {own_decode:.0} | {:.2} | {same:.0} |",
            size(&postcard) + 1.0,
            size(&rows),
            size(&rows) / (size(&postcard) + 1.0),
            own_encode / encode,
            own_decode / decode,
        );
        Ok(())
    }
}

/// A field more in the type than in the rows.
fn evolved(catalog: &Catalog, rows: &[Vec<u8>]) -> Outcome {
    let [same, behind, front] = measure([
        &mut || read::<Customer<String>>(catalog, rows),
        &mut || read::<CustomerAndPoints<String>>(catalog, rows),
        &mut || read::<PointsAndCustomer<String>>(catalog, rows),
    ])?;
    println!(
        "\nA field more at the end: {:.2}; in front, so that the row is read by names: {:.2}",
        behind / same,
        front / same
    );
    Ok(())
}

/// The fields of a borrowed view, one by one, beside a struct that borrows.
fn views(catalog: &Catalog, rows: &[Vec<u8>], postcard: &[Vec<u8>]) -> Outcome {
    let [postcard, decode, fields, last] = measure([
        &mut || read::<View<'_>>(&Postcard, postcard),
        &mut || read::<View<'_>>(catalog, rows),
        &mut || {
            rows.iter().try_for_each(|row| {
                black_box(view(catalog, row)?);
                Ok(())
            })
        },
        &mut || {
            rows.iter().try_for_each(|row| {
                black_box(catalog.fields(row)?.field::<u32>(&["age"])?);
                Ok(())
            })
        },
    ])?;
    println!(
        "\nA view of eight fields, ns: postcard {postcard:.0}, decoded {decode:.0}, by fields {fields:.0}; only the seventh field {last:.0}"
    );
    Ok(())
}

fn view<'row>(
    catalog: &Catalog,
    row: &'row [u8],
) -> Result<Option<View<'row>>, index_table_rows::Error> {
    let mut fields = catalog.fields(row)?;
    macro_rules! field {
        ($name:literal) => {
            match fields.field(&[$name])? {
                Some(value) => value,
                None => return Ok(None),
            }
        };
    }
    let view = View {
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

pub(crate) fn print() -> Outcome {
    println!(
        "| row | bytes, postcard with a version | own | ratio | encode, ns: postcard | own | ratio | decode, ns: postcard | own | ratio | compare, ns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    visit_all(&mut Compare)?;
    let values: Vec<_> = (0..ROWS).map(customer).collect();
    let catalog = recorded(&values)?;
    let rows = catalog.rows(&values)?;
    evolved(&catalog, &rows)?;
    views(&catalog, &rows, &Postcard.rows(&values)?)
}
