//! The types of summed fields, and their sums.
//!
//! A sum of integers is one integer. A sum of decimals is two integers, so that it is exact: the sum of the parts
//! before the decimal point, and the sum of the parts after it, in units of 10⁻²⁸.

use crate::model::schema::SumSchema;

/// The number of decimal places of a sum of decimals.
const PLACES: u32 = 28;

/// 1 in units of 10⁻²⁸.
const ONE: i128 = 10_i128.pow(PLACES);

/// The exclusive upper bound of the digits of a decimal, as an integer.
const BOUND: u128 = 1 << 96;

/// A type whose values can be summed: an integer of up to 64 bits, `i128` or a decimal number, or an `Option` of such a
/// type. `None` counts as 0.
#[diagnostic::on_unimplemented(
    message = "values of type `{Self}` can't be summed",
    label = "not a number with exact sums",
    note = "a sum changes with each write of a row, so it must be exact: use an integer of up to 64 bits or `i128`, a \
            `Decimal` (feature `rust_decimal`), or an `Option` of one; or keep an amount of money in its smallest unit"
)]
pub trait Summand {
    /// The type of a sum.
    type Sum;

    /// The number of integers in a sum.
    const PARTS: usize = 1;

    /// Calls `add` with each integer that is added to the sum.
    fn each_part(&self, add: impl FnMut(i128));

    /// Makes a sum from its integers, which `next` returns in their order.
    fn sum(next: impl FnMut() -> i128) -> Self::Sum;
}

macro_rules! integers {
    ($($t:ty)*) => {
        $(impl Summand for $t {
            type Sum = i128;

            #[inline]
            fn each_part(&self, mut add: impl FnMut(i128)) {
                add((*self).into());
            }

            #[inline]
            fn sum(mut next: impl FnMut() -> i128) -> i128 {
                next()
            }
        })*
    };
}

integers!(i8 i16 i32 i64 i128 u8 u16 u32 u64);

#[cfg(feature = "rust_decimal")]
impl Summand for rust_decimal::Decimal {
    type Sum = Self;

    const PARTS: usize = 2;

    fn each_part(&self, mut add: impl FnMut(i128)) {
        let scale = self.scale().min(PLACES);
        let one = 10_i128.pow(scale);
        add(self.mantissa() / one);
        add(self.mantissa() % one * 10_i128.pow(PLACES - scale));
    }

