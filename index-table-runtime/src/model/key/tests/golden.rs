//! The test vectors of `docs/FORMAT.md`. A vector never changes, because files contain these bytes.

use std::{
    borrow::Cow,
    fmt::Debug,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZero,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    decode_owned, encoded, encoded_prefix,
    format::{documented, hex},
    skip,
};
use crate::model::key::{Desc, Key};

/// The rows of a table of `FORMAT.md`.
#[derive(Default)]
pub(super) struct Vectors(pub(super) Vec<String>);

impl Vectors {
    /// Checks encoding and decoding, and adds rows with the `Debug` output of the values.
    pub(super) fn add<T: Key + Debug>(&mut self, name: &str, vectors: &[(T, &str)]) {
        self.add_shown(name, vectors, |value| format!("{value:?}"));
    }

    pub(super) fn add_shown<T: Key + Debug>(
        &mut self,
        name: &str,
        vectors: &[(T, &str)],
        show: impl Fn(&T) -> String,
    ) {
        for (value, bytes) in vectors {
            let key = encoded(value);
            assert_eq!(hex(&key), *bytes, "{name} {value:?}");
            let (decoded, len) = decode_owned::<T>(&key).unwrap();
            assert_eq!((show(&decoded), len), (show(value), key.len()), "{name}");
            assert_eq!(encoded(&decoded), key, "{name} {value:?}");
            assert_eq!(skip::<T>(&key), Ok(key.len()), "{name} {value:?}");
            self.0.push(format!("| `{name}` | `{}` | `{bytes}` |", show(value)));
        }
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Formats a number, with the bits of a NaN, because `Debug` does not show them.
fn show_f32(value: f32) -> String {
    if value.is_nan() { format!("NaN {:08x}", value.to_bits()) } else { format!("{value:?}") }
}

fn show_f64(value: f64) -> String {
    if value.is_nan() { format!("NaN {:016x}", value.to_bits()) } else { format!("{value:?}") }
}

fn numbers(vectors: &mut Vectors) {
    vectors.add::<u8>("u8", &[(0, "00"), (7, "07"), (255, "ff")]);
    vectors.add::<u16>("u16", &[(0, "00 00"), (258, "01 02"), (u16::MAX, "ff ff")]);
    vectors.add::<u32>("u32", &[(7, "00 00 00 07"), (u32::MAX, "ff ff ff ff")]);
    vectors.add::<u64>(
        "u64",
        &[(7, "00 00 00 00 00 00 00 07"), (u64::MAX, "ff ff ff ff ff ff ff ff")],
    );
    vectors.add::<u128>(
        "u128",
        &[
            (7, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 07"),
            (1 << 64, "00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00"),
        ],
    );
    vectors.add::<usize>("usize", &[(7, "00 00 00 00 00 00 00 07")]);
    vectors.add::<i8>("i8", &[(-128, "00"), (-1, "7f"), (0, "80"), (7, "87"), (127, "ff")]);
    vectors.add::<i16>(
        "i16",
        &[(i16::MIN, "00 00"), (-1, "7f ff"), (0, "80 00"), (258, "81 02"), (i16::MAX, "ff ff")],
    );
    vectors.add::<i32>("i32", &[(-7, "7f ff ff f9"), (7, "80 00 00 07")]);
    vectors.add::<i64>("i64", &[(-7, "7f ff ff ff ff ff ff f9"), (7, "80 00 00 00 00 00 00 07")]);
    vectors.add::<i128>(
        "i128",
        &[
            (-7, "7f ff ff ff ff ff ff ff ff ff ff ff ff ff ff f9"),
            (7, "80 00 00 00 00 00 00 00 00 00 00 00 00 00 00 07"),
        ],
    );
    vectors.add::<isize>("isize", &[(-7, "7f ff ff ff ff ff ff f9")]);
    vectors.add("bool", &[(false, "00"), (true, "01")]);
    vectors.add(
        "char",
        &[
            ('\0', "00 00 00 00"),
            ('a', "00 00 00 61"),
            ('é', "00 00 00 e9"),
            (char::MAX, "00 10 ff ff"),
        ],
    );
}

fn floats(vectors: &mut Vectors) {
    vectors.add_shown(
        "f32",
        &[
            (f32::from_bits(0xFFC0_0000), "00 3f ff ff"),
            (f32::NEG_INFINITY, "00 7f ff ff"),
            (-1.0, "40 7f ff ff"),
            (-0.0, "7f ff ff ff"),
            (0.0, "80 00 00 00"),
            (1.0, "bf 80 00 00"),
            (f32::INFINITY, "ff 80 00 00"),
            (f32::from_bits(0x7FC0_0000), "ff c0 00 00"),
        ],
        |value| show_f32(*value),
    );
    vectors.add_shown(
        "f64",
        &[
            (f64::from_bits(u64::MAX), "00 00 00 00 00 00 00 00"),
            (f64::NEG_INFINITY, "00 0f ff ff ff ff ff ff"),
            (-1.5, "40 07 ff ff ff ff ff ff"),
            (-0.0, "7f ff ff ff ff ff ff ff"),
            (0.0, "80 00 00 00 00 00 00 00"),
            (f64::from_bits(1), "80 00 00 00 00 00 00 01"),
            (1.5, "bf f8 00 00 00 00 00 00"),
            (f64::INFINITY, "ff f0 00 00 00 00 00 00"),
            (f64::from_bits(0x7FF0_0000_0000_0001), "ff f0 00 00 00 00 00 01"),
            (f64::from_bits(0x7FF8_0000_0000_0000), "ff f8 00 00 00 00 00 00"),
        ],
        |value| show_f64(*value),
    );
}

fn strings(vectors: &mut Vectors) {
    vectors.add(
        "String",
        &[
            (text(""), "00"),
            (text("a"), "61 00"),
            (text("ab"), "61 62 00"),
            (text("\0"), "01 01 00"),
            (text("\u{1}"), "01 02 00"),
            (text("\u{2}"), "02 00"),
            (text("a\0b\u{1}"), "61 01 01 62 01 02 00"),
            (text("é"), "c3 a9 00"),
        ],
    );
    vectors.add(
        "Vec<u8>",
        &[
            (vec![], "00"),
            (vec![0], "01 01 00"),
            (vec![0, 1, 2], "01 01 01 02 02 00"),
            (vec![255], "ff 00"),
            (vec![0, 255], "01 01 ff 00"),
        ],
    );
    vectors.add("[u8; 3]", &[([0, 1, 255], "00 01 ff")]);
}

fn composites(vectors: &mut Vectors) {
    vectors
        .add::<Option<u8>>("Option<u8>", &[(None, "00"), (Some(0), "01 00"), (Some(7), "01 07")]);
    vectors.add(
        "Option<String>",
        &[(None, "00"), (Some(text("")), "01 00"), (Some(text("a")), "01 61 00")],
    );
    vectors.add::<Option<Option<u8>>>(
        "Option<Option<u8>>",
        &[(None, "00"), (Some(None), "01 00"), (Some(Some(7)), "01 01 07")],
    );
    vectors.add(
        "(String, String)",
        &[((text("ab"), text("c")), "61 62 00 63 00"), ((text("a"), text("bc")), "61 00 62 63 00")],
    );
    vectors.add(
        "(String, u16)",
        &[((text(""), 65535_u16), "00 ff ff"), ((text("\0"), 0), "01 01 00 00 00")],
    );
    vectors.add("(Vec<u8>, i8, bool)", &[((vec![7], -1_i8, true), "07 00 7f 01")]);
}

fn descending(vectors: &mut Vectors) {
    fn add<T, const N: usize>(vectors: &mut Vectors, ty: &str, values: [(T, &str); N])
    where
        Desc<T>: Key + Debug,
    {
        let name = format!("desc {ty}");
        vectors.add(&name, &values.map(|(value, bytes)| (Desc(value), bytes)));
    }
    add::<u8, _>(vectors, "u8", [(0, "ff"), (7, "f8"), (255, "00")]);
    add::<i16, _>(vectors, "i16", [(-1, "80 00"), (0, "7f ff"), (258, "7e fd")]);
    add(vectors, "bool", [(false, "ff"), (true, "fe")]);
    add(vectors, "char", [('a', "ff ff ff 9e")]);
    add::<f32, _>(vectors, "f32", [(-0.0, "80 00 00 00"), (0.0, "7f ff ff ff")]);
    add::<f64, _>(vectors, "f64", [(1.5, "40 07 ff ff ff ff ff ff")]);
    let texts = [("", "ff"), ("a", "9e ff"), ("ab", "9e 9d ff"), ("\0\u{1}", "fe fe fe fd ff")];
    add(vectors, "String", texts.map(|(value, bytes)| (text(value), bytes)));
    add::<Vec<u8>, _>(vectors, "Vec<u8>", [(vec![], "ff"), (vec![0, 255], "fe fe 00 ff")]);
    add::<[u8; 3], _>(vectors, "[u8; 3]", [([0, 1, 255], "ff fe 00")]);
    add::<Option<u8>, _>(vectors, "Option<u8>", [(None, "ff"), (Some(0), "fe ff")]);
    let options = [(None, "ff"), (Some(text("")), "fe ff"), (Some(text("a")), "fe 9e ff")];
    add(vectors, "Option<String>", options);
    add(vectors, "(String, u16)", [((text("ab"), 258_u16), "9e 9d ff fe fd")]);
}

fn others(vectors: &mut Vectors) {
    vectors.add("NonZero<u32>", &[(NonZero::<u32>::MIN, "00 00 00 01")]);
    vectors.add("NonZero<i16>", &[(NonZero::new(-1_i16).unwrap(), "7f ff")]);
    vectors.add(
        "Duration",
        &[
            (Duration::ZERO, "00 00 00 00 00 00 00 00 00 00 00 00"),
            (Duration::from_millis(1500), "00 00 00 00 00 00 00 01 1d cd 65 00"),
            (Duration::MAX, "ff ff ff ff ff ff ff ff 3b 9a c9 ff"),
        ],
    );
    let seconds = |time: &SystemTime| match time.duration_since(UNIX_EPOCH) {
        Ok(after) => format!("+{after:?}"),
        Err(before) => format!("-{:?}", before.duration()),
    };
    vectors.add_shown(
        "SystemTime",
        &[
            (UNIX_EPOCH - Duration::from_millis(1500), "7f ff ff ff ff ff ff fe 1d cd 65 00"),
            (UNIX_EPOCH - Duration::from_secs(1), "7f ff ff ff ff ff ff ff 00 00 00 00"),
            (UNIX_EPOCH, "80 00 00 00 00 00 00 00 00 00 00 00"),
            (UNIX_EPOCH + Duration::from_millis(1500), "80 00 00 00 00 00 00 01 1d cd 65 00"),
        ],
        seconds,
    );
    vectors.add("Ipv4Addr", &[(Ipv4Addr::LOCALHOST, "7f 00 00 01")]);
    vectors.add(
        "Ipv6Addr",
        &[(Ipv6Addr::LOCALHOST, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01")],
    );
    vectors.add(
        "IpAddr",
        &[
            (IpAddr::V4(Ipv4Addr::LOCALHOST), "04 7f 00 00 01"),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), "06 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01"),
        ],
    );
    vectors.add::<Box<str>>("Box<str>", &[("a\0".into(), "61 01 01 00")]);
    vectors.add::<Arc<str>>("Arc<str>", &[("a\0".into(), "61 01 01 00")]);
    vectors.add::<Cow<'static, str>>("Cow<'static, str>", &[("a\0".into(), "61 01 01 00")]);
    vectors.add::<PathBuf>("PathBuf", &[("/a".into(), "2f 61 00")]);
}

#[test]
fn keys_match_the_test_vectors() {
    let mut vectors = Vectors::default();
    numbers(&mut vectors);
    floats(&mut vectors);
    strings(&mut vectors);
    composites(&mut vectors);
    descending(&mut vectors);
    others(&mut vectors);
    assert_eq!(documented("### Test vectors"), vectors.0);
}

#[test]
fn prefixes_match_the_test_vectors() {
    let vectors = [("", ""), ("ab", "61 62"), ("a\0", "61 01 01"), ("\u{1}", "01 02")];
    let rows = vectors.map(|(prefix, bytes)| {
        assert_eq!(hex(&encoded_prefix(prefix)), bytes, "{prefix:?}");
        format!("| `{prefix:?}` | `{bytes}` |").replace("``", "")
    });
    assert_eq!(documented("### Prefixes"), rows);
}

/// Returns a row of the tables of shapes.
pub(super) fn row<T: Key>(name: &str) -> String {
    let len = T::SHAPE.fixed_len().map_or("varies".to_owned(), |len| len.to_string());
    format!("| `{name}` | `{}` | {len} |", T::SHAPE)
}

#[test]
fn shapes_match_the_documentation() {
    let rows = [
        row::<u8>("u8"),
        row::<u16>("u16"),
        row::<u32>("u32"),
        row::<u64>("u64"),
        row::<u128>("u128"),
        row::<usize>("usize"),
        row::<i8>("i8"),
        row::<i16>("i16"),
        row::<i32>("i32"),
        row::<i64>("i64"),
        row::<i128>("i128"),
        row::<isize>("isize"),
        row::<bool>("bool"),
        row::<char>("char"),
        row::<f32>("f32"),
        row::<f64>("f64"),
        row::<String>("String"),
        row::<Vec<u8>>("Vec<u8>"),
        row::<[u8; 3]>("[u8; 3]"),
        row::<Option<String>>("Option<String>"),
        row::<(String, u64)>("(String, u64)"),
        row::<(u16, i8)>("(u16, i8)"),
        row::<Desc<u32>>("desc u32"),
        row::<Desc<Option<String>>>("desc Option<String>"),
        row::<NonZero<i16>>("NonZero<i16>"),
        row::<Duration>("Duration"),
        row::<SystemTime>("SystemTime"),
        row::<Ipv4Addr>("Ipv4Addr"),
        row::<Ipv6Addr>("Ipv6Addr"),
        row::<IpAddr>("IpAddr"),
        row::<Box<str>>("Box<str>"),
        row::<Arc<str>>("Arc<str>"),
        row::<Cow<'static, str>>("Cow<'static, str>"),
        row::<PathBuf>("PathBuf"),
    ];
    assert_eq!(documented("### Shapes"), rows);
}
