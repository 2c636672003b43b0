//! libtirpc's own functions, of version TIRPC_0.3.0: those that stand behind this library, or that were loaded later.

use core::ffi::CStr;
use libc::{c_char, c_int, c_uint, c_void};

use crate::layout::{Bool, Client, Message, Netbuf, Transport, Xdr};

/// clnt_vc_create(3).
pub type Create = unsafe extern "C-unwind" fn(c_int, *const Netbuf, u32, u32, c_uint, c_uint) -> *mut Client;
/// xprt_register(3).
pub type Register = unsafe extern "C-unwind" fn(*mut Transport);
/// xdr_callmsg(3) and xdr_replymsg(3).
pub type XdrMessage = unsafe extern "C-unwind" fn(*mut Xdr, *mut Message) -> Bool;

/// xdrmem_create(3).
pub type XdrMemory = unsafe extern "C-unwind" fn(*mut Xdr, *mut c_char, c_uint, c_int);

const VERSION: &CStr = c"TIRPC_0.3.0";

/// A function by its name; null if libtirpc is not there.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: both are C strings; the handle of a library that is loaded is kept, so that the function stays.
    unsafe {
        let next = libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), VERSION.as_ptr());
        if !next.is_null() {
            return next;
        }
        let library = libc::dlopen(c"libtirpc.so.3".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return library;
        }
        libc::dlvsym(library, name.as_ptr(), VERSION.as_ptr())
    }
}

/// Whether two addresses are in one library.
pub fn together(one: *const c_void, other: *const c_void) -> bool {
    let base = |address| {
        // SAFETY: all zero is a Dl_info; the address is looked up only.
        unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            (libc::dladdr(address, &mut info) != 0).then_some(info.dli_fbase)
        }
    };
    base(one).is_some_and(|found| base(other) == Some(found))
}

/// A socket's kind, SOCK_STREAM or another; `None`: it is no socket.
fn kind(fd: c_int) -> Option<c_int> {
    let (mut kind, mut size) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: room for an int.
    let told = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut size) };
    (told == 0).then_some(kind)
}

/// Whether a descriptor is a datagram socket.
pub fn is_datagrams(fd: c_int) -> bool {
    kind(fd) == Some(libc::SOCK_DGRAM)
}

/// Whether a descriptor is a stream socket with a peer.
pub fn is_connected_stream(fd: c_int) -> bool {
    // SAFETY: room for any address.
    unsafe {
        let mut address: libc::sockaddr_storage = core::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        kind(fd) == Some(libc::SOCK_STREAM) && libc::getpeername(fd, (&raw mut address).cast(), &mut length) == 0
    }
}
