//! Runs the second release of the service, `index-table-service-example-2`, with the same arguments.
//!
//! It has the code of the first release and a model of its own, in which a [customer](model::Customer) has one more line.
//! It opens a store of the first release, and the first release opens a store of this one. A service that is only one
//! program changes the line in its model.

pub mod model;

#[path = "../admin.rs"]
pub mod admin;
#[path = "../changes.rs"]
pub mod changes;
#[path = "../commands.rs"]
pub mod commands;
#[path = "../failure.rs"]
pub mod failure;
#[path = "../program.rs"]
pub mod program;
#[path = "../routes.rs"]
pub mod routes;
#[path = "../service.rs"]
pub mod service;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::main()
}
