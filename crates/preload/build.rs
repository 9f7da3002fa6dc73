//! The library's name for the loader: a program that is linked with it and started under a copy that is preloaded
//! has it once.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuncork.so");
}
