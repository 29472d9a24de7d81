use ::smol_str::SmolStr;

use crate::key::bytes::as_text;

as_text!(SmolStr);
