//! Random transactions of tables with local indexes.

use crate::{
    results::of_values as results_of,
    tables::{
        by_value::{Order, OrderRepository},
        options as options_of,
    },
};

#[expect(clippy::duplicate_mod, reason = "the same tests for other tables")]
#[path = "random_together.rs"]
pub(crate) mod random_together;
