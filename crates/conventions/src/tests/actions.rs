//! File actions, beside the structures that the C library makes.

use super::*;
use core::mem::MaybeUninit;

/// The C library's file actions.
struct Made(libc::posix_spawn_file_actions_t);

impl Made {
    fn new() -> Made {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: it makes one.
        unsafe {
            assert_eq!(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()), 0);
            Made(actions.assume_init())
        }
    }

    fn close(mut self, fd: c_int) -> Made {
        // SAFETY: made above.
        assert_eq!(unsafe { libc::posix_spawn_file_actions_addclose(&mut self.0, fd) }, 0);
        self
    }

    fn dup2(mut self, from: c_int, to: c_int) -> Made {
        // SAFETY: made above.
        assert_eq!(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from, to) }, 0);
        self
    }

    fn open(mut self, fd: c_int, path: &core::ffi::CStr, flags: c_int, mode: u32) -> Made {
        // SAFETY: made above; a C string.
        assert_eq!(unsafe { libc::posix_spawn_file_actions_addopen(&mut self.0, fd, path.as_ptr(), flags, mode) }, 0);
        self
    }

    fn closefrom(mut self, from: c_int) -> Made {
        extern "C" {
            fn posix_spawn_file_actions_addclosefrom_np(actions: *mut libc::posix_spawn_file_actions_t, from: c_int) -> c_int;
        }
        // SAFETY: made above.
        assert_eq!(unsafe { posix_spawn_file_actions_addclosefrom_np(&mut self.0, from) }, 0);
        self
    }

    fn chdir(mut self, path: &core::ffi::CStr) -> Made {
        extern "C" {
            fn posix_spawn_file_actions_addchdir_np(actions: *mut libc::posix_spawn_file_actions_t, path: *const c_char)
                -> c_int;
        }
        // SAFETY: made above; a C string.
        assert_eq!(unsafe { posix_spawn_file_actions_addchdir_np(&mut self.0, path.as_ptr()) }, 0);
        self
    }

    fn list(&self) -> &[Action] {
        // SAFETY: it lives as long as the list.
        unsafe { list((&raw const self.0).cast()) }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: made by the C library.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

const EXEC_KEEPS_ALL: fn(c_int) -> bool = |_| true;
const EXEC_KEEPS_NONE: fn(c_int) -> bool = |_| false;

#[test]
fn the_c_librarys_list_is_read_as_it_was_made() {
    let made = Made::new().close(5).dup2(6, 7).closefrom(8);
    let read: Vec<_> = made.list().iter().map(|action| (action.tag, action.numbers()[0])).collect();
    assert_eq!(read, [(CLOSE, 5), (DUP2, 6), (CLOSEFROM, 8)]);
    assert_eq!(made.list()[1].numbers(), [6, 7]);
}

#[test]
fn what_is_opened_is_read_as_it_was_made() {
    let made = Made::new().open(9, c"/dev/null", libc::O_WRONLY, 0o640);
    let action = &made.list()[0];
    assert_eq!((action.tag, action.numbers()[0]), (OPEN, 9));
    // SAFETY: it is OPEN.
    let open = unsafe { action.open() };
    assert_eq!((open.fd, open.flags, open.mode), (9, libc::O_WRONLY, 0o640));
    // SAFETY: the C library's copy of the name.
    assert_eq!(unsafe { core::ffi::CStr::from_ptr(open.path) }, c"/dev/null");
}

#[test]
fn a_directory_is_read_as_it_was_made() {
    let made = Made::new().chdir(c"/tmp");
    assert_eq!(made.list()[0].tag, CHDIR);
    // SAFETY: it is CHDIR; the C library's copy of the name.
    assert_eq!(unsafe { core::ffi::CStr::from_ptr(made.list()[0].text()) }, c"/tmp");
}

#[test]
fn null_and_an_empty_list_have_no_actions() {
    // SAFETY: null is allowed.
    assert!(unsafe { list(core::ptr::null()) }.is_empty());
    assert!(Made::new().list().is_empty());
}

#[test]
fn without_actions_the_child_has_what_an_exec_keeps() {
    assert!(keeps(&[], 5, |fd| fd == 5));
    assert!(!keeps(&[], 6, |fd| fd == 5));
}

#[test]
fn what_is_closed_the_child_does_not_have() {
    assert!(!keeps(Made::new().close(5).list(), 5, EXEC_KEEPS_ALL));
}

#[test]
fn what_is_opened_over_the_child_does_not_have() {
    assert!(!keeps(Made::new().open(5, c"/", 0, 0).list(), 5, EXEC_KEEPS_ALL));
}

#[test]
fn a_duplicate_is_kept_whatever_an_exec_does_to_its_source() {
    assert!(keeps(Made::new().dup2(5, 1).list(), 5, EXEC_KEEPS_NONE));
}

#[test]
fn a_duplicate_of_itself_is_kept_over_an_exec() {
    assert!(keeps(Made::new().dup2(5, 5).list(), 5, EXEC_KEEPS_NONE));
}

#[test]
fn a_duplicate_outlives_its_source() {
    assert!(keeps(Made::new().dup2(5, 1).close(5).list(), 5, EXEC_KEEPS_ALL));
}

#[test]
fn a_duplicate_that_is_closed_again_keeps_nothing() {
    assert!(!keeps(Made::new().dup2(5, 1).close(1).list(), 5, EXEC_KEEPS_NONE));
}

#[test]
fn a_duplicate_of_a_duplicate_leads_to_the_first() {
    let made = Made::new().dup2(5, 6).dup2(6, 7).close(6);
    assert!(keeps(made.list(), 5, EXEC_KEEPS_NONE));
    assert!(!keeps(made.list(), 6, EXEC_KEEPS_NONE));
}

#[test]
fn what_is_closed_before_it_is_duplicated_is_gone() {
    assert!(!keeps(Made::new().close(5).dup2(5, 1).list(), 5, EXEC_KEEPS_ALL));
}

#[test]
fn two_descriptors_may_change_places() {
    let made = Made::new().dup2(5, 9).dup2(6, 5).dup2(9, 6);
    assert!(keeps(made.list(), 5, EXEC_KEEPS_NONE));
    assert!(keeps(made.list(), 6, EXEC_KEEPS_NONE));
}

#[test]
fn closing_from_a_number_on_spares_those_below() {
    let made = Made::new().closefrom(6);
    assert!(keeps(made.list(), 5, EXEC_KEEPS_ALL));
    assert!(!keeps(made.list(), 6, EXEC_KEEPS_ALL));
}

#[test]
fn actions_disturb_that_take_a_private_number() {
    let private = |fd| fd == 902;
    assert!(disturb(Made::new().close(902).list(), private));
    assert!(disturb(Made::new().open(902, c"/", 0, 0).list(), private));
    assert!(disturb(Made::new().dup2(1, 902).list(), private));
    assert!(disturb(Made::new().closefrom(1000).list(), private));
}

#[test]
fn actions_that_take_other_numbers_disturb_nothing() {
    let made = Made::new().close(5).open(6, c"/", 0, 0).dup2(902, 7).chdir(c"/");
    assert!(!disturb(made.list(), |fd| fd == 902));
}

#[test]
fn what_is_let_through_stands_behind_what_was_given() {
    let made = Made::new().close(5);
    let ours = FileActions::letting_through(made.list(), [902, 901].into_iter()).unwrap();
    // SAFETY: `ours` lives.
    let all: Vec<_> = unsafe { list(ours.address()) }.iter().map(|action| (action.tag, action.numbers()[0])).collect();
    assert_eq!(all, [(CLOSE, 5), (DUP2, 902), (DUP2, 901)]);
    // SAFETY: as above.
    assert!(keeps(unsafe { list(ours.address()) }, 902, EXEC_KEEPS_NONE));
}

/// The status with which a program ends, in a child with these actions and attributes.
fn status(words: &[&core::ffi::CStr], actions: *const c_void, attributes: *const c_void) -> c_int {
    let arguments: Vec<_> = words.iter().map(|text| text.as_ptr().cast_mut()).chain([core::ptr::null_mut()]).collect();
    let (mut child, mut status) = (0, 0);
    // SAFETY: as posix_spawn(3).
    unsafe {
        let environment = [core::ptr::null_mut()];
        let (path, environment) = (words[0].as_ptr(), environment.as_ptr());
        assert_eq!(libc::posix_spawn(&mut child, path, actions.cast(), attributes.cast(), arguments.as_ptr(), environment), 0);
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    libc::WEXITSTATUS(status)
}

/// The same of a shell's command.
fn of_shell(command: &core::ffi::CStr, actions: *const c_void) -> c_int {
    status(&[c"/bin/sh", c"-c", command], actions, core::ptr::null())
}

#[test]
fn the_c_library_takes_a_list_of_ours() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let ours = FileActions::putting(fd, 9, [0].into_iter()).unwrap();
    assert_eq!(of_shell(c"test -e /proc/$$/fd/9 && ! test -e /proc/$$/fd/0", ours.address()), 0);
}

#[test]
fn what_is_let_through_is_open_in_the_child_and_closed_on_exec_here() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let ours = FileActions::letting_through(&[], [fd].into_iter()).unwrap();
    let command = std::ffi::CString::new(format!("test -e /proc/$$/fd/{fd}")).unwrap();
    assert_eq!(of_shell(&command, ours.address()), 0);
    assert_ne!(of_shell(&command, core::ptr::null()), 0);
}

