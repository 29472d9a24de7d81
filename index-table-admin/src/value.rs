//! The values of keys as people write them: numbers, text, dates, names of variants.

use std::{borrow::Cow, fmt::Write as _};

use index_table::__private::admin::{KeyBuf, KeyShape, PlainKey, UntypedField};
use serde_json::Value;

/// Shows a value in one line, without control characters.
pub(crate) fn show(shape: &KeyShape, value: &PlainKey) -> String {
    show_at(shape, value, Place::Alone)
}

/// Shows a value of leading fields in this form: `("Oslo", Some(7))`, as the library writes it, becomes `(Oslo, 7)`. A text
/// that can't be read, such as a truncated one, is returned as it is.
pub(crate) fn restated(fields: &[UntypedField], text: &str) -> String {
    let shown = |field: &UntypedField, text: &str, place| {
        if field.is_hash {
            return Some(text.to_owned());
        }
        Some(show_at(&field.shape, &parse(&field.shape, text).ok()?, place))
    };
    let restated = match fields {
        [] => None,
        [field] => shown(field, text, Place::Alone),
        _ => parts(text).ok().filter(|parts| parts.len() <= fields.len()).and_then(|parts| {
            let shown =
                fields.iter().zip(&parts).map(|(field, part)| shown(field, part, Place::InTuple));
            Some(format!("({})", shown.collect::<Option<Vec<_>>>()?.join(", ")))
        }),
    };
    restated.unwrap_or_else(|| text.to_owned())
}

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Alone,
    /// Between the commas of a tuple.
    InTuple,
}

fn show_at(shape: &KeyShape, value: &PlainKey, place: Place) -> String {
    match (shape, value) {
        (KeyShape::Desc(inner), value) => show_at(inner, value, place),
        (KeyShape::Named(name, inner), value) => {
            value.show_as(name).unwrap_or_else(|| show_at(inner, value, place))
        }
        (KeyShape::Option(inner), PlainKey::Option(Some(value))) => {
            let shown = show_at(inner, value, place);
            if matches!(**value, PlainKey::Option(_)) { format!("Some({shown})") } else { shown }
        }
        (KeyShape::Tuple(shapes), PlainKey::Tuple(values)) => {
            let values = shapes.iter().zip(values);
            let values = values.map(|(shape, value)| show_at(shape, value, Place::InTuple));
            format!("({})", values.collect::<Vec<_>>().join(", "))
        }
        (_, PlainKey::Option(_)) => "None".to_owned(),
        (_, PlainKey::Bool(value)) => value.to_string(),
        (_, PlainKey::Char(value)) => show_text(&value.to_string(), place),
        (_, PlainKey::Unsigned(value)) => value.to_string(),
        (_, PlainKey::Signed(value)) => value.to_string(),
        // NaNs are ordered by their bits, so a NaN with other bits than the constant is shown as its bits.
        (_, PlainKey::F32(value)) if value.is_nan() && value.to_bits() != f32::NAN.to_bits() => {
            format!("0x{:08x}", value.to_bits())
        }
        (_, PlainKey::F64(value)) if value.is_nan() && value.to_bits() != f64::NAN.to_bits() => {
            format!("0x{:016x}", value.to_bits())
        }
        (_, PlainKey::F32(value)) => format!("{value:?}"),
        (_, PlainKey::F64(value)) => format!("{value:?}"),
        (_, PlainKey::Text(text)) => show_text(text, place),
        (_, PlainKey::Bytes(bytes)) => hex(bytes),
        (_, PlainKey::IpAddr(address)) => address.to_string(),
        (_, PlainKey::Variant(name)) => (*name).to_owned(),
        (_, value) => format!("{value:?}"),
    }
}

/// Returns a value as JSON. Numbers of more than 64 bits, and numbers that JSON lacks, are text.
pub(crate) fn json(shape: &KeyShape, value: &PlainKey) -> Value {
    match (shape, value) {
        (KeyShape::Desc(inner), value) => json(inner, value),
        (KeyShape::Option(inner), PlainKey::Option(Some(value))) => json(inner, value),
        (KeyShape::Tuple(shapes), PlainKey::Tuple(values)) => {
            shapes.iter().zip(values).map(|(shape, value)| json(shape, value)).collect()
        }
        (KeyShape::Named(..), value) => show(shape, value).into(),
        (_, PlainKey::Option(_)) => Value::Null,
        (_, PlainKey::Bool(value)) => (*value).into(),
        (_, PlainKey::Unsigned(value)) => {
            u64::try_from(*value).map_or_else(|_| value.to_string().into(), Value::from)
        }
        (_, PlainKey::Signed(value)) => {
            i64::try_from(*value).map_or_else(|_| value.to_string().into(), Value::from)
        }
        (_, PlainKey::F32(value)) if value.is_finite() => f64::from(*value).into(),
        (_, PlainKey::F64(value)) if value.is_finite() => (*value).into(),
        (_, PlainKey::Text(text)) => text.as_str().into(),
        (_, PlainKey::Char(value)) => value.to_string().into(),
        (shape, value) => show(shape, value).into(),
    }
}

