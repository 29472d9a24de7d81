//! Random transactions of tables with global indexes, whose shard maps are hash maps.

use crate::{
    results::of_global as results_of,
    tables::{
        global::{Order, OrderRepository},
        options as options_of,
    },
};

#[expect(clippy::duplicate_mod, reason = "the same tests for other tables")]
#[path = "random_together.rs"]
mod random_together;
