use super::*;
use crate::Errno;
use libc::{siginfo_t, EFAULT};

unsafe extern "C" fn handler(number: i32, information: *mut siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's structures; with the default action in place, a fault that is not ours ends the test.
    unsafe {
        if !resolve(information, context.cast()) {
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

fn catch_faults() {
    for number in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: installs the handler above.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(number, &action, std::ptr::null_mut()), 0);
        }
    }
}

const PAGE: usize = 4096;

/// Has copies use each width of vectors that this processor has.
fn with_each_width(test: impl Fn()) {
    let widest = crate::processor::widest_vector();
    for width in [16, 32, 64].into_iter().filter(|width| *width <= widest) {
        crate::processor::PROCESSOR.vector.store(width, std::sync::atomic::Ordering::Relaxed);
        test();
    }
}

/// Bytes that can be touched between those that cannot.
const LAND: usize = 17 * PAGE;

/// Pages of bytes that cannot be touched on either side; the address of the first.
fn island() -> *mut u8 {
    // SAFETY: fresh mappings.
    unsafe {
        let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let sea = crate::calls::mmap(std::ptr::null_mut(), LAND + 2 * PAGE, libc::PROT_NONE, nothing, -1, 0).unwrap();
        let land = sea.add(PAGE);
        crate::calls::mmap(land, LAND, libc::PROT_READ | libc::PROT_WRITE, nothing | libc::MAP_FIXED, -1, 0).unwrap()
    }
}

#[test]
fn every_length_is_copied_whole_and_faults_at_either_end() {
    catch_faults();
    with_each_width(copy_every_length);
}

fn copy_every_length() {
    let land = island();
    let mut ours = vec![0u8; LAND + 64];
    for length in (1..700).chain([1000, 2047, 2048, 4095, 4096, 5000, 4 * PAGE - 1, 4 * PAGE, 8 * PAGE, LAND]) {
        let (first, last) = (land, land.wrapping_add(LAND - length));
        for (theirs, faults) in [
            (first, false),
            (last, false),
            (first.wrapping_sub(1), true),
            (last.wrapping_add(1), true),
            (std::ptr::without_provenance_mut(1), true),
        ] {
            if !faults {
                // SAFETY: inside the island.
                let bytes = unsafe { std::slice::from_raw_parts_mut(theirs, length) };
                bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + length) as u8);
            }
            ours.fill(0xee);
            // SAFETY: there is room for `length` bytes.
            assert_eq!(unsafe { copy(theirs, ours.as_mut_ptr(), length) }, !faults, "from {theirs:p}, {length} bytes");
            assert_eq!(ours[length], 0xee, "{length} bytes and no more");
            if !faults {
                assert!((0..length).all(|i| ours[i] == (i * 7 + length) as u8), "{length} bytes in");
                ours[..length].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            // SAFETY: as above.
            assert_eq!(unsafe { copy(ours.as_ptr(), theirs, length) }, !faults, "to {theirs:p}, {length} bytes");
            if !faults {
                // SAFETY: inside the island.
                let bytes = unsafe { std::slice::from_raw_parts(theirs, length) };
                assert_eq!(bytes, &ours[..length], "{length} bytes out");
            }
        }
    }
}

#[test]
fn copies_past_the_caches_are_whole_and_fault_too() {
    catch_faults();
    let land = island();
    let mut ours = vec![0u8; 2 * PAGE + 192];
    for length in (0..300).chain([1000, 4095, 4096, 2 * PAGE]) {
        for skew in [0, 1, 17, 63] {
            for (theirs, faults) in [
                (land, false),
                (land.wrapping_add(LAND - length), false),
                (land.wrapping_sub(1), length > 0),
                (land.wrapping_add(LAND - length + 1), length > 0),
            ] {
                if !faults {
                    // SAFETY: inside the island.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(theirs, length) };
                    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + length) as u8);
                }
                ours.fill(0xee);
                // SAFETY: there is room for `length` bytes behind `skew`.
                let whole = unsafe { copy_away(theirs, ours.as_mut_ptr().add(skew), length) };
                assert_eq!(whole, !faults, "from {theirs:p}, {length} bytes");
                assert!(ours[..skew].iter().chain(&ours[skew + length..]).all(|byte| *byte == 0xee));
                assert!(faults || (0..length).all(|i| ours[skew + i] == (i * 7 + length) as u8), "{length} bytes");
            }
        }
    }
}

