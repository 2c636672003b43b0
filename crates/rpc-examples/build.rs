//! Typed callers and servers of all definitions.

fn main() {
    shunt_rpcgen::build("../../examples/log.x");
    shunt_rpcgen::build("../../examples/kv.x");
    shunt_rpcgen::build("tests/torture.x");
    shunt_rpcgen::build("tests/onc.x");
}
