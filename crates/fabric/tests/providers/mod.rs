//! Endpoints of the providers that every machine has.
#![allow(dead_code)]

use shunt_fabric::{Fabric, Options, Progress};

pub const TCP: Options<'static> = Options {
    provider: "tcp",
    node: Some("127.0.0.1"),
    service: None,
    largest: 8176,
    progress: Progress::ByCalls,
    shape: shunt_endpoint::shared::Shape::SMALL,
};

pub const SHM: Options<'static> = Options { provider: "shm", node: None, ..TCP };

pub fn made(options: Options<'_>) -> Fabric {
    Fabric::new(options).unwrap_or_else(|errno| panic!("libfabric's {}: {errno:?}", options.provider))
}

pub fn tcp() -> Fabric {
    made(TCP)
}

pub fn shm() -> Fabric {
    made(SHM)
}