/// Reads a value that a user has written.
///
/// # Errors
///
/// The reason, and the expected form.
pub(crate) fn parse(shape: &KeyShape, text: &str) -> Result<PlainKey, String> {
    let wrong = |form: &str| format!("`{text}` is not {form}");
    Ok(match shape {
        KeyShape::Desc(inner) | KeyShape::Hash(inner) => parse(inner, text)?,
        KeyShape::Named(name, inner) => parse_named(name, text).or_else(|reason| {
            // A time beyond the calendar is shown as its numbers, and no other.
            let value = parse(inner, text).ok();
            value.filter(|value| value.show_as(name).is_none()).ok_or(reason)
        })?,
        KeyShape::Option(_) if text == "None" => PlainKey::Option(None),
        KeyShape::Option(inner) => {
            let within = text.strip_prefix("Some(").and_then(|text| text.strip_suffix(')'));
            PlainKey::Option(Some(Box::new(parse(inner, within.unwrap_or(text))?)))
        }
        KeyShape::Unsigned(bytes) => {
            let form = format!("an unsigned integer of {} bits", u32::from(*bytes) * 8);
            PlainKey::Unsigned(text.parse().map_err(|_| wrong(&form))?)
        }
        KeyShape::Signed(bytes) => {
            let form = format!("an integer of {} bits", u32::from(*bytes) * 8);
            PlainKey::Signed(text.parse().map_err(|_| wrong(&form))?)
        }
        KeyShape::Bool => PlainKey::Bool(text.parse().map_err(|_| wrong("`true` or `false`"))?),
        KeyShape::Char => {
            let within = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            let own = match within.filter(|within| !within.is_empty()) {
                Some(within) => unescaped(within).ok_or_else(|| wrong("one character"))?,
                None => unquoted(text)?,
            };
            PlainKey::Char(own.parse().map_err(|_| wrong("one character"))?)
        }
        KeyShape::F32 => PlainKey::F32(match text.strip_prefix("0x") {
            Some(bits) => f32::from_bits(
                u32::from_str_radix(bits, 16).map_err(|_| wrong("the bits of an f32"))?,
            ),
            None => text.parse().map_err(|_| wrong("a number"))?,
        }),
        KeyShape::F64 => PlainKey::F64(match text.strip_prefix("0x") {
            Some(bits) => f64::from_bits(
                u64::from_str_radix(bits, 16).map_err(|_| wrong("the bits of an f64"))?,
            ),
            None => text.parse().map_err(|_| wrong("a number"))?,
        }),
        KeyShape::Text => PlainKey::Text(unquoted(text)?),
        KeyShape::Bytes | KeyShape::Array(_) => {
            PlainKey::Bytes(bytes(text).ok_or_else(|| wrong("bytes in hex, such as `0x00ff`"))?)
        }
        KeyShape::IpAddr => PlainKey::IpAddr(text.parse().map_err(|_| wrong("an IP address"))?),
        KeyShape::Enum(variants) => {
            let variant = variants.iter().find(|(name, _)| *name == text);
            let names: Vec<_> = variants.iter().map(|(name, _)| format!("`{name}`")).collect();
            let form = format!("one of {}", names.join(", "));
            PlainKey::Variant(variant.ok_or_else(|| wrong(&form))?.0)
        }
        KeyShape::Tuple(shapes) => {
            let parts = parts(text)?;
            if parts.len() != shapes.len() {
                return Err(wrong(&format!("{} values in parentheses", shapes.len())));
            }
            let values = shapes.iter().zip(&parts).map(|(shape, part)| parse(shape, part));
            PlainKey::Tuple(values.collect::<Result<_, _>>()?)
        }
        _ => return Err(format!("this release can't read values of the type `{shape}`")),
    })
}

