//! Random transactions of tables with global indexes with hash maps.

use crate::{
    answers::of_global as answers_of,
    tables::{
        global::{Order, OrderRepository},
        options as options_of,
    },
};

#[expect(clippy::duplicate_mod, reason = "the same tests for other tables")]
#[path = "random_together.rs"]
mod random_together;
