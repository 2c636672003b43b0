//! Structures as `src/layout.rs` has them are those of libtirpc's headers: its offsets and sizes, asserted by the C compiler.

use core::mem::{offset_of, size_of};
use shunt_tirpc::layout::{Accepted, Auth, CallMessage, Client, Message, OpaqueAuth, RpcErr, Transport, TransportExtension, Xdr};
use std::fmt::Write as _;
use std::process::Command;

/// Assertions of a structure's fields: `their name: our type { theirs = ours }`.
macro_rules! fields {
    ($to:ident, $name:literal: $type:ty { $($theirs:literal = $ours:ident),* }) => {
        $(writeln!($to, "_Static_assert(offsetof({}, {}) == {}, \"{}\");", $name, $theirs, offset_of!($type, $ours), $theirs).unwrap();)*
    };
}

#[test]
fn structures_are_those_of_the_headers() {
    let mut c = String::from("#include <stddef.h>\n#include <rpc/rpc.h>\n#include <rpc/svc_mt.h>\n");
    fields!(c, "CLIENT": Client { "cl_auth" = auth, "cl_ops" = ops, "cl_private" = private, "cl_netid" = netid, "cl_tp" = tp });
    fields!(c, "SVCXPRT": Transport { "xp_fd" = fd, "xp_port" = port, "xp_ops" = ops, "xp_raddr" = raddr, "xp_ops2" = ops2, "xp_tp" = tp,
        "xp_ltaddr" = ltaddr, "xp_rtaddr" = rtaddr, "xp_verf" = verf, "xp_p1" = p1, "xp_p2" = p2, "xp_p3" = p3, "xp_type" = kind });
    fields!(c, "XDR": Xdr { "x_op" = op, "x_ops" = ops, "x_public" = public, "x_private" = private, "x_base" = base, "x_handy" = handy });
    fields!(c, "AUTH": Auth { "ah_cred" = cred, "ah_verf" = verf, "ah_key" = key, "ah_ops" = ops, "ah_private" = private });
    fields!(c, "struct rpc_msg": Message { "rm_xid" = xid, "rm_direction" = direction, "rm_reply.rp_stat" = stat, "acpted_rply" = body });
    fields!(c, "struct rpc_msg": CallMessage { "rm_xid" = xid, "rm_direction" = direction, "rm_call.cb_rpcvers" = rpcvers,
        "rm_call.cb_prog" = program, "rm_call.cb_vers" = version, "rm_call.cb_proc" = procedure, "rm_call.cb_cred" = cred,
        "rm_call.cb_verf" = verf });
    fields!(c, "struct accepted_reply": Accepted { "ar_verf" = verf, "ar_stat" = stat, "ar_results.where" = place, "ar_results.proc" = proc });
    fields!(c, "SVCXPRT_EXT": TransportExtension { "flags" = flags, "xp_auth" = auth });
    let sizes = [
        ("CLIENT", size_of::<Client>()),
        ("XDR", size_of::<Xdr>()),
        ("AUTH", size_of::<Auth>()),
        ("struct rpc_err", size_of::<RpcErr>()),
        ("struct opaque_auth", size_of::<OpaqueAuth>()),
        ("struct rpc_msg", size_of::<Message>()),
    ];
    for (name, size) in sizes {
        writeln!(c, "_Static_assert(sizeof({name}) == {size}, \"size of {name}\");").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    std::fs::write(&source, c).unwrap();
    let done = Command::new("gcc").args(["-I/usr/include/tirpc", "-fsyntax-only"]).arg(&source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
