//! Linker settings of libshunt.so.

fn main() {
    // Resolve nothing at first use: a signal handler may be the first user.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt.so");
    // Never unloaded: descriptors that it serves outlive any dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-link-lib=c");
}
