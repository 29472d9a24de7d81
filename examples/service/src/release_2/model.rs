//! The stored type.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

/// A customer: the row in the store and the JSON in requests and responses.
/// Each index serves an endpoint. The index by town and last name includes the other fields of the phone
/// book, so that the phone book is read from the index alone. It also returns the customers of a town, sorted
/// by last name, so no index by town alone is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", keep_unknown)]
#[index(town, last_name, include = [first_name, phone])]
#[index(email, unique)]
pub struct Customer {
    /// The id, which the client chooses so that it can repeat a request without a response.
    #[primary_key]
    pub id: u64,
    /// The number of writes of this customer, which is also its `ETag`. Ignored in requests.
    #[revision]
    #[serde(default)]
    pub revision: u64,
    /// The first name.
    pub first_name: String,
    /// The last name.
    pub last_name: String,
    /// The town.
    pub town: String,
    /// The phone number.
    pub phone: String,
    /// The email address, which is unique.
    pub email: String,
    /// The company, if the customer has one.
    pub company: Option<String>,
}
