//! Tests of the built program over HTTP.

mod admin;
mod endpoints;
mod server;
mod stopping;