/// Appends the encodings of values for the leading fields of a key.
///
/// # Errors
///
/// The reason, with the name of the field.
pub(crate) fn encode(
    fields: &[UntypedField],
    values: &[String],
    out: &mut KeyBuf,
) -> Result<(), String> {
    if values.len() > fields.len() {
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        let (given, names) = (values.len(), names.join(", "));
        return Err(format!("{given} values are given, and the key has the fields {names}"));
    }
    for (field, text) in fields.iter().zip(values) {
        let at = |reason: String| format!("field `{}`: {reason}", field.name);
        let value = parse(&field.shape, text).map_err(at)?;
        let written = match field.shape {
            KeyShape::Hash(inner) => inner.write_hash(&value, out),
            shape => shape.write(&value, out),
        };
        written.map_err(|_| at(format!("`{text}` is not a `{}`", field.shape)))?;
    }
    Ok(())
}

fn parse_named(name: &str, text: &str) -> Result<PlainKey, String> {
    PlainKey::named(name, text).map_err(|form| format!("`{text}` is not {form}"))
}

/// Returns the texts of the values of a tuple, which is written as `(1, a)`. Text with a comma or a parenthesis is in
/// quotation marks.
pub(crate) fn parts(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`{text}` is not values such as `(1, a)`");
    let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut depth, mut is_quoted) = (0_usize, false);
    let mut characters = inner.ok_or_else(wrong)?.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if is_quoted => {
                part.push(character);
                part.extend(characters.next());
                continue;
            }
            '"' if is_quoted => is_quoted = false,
            // `','`, as the library writes a character.
            '\'' if !is_quoted && part.trim().is_empty() && is_character(characters.as_str()) => {
                part.push(character);
                part.extend(characters.next());
                part.extend(characters.next());
                continue;
            }
            // Within other text, it is a character like any other.
            '"' if part.trim().is_empty() || part.ends_with(['(', ' ']) && depth > 0 => {
                is_quoted = true;
            }
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth = depth.checked_sub(1).ok_or_else(wrong)?,
            ',' if !is_quoted && depth == 0 => {
                parts.push(std::mem::take(&mut part).trim().to_owned());
                continue;
            }
            _ => {}
        }
        part.push(character);
    }
    if is_quoted || depth > 0 {
        return Err(wrong());
    }
    parts.push(part.trim().to_owned());
    Ok(parts)
}

/// Whether the text begins with a character and `'`.
fn is_character(text: &str) -> bool {
    text.chars().nth(1) == Some('\'')
}

/// Returns the least bytes after all keys that begin with these; `None` if there are none.
pub(crate) fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut end = prefix.get(..=kept)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}

/// Shows text as it is, or in quotation marks with JSON's escapes if it would be read as another value, or has
/// characters that can't be seen.
fn show_text(text: &str, place: Place) -> String {
    let would_split = place == Place::InTuple
        && (text.contains([',', '(', ')', '"']) || text.trim().len() < text.len());
    let is_option = text == "None" || text.starts_with("Some(");
    let is_other = text.is_empty() || is_option || text.starts_with('"') || would_split;
    if !is_other && text.chars().all(is_visible) {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if !is_visible(character) => push_json_escape(&mut quoted, character),
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

/// Whether a character can be shown: control characters, and characters that change the direction or the breaks of a
/// line, can't.
fn is_visible(character: char) -> bool {
    let is_format = matches!(character, '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !character.is_control() && !is_format
}

/// Appends the escapes of JSON for a character, which has one or two of them.
fn push_json_escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a `String` can't fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// Replaces characters of JSON that can't be seen by their escapes, so that data can't control the terminal. The values stay the same.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    // Between values, JSON has the ends of lines only.
    let is_shown = |character: char| character == '\n' || is_visible(character);
    if json.bytes().all(|byte| byte < 0x7f) || json.chars().all(is_shown) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_shown(character) {
            escaped.push(character);
        } else {
            push_json_escape(&mut escaped, character);
        }
    }
    Cow::Owned(escaped)
}

/// Reads text: as it is, or in quotation marks with the escapes of JSON or of Rust.
fn unquoted(text: &str) -> Result<String, String> {
    let Some(quoted) = text.strip_prefix('"') else { return Ok(text.to_owned()) };
    let own = serde_json::from_str(text).ok();
    own.or_else(|| unescaped(quoted.strip_suffix('"')?))
        .ok_or_else(|| format!("`{text}` is not text in quotes"))
}

/// Reads the escapes of Rust, which the library's errors and reports have.
fn unescaped(text: &str) -> Option<String> {
    let (mut own, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        own.push(match character {
            '"' => return None,
            '\\' => match characters.next()? {
                '0' => '\0',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let (code, rest) = characters.as_str().strip_prefix('{')?.split_once('}')?;
                    characters = rest.chars();
                    char::from_u32(u32::from_str_radix(code, 16).ok()?)?
                }
                other @ ('"' | '\'' | '\\') => other,
                _ => return None,
            },
            other => other,
        });
    }
    Some(own)
}

