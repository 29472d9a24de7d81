use ::rust_decimal::Decimal;

use crate::model::key::{DecodeError, KeyShape, through::through};

/// One byte for the sign and the exponent, then the digits.
const LEN: usize = 14;

through! {
    // Equal values, such as 1.0 and 1.00, have the same key, and are decoded without trailing zeros.
    Decimal: [u8; LEN], KeyShape::Named("decimal", &<[u8; LEN]>::SHAPE),
        |value| encode(value),
        |raw| decode(raw).ok_or(DecodeError::Value("not a decimal number"));
}

/// The digits of the longest number.
const DIGITS: u32 = 29;
/// The first byte of zero.
const ZERO: u8 = 0x80;
/// The exponent 0, as of 0.1, in the first byte. The smallest number, 10⁻²⁸, has 1, and the greatest has
/// 57.
const BIAS: u32 = 28;

/// Encodes a positive number, 0.d₁d₂…d₂₉ · 10ᵉ where d₁ is not 0, as e and then the digits as one number. The
/// bytes of a negative number are the inverted bytes of its absolute value.
fn encode(value: Decimal) -> [u8; LEN] {
    let number = value.mantissa().unsigned_abs();
    let Some(length) = number.checked_ilog10().map(|log| log + 1) else {
        let mut zero = [0; LEN];
        zero[0] = ZERO;
        return zero;
    };
    let exponent = (BIAS + length).saturating_sub(value.scale());
    // The digits take 97 bits.
    let digits = number * 10_u128.pow(DIGITS - length);
    let [_, _, mut bytes @ ..] = digits.to_be_bytes();
    bytes[0] = ZERO | exponent as u8;
    if value.is_sign_negative() { bytes.map(|byte| !byte) } else { bytes }
}

fn decode(bytes: [u8; LEN]) -> Option<Decimal> {
    let negative = bytes[0] < ZERO;
    let [first, digits @ ..] = if negative { bytes.map(|byte| !byte) } else { bytes };
    let mut number = digits.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
    if first == ZERO && number == 0 && !negative {
        return Some(Decimal::ZERO);
    }
    if number.checked_ilog10()? + 1 != DIGITS {
        return None;
    }
    // 0.d₁…d₂₉ · 10ᵉ is d₁…d₂₉ · 10⁻ˢ.
    let mut scale = (DIGITS + BIAS).checked_sub(u32::from(first - ZERO))?;
    while scale > 0 && number % 10 == 0 {
        number /= 10;
        scale -= 1;
    }
    let number = i128::try_from(number).ok()?;
    Decimal::try_from_i128_with_scale(if negative { -number } else { number }, scale).ok()
}
