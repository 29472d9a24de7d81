//! Composite keys: `Option` and tuples.

use super::{DecodeError, Key, KeyBuf, KeyReader, KeyShape, PrefixKey};

impl<T: Key> Key for Option<T> {
    type Arg<'a> = Option<T::Arg<'a>>;
    type Present<'a> = T::Arg<'a>;
    type Ref<'a> = Option<T::Ref<'a>>;
    const SHAPE: KeyShape = KeyShape::Option(&T::SHAPE);

    fn arg(&self) -> Option<T::Arg<'_>> {
        self.as_ref().map(T::arg)
    }

    fn is_present(&self) -> bool {
        self.is_some()
    }

    fn encode(value: Option<T::Arg<'_>>, out: &mut KeyBuf) {
        match value {
            None => out.extend(&[0]),
            Some(value) => {
                out.extend(&[1]);
                T::encode(value, out);
            }
        }
    }

    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<Option<T::Ref<'a>>, DecodeError> {
        if bool::decode(reader)? { T::decode(reader).map(Some) } else { Ok(None) }
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Option<T>, DecodeError> {
        if bool::decode(reader)? { T::decode_owned(reader).map(Some) } else { Ok(None) }
    }
}

/// A prefix matches no `None`, because `Some` and `None` start with different bytes.
impl<T: PrefixKey> PrefixKey for Option<T> {
    type Prefix<'a> = T::Prefix<'a>;

    fn encode_prefix(prefix: T::Prefix<'_>, out: &mut KeyBuf) {
        out.extend(&[1]);
        T::encode_prefix(prefix, out);
    }
}

macro_rules! tuple {
    ($($field:ident $at:tt),+) => {
        impl<$($field: Key),+> Key for ($($field,)+) {
            type Arg<'a> = ($($field::Arg<'a>,)+);
            type Present<'a> = Self::Arg<'a>;
            type Ref<'a> = ($($field::Ref<'a>,)+);
            const SHAPE: KeyShape = KeyShape::Tuple(&[$($field::SHAPE),+]);

            fn arg(&self) -> Self::Arg<'_> {
                ($(self.$at.arg(),)+)
            }

            fn encode(value: Self::Arg<'_>, out: &mut KeyBuf) {
                $($field::encode(value.$at, out);)+
            }

            fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<Self::Ref<'a>, DecodeError> {
                Ok(($($field::decode(reader)?,)+))
            }

            fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
                Ok(($($field::decode_owned(reader)?,)+))
            }
        }
    };
}

// The standard library implements its traits for tuples of up to twelve elements: `Arg` needs `Copy`, and
// `Ref` `Debug`.
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
