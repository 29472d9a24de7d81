//! The values, which are the same in each run.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "arbitrary values"
)]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::format::Outcome;

/// What is done with the values of a type.
pub(crate) trait Visitor {
    /// Does it with values of a type, which `make` numbers. `name` is the type's name in arguments, `title` in tables.
    fn visit<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        title: &str,
        make: fn(u64) -> T,
    ) -> Outcome;
}

/// Visits all types.
pub(crate) fn visit_all(visitor: &mut impl Visitor) -> Outcome {
    visitor.visit("customer", "eight fields, five texts", customer)?;
    visitor.visit("order", "three numbers", order)?;
    visitor.visit("mixed", "ids, balance, time, bool, float", mixed)?;
    visitor.visit("floats", "eight `f32`", floats)?;
    visitor.visit("series", "20 `f64`", series)?;
    visitor.visit("numbers", "20 `u32`", numbers)?;
    visitor.visit("lines", "ten nested structs", lines)?;
    visitor.visit("shapes", "ten enums", shapes)?;
    visitor.visit("member", "an id, texts, times, options", member)?;
    visitor.visit("options", "16 options, every second `None`", options)?;
    visitor.visit("session", "an address, a time, a map of texts", session)?;
    visitor.visit("stock", "20 numbers by their ids", stock)
}

/// A customer with texts of a type, and fields in front and at the end.
macro_rules! customer {
    ($name:ident: { $($front:tt)* } { $($end:tt)* }) => {
        #[derive(Serialize, Deserialize)]
        pub(crate) struct $name<Text> {
            $($front)*
            pub(crate) id: u64,
            pub(crate) first_name: Text,
            pub(crate) last_name: Text,
            pub(crate) town: Text,
            pub(crate) phone: Text,
            pub(crate) email: Text,
            pub(crate) age: u32,
            pub(crate) active: bool,
            $($end)*
        }
    };
}

customer!(Customer: {} {});
customer!(CustomerAndPoints: {} { #[serde(default)] points: u64, });
customer!(PointsAndCustomer: { #[serde(default)] points: u64, } {});

#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    id: u64,
    customer: u64,
    amount: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Mixed {
    id: u64,
    customer: u64,
    balance: i64,
    at_ms: i64,
    active: bool,
    rate: f64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Floats {
    values: [f32; 8],
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Numbers {
    values: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    sku: u32,
    name: String,
    quantity: u16,
    price: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Lines {
    id: u64,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Shape {
    Circle { radius: f64, colour: u32 },
    Label(String),
    Move(i32, i32),
    Empty,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Shapes {
    id: u64,
    shapes: Vec<Shape>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Series {
    points: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Member {
    id: Uuid,
    email: String,
    nick_name: Option<String>,
    secret_hash: String,
    moderates: bool,
    joined_at: SystemTime,
    seen_at: Option<SystemTime>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Options {
    numbers: (Option<u64>, Option<u32>, Option<i64>, Option<u8>),
    texts: (Option<String>, Option<String>, Option<String>, Option<String>),
    a: Option<f64>,
    b: Option<bool>,
    c: Option<u64>,
    d: Option<String>,
    e: Option<i32>,
    f: Option<u16>,
    g: Option<(u8, u32)>,
    h: Option<Vec<u32>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Session {
    token: [u8; 32],
    person: u64,
    address: IpAddr,
    browser: String,
    seen_at: SystemTime,
    values: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Stock {
    id: u64,
    counts: BTreeMap<Uuid, u64>,
}

pub(crate) fn customer(i: u64) -> Customer<String> {
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

fn order(i: u64) -> Order {
    Order { id: 7, customer: 40_123 + i, amount: 129_900 + i as i64 }
}

fn mixed(i: u64) -> Mixed {
    Mixed {
        id: 40_123 + i,
        customer: 70_211 + i,
        balance: -129_900 + 1000 * i as i64,
        at_ms: 1_790_000_000_000 + (i * 7919) as i64,
        active: i.is_multiple_of(3),
        rate: 0.1 + i as f64 / 7.0,
    }
}

fn floats(i: u64) -> Floats {
    Floats { values: std::array::from_fn(|n| (i * 31 + n as u64) as f32 / 7.0) }
}

fn series(i: u64) -> Series {
    Series { points: (0..20).map(|n| (i * 31 + n) as f64 / 7.0).collect() }
}

fn numbers(i: u64) -> Numbers {
    Numbers { values: (0..20).map(|n| 100_000 + ((i * 7919 + n) % 20_000) as u32).collect() }
}

fn lines(i: u64) -> Lines {
    let line = |n: u64| Line {
        sku: 100_000 + (i * 10 + n) as u32 % 9973,
        name: format!("Article{}", (i + n) % 1000),
        quantity: (n % 12) as u16 + 1,
        price: 1290 + (i * n) as i64,
    };
    Lines { id: i, lines: (0..10).map(line).collect() }
}

fn shapes(i: u64) -> Shapes {
    let shape = |n: u64| match (i + n) % 4 {
        0 => Shape::Circle { radius: 0.1 + i as f64, colour: (i * n) as u32 },
        1 => Shape::Label(format!("label{}", n % 999)),
        2 => Shape::Move(-(i as i32), n as i32),
        _ => Shape::Empty,
    };
    Shapes { id: i, shapes: (0..10).map(shape).collect() }
}

fn id(i: u64) -> Uuid {
    Uuid::from_u64_pair(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i)
}

fn at(i: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_790_000_000_000 + i * 7919)
}

/// Returns the value for every second number.
fn even<T>(i: u64, value: T) -> Option<T> {
    i.is_multiple_of(2).then_some(value)
}

fn member(i: u64) -> Member {
    Member {
        id: id(i),
        email: format!("member.{i}@example.org"),
        nick_name: even(i, format!("nick{i}")),
        secret_hash: "5f4dcc3b5aa765d61d8327deb882cf99".to_owned(),
        moderates: i.is_multiple_of(7),
        joined_at: at(i),
        seen_at: even(i / 2, at(i + 1)),
    }
}

fn options(i: u64) -> Options {
    let text = |n: u64| even(i + n, format!("text{}", i + n));
    Options {
        numbers: (even(i, i), even(i + 1, i as u32), even(i, -(i as i64)), even(i + 1, i as u8)),
        texts: (text(0), text(1), text(2), text(3)),
        a: even(i, i as f64),
        b: even(i + 1, true),
        c: even(i, i << 20),
        d: text(5),
        e: even(i, -7),
        f: even(i + 1, 300),
        g: even(i, (1, 100_000)),
        h: even(i + 1, vec![1, 2, 3]),
    }
}

fn session(i: u64) -> Session {
    let address = if i.is_multiple_of(2) {
        Ipv4Addr::from_bits(i as u32).into()
    } else {
        Ipv6Addr::from_bits(u128::from(i) << 64).into()
    };
    Session {
        token: [i as u8; 32],
        person: i * 7919,
        address,
        browser: "Lynx/2.9.2 libwww-FM/2.14".to_owned(),
        seen_at: at(i),
        values: (0..i % 4).map(|n| (format!("name{n}"), format!("value{i}"))).collect(),
    }
}

fn stock(i: u64) -> Stock {
    Stock { id: i, counts: (0..20).map(|n| (id(i + n), n * 1000)).collect() }
}
