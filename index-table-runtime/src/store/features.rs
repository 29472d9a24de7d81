//! The functions of Cargo features that are off. A call is a compile error that names the feature.
//!
//! Without them, the compiler would only report that there is no such function. The conditions have a lifetime, so they
//! are checked at the calls.

#[cfg(not(all(feature = "memory", feature = "postgres", feature = "json")))]
use crate::model::error::Result;

/// The feature `memory`. No type implements it.
#[cfg(not(feature = "memory"))]
#[diagnostic::on_unimplemented(
    message = "`in_memory` needs the Cargo feature `memory` of `index-table`",
    label = "the feature `memory` is off",
    note = "in `Cargo.toml`: `index-table = {{ version = \"…\", features = [\"memory\"] }}`"
)]
pub trait FeatureMemory {
    fn call() -> !;
}

/// The feature `postgres`. No type implements it.
#[cfg(not(feature = "postgres"))]
#[diagnostic::on_unimplemented(
    message = "`connect` needs the Cargo feature `postgres` of `index-table`",
    label = "the feature `postgres` is off",
    note = "in `Cargo.toml`: `index-table = {{ version = \"…\", features = [\"postgres\"] }}`"
)]
pub trait FeaturePostgres {
    fn call() -> !;
}

/// The feature `json`. No type implements it.
#[cfg(not(feature = "json"))]
#[diagnostic::on_unimplemented(
    message = "`Store::table` needs the Cargo feature `json` of `index-table`",
    label = "the feature `json` is off",
    note = "in `Cargo.toml`: `index-table = {{ version = \"…\", features = [\"json\"] }}`"
)]
pub trait FeatureJson {
    fn call() -> !;
}

#[cfg(not(feature = "memory"))]
impl super::Store {
    #[doc(hidden)]
    #[must_use]
    pub fn in_memory() -> Self
    where
        for<'any> (): FeatureMemory,
    {
        <() as FeatureMemory>::call()
    }
}

#[cfg(not(feature = "memory"))]
impl crate::Options {
    #[doc(hidden)]
    pub fn in_memory(&self) -> Result<super::Store>
    where
        for<'any> (): FeatureMemory,
    {
        <() as FeatureMemory>::call()
    }
}

#[cfg(not(feature = "postgres"))]
impl crate::Options {
    #[doc(hidden)]
    pub fn connect(&self, _: &str) -> Result<super::Store>
    where
        for<'any> (): FeaturePostgres,
    {
        <() as FeaturePostgres>::call()
    }
}

#[cfg(not(feature = "json"))]
impl super::Store {
    #[doc(hidden)]
    pub fn table(&self, _: &str) -> Result<std::convert::Infallible>
    where
        for<'any> (): FeatureJson,
    {
        <() as FeatureJson>::call()
    }
}
