//! Without this file, Cargo leaves out `[build-dependencies]`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
