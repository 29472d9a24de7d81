//! Reads UUIDs, ULIDs and decimal numbers in their usual forms.

use super::bytes_of;

pub(super) fn uuid(text: &str) -> Option<Vec<u8>> {
    bytes_of(&text.replace('-', "")).filter(|bytes| bytes.len() == 16)
}

/// Crockford's digits.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

pub(super) fn ulid(text: &str) -> Option<Vec<u8>> {
    if text.len() != 26 {
        return None;
    }
    let number = text.to_ascii_uppercase().bytes().try_fold(0_u128, |number, character| {
        let digit = DIGITS.iter().position(|digit| *digit == character)?;
        number.checked_mul(32)?.checked_add(digit as u128)
    });
    Some(number?.to_be_bytes().to_vec())
}

/// The digits of a decimal number in a key: 0.d₁…d₂₉ · 10ᵉ, as the format describes it.
const LENGTH: u32 = 29;

pub(super) fn decimal(text: &str) -> Option<Vec<u8>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{decimals}");
    if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let significant = all.trim_start_matches('0');
    let mut bytes = vec![0x80];
    if significant.is_empty() {
        bytes.extend([0; 13]);
        return Some(bytes);
    }
    let point =
        i32::try_from(whole.len()).ok()? - i32::try_from(all.len() - significant.len()).ok()?;
    let first = u8::try_from(0x80 + 28 + point).ok()?;
    if !(0x81..=0xb9).contains(&first) {
        return None;
    }
    bytes = vec![first];
    let kept = significant.trim_end_matches('0');
    let missing = LENGTH.checked_sub(u32::try_from(kept.len()).ok()?)?;
    let number = kept.parse::<u128>().ok()? * 10_u128.pow(missing);
    bytes.extend(number.to_be_bytes().get(3..)?);
    if negative {
        bytes = bytes.into_iter().map(|byte| !byte).collect();
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::PlainKey;

    fn shown(name: &str, bytes: &[u8]) -> String {
        PlainKey::Bytes(bytes.to_vec()).show_as(name).expect("a value of the type")
    }

    #[test]
    fn decimal_numbers_have_the_bytes_of_the_format() {
        for (text, hex) in [
            ("-79228162514264337593543950335", "46ff000000000000000000000000"),
            ("-1", "62ffdfb031a1c1dafd9eefffffff"),
            ("0", "8000000000000000000000000000"),
            ("0.0000000000000000000000000001", "8100204fce5e3e25026110000000"),
            ("1", "9d00204fce5e3e25026110000000"),
            ("12.5", "9e002863c1f5cdae42f954000000"),
        ] {
            let bytes = decimal(text).expect("a number");
            assert_eq!(Some(&bytes), bytes_of(hex).as_ref(), "{text}");
            assert_eq!(shown("decimal", &bytes), text);
        }
        for text in ["", "-", "1e5", "1.2.3", "792281625142643375935439503350.5"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn ulids_and_uuids_are_read_as_they_are_shown() {
        let bytes = [1, 0x93, 0x5f, 0x0a, 0x7c, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(uuid(&shown("uuid", &bytes)), Some(bytes.to_vec()));
        assert_eq!(ulid(&shown("ulid", &bytes)), Some(bytes.to_vec()));
        assert_eq!(ulid("8ZZZZZZZZZZZZZZZZZZZZZZZZZ"), None, "more than 128 bits");
    }
}
