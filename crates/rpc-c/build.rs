//! Programs name the shared library by its own name, wherever it was when they were linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt_rpc_c.so");
}
