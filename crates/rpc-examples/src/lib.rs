//! What `shunt-rpcgen` makes of the definitions, in modules of their own.

/// `examples/log.x`.
pub mod log {
    include!(concat!(env!("OUT_DIR"), "/log.rs"));
}

/// `examples/kv.x`.
pub mod kv {
    include!(concat!(env!("OUT_DIR"), "/kv.rs"));
}

pub mod store;

/// `tests/torture.x`: all of the language that rpcgen takes, too.
pub mod torture {
    include!(concat!(env!("OUT_DIR"), "/torture.rs"));
}

/// `tests/onc.x`: what is spoken with strangers.
pub mod onc {
    include!(concat!(env!("OUT_DIR"), "/onc.rs"));
}
