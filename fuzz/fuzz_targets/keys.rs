//! Bytes are refused as a key, or equal the encoding of the decoded value. Keys have the order of their
//! values.
#![no_main]

use std::{cmp::Ordering, net::IpAddr, num::NonZeroI32, time::Duration};

use index_table_runtime::{Desc, fuzzing::Encoded, private::Key};
use libfuzzer_sys::fuzz_target;

fn check<T: Key>(a: &[u8], b: &[u8], order: fn(&T, &T) -> Ordering) {
    let (a, b) = (Encoded::<T>::read(a), Encoded::<T>::read(b));
    for encoded in [&a, &b].into_iter().flatten() {
        assert_eq!(encoded.again, encoded.bytes);
        assert_eq!(encoded.skipped, Some(encoded.bytes.len()));
        assert_eq!(encoded.shown, encoded.shown_again);
    }
    if let (Some(a), Some(b)) = (a, b) {
        assert_eq!(a.bytes.cmp(b.bytes), order(&a.value, &b.value));
    }
}

macro_rules! check_one_of {
    ($which:expr, $a:expr, $b:expr; $($type:ty),*; $($desc:ty),*; $($float:ty),*) => {{
        let checks: &[fn(&[u8], &[u8])] = &[
            $(|a, b| check::<$type>(a, b, Ord::cmp),)*
            $(|a, b| check::<Desc<$desc>>(a, b, |a, b| b.0.cmp(&a.0)),)*
            $(|a, b| check::<$float>(a, b, |a, b| a.total_cmp(b)),)*
        ];
        checks[usize::from($which) % checks.len()]($a, $b)
    }};
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, split], rest)) = data.split_first_chunk::<2>() else { return };
    let (a, b) = rest.split_at(usize::from(split).min(rest.len()));
    check_one_of!(which, a, b;
        u8, i16, u32, i64, u128, bool, char, String, Vec<u8>, [u8; 5], Option<u8>, Option<String>,
        (String, i32), (Vec<u8>, Option<String>, u64), Duration, IpAddr, NonZeroI32,
        Option<(String, bool)>, Box<str>;
        String, (i8, Vec<u8>), Option<u16>;
        f32, f64
    );
});
