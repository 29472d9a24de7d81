//! The changes that a client may make.

use serde::Deserialize;

use crate::model::Customer;

/// The fields of a customer to change. Absent fields and null are not changed.
///
/// There is no `id`, since it can't change.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    first_name: Option<String>,
    last_name: Option<String>,
    town: Option<String>,
    phone: Option<String>,
    email: Option<String>,
}

impl Changes {
    /// Changes the customer.
    pub fn apply_to(self, customer: &mut Customer) {
        let Self { first_name, last_name, town, phone, email } = self;
        let set = |field: &mut String, value: Option<String>| {
            if let Some(value) = value {
                *field = value;
            }
        };
        set(&mut customer.first_name, first_name);
        set(&mut customer.last_name, last_name);
        set(&mut customer.town, town);
        set(&mut customer.phone, phone);
        set(&mut customer.email, email);
    }
}
