//! Runs the service: `index-table-service-example DIRECTORY [ADDRESS]`, or, with the Cargo feature `postgres`,
//! `index-table-service-example --postgres URL [ADDRESS]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    index_table_service_example::program::main()
}
