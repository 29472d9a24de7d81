//! Strings and byte strings: escaped, and terminated by `00`.

use std::{borrow::Cow, sync::Arc};

use super::{DecodeError, Key, KeyBuf, KeyReader, KeyShape};

/// The terminator of a string. It is less than every byte inside a string, so a string sorts before its
/// extensions.
pub(super) const END: u8 = 0x00;
/// The first byte of the two-byte forms of `00` (`01 01`) and `01` (`01 02`).
const ESCAPE: u8 = 0x01;

/// A key type with prefix queries: `String`, `Vec<u8>`, and `Option` of these.
pub trait PrefixKey: Key {
    /// The parameter type of a prefix query: `&str` for `String` and for `Option<String>`.
    type Prefix<'a>: Copy;

    /// Appends the encoding of `prefix` without its terminator. The encodings of all values that start with
    /// `prefix` start with these bytes.
    fn encode_prefix(prefix: Self::Prefix<'_>, out: &mut KeyBuf);
}

/// A key type that holds text.
pub trait TextKey: Key {}

impl TextKey for String {}

#[inline]
pub(super) fn escape(bytes: &[u8], out: &mut KeyBuf) {
    if has_special(bytes) {
        return escape_special(bytes, out);
    }
    out.extend(bytes);
}

#[cold]
fn escape_special(bytes: &[u8], out: &mut KeyBuf) {
    for &byte in bytes {
        match byte {
            END | ESCAPE => out.extend(&[ESCAPE, byte + 1]),
            _ => out.extend(&[byte]),
        }
    }
}

/// Marks the lowest byte of a word that is `00` or `01`, that is, has no bits but the lowest one. Marks above
/// the lowest mark may be wrong.
#[inline]
const fn marks(word: u64) -> u64 {
    let others = word & !ONES;
    others.wrapping_sub(ONES) & !others & HIGHS
}

/// The lowest bit of every byte in a word.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of every byte in a word.
const HIGHS: u64 = ONES << 7;

/// Whether a byte has to be escaped. Reads eight bytes at a time, because most bytes of keys are in strings.
/// If the length is not a multiple of eight, the last word overlaps the previous word.
#[inline]
fn has_special(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk::<8>() {
        let words = bytes.as_chunks::<8>().0.iter();
        let special = specials(u64::from_le_bytes(*last));
        return words.fold(special, |all, word| all | specials(u64::from_le_bytes(*word))) != 0;
    }
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
            specials(first | last << 32) != 0
        }
        _ => bytes.iter().any(|&byte| byte <= ESCAPE),
    }
}

/// Returns a number that is not 0 if a byte of the word is `00` or `01`. The number does not identify the
/// byte.
#[inline]
const fn specials(word: u64) -> u64 {
    word.wrapping_sub(ONES << 1) & !word & HIGHS
}

/// The start of an encoded string, up to the first escape.
struct Plain<'a> {
    bytes: &'a [u8],
    /// Whether all of these bytes are ASCII.
    ascii: bool,
    /// The remaining bytes, which start with `00` or `01`.
    special: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Finds the first `00` or `01`; `None` if there is neither.
    #[inline]
    fn read(encoded: &'a [u8]) -> Option<Self> {
        let (words, rest) = encoded.as_chunks::<8>();
        let mut seen = 0;
        for (at, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let marks = marks(word);
            if marks != 0 {
                let within = marks.trailing_zeros() / 8;
                seen |= word & ((1 << (within * 8)) - 1);
                return Self::of(encoded, at * 8 + within as usize, seen & HIGHS == 0);
            }
            seen |= word;
        }
        for (at, &byte) in rest.iter().enumerate() {
            if byte <= ESCAPE {
                return Self::of(encoded, words.len() * 8 + at, seen & HIGHS == 0);
            }
            seen |= u64::from(byte);
        }
        None
    }

    #[inline]
    fn of(encoded: &'a [u8], at: usize, ascii: bool) -> Option<Self> {
        let (bytes, special) = encoded.split_at_checked(at)?;
        Some(Self { bytes, ascii, special })
    }
}

pub(super) fn unescape(escaped: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            ESCAPE => match rest.next() {
                Some(&second @ (1 | 2)) => second - 1,
                _ => return Err(DecodeError::Escape),
            },
            END => return Err(DecodeError::Escape),
            _ => byte,
        });
    }
    Ok(bytes)
}

impl<'a> KeyReader<'a> {
    /// Takes the escaped bytes of a string, without the terminator. Returns them, and whether they contain an
    /// escape.
    fn escaped(&mut self) -> Result<(&'a [u8], bool), DecodeError> {
        let plain = Plain::read(self.rest()).ok_or(DecodeError::Short)?;
        let more = plain.special.iter().position(|&byte| byte == END).ok_or(DecodeError::Short)?;
        let string = self.take(plain.bytes.len() + more)?;
        self.take(1)?;
        Ok((string, more > 0))
    }

