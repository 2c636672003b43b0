//! Servers: a table of functions of the program's behind the trait.

use crate::bytes;
use shunt_rpc::xdr::Decoder;
use shunt_rpc::{Answer, Context, Fault, Interface, Procedure, Refusal, Server, ServerOptions, Service, Stopper};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};

type Dispatch = unsafe extern "C" fn(*mut c_void, *mut Request, u16, *const c_void, usize) -> c_int;

/// `shunt_rpc_procedure`.
#[repr(C)]
pub struct Method {
    number: u16,
    name: *const c_char,
    definition: *const c_char,
}

/// `shunt_rpc_interface`.
#[repr(C)]
pub struct Table {
    program: u32,
    version: u32,
    name: *const c_char,
    procedures: *const Method,
    count: usize,
    definition: *const c_char,
}

/// `shunt_rpc_server`.
pub struct Handle {
    server: Cell<Option<Server>>,
    stopper: Stopper,
}

/// `shunt_rpc_request`: while its procedure runs.
pub struct Request {
    context: *const Context<'static>,
    answer: *mut Answer<'static>,
    fault: Option<Fault>,
}

struct Functions {
    interfaces: Vec<Interface>,
    dispatch: Dispatch,
    state: *mut c_void,
}

impl Service for Functions {
    fn interfaces(&self) -> Vec<Interface> {
        self.interfaces.clone()
    }

    fn call(
        &mut self,
        context: &Context<'_>,
        procedure: u16,
        arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal> {
        let bytes = arguments.clone().rest();
        let mut request =
            Request { context: std::ptr::from_ref(context).cast(), answer: std::ptr::from_mut(answer).cast(), fault: None };
        // SAFETY: the program's function; the request is valid while it runs.
        let result = unsafe { (self.dispatch)(self.state, &mut request, procedure, bytes.as_ptr().cast(), bytes.len()) };
        match (request.fault, result) {
            (Some(fault), _) => Err(fault.into()),
            (None, 0) => Ok(()),
            (None, -11) => Err(Refusal::NoProcedure),
            (None, _) => Err(arguments.error(shunt_rpc::xdr::Reason::Refused).into()),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_listen(address: *const c_char) -> *mut Handle {
    // SAFETY: the caller's string.
    let address = unsafe { CStr::from_ptr(address) }.to_str().ok().and_then(|text| text.parse().ok());
    let server = address.and_then(|address| Server::bind(&address, ServerOptions::default()).ok());
    server.map_or(std::ptr::null_mut(), |server| {
        let stopper = server.stopper();
        Box::into_raw(Box::new(Handle { server: Cell::new(Some(server)), stopper }))
    })
}

/// # Safety
/// A string that stays.
unsafe fn text(words: *const c_char) -> &'static str {
    if words.is_null() {
        return "";
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr::<'static>(words) }.to_str().unwrap_or("")
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_serve(
    server: *mut Handle,
    interfaces: *const Table,
    count: usize,
    dispatch: Dispatch,
    state: *mut c_void,
) -> c_int {
    // SAFETY: the caller's server.
    let Some(server) = unsafe { &*server }.server.take() else { return -5 };
    // SAFETY: so many tables lie there, with as many procedures as they say, and stay.
    let interfaces: Vec<Interface> = unsafe { std::slice::from_raw_parts(interfaces, count) }
        .iter()
        .map(|table| {
            let methods = if table.count == 0 {
                &[]
            } else {
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts(table.procedures, table.count) }
            };
            let procedure = |method: &Method| {
                // SAFETY: as above.
                let (name, definition) = unsafe { (text(method.name), text(method.definition)) };
                Procedure { number: method.number, name, definition }
            };
            // Once for each server of the program: it serves until it ends.
            let procedures: &'static [Procedure] = Vec::leak(methods.iter().map(procedure).collect());
            // SAFETY: as above.
            let (name, text) = unsafe { (text(table.name), text(table.definition)) };
            Interface { program: table.program, version: table.version, name, procedures, text }
        })
        .collect();
    let state = state as usize;
    let make = || Functions { interfaces: interfaces.clone(), dispatch, state: state as *mut c_void };
    server.run(make).map_or(-5, |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_stop(server: *mut Handle) {
    // SAFETY: the caller's server.
    unsafe { &*server }.stopper.stop();
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_server_free(server: *mut Handle) {
    if !server.is_null() {
        // SAFETY: made by shunt_rpc_listen, and not used again.
        drop(unsafe { Box::from_raw(server) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_answer(request: *mut Request, results: *const u8, length: usize) {
    // SAFETY: valid while its procedure runs, as are the bytes.
    unsafe { (*(*request).answer).put_bytes(bytes(results, length)) };
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_answer_fault(request: *mut Request, code: i32, words: *const c_char) {
    let words = if words.is_null() {
        String::new()
    } else {
        // SAFETY: the caller's string.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    };
    // SAFETY: valid while its procedure runs.
    unsafe { (*request).fault = Some(Fault::new(code, words)) };
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_request_version(request: *mut Request) -> u32 {
    // SAFETY: valid while its procedure runs.
    unsafe { (*(*request).context).interface().version }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_request_user(request: *mut Request) -> i64 {
    // SAFETY: valid while its procedure runs.
    unsafe { (*(*request).context).caller().map_or(-1, |caller| caller.uid.into()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_request_process(request: *mut Request) -> i64 {
    // SAFETY: valid while its procedure runs.
    unsafe { (*(*request).context).caller().map_or(-1, |caller| caller.pid.into()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_request_is_cancelled(request: *mut Request) -> c_int {
    // SAFETY: valid while its procedure runs.
    c_int::from(unsafe { (*(*request).context).is_cancelled() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_request_memory(
    request: *mut Request,
    name: *const u32,
    size: usize,
    most: u32,
    count: *mut u32,
) -> *mut c_void {
    if ![1, 2, 4, 8].contains(&size) {
        return std::ptr::null_mut();
    }
    // SAFETY: two units, and a place for the count; the request is valid while its procedure runs.
    unsafe {
        let [offset, length] = name.cast::<[u32; 2]>().read_unaligned();
        match (*(*request).context).memory(offset, length, size as u32, most) {
            Some((at, elements)) => {
                count.write(elements);
                at.cast()
            }
            None => std::ptr::null_mut(),
        }
    }
}
