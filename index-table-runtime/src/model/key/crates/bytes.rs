use std::borrow::Cow;

use ::bytes::Bytes;

use crate::model::key::{DecodeError, Key, KeyBuf, KeyReader, KeyShape};

impl Key for Bytes {
    type Arg<'a> = &'a [u8];
    type Present<'a> = &'a [u8];
    type Ref<'a> = Cow<'a, [u8]>;
    const SHAPE: KeyShape = Vec::<u8>::SHAPE;

    fn arg(&self) -> &[u8] {
        self
    }

    fn encode(value: &[u8], out: &mut KeyBuf) {
        Vec::<u8>::encode(value, out);
    }

    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<Cow<'a, [u8]>, DecodeError> {
        Vec::<u8>::decode(reader)
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Bytes, DecodeError> {
        Vec::<u8>::decode_owned(reader).map(Bytes::from)
    }
}
