//! Linker settings of libshunt.so.

fn main() {
    // Resolve nothing at first use: a signal handler may be the first user.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt.so");
    // Our own calls are our own functions: a library that stands before this one (mptcpize's) may answer `socket` by syscall(SYS_socket),
    // which would lead to its `socket` again.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Never unloaded: descriptors that it serves outlive any dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-link-lib=c");
}