#[test]
fn our_attributes_are_laid_out_as_the_c_librarys() {
    assert_eq!(size_of::<Attributes>(), size_of::<libc::posix_spawnattr_t>());
    let ours = Attributes::of_signals(1, 2);
    let theirs = (&raw const ours).cast::<libc::posix_spawnattr_t>();
    let (mut flags, mut mask, mut defaults) =
        (0, MaybeUninit::<libc::sigset_t>::zeroed(), MaybeUninit::<libc::sigset_t>::zeroed());
    // SAFETY: the C library reads a structure of its own layout; the first words of sets are read.
    unsafe {
        libc::posix_spawnattr_getflags(theirs, &mut flags);
        libc::posix_spawnattr_getsigmask(theirs, mask.as_mut_ptr());
        libc::posix_spawnattr_getsigdefault(theirs, defaults.as_mut_ptr());
        assert_eq!(mask.as_ptr().cast::<u64>().read(), 2);
        assert_eq!(defaults.as_ptr().cast::<u64>().read(), 1);
    }
    assert_eq!(c_int::from(flags), libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK);
}

#[test]
fn a_child_has_the_mask_that_our_attributes_name() {
    let blocked = shunt_sys::action::bit(libc::SIGUSR1);
    let attributes = Attributes::of_signals(0, blocked);
    // Shells begin with a mask of their own.
    let words = [c"/bin/grep", c"-q", c"SigBlk:.*0000000000000200", c"/proc/self/status"];
    assert_eq!(status(&words, core::ptr::null(), (&raw const attributes).cast()), 0);
}
