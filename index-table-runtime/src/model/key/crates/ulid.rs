use ::ulid::Ulid;

use crate::model::key::{KeyShape, through::through};

through! {
    Ulid: [u8; 16], KeyShape::Named("ulid", &<[u8; 16]>::SHAPE),
        |value| value.to_bytes(),
        |raw| Ok(Ulid::from_bytes(raw));
}
