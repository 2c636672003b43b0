//! The contender over UCX is a C program's half: ucp.h is made of macros and inline functions.

fn main() {
    println!("cargo::rerun-if-changed=src/peers/ucx.c");
    cc::Build::new().file("src/peers/ucx.c").warnings_into_errors(true).compile("ucx_peer");
    println!("cargo::rustc-link-lib=ucp");
    println!("cargo::rustc-link-lib=ucs");
}
