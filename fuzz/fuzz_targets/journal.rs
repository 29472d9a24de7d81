//! A journal of any bytes is read or refused: no panic, no record that was not written, and none missing
//! without an error in front of one that was durable.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| index_table_runtime::fuzzing::journal(data));
