//! Where a thread goes on when an access has faulted.

use crate::thread;
use libc::{siginfo_t, ucontext_t};

extern "C" {
    fn shunt_user_fault();
    #[link_name = "__start_shunt_faults"]
    static FIRST: Entry;
    #[link_name = "__stop_shunt_faults"]
    static LAST: Entry;
}

/// Instructions that may fault, and where to go on: distances from the fields themselves.
#[repr(C)]
struct Entry {
    start: i32,
    end: i32,
    fix_up: i32,
}

/// What the window keeps: the copy, then the saved registers.
#[repr(C)]
struct Window {
    target: usize,
    source: usize,
    length: usize,
}

/// A fault of this thread, told to the handler of SIGSEGV or SIGBUS: if it is an access to the program's memory, makes the thread
/// go on at the fix-up and gives true.
///
/// # Safety
/// The arguments are what the kernel gave to the handler.
pub unsafe fn resolve(information: *const siginfo_t, context: *mut ucontext_t) -> bool {
    // SAFETY: the kernel's structures; the table lies between the linker's two symbols; an open window lies on the
    // stack of the interrupted copy.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as usize;
        let far = |field: *const i32| (field as usize).wrapping_add_signed(*field as isize);
        let mut entry = &raw const FIRST;
        while entry < &raw const LAST {
            if (far(&raw const (*entry).start)..far(&raw const (*entry).end)).contains(&at) {
                registers[libc::REG_RIP as usize] = far(&raw const (*entry).fix_up) as i64;
                return true;
            }
            entry = entry.add(1);
        }
        let window = (*thread::block()).window as *const Window;
        if window.is_null() {
            return false;
        }
        let address = (*information).si_addr() as usize;
        let inside = |start: usize| address.wrapping_sub(start) < (*window).length;
        // An address that no page can have raises a general protection fault, which tells no address.
        let general = (*information).si_code == SI_KERNEL;
        if !general && !inside((*window).source) && !inside((*window).target) {
            return false;
        }
        registers[libc::REG_RSP as usize] = window as i64;
        registers[libc::REG_RIP as usize] = shunt_user_fault as *const () as i64;
        true
    }
}

const SI_KERNEL: i32 = 0x80;
