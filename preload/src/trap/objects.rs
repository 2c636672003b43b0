//! What is loaded, and which of it may enter the kernel.

use crate::real;
use core::ffi::{c_int, c_ulong, c_void};
use core::ops::Range;
use shunt_calls::libc::{self, dl_phdr_info};
use shunt_sockets::handover::image;

/// Where executable parts of the loaded objects lie.
pub struct Objects {
    program: Range<usize>,
    libc: Range<usize>,
    own: Range<usize>,
    loader: Range<usize>,
    /// The kernel's own object (vdso(7)).
    kernel: Range<usize>,
    /// The program is Go's, whose stacks have no room for a signal's frame.
    go: bool,
    /// Addresses of which one lies in each: C library, this one, loader, kernel.
    marks: [usize; 4],
}

const NONE: Range<usize> = 0..0;

/// The smallest range around both.
fn around(left: &Range<usize>, right: &Range<usize>) -> Range<usize> {
    match (left.is_empty(), right.is_empty()) {
        (true, _) => right.clone(),
        (_, true) => left.clone(),
        _ => left.start.min(right.start)..left.end.max(right.end),
    }
}

fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

type Callback = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

/// Looks. `None`: the C library does not tell.
pub fn look() -> Option<Objects> {
    // SAFETY: functions of the C library by their prototypes; the object outlives the call.
    unsafe {
        let libc = real::following(b"gnu_get_libc_version\0");
        let (iterate, value) = (real::find(b"dl_iterate_phdr\0"), real::find(b"getauxval\0"));
        if libc.is_null() || iterate.is_null() || value.is_null() {
            return None;
        }
        let iterate: unsafe extern "C" fn(Callback, *mut c_void) -> c_int = core::mem::transmute(iterate);
        let value: unsafe extern "C" fn(c_ulong) -> c_ulong = core::mem::transmute(value);
        let marks =
            [libc as usize, look as *const () as usize, value(libc::AT_BASE) as usize, value(libc::AT_SYSINFO_EHDR) as usize];
        let mut objects = Objects { program: NONE, libc: NONE, own: NONE, loader: NONE, kernel: NONE, go: false, marks };
        iterate(add, (&raw mut objects).cast());
        Some(objects)
    }
}

/// What an object's notes say.
unsafe fn notes(object: &dl_phdr_info) -> impl Iterator<Item = &'static [u8]> + '_ {
    (0..object.dlpi_phnum as usize).filter_map(|i| {
        // SAFETY: promised by the caller: the loader's headers of what it has mapped.
        unsafe {
            let segment = &*object.dlpi_phdr.add(i);
            let start = (object.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize) as *const u8;
            (segment.p_type == libc::PT_NOTE).then(|| core::slice::from_raw_parts(start, segment.p_memsz as usize))
        }
    })
}

/// Enters one object. The program itself comes first.
unsafe extern "C" fn add(object: *mut dl_phdr_info, _size: usize, objects: *mut c_void) -> c_int {
    // SAFETY: what dl_iterate_phdr(3) and `look` give.
    unsafe {
        let (object, objects) = (&*object, &mut *objects.cast::<Objects>());
        let (mut whole, mut text) = (NONE, NONE);
        for i in 0..object.dlpi_phnum as usize {
            let segment = &*object.dlpi_phdr.add(i);
            if segment.p_type == libc::PT_LOAD {
                let start = (object.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
                let part = start..start + segment.p_memsz as usize;
                whole = around(&whole, &part);
                if segment.p_flags & libc::PF_X != 0 {
                    text = around(&text, &part);
                }
            }
        }
        if objects.program.is_empty() {
            objects.program = text;
            objects.go = notes(object).any(image::is_go);
            return 0;
        }
        let places = [&mut objects.libc, &mut objects.own, &mut objects.loader, &mut objects.kernel];
        for (place, mark) in places.into_iter().zip(objects.marks) {
            if whole.contains(&mark) {
                *place = text.clone();
            }
        }
        0
    }
}

impl Objects {
    /// The one range of addresses that enter the kernel untold. `None`: the program lies in it, or must not be told of.
    ///
    /// Libraries that lie between, and they often do, enter untold as well.
    pub fn range(&self) -> Option<Range<usize>> {
        let least = around(&self.libc, &self.own);
        if self.go || self.libc.is_empty() || self.own.is_empty() || overlap(&least, &self.program) {
            return None;
        }
        // What lies on the program's other side is told of, which costs a signal for each call.
        Some([&self.loader, &self.kernel].into_iter().fold(least, |range, further| {
            let wider = around(&range, further);
            if overlap(&wider, &self.program) {
                range
            } else {
                wider
            }
        }))
    }
}
