//! Keys as plain values, for code that has no types.

use std::{fmt, net::IpAddr};

use super::{DecodeError, Key, KeyBuf, KeyReader, KeyShape, PrefixKey, Unescaped, desc, hash};

/// The value of a key's field.
#[derive(Debug, Clone, PartialEq)]
pub enum PlainKey {
    /// `bool`.
    Bool(bool),
    /// `char`.
    Char(char),
    /// An unsigned integer.
    Unsigned(u128),
    /// A signed integer.
    Signed(i128),
    /// `f32`.
    F32(f32),
    /// `f64`.
    F64(f64),
    /// Text.
    Text(String),
    /// Bytes, of any or of a fixed length, or a hash.
    Bytes(Vec<u8>),
    /// `None` or `Some`.
    Option(Option<Box<PlainKey>>),
    /// Several values.
    Tuple(Vec<PlainKey>),
    /// An IP address of either family.
    IpAddr(IpAddr),
    /// The name of a variant.
    Variant(&'static str),
}

/// A value that has no encoding in a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOfShape {
    /// The name of the shape.
    pub shape: String,
}

impl fmt::Display for NotOfShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is not a value of the type `{}`", self.shape)
    }
}

impl KeyShape {
    /// Reads a key of these shapes, which must have no further bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a key.
    pub fn read_key<'s>(
        shapes: impl IntoIterator<Item = &'s Self>,
        key: &[u8],
    ) -> Result<Vec<PlainKey>, DecodeError> {
        let unescaped = Unescaped::default();
        let mut reader = KeyReader::new(key, &unescaped);
        let values = shapes.into_iter().map(|shape| shape.read(&mut reader));
        let values = values.collect::<Result<_, _>>()?;
        if reader.rest().is_empty() { Ok(values) } else { Err(DecodeError::Long) }
    }

    pub(super) fn read(&self, reader: &mut KeyReader<'_>) -> Result<PlainKey, DecodeError> {
        Ok(match self {
            Self::Unsigned(bytes) => PlainKey::Unsigned(number(reader.take(usize::from(*bytes))?)),
            Self::Signed(bytes) => {
                let raw = number(reader.take(usize::from(*bytes))?);
                // The encoding has added half the range by flipping the sign bit.
                let half = 1 << (u32::from(*bytes) * 8 - 1);
                PlainKey::Signed(raw.wrapping_sub(half).cast_signed())
            }
            Self::Bool => PlainKey::Bool(bool::decode(reader)?),
            Self::Char => PlainKey::Char(char::decode(reader)?),
            Self::F32 => PlainKey::F32(f32::decode(reader)?),
            Self::F64 => PlainKey::F64(f64::decode(reader)?),
            Self::Text => PlainKey::Text(String::decode_owned(reader)?),
            Self::Bytes => PlainKey::Bytes(Vec::<u8>::decode_owned(reader)?),
            Self::Array(len) => PlainKey::Bytes(reader.take(*len)?.to_vec()),
            Self::Hash(_) => PlainKey::Bytes(reader.take(hash::LEN)?.to_vec()),
            Self::Option(shape) => PlainKey::Option(if bool::decode(reader)? {
                Some(Box::new(shape.read(reader)?))
            } else {
                None
            }),
            Self::Tuple(shapes) => {
                let values = shapes.iter().map(|shape| shape.read(reader));
                PlainKey::Tuple(values.collect::<Result<_, _>>()?)
            }
            Self::Desc(shape) => {
                let (upright, unescaped) = (desc::upright(self, reader)?, Unescaped::default());
                shape.read(&mut KeyReader::new(upright.as_bytes(), &unescaped))?
            }
            Self::IpAddr => PlainKey::IpAddr(IpAddr::decode_owned(reader)?),
            Self::Enum(variants) => {
                let number = u16::decode(reader)?;
                let variant = variants.iter().find(|(_, order)| *order == number);
                PlainKey::Variant(variant.ok_or(DecodeError::Value("no variant"))?.0)
            }
            Self::Named(_, shape) => shape.read(reader)?,
        })
    }

    /// Appends the encoding of a value.
    ///
    /// # Errors
    ///
    /// [`NotOfShape`], after which the buffer has part of the value.
    pub fn write(&self, value: &PlainKey, out: &mut KeyBuf) -> Result<(), NotOfShape> {
        let refused = || NotOfShape { shape: self.to_string() };
        match (self, value) {
            (Self::Unsigned(bytes), PlainKey::Unsigned(number)) => {
                let raw = number.to_be_bytes();
                let (above, own) =
                    raw.split_at_checked(raw.len() - usize::from(*bytes)).ok_or_else(refused)?;
                if above.iter().any(|byte| *byte != 0) {
                    return Err(refused());
                }
                out.extend(own);
            }
            (Self::Signed(bytes), PlainKey::Signed(number)) => {
                let bits = u32::from(*bytes) * 8;
                if number >> (bits - 1) != 0 && number >> (bits - 1) != -1 {
                    return Err(refused());
                }
                let raw = number.cast_unsigned().wrapping_add(1 << (bits - 1)).to_be_bytes();
                out.extend(raw.get(raw.len() - usize::from(*bytes)..).unwrap_or_default());
            }
            (Self::Bool, PlainKey::Bool(value)) => bool::encode(*value, out),
            (Self::Char, PlainKey::Char(value)) => char::encode(*value, out),
            (Self::F32, PlainKey::F32(value)) => f32::encode(*value, out),
            (Self::F64, PlainKey::F64(value)) => f64::encode(*value, out),
            (Self::Text, PlainKey::Text(text)) => String::encode(text, out),
            (Self::Bytes, PlainKey::Bytes(bytes)) => Vec::<u8>::encode(bytes, out),
            (Self::Array(len), PlainKey::Bytes(bytes)) if bytes.len() == *len => out.extend(bytes),
            (Self::Hash(_), PlainKey::Bytes(bytes)) if bytes.len() == hash::LEN => {
                out.extend(bytes);
            }
            (Self::Option(_), PlainKey::Option(None)) => bool::encode(false, out),
            (Self::Option(shape), PlainKey::Option(Some(value))) => {
                bool::encode(true, out);
                shape.write(value, out)?;
            }
            (Self::Tuple(shapes), PlainKey::Tuple(values)) if shapes.len() == values.len() => {
                shapes.iter().zip(values).try_for_each(|(shape, value)| shape.write(value, out))?;
            }
            (Self::Desc(shape), value) => desc::inverted(out, |out| shape.write(value, out))?,
            (Self::IpAddr, PlainKey::IpAddr(address)) => IpAddr::encode(*address, out),
            (Self::Enum(variants), PlainKey::Variant(name)) => {
                let variant = variants.iter().find(|(own, _)| own == name);
                u16::encode(variant.ok_or_else(refused)?.1, out);
            }
            (Self::Named(_, shape), value) => shape.write(value, out)?,
            _ => return Err(refused()),
        }
        Ok(())
    }

    /// Appends the hash of a value's encoding, for a field of the form `hash`.
    ///
    /// # Errors
    ///
    /// [`NotOfShape`]
    pub fn write_hash(&self, value: &PlainKey, out: &mut KeyBuf) -> Result<(), NotOfShape> {
        let mut encoding = KeyBuf::new();
        self.write(value, &mut encoding)?;
        out.extend(&hash::hash(encoding.as_bytes()));
        Ok(())
    }

    /// Appends the encoding of the start of a text. The encodings of all texts that start with it start with these
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`NotOfShape`]: values of this shape are not text.
    pub fn write_prefix(&self, prefix: &str, out: &mut KeyBuf) -> Result<(), NotOfShape> {
        match self {
            Self::Text => String::encode_prefix(prefix, out),
            Self::Option(shape) => {
                bool::encode(true, out);
                shape.write_prefix(prefix, out)?;
            }
            Self::Desc(shape) => {
                desc::inverted(out, |out| shape.write_prefix(prefix, out))?;
            }
            _ => return Err(NotOfShape { shape: self.to_string() }),
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_value_has_the_encoding_of_the_typed_value() {
        fn same<T: Key>(value: &T) {
            let mut typed = KeyBuf::new();
            typed.push(value);
            let plain = KeyShape::read_key([&T::SHAPE], typed.as_bytes()).expect("a key");
            let mut again = KeyBuf::new();
            T::SHAPE.write(&plain[0], &mut again).expect("a value of the shape");
            assert_eq!(again.as_bytes(), typed.as_bytes(), "{plain:?}");
        }
        [0, 7, u64::MAX].iter().for_each(same);
        [i8::MIN, -1, 0, i8::MAX].iter().for_each(same);
        [i128::MIN, -1, i128::MAX].iter().for_each(same);
        same(&u128::MAX);
        same(&f64::NAN);
        same(&-0.0_f32);
        same(&'é');
        same(&"a\0\u{1}b".to_owned());
        same(&vec![0_u8, 1, 255]);
        same(&[0_u8, 1, 255]);
        same(&(Some("x".to_owned()), None::<u8>, true));
        same(&crate::model::key::Desc(Some("x\0".to_owned())));
        same(&std::time::Duration::from_millis(1500));
        same(&IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn a_value_of_another_shape_is_refused() {
        for (shape, value) in [
            (u8::SHAPE, PlainKey::Unsigned(256)),
            (i8::SHAPE, PlainKey::Signed(128)),
            (i8::SHAPE, PlainKey::Signed(-129)),
            (u8::SHAPE, PlainKey::Signed(1)),
            (<[u8; 2]>::SHAPE, PlainKey::Bytes(vec![1])),
            (<(u8, u8)>::SHAPE, PlainKey::Tuple(vec![PlainKey::Unsigned(1)])),
        ] {
            assert!(shape.write(&value, &mut KeyBuf::new()).is_err(), "{shape}: {value:?}");
        }
    }
}