/// Replaces control characters and line breaks by escapes, so that data can't control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_visible(character) {
            shown.push(character);
        } else {
            // Writing to a `String` can't fail.
            let _ = write!(shown, "{}", character.escape_default());
        }
    }
    shown
}

/// Replaces control characters by escapes, except for the ends of lines.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Reads hex digits, with or without `0x`.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use index_table::__private::Key as _;

    use super::*;

    fn field(shape: KeyShape) -> UntypedField {
        UntypedField { name: "it", shape, is_hash: false }
    }

    #[test]
    fn values_of_reports_become_values_as_people_write_them() {
        const DATE: KeyShape = KeyShape::Named("date", &KeyShape::Signed(4));
        const TEXT: KeyShape = KeyShape::Text;
        let text = [field(TEXT)];
        for (shown, restated_as) in [
            (r#""Oslo""#, "Oslo"),
            (r#""a\0\u{200b}'\\""#, r#""a\u0000\u200b'\\""#),
            (r#""None""#, r#""None""#),
            (r#""cut off… (300 bytes)"#, r#""cut off… (300 bytes)"#),
        ] {
            assert_eq!(restated(&text, shown), restated_as);
        }
        let several = [
            field(KeyShape::Option(&DATE)),
            field(TEXT),
            field(KeyShape::Char),
            field(KeyShape::F64),
        ];
        assert_eq!(
            restated(&several, r#"(Some(2024-02-29), "a, b", ',', -0.0)"#),
            r#"(2024-02-29, "a, b", ",", -0.0)"#
        );
        assert_eq!(restated(&several, "(None)"), "(None)");
        assert_eq!(restated(&several, "0x00"), "0x00");
    }

    #[test]
    fn each_shown_text_is_read_as_the_same_value() {
        const OPTION: KeyShape = KeyShape::Option(&KeyShape::Text);
        // As `SystemTime` and chrono's leap seconds have them, beyond the calendar.
        const INSTANT: KeyShape = SystemTime::SHAPE;
        let instant = |seconds, nanos| {
            PlainKey::Tuple(vec![PlainKey::Signed(seconds), PlainKey::Unsigned(nanos)])
        };
        let some = |value| PlainKey::Option(Some(Box::new(value)));
        let text = |text: &str| PlainKey::Text(text.to_owned());
        for (shape, value) in [
            (OPTION, PlainKey::Option(None)),
            (OPTION, some(text("None"))),
            (OPTION, some(text("Some(x)"))),
            (OPTION, some(text("\"\\\0\u{202e}"))),
            (KeyShape::Option(&OPTION), some(PlainKey::Option(None))),
            (KeyShape::Option(&OPTION), some(some(text("None")))),
            (KeyShape::Char, PlainKey::Char('\'')),
            (KeyShape::Char, PlainKey::Char('"')),
            (INSTANT, instant(i64::MIN.into(), 0)),
            (INSTANT, instant(i64::MAX.into(), 999_999_999)),
            (INSTANT, instant(7, 1_500_000_000)),
            (INSTANT, instant(-377_705_116_799, 0)),
            (KeyShape::Named("date", &KeyShape::Signed(4)), PlainKey::Signed(i32::MAX.into())),
            (
                Duration::SHAPE,
                PlainKey::Tuple(vec![
                    PlainKey::Unsigned(u64::MAX.into()),
                    PlainKey::Unsigned(999_999_999),
                ]),
            ),
            (
                KeyShape::Tuple(&[OPTION, KeyShape::Char]),
                PlainKey::Tuple(vec![some(text("'tis, (")), PlainKey::Char(',')]),
            ),
        ] {
            let shown = show(&shape, &value);
            assert_eq!(parse(&shape, &shown), Ok(value), "{shown}");
        }
        // A number is no date, unless the calendar lacks the date.
        assert!(parse(&KeyShape::Named("date", &KeyShape::Signed(4)), "2024").is_err());
    }
}
