//! Rows beside postcard's: bytes, and the time to encode and to decode, in one run and in turn.
//!
//!     cargo run --release -p index-table-rows --example row_format

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "random values, and times"
)]

use std::{hint::black_box, time::Instant};

use index_table_rows::Catalog;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

const ROWS: u64 = 2_000;
const ROUNDS: usize = 61;

#[derive(Serialize, Deserialize)]
struct Customer {
    id: u64,
    first_name: String,
    last_name: String,
    town: String,
    phone: String,
    email: String,
    age: u32,
    active: bool,
}

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

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    customer: u64,
    amount: i64,
}

#[derive(Serialize, Deserialize)]
struct Mixed {
    id: u64,
    customer: u64,
    balance: i64,
    at_ms: i64,
    active: bool,
    rate: f64,
}

#[derive(Serialize, Deserialize)]
struct Floats {
    values: [f32; 8],
}

#[derive(Serialize, Deserialize)]
struct Numbers {
    values: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    sku: u32,
    name: String,
    quantity: u16,
    price: i64,
}

#[derive(Serialize, Deserialize)]
struct Lines {
    id: u64,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
enum Shape {
    Circle { radius: f64, colour: u32 },
    Label(String),
    Move(i32, i32),
    Empty,
}

#[derive(Serialize, Deserialize)]
struct Shapes {
    id: u64,
    shapes: Vec<Shape>,
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

fn compare<T: Serialize + DeserializeOwned>(name: &str, make: impl Fn(u64) -> T) {
    let values: Vec<T> = (0..ROWS).map(make).collect();
    let mut catalog = Catalog::new();
    for value in &values {
        catalog.record(value, &mut Vec::new()).expect("a value");
    }
    let catalog = &catalog;
    let rows: Vec<Vec<u8>> = values.iter().map(|value| encoded(catalog, value)).collect();
    let postcard: Vec<Vec<u8>> =
        values.iter().map(|value| postcard::to_stdvec(value).expect("a value")).collect();
    let size = |rows: &[Vec<u8>]| rows.iter().map(Vec::len).sum::<usize>() as f64 / ROWS as f64;
    let (mut own, mut other) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
    let times = measure(&mut [
        &mut || {
            for value in &values {
                other.clear();
                postcard::serialize_with_flavor(value, Append(&mut other)).expect("a value");
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
        &mut || {
            for row in &rows {
                black_box(catalog.decode::<T>(row).expect("a row"));
            }
        },
        &mut || {
            for (row, value) in rows.iter().zip(&values) {
                assert!(catalog.is_same(row, value));
            }
        },
    ]);
    let [encode, own_encode, decode, own_decode, same] = times[..] else { return };
    println!(
        "| {name} | {:.1} | {:.1} | {:.2} | {encode:.0} | {own_encode:.0} | {:.2} | {decode:.0} | {own_decode:.0} | {:.2} | {same:.0} |",
        size(&postcard) + 1.0,
        size(&rows),
        size(&rows) / (size(&postcard) + 1.0),
        own_encode / encode,
        own_decode / decode,
    );
}

fn encoded<T: Serialize>(catalog: &Catalog, value: &T) -> Vec<u8> {
    let mut row = Vec::new();
    catalog.encode(value, &mut row).expect("a value");
    row
}

fn customer(i: u64) -> Customer {
    Customer {
        id: i * 7919,
        first_name: format!("Alice{}", i % 97),
        last_name: format!("Smith{}", i % 997),
        town: format!("Redmond{}", i % 1000),
        phone: format!("555-{i:07}"),
        email: format!("alice.{i}@example.com"),
        age: (i % 90) as u32,
        active: i.is_multiple_of(2),
    }
}

fn read<T: DeserializeOwned>(catalog: &Catalog, rows: &[Vec<u8>]) {
    for row in rows {
        black_box(catalog.decode::<T>(row).expect("a row"));
    }
}

/// A field more in the type than in the rows.
fn evolved() {
    let mut catalog = Catalog::new();
    catalog.record(&customer(1), &mut Vec::new()).expect("a value");
    let catalog = &catalog;
    let rows: Vec<Vec<u8>> = (0..ROWS).map(|i| encoded(catalog, &customer(i))).collect();
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
    let mut catalog = Catalog::new();
    catalog.record(&customer(1), &mut Vec::new()).expect("a value");
    let catalog = &catalog;
    let rows: Vec<Vec<u8>> = (0..ROWS).map(|i| encoded(catalog, &customer(i))).collect();
    let postcard: Vec<Vec<u8>> =
        (0..ROWS).map(|i| postcard::to_stdvec(&customer(i)).expect("a value")).collect();
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

fn main() {
    println!(
        "| row | bytes, postcard with a version | own | ratio | encode, ns: postcard | own | ratio | decode, ns: postcard | own | ratio | compare, ns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    compare("eight fields, five texts", customer);
    compare("three numbers", |i| Order { id: 7, customer: 40_123 + i, amount: 129_900 + i as i64 });
    compare("ids, balance, time, bool, float", |i| Mixed {
        id: 40_123 + i,
        customer: 70_211 + i,
        balance: -129_900 + 1000 * i as i64,
        at_ms: 1_790_000_000_000 + (i * 7919) as i64,
        active: i.is_multiple_of(3),
        rate: 0.1 + i as f64 / 7.0,
    });
    compare("eight `f32`", |i| Floats {
        values: std::array::from_fn(|n| (i * 31 + n as u64) as f32 / 7.0),
    });
    compare("20 `u32`", |i| Numbers {
        values: (0..20).map(|n| 100_000 + ((i * 7919 + n) % 20_000) as u32).collect(),
    });
    compare("ten nested structs", |i| Lines {
        id: i,
        lines: (0..10)
            .map(|n| Line {
                sku: 100_000 + (i * 10 + n) as u32 % 9973,
                name: format!("Article{}", (i + n) % 1000),
                quantity: (n % 12) as u16 + 1,
                price: 1290 + (i * n) as i64,
            })
            .collect(),
    });
    compare("ten enums", |i| Shapes {
        id: i,
        shapes: (0..10)
            .map(|n| match (i + n) % 4 {
                0 => Shape::Circle { radius: 0.1 + i as f64, colour: (i * n) as u32 },
                1 => Shape::Label(format!("label{}", n % 999)),
                2 => Shape::Move(-(i as i32), n as i32),
                _ => Shape::Empty,
            })
            .collect(),
    });
    evolved();
    views();
}