    #[inline]
    fn text(&mut self) -> Result<&'a str, DecodeError> {
        if let Some(Plain { bytes, ascii: true, special: [END, rest @ ..] }) =
            Plain::read(self.rest())
        {
            self.go_on_at(rest);
            #[expect(unsafe_code, reason = "the search for the end has checked for ASCII")]
            // SAFETY: ASCII is UTF-8.
            return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        self.other_text()
    }

    /// Reads text that is not ASCII or has escapes.
    fn other_text(&mut self) -> Result<&'a str, DecodeError> {
        let (bytes, escaped) = self.escaped()?;
        let bytes = if escaped { self.keep(unescape(bytes)?) } else { bytes };
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Value("not UTF-8"))
    }
}

impl Key for String {
    type Arg<'a> = &'a str;
    type Present<'a> = &'a str;
    /// Borrowed from the page. Only text with U+0000 or U+0001, which is escaped in the page, is copied into
    /// memory of the transaction.
    type Ref<'a> = &'a str;
    const SHAPE: KeyShape = KeyShape::Text;

    #[inline]
    fn arg(&self) -> &str {
        self
    }

    #[inline]
    fn encode(value: &str, out: &mut KeyBuf) {
        escape(value.as_bytes(), out);
        out.extend(&[END]);
    }

    #[inline]
    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<&'a str, DecodeError> {
        reader.text()
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<String, DecodeError> {
        let (bytes, _) = reader.escaped()?;
        String::from_utf8(unescape(bytes)?).map_err(|_| DecodeError::Value("not UTF-8"))
    }
}

impl PrefixKey for String {
    type Prefix<'a> = &'a str;

    fn encode_prefix(prefix: &str, out: &mut KeyBuf) {
        escape(prefix.as_bytes(), out);
    }
}

/// Implements keys for types of text, with the encoding of `String`.
macro_rules! as_text {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::model::key::Key for $type {
            type Arg<'a> = &'a str;
            type Present<'a> = &'a str;
            type Ref<'a> = &'a str;
            const SHAPE: $crate::model::key::KeyShape = $crate::model::key::KeyShape::Text;

            fn arg(&self) -> &str {
                self.as_ref()
            }

            fn encode(value: &str, out: &mut $crate::model::key::KeyBuf) {
                <String as $crate::model::key::Key>::encode(value, out);
            }

            fn decode<'a>(
                reader: &mut $crate::model::key::KeyReader<'a>,
            ) -> Result<&'a str, $crate::model::key::DecodeError> {
                <String as $crate::model::key::Key>::decode(reader)
            }

            fn decode_owned(
                reader: &mut $crate::model::key::KeyReader<'_>,
            ) -> Result<Self, $crate::model::key::DecodeError> {
                <String as $crate::model::key::Key>::decode_owned(reader).map(Self::from)
            }
        }

        impl $crate::model::key::TextKey for $type {}

        impl $crate::model::key::PrefixKey for $type {
            type Prefix<'a> = &'a str;

            fn encode_prefix(prefix: &str, out: &mut $crate::model::key::KeyBuf) {
                <String as $crate::model::key::PrefixKey>::encode_prefix(prefix, out);
            }
        }
    )+};
}

#[cfg(any(feature = "compact_str", feature = "smol_str"))]
pub(super) use as_text;

as_text!(Box<str>, Arc<str>, Cow<'static, str>);

impl Key for Vec<u8> {
    type Arg<'a> = &'a [u8];
    type Present<'a> = &'a [u8];
    /// Borrowed from the page unless the bytes contain `00` or `01`, which are common in binary data.
    type Ref<'a> = Cow<'a, [u8]>;
    const SHAPE: KeyShape = KeyShape::Bytes;

    fn arg(&self) -> &[u8] {
        self
    }

    fn encode(value: &[u8], out: &mut KeyBuf) {
        escape(value, out);
        out.extend(&[END]);
    }

    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<Cow<'a, [u8]>, DecodeError> {
        let (bytes, escaped) = reader.escaped()?;
        Ok(if escaped { Cow::Owned(unescape(bytes)?) } else { Cow::Borrowed(bytes) })
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Vec<u8>, DecodeError> {
        unescape(reader.escaped()?.0)
    }
}

impl PrefixKey for Vec<u8> {
    type Prefix<'a> = &'a [u8];

    fn encode_prefix(prefix: &[u8], out: &mut KeyBuf) {
        escape(prefix, out);
    }
}