    fn sum(mut next: impl FnMut() -> i128) -> Self {
        let (whole, fraction) = (next(), next());
        let number = rounded(whole, fraction);
        let number = number.and_then(|(n, scale)| Self::try_from_i128_with_scale(n, scale).ok());
        // A sum out of range has been refused before.
        number.unwrap_or_default()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Summand> Summand for Option<T> {
    type Sum = T::Sum;

    const PARTS: usize = T::PARTS;

    #[inline]
    fn each_part(&self, mut add: impl FnMut(i128)) {
        match self {
            Some(value) => value.each_part(add),
            None => (0..T::PARTS).for_each(|_| add(0)),
        }
    }

    #[inline]
    fn sum(next: impl FnMut() -> i128) -> T::Sum {
        T::sum(next)
    }
}

impl SumSchema {
    /// Returns the sum of a field of type `T`.
    #[must_use]
    pub const fn new<T: Summand + ?Sized>(name: &'static str) -> Self {
        Self { name, is_decimal: T::PARTS > 1 }
    }

    /// Whether the sum of these integers is in the range of its type.
    pub(super) fn has(self, [whole, fraction]: [i128; 2]) -> bool {
        !self.is_decimal
            || whole.unsigned_abs() < BOUND / 2 && fraction.unsigned_abs() < BOUND / 2
            || rounded(whole, fraction).is_some()
    }

    /// Formats the sum of these integers.
    pub(super) fn show(self, [whole, fraction]: [i128; 2]) -> String {
        if !self.is_decimal {
            return whole.to_string();
        }
        match rounded(whole, fraction) {
            Some((number, scale)) if scale > 0 => {
                let (sign, digits) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
                let (one, width) = (10_u128.pow(scale), scale as usize);
                format!("{sign}{}.{:0width$}", digits / one, digits % one)
            }
            Some((number, _)) => number.to_string(),
            None => "out of range".to_owned(),
        }
    }
}

/// Returns `whole` + `fraction` · 10⁻²⁸ as an integer of up to 96 bits and a scale, without trailing zeros. A number
/// with more digits is rounded, half to even. Returns `None` if the number is out of range.
fn rounded(whole: i128, fraction: i128) -> Option<(i128, u32)> {
    let (mut whole, mut fraction) = (whole.checked_add(fraction / ONE)?, fraction % ONE);
    // Both get the same sign.
    if whole > 0 && fraction < 0 {
        (whole, fraction) = (whole - 1, fraction + ONE);
    } else if whole < 0 && fraction > 0 {
        (whole, fraction) = (whole + 1, fraction - ONE);
    }
    for scale in (0..=PLACES).rev() {
        let unit = 10_i128.pow(PLACES - scale);
        let Some(shifted) = whole.checked_mul(10_i128.pow(scale)) else { continue };
        let Some(number) = shifted.checked_add(fraction / unit) else { continue };
        let rest = fraction % unit;
        let is_up = match (rest.abs() * 2).cmp(&unit) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => number % 2 != 0,
            std::cmp::Ordering::Greater => true,
        };
        let number = if is_up { number + rest.signum() } else { number };
        if number.unsigned_abs() < BOUND {
            return Some(without_zeros(number, scale));
        }
    }
    None
}

fn without_zeros(mut number: i128, mut scale: u32) -> (i128, u32) {
    while scale > 0 && number % 10 == 0 {
        (number, scale) = (number / 10, scale - 1);
    }
    (number, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_sum_make_one_number() {
        assert_eq!(rounded(0, 0), Some((0, 0)));
        assert_eq!(rounded(12, ONE / 4), Some((1225, 2)));
        assert_eq!(rounded(-12, ONE / 4), Some((-1175, 2)));
        assert_eq!(rounded(12, -ONE / 4), Some((1175, 2)));
        assert_eq!(rounded(0, -ONE / 4), Some((-25, 2)));
        // 11.0000000000000000000000000001 has 30 digits.
        assert_eq!(rounded(1, 10 * ONE + 1), Some((11, 0)));
        assert_eq!(rounded(7, 3 * ONE), Some((10, 0)));
        assert_eq!(rounded(0, 1), Some((1, 28)));
        assert_eq!(rounded(i128::MAX, ONE), None);
    }

    #[test]
    fn a_sum_with_too_many_digits_is_rounded_half_to_even() {
        let greatest = BOUND.cast_signed() - 1;
        assert_eq!(rounded(greatest, 0), Some((greatest, 0)));
        assert_eq!(rounded(greatest, ONE / 2 - 1), Some((greatest, 0)));
        // The greatest number is odd, so its half is rounded up, out of the range.
        assert_eq!(rounded(greatest, ONE / 2), None);
        assert_eq!(rounded(greatest - 1, ONE / 2), Some((greatest - 1, 0)));
        assert_eq!(rounded(-greatest, -ONE / 2), None);
        assert_eq!(rounded(1 - greatest, -ONE / 2), Some((1 - greatest, 0)));
        assert_eq!(rounded(greatest + 1, -ONE), Some((greatest, 0)));
        // Three digits before the decimal point, and 26 after it.
        assert_eq!(rounded(333, ONE / 3), Some((10_i128.pow(29) / 3, 26)));
    }

    #[test]
    fn a_decimal_is_shown_as_one_number() {
        let sum = SumSchema { name: "amount", is_decimal: true };
        assert_eq!(sum.show([3, -ONE / 20]), "2.95");
        assert_eq!(sum.show([0, -ONE / 20]), "-0.05");
        assert_eq!(sum.show([3, 0]), "3");
        assert_eq!(sum.show([i128::MAX, 0]), "out of range");
        assert!(!sum.has([i128::MAX, 0]) && sum.has([BOUND.cast_signed() - 1, 0]));
        assert_eq!(SumSchema { name: "pieces", is_decimal: false }.show([-7, 0]), "-7");
    }

    #[cfg(feature = "rust_decimal")]
    #[test]
    fn a_decimal_is_the_sum_of_its_parts() {
        use rust_decimal::Decimal;

        for text in [
            "0",
            "1.00",
            "-0.0000000000000000000000000001",
            "79228162514264337593543950335",
            "-12.5",
        ] {
            let value: Decimal = text.parse().expect("a number");
            let mut parts = Vec::new();
            value.each_part(|part| parts.push(part));
            let mut parts = parts.into_iter();
            assert_eq!(<Decimal as Summand>::sum(|| parts.next().expect("a part")), value);
        }
    }
}
