//! The tool with the types of the tests.

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

use support::{
    Customer, Document, Event, Order, PostalCode, Reading, Session, everything::Everything,
};

fn main() -> ExitCode {
    index_table_admin::main::<(
        Customer,
        Order,
        PostalCode,
        Session,
        Everything,
        Document,
        Reading,
        Event,
    )>()
}
