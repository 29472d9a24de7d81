use ::compact_str::CompactString;

use crate::model::key::bytes::as_text;

as_text!(CompactString);
