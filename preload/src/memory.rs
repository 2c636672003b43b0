//! Copies of memory go to the C library's own functions, whatever else defines them.
//!
//! Sanitizers' run-times define `memcpy` and its like for the whole process, to watch the program's accesses. Ours are
//! none of the program's: bytes in shared memory are ordered by atomics that such a watcher does not see, and buffers
//! are checked where the program names them, by the watcher's own `recv` and `send`. So calls in this library end at
//! symbols of its own, which no other object sees, and these jump to what the C library itself has. Until that is known,
//! plain string instructions do.
//!
//! `dlsym` finds what comes next in the order of libraries, which may be the watcher's; `dlopen` gives the C library by
//! its name.

//!
//! AddressSanitizer's run-time refuses to start behind another library unless told otherwise. It asks the process for
//! options by a function of a known name, which the program's own definition of it would precede.

use core::arch::global_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// One jump for each function, through a slot that begins as the function behind it.
macro_rules! jumps {
    ($($name:literal $slot:ident $before:ident;)*) => {
        $(
            global_asm!(
                ".pushsection .text.shunt_memory,\"ax\",@progbits",
                ".balign 16",
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                "jmp qword ptr [rip + {functions} + {at}]",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                functions = sym FUNCTIONS,
                at = const core::mem::offset_of!(Functions, $slot),
            );
            extern "C" {
                fn $before();
            }
        )*

        /// Where each one jumps to.
        struct Functions {
            $($slot: AtomicPtr<c_void>,)*
        }

        static FUNCTIONS: Functions = Functions { $($slot: AtomicPtr::new($before as *const () as *mut c_void),)* };

        /// Looks the C library's functions up.
        pub fn start() {
            // SAFETY: dlopen's and dlsym's prototypes; the constructor may call both, and each name ends with a NUL.
            unsafe {
                let open = crate::loader::following(b"dlopen\0");
                if open.is_null() {
                    return;
                }
                let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = core::mem::transmute(open);
                let library = open(c"libc.so.6".as_ptr(), RTLD_NOLOAD | RTLD_LAZY);
                if library.is_null() {
                    return;
                }
                $(
                    let found = crate::loader::find_in(library, concat!($name, "\0").as_bytes());
                    if !found.is_null() {
                        FUNCTIONS.$slot.store(found, Ordering::Relaxed);
                    }
                )*
            }
        }
    };
}

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

jumps! {
    "memcpy" memcpy shunt_early_copy;
    "memmove" memmove shunt_early_move;
    "memset" memset shunt_early_set;
    "bcmp" bcmp shunt_early_equal;
    "memcmp" memcmp shunt_early_compare;
    "strlen" strlen shunt_early_length;
}

// The System V calling convention: rdi, rsi, rdx; the answer in rax.
global_asm!(
    ".pushsection .text.shunt_memory,\"ax\",@progbits",
    "shunt_early_copy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "shunt_early_move:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    // The target begins inside the source: from the end.
    "2: lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "shunt_early_set:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "shunt_early_equal:",
    "shunt_early_compare:",
    "mov rcx, rdx",
    "xor eax, eax",
    "cmp eax, eax",
    "repe cmpsb",
    "je 3f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub ecx, eax",
    "mov eax, ecx",
    "3: ret",
    "shunt_early_length:",
    "xor eax, eax",
    "4: cmp byte ptr [rdi + rax], 0",
    "je 5f",
    "inc rax",
    "jmp 4b",
    "5: ret",
    ".popsection",
);

/// Options of AddressSanitizer, as `ASAN_OPTIONS` would have them (sanitizer_common's flags).
#[no_mangle]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
