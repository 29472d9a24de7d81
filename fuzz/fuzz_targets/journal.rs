//! A journal of any bytes is read or refused without a panic. No record is read that was not written, and no
//! record before a durable one is missing without an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| index_table_runtime::fuzzing::journal(data));
