//! The built program, driven over HTTP.

mod endpoints;
mod server;
mod stopping;
