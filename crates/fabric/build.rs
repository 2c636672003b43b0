//! Compiles the shim and links libfabric, if the feature asks for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "libfabric")]
    shim();
}

#[cfg(feature = "libfabric")]
fn shim() {
    println!("cargo:rerun-if-env-changed=LIBFABRIC_PREFIX");
    // For a libfabric that does not lie where the compiler looks.
    let prefix = std::env::var("LIBFABRIC_PREFIX").ok();
    let build = |file: &str| {
        let mut build = cc::Build::new();
        build.file(file).flag_if_supported("-std=gnu11").includes(prefix.iter().map(|prefix| format!("{prefix}/include")));
        build
    };
    if build("shim/probe.c").cargo_warnings(false).try_expand().is_err() {
        eprintln!(
            "libfabric's headers are missing. Install them (Debian: apt-get install libfabric-dev), or say where libfabric \
             lies: LIBFABRIC_PREFIX=/opt/libfabric"
        );
        std::process::exit(1);
    }
    build("shim/shim.c").compile("shunt_fabric_shim");
    if let Some(prefix) = &prefix {
        println!("cargo:rustc-link-search=native={prefix}/lib");
    }
    println!("cargo:rustc-link-lib=dylib=fabric");
}
