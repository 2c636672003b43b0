//! Servers: a table of functions of the program's behind the trait.

use crate::{bytes, LAST};
use shunt_rpc::xdr::Decoder;
use shunt_rpc::{Answer, Context, Fault, Interface, Procedure, Refusal, Server, ServerOptions, Service, Services, Stopper};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::time::Duration;

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

/// `shunt_rpc_server_options`.
#[repr(C)]
pub struct Choices {
    threads: u32,
    callers: u32,
    spin_us: u32,
    everyone: c_int,
    users: *const u32,
    users_count: usize,
    window: u64,
    memory: u64,
    record: usize,
}

impl Choices {
    /// # Safety
    /// So many users lie there.
    unsafe fn options(&self) -> ServerOptions {
        let mut options = ServerOptions { everyone: self.everyone != 0, ..ServerOptions::default() };
        if self.threads > 0 {
            options.threads = self.threads as usize;
        }
        if self.callers > 0 {
            options.callers = self.callers as usize;
        }
        if self.spin_us > 0 {
            options.spin = Duration::from_micros(self.spin_us.into());
        }
        if self.users_count > 0 {
            // SAFETY: the caller's.
            options.users = unsafe { std::slice::from_raw_parts(self.users, self.users_count) }.to_vec();
        }
        if self.window > 0 {
            options.window = self.window;
        }
        if self.memory > 0 {
            options.memory = self.memory;
        }
        if self.record > 0 {
            options.record = self.record;
        }
        options
    }
}

/// `shunt_rpc_service`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct One {
    interface: *const Table,
    dispatch: Dispatch,
    state: *mut c_void,
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
        mut arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal> {
        let bytes = arguments.rest();
        let mut request =
            Request { context: std::ptr::from_ref(context).cast(), answer: std::ptr::from_mut(answer).cast(), fault: None };
        // SAFETY: the program's function; the request is valid while it runs.
        let result = unsafe { (self.dispatch)(self.state, &mut request, procedure, bytes.as_ptr().cast(), bytes.len()) };
        match (request.fault, result) {
            (Some(fault), _) => Err(fault.into()),
            (None, 0) => Ok(()),
            (None, -11) => Err(Refusal::NoProcedure),
            (None, _) => Err(shunt_rpc::xdr::Error { at: 0, reason: shunt_rpc::xdr::Reason::Refused }.into()),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_listen(address: *const c_char) -> *mut Handle {
    // SAFETY: the caller's string.
    unsafe { shunt_rpc_listen_with(address, std::ptr::null()) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_listen_with(address: *const c_char, options: *const Choices) -> *mut Handle {
    // SAFETY: the caller's string, and its options or NULL.
    let (address, options) = unsafe { (CStr::from_ptr(address), options.as_ref().map(|options| options.options())) };
    let failed = |why: String| {
        LAST.with_borrow_mut(|last| last.text = CString::new(why).unwrap_or_default());
        std::ptr::null_mut()
    };
    let Some(address) = address.to_str().ok().and_then(|text| text.parse().ok()) else {
        return failed("no address".into());
    };
    match Server::bind(&address, options.unwrap_or_default()) {
        Ok(server) => {
            let stopper = server.stopper();
            Box::into_raw(Box::new(Handle { server: Cell::new(Some(server)), stopper }))
        }
        Err(error) => failed(format!("{address}: {error}")),
    }
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

/// # Safety
/// The table and the procedures that it says lie there, and stay.
unsafe fn interface(table: &Table) -> Interface {
    let methods = if table.count == 0 {
        &[]
    } else {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(table.procedures, table.count) }
    };
    let procedure = |method: &Method| {
        // SAFETY: the caller's.
        let (name, definition) = unsafe { (text(method.name), text(method.definition)) };
        Procedure { number: method.number, name, definition }
    };
    // Once for each server of the program: it serves until it ends.
    let procedures: &'static [Procedure] = Vec::leak(methods.iter().map(procedure).collect());
    // SAFETY: the caller's.
    let (name, text) = unsafe { (text(table.name), text(table.definition)) };
    Interface { program: table.program, version: table.version, name, procedures, text }
}

/// A program's function and what it is given: threads have it from one another, as the header says of those.
struct Given(Vec<Interface>, Dispatch, *mut c_void);

// SAFETY: a state that several threads are given is the program's to guard.
unsafe impl Sync for Given {}

impl Given {
    fn functions(&self) -> Functions {
        Functions { interfaces: self.0.clone(), dispatch: self.1, state: self.2 }
    }
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
    // SAFETY: the caller's server, and so many tables.
    let (server, tables) = unsafe { ((*server).server.take(), std::slice::from_raw_parts(interfaces, count)) };
    let Some(server) = server else { return -5 };
    // SAFETY: they lie there with what they say, and stay.
    let interfaces = tables.iter().map(|table| unsafe { interface(table) }).collect();
    let given = Given(interfaces, dispatch, state);
    server.run(|| given.functions()).map_or(-5, |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_serve_all(server: *mut Handle, services: *const One, count: usize) -> c_int {
    // SAFETY: the caller's server, and so many services.
    let (server, services) = unsafe { ((*server).server.take(), std::slice::from_raw_parts(services, count)) };
    let Some(server) = server else { return -5 };
    // SAFETY: each names its table, which stays.
    let given = |one: &One| Given(vec![unsafe { interface(&*one.interface) }], one.dispatch, one.state);
    let all: Vec<Given> = services.iter().map(given).collect();
    let make = || all.iter().fold(Services::new(), |services, one| services.with(one.functions()));
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
