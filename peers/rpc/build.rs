//! Stubs of Cap'n Proto, gRPC and shunt-rpc: needs `capnp` and `protoc` (Debian: capnproto, protobuf-compiler).

fn main() {
    capnpc::CompilerCommand::new().file("echo.capnp").run().expect("capnp, of Debian's package capnproto");
    for proto in ["echo.proto", "kv.proto"] {
        tonic_prost_build::compile_protos(proto).expect("protoc, of Debian's package protobuf-compiler");
    }
    shunt_rpcgen::build("throttle.x");
}
