//! Tests of the built program over HTTP.

mod endpoints;
mod server;
mod stopping;
