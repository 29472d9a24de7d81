//! Shapes from their names in the catalog, for code that has no types.

use std::collections::BTreeSet;

use super::{Key, KeyShape};
use crate::locks::{Mutex, OfProcess, rank};

static TEXTS: OfProcess<Mutex<BTreeSet<&'static str>, rank::Texts>> =
    OfProcess::new(Mutex::default);

/// Returns the shape with this name; `None` if this release has no such shape.
///
/// The parts of the shape live as long as the process, so a caller keeps the result for the next call.
pub(crate) fn shape_of(name: &str) -> Option<KeyShape> {
    let mut rest = name;
    let shape = parse(&mut rest)?;
    rest.is_empty().then_some(shape)
}

fn parse(rest: &mut &str) -> Option<KeyShape> {
    if let Some(inner) = rest.strip_prefix('(') {
        *rest = inner;
        return Some(KeyShape::Tuple(kept_list(list(rest, ')', parse)?)));
    }
    let len = rest.find(|character: char| !character.is_ascii_alphanumeric());
    let (word, after) = rest.split_at_checked(len.unwrap_or(rest.len()))?;
    *rest = after;
    Some(match word {
        "u8" => u8::SHAPE,
        "u16" => u16::SHAPE,
        "u32" => u32::SHAPE,
        "u64" => u64::SHAPE,
        "u128" => u128::SHAPE,
        "i8" => i8::SHAPE,
        "i16" => i16::SHAPE,
        "i32" => i32::SHAPE,
        "i64" => i64::SHAPE,
        "i128" => i128::SHAPE,
        "bool" => KeyShape::Bool,
        "char" => KeyShape::Char,
        "f32" => KeyShape::F32,
        "f64" => KeyShape::F64,
        "text" => KeyShape::Text,
        "ip" => KeyShape::IpAddr,
        "bytes" => match rest.strip_prefix('[') {
            None => KeyShape::Bytes,
            Some(inner) => {
                let (len, after) = inner.split_once(']')?;
                *rest = after;
                KeyShape::Array(len.parse().ok()?)
            }
        },
        "option" => KeyShape::Option(inner(rest)?),
        "desc" => KeyShape::Desc(inner(rest)?),
        "blake3" => KeyShape::Hash(inner(rest)?),
        "enum" => {
            *rest = rest.strip_prefix('[')?;
            KeyShape::Enum(kept_list(list(rest, ']', variant)?))
        }
        "date" => KeyShape::Named("date", &i32::SHAPE),
        "datetime" => KeyShape::Named("datetime", &<(i32, u32, u32)>::SHAPE),
        "duration" => KeyShape::Named("duration", &<(u64, u32)>::SHAPE),
        "instant" => KeyShape::Named("instant", &<(i64, u32)>::SHAPE),
        "ipv4" => KeyShape::Named("ipv4", &<[u8; 4]>::SHAPE),
        "ipv6" => KeyShape::Named("ipv6", &<[u8; 16]>::SHAPE),
        "decimal" => KeyShape::Named("decimal", &<[u8; 14]>::SHAPE),
        "orderedf32" => KeyShape::Named("orderedf32", &KeyShape::F32),
        "orderedf64" => KeyShape::Named("orderedf64", &KeyShape::F64),
        "path" => KeyShape::Named("path", &KeyShape::Text),
        "ulid" => KeyShape::Named("ulid", &<[u8; 16]>::SHAPE),
        "url" => KeyShape::Named("url", &KeyShape::Text),
        "uuid" => KeyShape::Named("uuid", &<[u8; 16]>::SHAPE),
        _ => return None,
    })
}

/// Reads `<shape>`.
fn inner(rest: &mut &str) -> Option<&'static KeyShape> {
    *rest = rest.strip_prefix('<')?;
    let shape = parse(rest)?;
    *rest = rest.strip_prefix('>')?;
    Some(Box::leak(Box::new(shape)))
}

/// Reads items with commas between them, up to and including `end`.
fn list<T>(rest: &mut &str, end: char, item: impl Fn(&mut &str) -> Option<T>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(end) {
            *rest = after;
            return Some(items);
        }
        if !items.is_empty() {
            *rest = rest.strip_prefix(',')?;
        }
        items.push(item(rest)?);
    }
}

/// Reads `Name=number`.
fn variant(rest: &mut &str) -> Option<(&'static str, u16)> {
    let (name, after) = rest.split_once('=')?;
    let len = after.find(|character: char| !character.is_ascii_digit())?;
    let (number, after) = after.split_at_checked(len)?;
    *rest = after;
    Some((kept_text(name), number.parse().ok()?))
}

/// Keeps a text as long as the process lives. Each text is kept once.
pub(crate) fn kept_text(text: &str) -> &'static str {
    let mut texts = TEXTS.lock();
    if let Some(kept) = texts.get(text) {
        return kept;
    }
    let kept: &'static str = Box::leak(text.into());
    texts.insert(kept);
    kept
}

/// Keeps a list as long as the process lives.
pub(crate) fn kept_list<T>(list: Vec<T>) -> &'static [T] {
    Box::leak(list.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_gives_the_shape_with_this_name() {
        for name in [
            "u8",
            "u128",
            "i16",
            "bool",
            "char",
            "f32",
            "f64",
            "text",
            "bytes",
            "bytes[3]",
            "ip",
            "option<text>",
            "(text,u64)",
            "desc<option<(u16,bytes[2])>>",
            "blake3<text>",
            "enum[Private=0,Company=1]",
            "option<enum[r#type=7]>",
            "date",
            "datetime",
            "duration",
            "instant",
            "ipv4",
            "ipv6",
            "decimal",
            "orderedf32",
            "orderedf64",
            "path",
            "ulid",
            "url",
            "uuid",
            "()",
        ] {
            assert_eq!(shape_of(name).map(|shape| shape.to_string()).as_deref(), Some(name));
        }
    }

    #[test]
    fn other_names_give_no_shape() {
        for name in
            ["", "u7", "text ", "option<", "option<text", "(u8", "bytes[x]", "enum[A]", "u8>"]
        {
            assert_eq!(shape_of(name), None, "{name}");
        }
    }
}
