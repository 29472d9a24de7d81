use ::uuid::Uuid;

use crate::model::key::{KeyShape, through::through};

through! {
    Uuid: [u8; 16], KeyShape::Named("uuid", &<[u8; 16]>::SHAPE),
        |value| value.into_bytes(),
        |raw| Ok(Uuid::from_bytes(raw));
}
