//! A customer directory over HTTP.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod failure;
pub mod model;
pub mod routes;
pub mod service;
pub mod writer;
