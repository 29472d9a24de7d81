//! For every input, the derives don't panic, and their output consists of items.
#![no_main]
#![allow(dead_code, unused_imports, unreachable_pub)]

use libfuzzer_sys::fuzz_target;

#[path = "../../index-table-derive/src/attr/mod.rs"]
mod attr;
#[path = "../../index-table-derive/src/derive.rs"]
mod derive;
#[path = "../../index-table-derive/src/diagnostics.rs"]
mod diagnostics;
#[path = "../../index-table-derive/src/expand/mod.rs"]
mod expand;
#[path = "../../index-table-derive/src/fallback.rs"]
mod fallback;
#[path = "../../index-table-derive/src/lower/mod.rs"]
mod lower;
#[path = "../../index-table-derive/src/model.rs"]
mod model;
#[path = "../../index-table-derive/src/names.rs"]
mod names;
#[path = "../../index-table-derive/src/types/mod.rs"]
mod types;

fuzz_target!(|text: &str| {
    let Ok(tokens) = text.parse::<proc_macro2::TokenStream>() else { return };
    for output in [derive::derive(tokens.clone()), derive::derive_key(tokens)] {
        let items = syn::parse2::<syn::File>(output.clone());
        assert!(items.is_ok(), "{:?}\n{output}", items.err());
    }
});
