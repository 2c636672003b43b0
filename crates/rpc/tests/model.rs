//! What a caller may rely on, over the devices of one host; `xdp` takes two, and an agent, so it is judged in `crates/cli/tests/rpc_xdp.rs`.

mod common;
mod sentences;

use sentences::{be_the_other_side, Device};
use shunt_rpc::Address;

struct Memory;

impl Device for Memory {
    fn address(&self, test: &str) -> Address {
        common::name(test)
    }
}

struct Loopback(&'static str);

impl Device for Loopback {
    fn address(&self, _: &str) -> Address {
        self.0.parse().unwrap()
    }
}

fn over_memory(judge: impl FnOnce(&Memory)) {
    judge(&Memory);
}

fn over_udp(judge: impl FnOnce(&Loopback)) {
    judge(&Loopback("udp:127.0.0.1:0"));
}

sentences!(memory, super::over_memory);
sentences!(udp, super::over_udp);

#[cfg(feature = "fabric")]
fn over_fabric(judge: impl FnOnce(&Loopback)) {
    judge(&Loopback("fabric:tcp:127.0.0.1:0"));
}

#[cfg(feature = "fabric")]
sentences!(fabric, super::over_fabric);

#[test]
fn the_other_side() {
    be_the_other_side();
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let connect = |address: &str| {
        let server = shunt_rpc::Server::bind(&address.parse().unwrap(), shunt_rpc::ServerOptions::default()).unwrap();
        let server = server.spawn(common::Test::default).unwrap();
        let told = shunt_rpc::list(server.address(), &shunt_rpc::Options::default()).unwrap();
        assert_eq!(told.len(), 2, "questions need no end");
        let made = shunt_rpc::Client::connect(server.address(), common::PROGRAM, 1..=1, shunt_rpc::Options::default());
        let error = made.err().unwrap();
        assert_eq!((error.kind(), error.side()), (shunt_rpc::Kind::System, shunt_rpc::Side::Caller), "{error}");
        error.to_string()
    };
    let error = connect("xdp:127.0.0.1:0");
    assert!(error.contains("shunt agent --interface lo"), "{error}");
    let error = connect("fabric:nothing:127.0.0.1:0");
    assert!(error.contains("libfabric's provider nothing"), "{error}");
}
