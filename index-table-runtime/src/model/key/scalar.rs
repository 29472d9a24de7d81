//! Fixed-width keys: integers, `bool`, `char`, floats, byte arrays.

use serde::Serialize;

use super::{DecodeError, Key, KeyBuf, KeyReader, KeyShape};

/// Implements keys of fixed width, which are passed and returned by value.
///
/// `$bits` is the unsigned integer whose big-endian bytes are stored.
macro_rules! by_value {
    ($($type:ty, $bits:ty, $shape:expr, |$value:ident| $encode:expr, |$raw:ident| $decode:expr;)+) => {$(
        impl Key for $type {
            type Arg<'a> = $type;
            type Present<'a> = $type;
            type Ref<'a> = $type;
            const SHAPE: KeyShape = $shape;

            #[inline]
            fn arg(&self) -> $type {
                *self
            }

            #[inline]
            fn encode($value: $type, out: &mut KeyBuf) {
                let bits: $bits = $encode;
                out.extend(&bits.to_be_bytes());
            }

            #[inline]
            fn decode(reader: &mut KeyReader<'_>) -> Result<$type, DecodeError> {
                Self::decode_owned(reader)
            }

            #[inline]
            fn decode_owned(reader: &mut KeyReader<'_>) -> Result<$type, DecodeError> {
                let $raw = <$bits>::from_be_bytes(reader.array()?);
                $decode
            }
        }
    )+};
}

macro_rules! integers {
    ($($unsigned:ident $signed:ident $bytes:literal),+ $(,)?) => {
        by_value! {$(
            $unsigned, $unsigned, KeyShape::Unsigned($bytes), |value| value, |raw| Ok(raw);
            $signed, $unsigned, KeyShape::Signed($bytes),
                |value| value.cast_unsigned() ^ (1 << ($unsigned::BITS - 1)),
                |raw| Ok((raw ^ (1 << ($unsigned::BITS - 1))).cast_signed());
        )+}
    };
}

integers!(u8 i8 1, u16 i16 2, u32 i32 4, u64 i64 8, u128 i128 16);

by_value! {
    // 64 bits on every machine, so that a file can move between them.
    usize, u64, KeyShape::Unsigned(8),
        |value| value as u64,
        |raw| usize::try_from(raw).map_err(|_| DecodeError::Value("a number larger than this machine's usize"));
    isize, u64, KeyShape::Signed(8),
        |value| (value as i64).cast_unsigned() ^ (1 << 63),
        |raw| isize::try_from((raw ^ (1 << 63)).cast_signed())
            .map_err(|_| DecodeError::Value("a number larger than this machine's isize"));
    bool, u8, KeyShape::Bool,
        |value| u8::from(value),
        |raw| match raw {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Value("neither false (00) nor true (01)")),
        };
    char, u32, KeyShape::Char,
        |value| u32::from(value),
        |raw| char::from_u32(raw).ok_or(DecodeError::Value("not a Unicode scalar value"));
    f32, u32, KeyShape::F32,
        |value| order_f32(value.to_bits()),
        |raw| Ok(f32::from_bits(raw ^ (((!raw).cast_signed() >> 31).cast_unsigned() | 1 << 31)));
    f64, u64, KeyShape::F64,
        |value| order_f64(value.to_bits()),
        |raw| Ok(f64::from_bits(raw ^ (((!raw).cast_signed() >> 63).cast_unsigned() | 1 << 63)));
}

/// Converts to an unsigned integer in the order of IEEE 754 totalOrder: flips all bits of a negative number,
/// and the sign bit of other numbers. The shift copies the sign bit to the whole word.
const fn order_f32(bits: u32) -> u32 {
    bits ^ ((bits.cast_signed() >> 31).cast_unsigned() | 1 << 31)
}

const fn order_f64(bits: u64) -> u64 {
    bits ^ ((bits.cast_signed() >> 63).cast_unsigned() | 1 << 63)
}

impl<const N: usize> Key for [u8; N]
where
    [u8; N]: Serialize,
{
    type Arg<'a> = [u8; N];
    type Present<'a> = [u8; N];
    type Ref<'a> = [u8; N];
    const SHAPE: KeyShape = {
        assert!(N > 0, "an empty array can't be part of a key: its encoding has no bytes");
        KeyShape::Array(N)
    };

    #[inline]
    fn arg(&self) -> [u8; N] {
        *self
    }

    #[inline]
    fn encode(value: [u8; N], out: &mut KeyBuf) {
        out.extend(&value);
    }

    #[inline]
    fn decode(reader: &mut KeyReader<'_>) -> Result<[u8; N], DecodeError> {
        reader.array()
    }

    #[inline]
    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<[u8; N], DecodeError> {
        reader.array()
    }
}
