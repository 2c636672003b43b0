//! Structures of libtirpc 1.3.3, from its public headers (`rpc/clnt.h`, `rpc/svc.h`, `rpc/svc_mt.h`, `rpc/svc_auth.h`, `rpc/xdr.h`, `rpc/auth.h`,
//! `rpc/rpc_msg.h`); Debian 12, x86-64.
//!
//! Functions unwind: a thread that is cancelled in a call leaves through them.
#![allow(missing_docs)] // the names are those of the headers

use libc::{c_char, c_int, c_uint, c_ushort, c_void, sockaddr_in6, timeval};

pub type Bool = c_int;
pub const TRUE: Bool = 1;
pub const FALSE: Bool = 0;

/// `xdrproc_t`, called with two arguments as the library itself does.
pub type XdrProc = Option<unsafe extern "C-unwind" fn(*mut Xdr, *mut c_void) -> Bool>;

pub const XDR_ENCODE: c_int = 0;
pub const XDR_DECODE: c_int = 1;
pub const XDR_FREE: c_int = 2;

#[repr(C)]
pub struct Xdr {
    pub op: c_int,
    pub ops: *const XdrOps,
    pub public: *mut c_char,
    pub private: *mut c_void,
    pub base: *mut c_char,
    pub handy: c_uint,
}

#[repr(C)]
pub struct XdrOps {
    pub get_long: unsafe extern "C-unwind" fn(*mut Xdr, *mut libc::c_long) -> Bool,
    pub put_long: unsafe extern "C-unwind" fn(*mut Xdr, *const libc::c_long) -> Bool,
    pub get_bytes: unsafe extern "C-unwind" fn(*mut Xdr, *mut c_char, c_uint) -> Bool,
    pub put_bytes: unsafe extern "C-unwind" fn(*mut Xdr, *const c_char, c_uint) -> Bool,
    pub get_position: unsafe extern "C-unwind" fn(*mut Xdr) -> c_uint,
    pub set_position: unsafe extern "C-unwind" fn(*mut Xdr, c_uint) -> Bool,
    pub inline: unsafe extern "C-unwind" fn(*mut Xdr, c_uint) -> *mut i32,
    pub destroy: Option<unsafe extern "C-unwind" fn(*mut Xdr)>,
    pub control: Option<unsafe extern "C-unwind" fn(*mut Xdr, c_int, *mut c_void) -> Bool>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpaqueAuth {
    pub flavor: c_int,
    pub base: *mut c_char,
    pub length: c_uint,
}

#[repr(C)]
pub struct Auth {
    pub cred: OpaqueAuth,
    pub verf: OpaqueAuth,
    pub key: [u32; 2],
    pub ops: *const AuthOps,
    pub private: *mut c_void,
}

#[repr(C)]
pub struct AuthOps {
    pub nextverf: Option<unsafe extern "C-unwind" fn(*mut Auth)>,
    pub marshal: unsafe extern "C-unwind" fn(*mut Auth, *mut Xdr) -> c_int,
    pub validate: unsafe extern "C-unwind" fn(*mut Auth, *mut OpaqueAuth) -> c_int,
    pub refresh: unsafe extern "C-unwind" fn(*mut Auth, *mut c_void) -> c_int,
    pub destroy: Option<unsafe extern "C-unwind" fn(*mut Auth)>,
    pub wrap: unsafe extern "C-unwind" fn(*mut Auth, *mut Xdr, XdrProc, *mut c_void) -> c_int,
    pub unwrap: unsafe extern "C-unwind" fn(*mut Auth, *mut Xdr, XdrProc, *mut c_void) -> c_int,
}

/// `struct rpc_err`; the union is two words.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RpcErr {
    pub status: c_int,
    pub words: [u32; 2],
}

