//! Random transactions of tables with global indexes with maps of ranges and lists.

use crate::{
    answers::of_global as answers_of,
    tables::{
        global::{Order, OrderRepository},
        with_maps_of_indexes as options_of,
    },
};

#[expect(clippy::duplicate_mod, reason = "the same tests for other tables")]
#[path = "random_together.rs"]
mod random_together;