#[test]
fn addresses_that_no_page_can_have_fault_too() {
    catch_faults();
    let mut ours = [0u8; LAND];
    for address in [1usize << 63, 0x8000_0000_0000_1000, usize::MAX - 10 * PAGE, 0xffff_8000_0000_0000] {
        for length in [1, 8, 16, 100, 600, 6000, 8 * PAGE, LAND] {
            // SAFETY: our part has the room.
            unsafe {
                assert!(!copy(address as *const u8, ours.as_mut_ptr(), length));
                assert!(!copy(ours.as_ptr(), address as *mut u8, length));
            }
        }
        let mut ok = 1;
        // SAFETY: faults are resolved.
        unsafe {
            load(address as *const u8, &mut ok);
            assert_eq!(ok, 0);
            assert!(!writable(address as *mut u8));
            assert_eq!(read(address as *const u64), Err(Errno(EFAULT)));
            assert_eq!(write(address as *mut [u8; 56], [0; 56]), Err(Errno(EFAULT)));
        }
    }
    let mut word = 7u64;
    // SAFETY: a variable of this test.
    unsafe {
        assert!(writable((&raw mut word).cast()));
        assert_eq!(read(&raw const word), Ok(7));
        assert_eq!(write(&raw mut word, 8), Ok(()));
    }
    assert_eq!(word, 8);
}

/// The upper halves of the vector registers that have some.
fn upper_halves() -> [[u64; 2]; 16] {
    let mut whole = [[0u64; 4]; 16];
    // SAFETY: asked for only where the registers are there; stores of sixteen times 32 bytes.
    unsafe {
        std::arch::asm!(
            "vmovdqu [{to}], ymm0", "vmovdqu [{to} + 32], ymm1", "vmovdqu [{to} + 64], ymm2", "vmovdqu [{to} + 96], ymm3",
            "vmovdqu [{to} + 128], ymm4", "vmovdqu [{to} + 160], ymm5", "vmovdqu [{to} + 192], ymm6", "vmovdqu [{to} + 224], ymm7",
            "vmovdqu [{to} + 256], ymm8", "vmovdqu [{to} + 288], ymm9", "vmovdqu [{to} + 320], ymm10", "vmovdqu [{to} + 352], ymm11",
            "vmovdqu [{to} + 384], ymm12", "vmovdqu [{to} + 416], ymm13", "vmovdqu [{to} + 448], ymm14", "vmovdqu [{to} + 480], ymm15",
            to = in(reg) &mut whole, options(nostack)
        );
    }
    whole.map(|register| [register[2], register[3]])
}

#[test]
fn a_fault_leaves_nothing_in_the_upper_halves_of_vectors() {
    catch_faults();
    let land = island();
    // SAFETY: inside the island.
    unsafe { land.write_bytes(0x77, LAND) };
    with_each_width(|| {
        let mut ours = vec![0u8; LAND + 64];
        if crate::processor::PROCESSOR.vector.load(std::sync::atomic::Ordering::Relaxed) < 32 {
            return;
        }
        for length in [1024, 2000, 6000, 8 * PAGE, LAND] {
            // SAFETY: there is room for `length` bytes, of which the last one faults.
            let copied = unsafe { copy(land.wrapping_add(LAND - length + 1), ours.as_mut_ptr(), length) };
            let left = upper_halves();
            assert!(!copied);
            assert_eq!(left, [[0; 2]; 16], "{length} bytes");
        }
    });
}