#[repr(C)]
pub struct Client {
    pub auth: *mut Auth,
    pub ops: *const ClientOps,
    pub private: *mut c_void,
    pub netid: *mut c_char,
    pub tp: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ClientOps {
    pub call: unsafe extern "C-unwind" fn(*mut Client, u32, XdrProc, *mut c_void, XdrProc, *mut c_void, timeval) -> c_int,
    pub abort: unsafe extern "C-unwind" fn(*mut Client),
    pub geterr: unsafe extern "C-unwind" fn(*mut Client, *mut RpcErr),
    pub freeres: unsafe extern "C-unwind" fn(*mut Client, XdrProc, *mut c_void) -> Bool,
    pub destroy: unsafe extern "C-unwind" fn(*mut Client),
    pub control: unsafe extern "C-unwind" fn(*mut Client, c_uint, *mut c_void) -> Bool,
}

/// `struct rpc_msg` of a reply that was accepted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Accepted {
    pub verf: OpaqueAuth,
    pub stat: c_int,
    pub place: *mut c_void,
    pub proc: XdrProc,
}

/// `struct rejected_reply`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rejected {
    pub stat: c_int,
    pub words: [u32; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union ReplyBody {
    pub accepted: Accepted,
    pub rejected: Rejected,
}

/// `struct rpc_msg` of a reply. One of a call is longer (`rest`): never read here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    pub xid: u32,
    pub direction: c_int,
    pub stat: c_int,
    pub body: ReplyBody,
    pub rest: u64,
}

/// `struct rpc_msg` of a call.
#[repr(C)]
pub struct CallMessage {
    pub xid: u32,
    pub direction: c_int,
    pub rpcvers: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub cred: OpaqueAuth,
    pub verf: OpaqueAuth,
}

#[repr(C)]
pub struct Netbuf {
    pub maxlen: c_uint,
    pub len: c_uint,
    pub buf: *mut c_void,
}

#[repr(C)]
pub struct Transport {
    pub fd: c_int,
    pub port: c_ushort,
    pub ops: *const TransportOps,
    pub addrlen: c_int,
    pub raddr: sockaddr_in6,
    pub ops2: *const c_void,
    pub tp: *mut c_char,
    pub netid: *mut c_char,
    pub ltaddr: Netbuf,
    pub rtaddr: Netbuf,
    pub verf: OpaqueAuth,
    pub p1: *mut c_void,
    pub p2: *mut c_void,
    pub p3: *mut TransportExtension,
    pub kind: c_int,
}

pub const XPRT_DIED: c_int = 0;
pub const XPRT_MOREREQS: c_int = 1;
pub const XPRT_IDLE: c_int = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TransportOps {
    pub recv: unsafe extern "C-unwind" fn(*mut Transport, *mut Message) -> Bool,
    pub stat: unsafe extern "C-unwind" fn(*mut Transport) -> c_int,
    pub getargs: unsafe extern "C-unwind" fn(*mut Transport, XdrProc, *mut c_void) -> Bool,
    pub reply: unsafe extern "C-unwind" fn(*mut Transport, *mut Message) -> Bool,
    pub freeargs: unsafe extern "C-unwind" fn(*mut Transport, XdrProc, *mut c_void) -> Bool,
    pub destroy: unsafe extern "C-unwind" fn(*mut Transport),
}

#[repr(C)]
pub struct SvcAuth {
    pub ops: *const SvcAuthOps,
    pub private: *mut c_void,
}

#[repr(C)]
pub struct SvcAuthOps {
    pub wrap: unsafe extern "C-unwind" fn(*mut SvcAuth, *mut Xdr, XdrProc, *mut c_void) -> c_int,
    pub unwrap: unsafe extern "C-unwind" fn(*mut SvcAuth, *mut Xdr, XdrProc, *mut c_void) -> c_int,
    pub destroy: Option<unsafe extern "C-unwind" fn(*mut SvcAuth) -> c_int>,
}

#[repr(C)]
pub struct TransportExtension {
    pub flags: c_int,
    pub auth: SvcAuth,
}
