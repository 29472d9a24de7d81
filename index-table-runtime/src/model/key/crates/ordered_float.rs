use ::ordered_float::OrderedFloat;

use crate::model::key::{DecodeError, KeyShape, through::through};

// The order of the crate is not that of IEEE 754: -0 equals 0, and all NaN are equal and the greatest.
macro_rules! ordered {
    ($($float:ident $shape:literal;)+) => {through! {$(
        OrderedFloat<$float>: $float, KeyShape::Named($shape, &$float::SHAPE),
            |value| if value.0.is_nan() { $float::NAN } else { value.0 + 0.0 },
            |raw| {
                let is_other = if raw.is_nan() { raw.to_bits() != $float::NAN.to_bits() } else { raw == 0.0 && raw.is_sign_negative() };
                if is_other { Err(DecodeError::Value("-0, or another NaN than the one that is stored")) } else { Ok(OrderedFloat(raw)) }
            };
    )+}};
}

ordered! {
    f32 "orderedf32";
    f64 "orderedf64";
}
