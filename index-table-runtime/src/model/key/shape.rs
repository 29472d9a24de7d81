use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    net::IpAddr,
};

use super::{DecodeError, Key, KeyReader, Unescaped, bytes::END, desc, hash};

/// The shape of an encoding. It is sufficient to find the end of a value, to show the value, and to compare
/// the shape with that in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyShape {
    /// An unsigned integer of this number of bytes.
    Unsigned(u8),
    /// A signed integer of this number of bytes.
    Signed(u8),
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// UTF-8 text, escaped.
    Text,
    /// Bytes, escaped.
    Bytes,
    /// An array of bytes, unchanged.
    Array(usize),
    /// `None`, or a value of the inner shape.
    Option(&'static KeyShape),
    /// Shapes one after another.
    Tuple(&'static [KeyShape]),
    /// The inner shape, with every byte inverted.
    Desc(&'static KeyShape),
    /// 16 bytes: a hash of the encoding in the inner shape.
    Hash(&'static KeyShape),
    /// An IP address: `04` and 4 bytes, or `06` and 16.
    IpAddr,
    /// The variants of an enum with their numbers, which are two bytes.
    Enum(&'static [(&'static str, u16)]),
    /// The bytes of the inner shape, with a meaning of their own.
    Named(&'static str, &'static KeyShape),
}

impl KeyShape {
    /// Returns the number of bytes, if it is the same for every value.
    pub(crate) fn fixed_len(&self) -> Option<usize> {
        match self {
            Self::Unsigned(bytes) | Self::Signed(bytes) => Some(usize::from(*bytes)),
            Self::Bool => Some(1),
            Self::Char | Self::F32 => Some(4),
            Self::F64 => Some(8),
            Self::Array(len) => Some(*len),
            Self::Hash(_) => Some(hash::LEN),
            Self::Tuple(shapes) => shapes.iter().map(Self::fixed_len).sum(),
            Self::Enum(_) => Some(2),
            Self::Desc(shape) | Self::Named(_, shape) => shape.fixed_len(),
            Self::Text | Self::Bytes | Self::Option(_) | Self::IpAddr => None,
        }
    }

    /// Whether greater values come first.
    pub(crate) const fn is_descending(&self) -> bool {
        matches!(self, Self::Desc(_))
    }

    /// Whether `None` is a value.
    #[must_use]
    pub const fn is_option(&self) -> bool {
        match self {
            Self::Desc(shape) => shape.is_option(),
            _ => matches!(self, Self::Option(_)),
        }
    }

    /// Skips one value.
    pub(crate) fn skip(&self, reader: &mut KeyReader<'_>) -> Result<(), DecodeError> {
        self.skip_masked(reader, 0)
    }

    /// Like [`skip`](Self::skip), for bytes that were combined with `mask` by exclusive or.
    fn skip_masked(&self, reader: &mut KeyReader<'_>, mask: u8) -> Result<(), DecodeError> {
        if let Some(len) = self.fixed_len() {
            return reader.skip(len);
        }
        match self {
            Self::Option(shape) => {
                let [first] = reader.array()?;
                let unescaped = Unescaped::default();
                let some = bool::decode(&mut KeyReader::new(&[first ^ mask], &unescaped))?;
                if some { shape.skip_masked(reader, mask) } else { Ok(()) }
            }
            Self::Tuple(shapes) => {
                shapes.iter().try_for_each(|shape| shape.skip_masked(reader, mask))
            }
            Self::Desc(shape) => shape.skip_masked(reader, !mask),
            Self::IpAddr => {
                let [family] = reader.array()?;
                let len = match family ^ mask {
                    4 => 4,
                    6 => 16,
                    _ => {
                        return Err(DecodeError::Value(
                            "neither an IPv4 (04) nor an IPv6 address (06)",
                        ));
                    }
                };
                reader.skip(len)
            }
            Self::Named(_, shape) => shape.skip_masked(reader, mask),
            _ => {
                let end = reader.rest().iter().position(|&byte| byte == END ^ mask);
                reader.skip(end.ok_or(DecodeError::Short)? + 1)
            }
        }
    }

    /// Writes one value in readable form.
    fn show(&self, reader: &mut KeyReader<'_>, out: &mut String) -> Result<(), DecodeError> {
        // Writing to a `String` can't fail.
        let mut put = |value: &dyn fmt::Debug| {
            let _ = write!(out, "{value:?}");
        };
        match self {
            Self::Unsigned(bytes) => put(&number(reader.take(usize::from(*bytes))?)),
            Self::Signed(bytes) => {
                let bits = u32::from(*bytes) * 8;
                let raw = number(reader.take(usize::from(*bytes))?);
                // The encoding has added half the range by flipping the sign bit.
                put(&raw.wrapping_sub(1 << (bits - 1)).cast_signed());
            }
            Self::Bool => put(&bool::decode(reader)?),
            Self::Char => put(&char::decode(reader)?),
            Self::F32 => put(&f32::decode(reader)?),
            Self::F64 => put(&f64::decode(reader)?),
            Self::Text => put(&String::decode_owned(reader)?),
            Self::Bytes => put(&Hex(&Vec::<u8>::decode_owned(reader)?)),
            Self::Array(len) => put(&Hex(reader.take(*len)?)),
            Self::Hash(_) => put(&Hex(reader.take(hash::LEN)?)),
            Self::Option(shape) => {
                if bool::decode(reader)? {
                    out.push_str("Some(");
                    shape.show(reader, out)?;
                    out.push(')');
                } else {
                    out.push_str("None");
                }
            }
            Self::Tuple(shapes) => {
                out.push('(');
                show_list(shapes.iter(), reader, out)?;
                out.push(')');
            }
            Self::Desc(shape) => {
                let (upright, unescaped) = (desc::upright(self, reader)?, Unescaped::default());
                shape.show(&mut KeyReader::new(upright.as_bytes(), &unescaped), out)?;
            }
            Self::IpAddr => put(&IpAddr::decode_owned(reader)?),
            Self::Enum(variants) => {
                let number = u16::decode(reader)?;
                let variant = variants.iter().find(|(_, order)| *order == number);
                out.push_str(variant.ok_or(DecodeError::Value("no variant"))?.0);
            }
            Self::Named(name, shape) => {
                let from = reader.rest();
                let value = shape.read(reader)?;
                match value.show_as(name) {
                    Some(text) => out.push_str(&text),
                    None => shape.show(&mut KeyReader::new(from, &Unescaped::default()), out)?,
                }
            }
        }
        Ok(())
    }
}

/// Writes the name in the catalog. Two shapes have the same name only if they are equal.
impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(bytes) => write!(f, "u{}", u32::from(*bytes) * 8),
            Self::Signed(bytes) => write!(f, "i{}", u32::from(*bytes) * 8),
            Self::Bool => f.write_str("bool"),
            Self::Char => f.write_str("char"),
            Self::F32 => f.write_str("f32"),
            Self::F64 => f.write_str("f64"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytes"),
            Self::Array(len) => write!(f, "bytes[{len}]"),
            Self::Option(shape) => write!(f, "option<{shape}>"),
            Self::Tuple(shapes) => {
                f.write_str("(")?;
                for (i, shape) in shapes.iter().enumerate() {
                    write!(f, "{}{shape}", if i == 0 { "" } else { "," })?;
                }
                f.write_str(")")
            }
            Self::Desc(shape) => write!(f, "desc<{shape}>"),
            Self::Hash(shape) => write!(f, "blake3<{shape}>"),
            Self::IpAddr => f.write_str("ip"),
            Self::Enum(variants) => {
                f.write_str("enum[")?;
                for (i, (variant, order)) in variants.iter().enumerate() {
                    write!(f, "{}{variant}={order}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Named(name, _) => f.write_str(name),
        }
    }
}

/// Whether keys of the shape with the name `file` are keys of the shape with the name `code`. The two must be
/// equal, except for further variants of an enum in the code after all variants of the file. A variant
/// between others would change the positions of the later variants, and rows contain positions.
pub(crate) fn fits(file: &str, code: &str) -> bool {
    const ENUM: &str = "enum[";
    match (file.split_once(ENUM), code.split_once(ENUM)) {
        (None, None) => file == code,
        (Some((before_file, file)), Some((before_code, code))) => {
            match (file.split_once(']'), code.split_once(']')) {
                (Some((old, file)), Some((new, code))) => {
                    let more = new.strip_prefix(old);
                    before_file == before_code
                        && more.is_some_and(|more| more.is_empty() || more.starts_with(','))
                        && fits(file, code)
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

fn show_list<'s>(
    shapes: impl Iterator<Item = &'s KeyShape>,
    reader: &mut KeyReader<'_>,
    out: &mut String,
) -> Result<(), DecodeError> {
    for (i, shape) in shapes.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        shape.show(reader, out)?;
    }
    Ok(())
}

/// The maximum length of a key's text in a message, in bytes.
const MAX_SHOWN: usize = 120;

/// Formats a key for a message, such as `7` or `("Redmond", 2024-02-29)`: in hex if it can't be decoded, and
/// truncated if it is long.
pub(crate) fn show_key<'s>(
    shapes: impl ExactSizeIterator<Item = &'s KeyShape>,
    key: &[u8],
) -> String {
    show_hashed_key(shapes, key, &[])
}

/// Like [`show_key`], with the values of the hashed fields instead of the hashes, unless `hashed` is empty.
pub(crate) fn show_hashed_key<'s>(
    shapes: impl ExactSizeIterator<Item = &'s KeyShape>,
    key: &[u8],
    hashed: &[u8],
) -> String {
    let (mut text, len) = show_whole_key(shapes, key, hashed);
    if text.len() > MAX_SHOWN {
        let end = text.floor_char_boundary(MAX_SHOWN);
        text.truncate(end);
        let _ = write!(text, "… ({len} bytes)");
    }
    text
}

/// Formats the values of leading fields, such as a boundary of a shard map: in hex if they can't be decoded, and never
/// truncated, so that the text can be read again.
pub(crate) fn show_leading<'s>(
    shapes: impl ExactSizeIterator<Item = &'s KeyShape> + Clone,
    key: &[u8],
) -> String {
    let Some((key, fields)) = completed(&shapes, key) else { return format!("{:?}", Hex(key)) };
    let all = shapes.len();
    let text = show_whole_key(shapes.take(fields), &key, &[]).0;
    // A value of several fields has parentheses, even if it has only the first field.
    if fields == 1 && all > 1 { format!("({text})") } else { text }
}

/// Returns the least readable key from `key` on, with the number of its fields. The end of a range of all keys with a
/// value is shorter than a key: the successor of the value's bytes.
fn completed<'s, 'k>(
    shapes: &(impl ExactSizeIterator<Item = &'s KeyShape> + Clone),
    key: &'k [u8],
) -> Option<(Cow<'k, [u8]>, usize)> {
    /// The longest number, or address, or id.
    const MOST: usize = 16;
    if let Some(fields) = readable(shapes, key) {
        return Some((key.into(), fields));
    }
    // The least text after `a` is `a\0`.
    let is_text = |fields: usize| shapes.clone().nth(fields - 1) == Some(&KeyShape::Text);
    let after_text = key.strip_suffix(&[END + 1]);
    let after_text = after_text.map(|text| [text, &[END + 1, END + 1, END]].concat());
    if let Some(least) = after_text
        && let Some(fields) = readable(shapes, &least).filter(|fields| is_text(*fields))
    {
        return Some((least.into(), fields));
    }
    let padded = (1..MOST).map(|zeros| [key, &vec![0; zeros]].concat());
    padded.into_iter().find_map(|key| readable(shapes, &key).map(|fields| (key.into(), fields)))
}

/// Returns the number of leading fields whose values a key has, without further bytes.
fn readable<'s>(
    shapes: &(impl ExactSizeIterator<Item = &'s KeyShape> + Clone),
    key: &[u8],
) -> Option<usize> {
    (1..=shapes.len()).find(|fields| is_readable(shapes.clone().take(*fields), key))
}

/// Returns the text of a key, and the number of its bytes, with `hashed` in the place of hashes.
fn show_whole_key<'s>(
    shapes: impl ExactSizeIterator<Item = &'s KeyShape>,
    key: &[u8],
    hashed: &[u8],
) -> (String, usize) {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(key, &unescaped);
    let mut values = KeyReader::new(hashed, &unescaped);
    let single = shapes.len() == 1;
    let mut len = key.len() + hashed.len();
    let mut text = String::new();
    let mut shown = shapes.enumerate().map(|(i, shape)| {
        text.push_str(if i == 0 { "" } else { ", " });
        match shape {
            KeyShape::Hash(value) if !hashed.is_empty() => {
                len = len.saturating_sub(hash::LEN);
                hash::skip(&mut reader)?;
                value.show(&mut values, &mut text)
            }
            _ => shape.show(&mut reader, &mut text),
        }
    });
    let readable = shown.all(|shown| shown.is_ok());
    drop(shown);
    if !readable || !reader.rest().is_empty() {
        text = format!("{:?}", Hex(key));
    } else if !single {
        text = format!("({text})");
    }
    (text, len)
}

/// Whether the bytes are a key of these shapes, without further bytes.
pub(crate) fn is_readable<'s>(shapes: impl IntoIterator<Item = &'s KeyShape>, key: &[u8]) -> bool {
    let (unescaped, mut text) = (Unescaped::default(), String::new());
    let mut reader = KeyReader::new(key, &unescaped);
    shapes.into_iter().all(|shape| {
        text.clear();
        shape.show(&mut reader, &mut text).is_ok()
    }) && reader.rest().is_empty()
}

struct Hex<'a>(&'a [u8]);

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
