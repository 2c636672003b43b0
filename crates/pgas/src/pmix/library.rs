//! `libpmix.so.2`, opened when a process was started by it: four functions, and their structures as `pmix.h` and `pmix_common.h` of PMIx 3
//! to 5 lay them out. `tests/pmix-layout.c` compares them with the header.

use std::ffi::{c_char, c_int, c_void, CStr};

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone)]
pub struct Process {
    /// The job's name.
    pub namespace: [c_char; 256],
    /// The rank, or [`WILDCARD`] for what is known of the job.
    pub rank: u32,
}

/// `pmix_value_t`: what its union holds is told by the type.
#[repr(C)]
pub struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
union Data {
    string: *mut c_char,
    number: u32,
    /// The largest members are three words.
    room: [usize; 3],
}

/// `PMIX_RANK_WILDCARD`.
pub const WILDCARD: u32 = u32::MAX - 1;
/// `PMIX_STRING`, `PMIX_UINT32`.
const STRING: u16 = 3;
const UINT32: u16 = 14;

type Info = c_void;
type Init = unsafe extern "C" fn(*mut Process, *mut Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Process, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Process, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;

/// The functions, by their names without `PMIx_`.
pub struct Library {
    init: Init,
    get: Get,
    abort: Abort,
    finalize: Finalize,
}

/// 0, or what the function answered.
fn check(name: &str, status: c_int) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(format!("PMIx_{name} answered {status}")),
    }
}

impl Library {
    /// Opens it. It stays for the process's life.
    pub fn open() -> Result<Library, String> {
        // SAFETY: the names are C strings; the library's constructors are those of a public library. The functions have the types of its
        // header; the error is a C string that is copied before the next call.
        unsafe {
            let handle = libc::dlopen(c"libpmix.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if handle.is_null() {
                let error = libc::dlerror();
                return Err(if error.is_null() { String::new() } else { CStr::from_ptr(error).to_string_lossy().into_owned() });
            }
            let symbol = |name: &CStr| match libc::dlsym(handle, name.as_ptr()) {
                at if at.is_null() => Err(format!("libpmix.so.2 has no {}", name.to_string_lossy())),
                at => Ok(at),
            };
            Ok(Library {
                init: std::mem::transmute::<*mut c_void, Init>(symbol(c"PMIx_Init")?),
                get: std::mem::transmute::<*mut c_void, Get>(symbol(c"PMIx_Get")?),
                abort: std::mem::transmute::<*mut c_void, Abort>(symbol(c"PMIx_Abort")?),
                finalize: std::mem::transmute::<*mut c_void, Finalize>(symbol(c"PMIx_Finalize")?),
            })
        }
    }

    /// Which process of which job this is.
    pub fn init(&self) -> Result<Process, String> {
        let mut own = Process { namespace: [0; 256], rank: 0 };
        // SAFETY: `own` is room for the answer.
        check("Init", unsafe { (self.init)(&mut own, std::ptr::null_mut(), 0) })?;
        Ok(own)
    }

    fn get<T>(&self, of: &Process, key: &CStr, kind: u16, take: impl Fn(&Data) -> T) -> Result<T, String> {
        let mut found: *mut Value = std::ptr::null_mut();
        let name = key.to_string_lossy();
        // SAFETY: all live during the call.
        check(&format!("Get({name})"), unsafe { (self.get)(of, key.as_ptr(), std::ptr::null(), 0, &mut found) })?;
        if found.is_null() {
            return Err(format!("PMIx_Get({name}) answered nothing"));
        }
        // SAFETY: the library gave a value, which is the caller's, and came from `malloc` (pmix_common.h, PMIX_VALUE_RELEASE).
        unsafe {
            let result = if (*found).kind == kind {
                Ok(take(&(*found).data))
            } else {
                Err(format!("PMIx_Get({name}) answered a value of type {}", (*found).kind))
            };
            if (*found).kind == STRING {
                libc::free((*found).data.string.cast());
            }
            libc::free(found.cast());
            result
        }
    }

    /// A number that is known of a process or job.
    pub fn number(&self, of: &Process, key: &CStr) -> Result<u32, String> {
        // SAFETY: `get` has looked at the type.
        self.get(of, key, UINT32, |data| unsafe { data.number })
    }

    /// A text that is known of a process or job.
    pub fn text(&self, of: &Process, key: &CStr) -> Result<String, String> {
        self.get(of, key, STRING, |data| {
            // SAFETY: `get` has looked at the type; a string of the library ends with 0.
            unsafe { data.string.as_ref().map_or(String::new(), |first| CStr::from_ptr(first).to_string_lossy().into_owned()) }
        })
    }

    /// Asks for the end of the job with this status.
    pub fn abort(&self, status: i32) {
        // SAFETY: an empty sentence, and all processes of the job.
        unsafe { (self.abort)(status, c"".as_ptr(), std::ptr::null_mut(), 0) };
    }

    /// This process may end now.
    pub fn finalize(&self) {
        // SAFETY: no list.
        unsafe { (self.finalize)(std::ptr::null(), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A C program of the public header's own opinion. Without the header (libpmix-dev) there is none to compare with, so the test fails.
    #[test]
    fn structures_are_as_the_header_says() {
        let root = env!("CARGO_MANIFEST_DIR");
        let object = std::env::temp_dir().join(format!("shunt-pmix-layout-{}.o", std::process::id()));
        let numbers = [
            ("PROCESS", size_of::<Process>()),
            ("PROCESS_RANK", std::mem::offset_of!(Process, rank)),
            ("VALUE", size_of::<Value>()),
            ("VALUE_DATA", std::mem::offset_of!(Value, data)),
            ("WILDCARD", WILDCARD as usize),
            ("STRING", STRING.into()),
            ("UINT32", UINT32.into()),
        ];
        let header = Command::new("gcc").arg("-print-multiarch").output().unwrap();
        let include = format!("-I/usr/lib/{}/pmix2/include", String::from_utf8_lossy(&header.stdout).trim());
        let mut command = Command::new("gcc");
        command.args(["-std=gnu11", "-Werror", "-c", &include, "-o"]).arg(&object);
        command.args(numbers.iter().map(|(name, number)| format!("-DSHUNT_{name}={number}UL")));
        let output = command.arg(format!("{root}/tests/pmix-layout.c")).output().unwrap();
        let _ = std::fs::remove_file(&object);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
