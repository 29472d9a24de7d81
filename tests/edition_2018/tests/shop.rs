//! The tests of the edition 2021, in the edition 2018.

#[path = "../../edition_2021/tests/shop.rs"]
mod shop;
