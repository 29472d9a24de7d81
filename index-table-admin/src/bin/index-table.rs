//! The command `index-table`, for any store.

use std::process::ExitCode;

fn main() -> ExitCode {
    index_table_admin::main_for_any_store()
}
