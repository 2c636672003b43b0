//! Writes the C functions from the table, see `table.rs`.

#[allow(dead_code)] // the header is the test's
mod table;

fn main() {
    println!("cargo:rerun-if-changed=table.rs");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt_shmem.so");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("functions.rs");
    std::fs::write(out, table::rust()).expect("the build's directory can be written");
}
