use ::smol_str::SmolStr;

use crate::model::key::bytes::as_text;

as_text!(SmolStr);
