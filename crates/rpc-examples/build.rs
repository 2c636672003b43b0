//! Typed callers and servers of both definitions.

fn main() {
    shunt_rpcgen::build("../../examples/log.x");
    shunt_rpcgen::build("tests/torture.x");
}
