//! Tests of totals.

use super::*;

#[expect(clippy::duplicate_mod, reason = "the module in the key tests is private")]
#[path = "../key/tests/format.rs"]
mod format;
use format::{documented, hex};

fn summands(values: &[i128]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        push_summand(*value, &mut bytes);
    }
    bytes
}

/// Returns an aggregate with this number of sums of integers.
fn of_integers(sums: usize) -> AggregateSchema {
    const SUMS: [SumSchema; 2] = [SumSchema::new::<i64>("a"), SumSchema::new::<i64>("b")];
    AggregateSchema {
        name: "aggregate",
        key: &[],
        sums: &SUMS[..sums],
        extremes: &[],
        eventual: false,
    }
}

/// The vectors of `docs/FORMAT.md` never change, because files contain these bytes.
#[test]
fn records_have_the_documented_bytes() {
    let mut two = Totals::decode(None, &of_integers(2)).unwrap();
    two.add(&summands(&[5, -2]));
    two.add(&summands(&[250, 1]));
    let mut one = Totals::default();
    one.add(&[]);
    let row = |totals: &Totals, sums: usize| {
        let record = totals.record(&of_integers(sums)).unwrap().unwrap();
        assert_eq!(Totals::decode(Some(&record), &of_integers(sums)).as_ref(), Ok(totals));
        let mut read = totals.sums();
        let shown: Vec<_> = (0..sums).map(|_| read.next::<i64>().to_string()).collect();
        format!("| `{}` | `{}` | `{}` |", totals.count(), shown.join(", "), hex(&record))
    };
    assert_eq!(documented("### Test vectors of totals"), [row(&two, 2), row(&one, 0)]);
}

/// The vector of `docs/FORMAT.md`.
#[cfg(feature = "postgres")]
#[test]
fn stripes_have_the_documented_bytes_and_add_up() {
    let declared = of_integers(2);
    let mut deleted = Totals::default();
    deleted.remove(&summands(&[5, -1]));
    let stripe = deleted.stripe(&declared);
    let sums = [&[0xFF; 15][..], &[0xFB], &[0; 15], &[1]].concat();
    assert_eq!(stripe, [&[0xFF; 8][..], &sums].concat());

    let mut great = Totals::default();
    great.add(&summands(&[i128::MAX, i128::MIN]));
    great.add(&summands(&[i128::MAX, i128::MIN]));
    let mut sum = Totals::default();
    for part in [&great, &deleted, &great] {
        let stripe = part.stripe(&declared);
        assert_eq!(Totals::of_stripe(&stripe, &declared).as_ref(), Ok(part));
        assert!(Totals::of_stripe(&stripe[1..], &declared).is_err());
        sum.add_all(&Totals::of_stripe(&stripe, &declared).unwrap());
    }
    assert_eq!(sum.record(&declared), Err(Unrecordable::Overflow));
    for _ in 0..3 {
        sum.remove(&summands(&[i128::MAX, i128::MIN]));
        sum.add(&summands(&[0, 0]));
    }
    assert_eq!(sum.sums().next::<i64>(), i128::MAX - 5);
    // Records of totals are stripes.
    let record = sum.record(&declared).unwrap().unwrap();
    assert_eq!(Totals::of_stripe(&record, &declared), Ok(sum));
    assert!(Totals::default().is_zero() && !deleted.is_zero());
}

#[test]
fn a_group_without_rows_has_no_record() {
    let mut totals = Totals::decode(None, &of_integers(1)).unwrap();
    totals.add(&summands(&[7]));
    totals.remove(&summands(&[7]));
    assert_eq!(totals.record(&of_integers(1)), Ok(None));
    totals.remove(&summands(&[7]));
    assert_eq!(totals.record(&of_integers(1)), Err(Unrecordable::Negative));
}

#[test]
fn a_sum_may_leave_its_range_and_return() {
    let mut totals = Totals::decode(None, &of_integers(1)).unwrap();
    totals.add(&summands(&[i128::MAX]));
    totals.add(&summands(&[1]));
    assert_eq!(totals.record(&of_integers(1)), Err(Unrecordable::Overflow));
    totals.add(&summands(&[-1]));
    assert_eq!(totals.sums().next::<i64>(), i128::MAX);
    assert!(totals.record(&of_integers(1)).is_ok());
    totals.remove(&summands(&[-5]));
    assert_eq!(totals.record(&of_integers(1)), Err(Unrecordable::Overflow));
    totals.remove(&summands(&[i128::MAX]));
    assert_eq!(totals.sums().next::<i64>(), 5);
    assert!(totals.is_in_range(&of_integers(1)));
}

#[test]
fn a_record_of_another_length_is_refused() {
    assert!(Totals::decode(Some(&[0; 8]), &of_integers(1)).is_err());
    assert!(Totals::decode(Some(&[0; 25]), &of_integers(1)).is_err());
    assert!(Totals::decode(Some(&[0; 24]), &of_integers(1)).is_ok());
}
