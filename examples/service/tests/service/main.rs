//! Tests of the built program over HTTP.

mod admin;
#[cfg(target_os = "linux")]
mod container;
mod endpoints;
#[cfg(feature = "postgres")]
mod on_postgres;
mod releases;
mod server;
mod stopping;
