//! A block of any bytes is read or refused without a panic. A change adds or removes one primary key.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| index_table_runtime::fuzzing::block(data));
