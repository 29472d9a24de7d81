use ::url::Url;

use crate::model::key::{DecodeError, Key, KeyBuf, KeyReader, KeyShape};

/// The encoding of its text, which is normalized, so equal URLs have equal keys.
impl Key for Url {
    type Arg<'a> = &'a Url;
    type Present<'a> = &'a Url;
    /// The text. It is parsed only where a `Url` is returned.
    type Ref<'a> = &'a str;
    const SHAPE: KeyShape = KeyShape::Named("url", &String::SHAPE);

    fn arg(&self) -> &Url {
        self
    }

    fn encode(value: &Url, out: &mut KeyBuf) {
        String::encode(value.as_str(), out);
    }

    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<&'a str, DecodeError> {
        String::decode(reader)
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        Self::parse(String::decode(reader)?).map_err(|_| DecodeError::Value("not a URL"))
    }
}
