//! Tests of the built program over HTTP.

mod admin;
mod endpoints;
#[cfg(feature = "postgres")]
mod on_postgres;
mod releases;
mod server;
mod stopping;
