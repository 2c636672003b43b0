//! posix_spawn(3)'s attributes and file actions, as the C library lays them out: what they make of a child's descriptors, and lists of
//! our own.

use core::ffi::{c_char, c_int, c_short, c_void};
use shunt_calls::libc;
use shunt_sys::{calls, mapping};

/// glibc's posix_spawnattr_t (spawn.h): part of its ABI.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    /// POSIX_SPAWN_SETSIGMASK and its like.
    pub flags: c_short,
    /// The process group that the child joins.
    pub group: c_int,
    /// Signals at their default action; the first word has all that there are.
    pub defaults: [u64; 16],
    /// Signals that are blocked; as above.
    pub mask: [u64; 16],
    /// struct sched_param.
    pub parameters: c_int,
    /// SCHED_OTHER and its like.
    pub policy: c_int,
    _room: [c_int; 16],
}

impl Attributes {
    /// A child that has the signals `defaults` at their default action, and blocks those in `mask`.
    pub fn of_signals(defaults: u64, mask: u64) -> Attributes {
        let flags = (libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK) as c_short;
        let mut attributes = Attributes { flags, ..Attributes::default() };
        (attributes.defaults[0], attributes.mask[0]) = (defaults, mask);
        attributes
    }
}

/// glibc's posix_spawn_file_actions_t.
#[repr(C)]
struct Actions {
    _allocated: c_int,
    used: c_int,
    list: *const Action,
}

/// An entry of it (spawn_int.h, whose tags have only ever been added to).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Action {
    /// [`CLOSE`] and its like, which tell what the words are.
    pub tag: c_int,
    words: Words,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Words {
    numbers: [c_int; 2],
    text: *const c_char,
    open: Open,
}

/// What [`OPEN`] has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Open {
    /// The number that it is opened at.
    pub fd: c_int,
    /// As open(2) takes it, as are the two below.
    pub path: *const c_char,
    /// See above.
    pub flags: c_int,
    /// See above.
    pub mode: u32,
}

/// A descriptor is closed.
pub const CLOSE: c_int = 0;
/// The first is duplicated to the second.
pub const DUP2: c_int = 1;
/// A file is opened at a number.
pub const OPEN: c_int = 2;
/// Another working directory, by name.
pub const CHDIR: c_int = 3;
/// The same by descriptor.
pub const FCHDIR: c_int = 4;
/// All descriptors from one on are closed.
pub const CLOSEFROM: c_int = 5;
/// The terminal's foreground process group becomes the child's.
pub const TERMINAL: c_int = 6;

impl Action {
    fn of(tag: c_int, numbers: [c_int; 2]) -> Action {
        Action { tag, words: Words { numbers } }
    }

    /// The descriptors that it is about; nothing of use where its words are others.
    pub fn numbers(&self) -> [c_int; 2] {
        // SAFETY: whatever the words are, these bytes make numbers.
        unsafe { self.words.numbers }
    }

    /// # Safety
    /// It is [`OPEN`].
    pub unsafe fn open(&self) -> Open {
        // SAFETY: promised by the caller.
        unsafe { self.words.open }
    }

    /// # Safety
    /// It is [`CHDIR`].
    pub unsafe fn text(&self) -> *const c_char {
        // SAFETY: promised by the caller.
        unsafe { self.words.text }
    }
}

/// The list of a posix_spawn_file_actions_t, or of null.
///
/// # Safety
/// As posix_spawn(3): it stays as long as the list is used.
pub unsafe fn list<'a>(actions: *const c_void) -> &'a [Action] {
    // SAFETY: promised by the caller.
    unsafe {
        match actions.cast::<Actions>().as_ref() {
            Some(actions) if actions.used > 0 => core::slice::from_raw_parts(actions.list, actions.used as usize),
            _ => &[],
        }
    }
}

/// Which of this process's descriptors the child has at `number`, where `kept` tells those that an exec leaves open.
fn source(list: &[Action], number: c_int, kept: impl Fn(c_int) -> bool) -> Option<c_int> {
    let (mut number, mut duplicated) = (number, false);
    for action in list.iter().rev() {
        let [first, second] = action.numbers();
        match action.tag {
            CLOSE | OPEN if first == number => return None,
            CLOSEFROM if first <= number => return None,
            DUP2 if second == number => (number, duplicated) = (first, true),
            _ => {}
        }
    }
    (duplicated || kept(number)).then_some(number)
}

/// Whether the child has what this process has at `fd`.
pub fn keeps(list: &[Action], fd: c_int, kept: impl Fn(c_int) -> bool) -> bool {
    source(list, fd, &kept) == Some(fd)
        || list.iter().any(|action| action.tag == DUP2 && source(list, action.numbers()[1], &kept) == Some(fd))
}

/// Whether they take away numbers that are `private`, which the program needs for the descriptors that it inherits.
pub fn disturb(list: &[Action], private: impl Fn(c_int) -> bool) -> bool {
    list.iter().any(|action| {
        let [first, second] = action.numbers();
        match action.tag {
            CLOSE | OPEN => private(first),
            DUP2 => private(second),
            CLOSEFROM => true,
            _ => false,
        }
    })
}

/// File actions in memory of their own.
#[repr(C)]
pub struct FileActions {
    actions: Actions,
    /// glibc's structure has this much more, unused.
    _room: [c_int; 16],
    size: usize,
}

impl FileActions {
    /// At most `most` of them, and at least one. `None`: no memory.
    fn new(most: usize, list: impl Iterator<Item = Action>) -> Option<FileActions> {
        let size = most * size_of::<Action>();
        let memory = mapping::reserve(size).ok()?.cast::<Action>();
        let mut used = 0;
        for action in list.take(most) {
            // SAFETY: within the reserved memory.
            unsafe { memory.add(used).write(action) };
            used += 1;
        }
        let actions = Actions { _allocated: used as c_int, used: used as c_int, list: memory };
        Some(FileActions { actions, _room: [0; 16], size })
    }

    /// `from` comes to `to`, and `closed` go. `None`: no memory.
    pub fn putting(from: c_int, to: c_int, closed: impl Iterator<Item = c_int> + Clone) -> Option<FileActions> {
        let first = Action::of(DUP2, [from, to]);
        let close = |fd| Action::of(CLOSE, [fd, 0]);
        FileActions::new(1 + closed.clone().count(), core::iter::once(first).chain(closed.map(close)))
    }

    /// Those that are given, and behind them what makes the child keep the descriptors `named`. In this process they stay
    /// closed on exec, so no other child gets them. `None`: no memory.
    pub fn letting_through(given: &[Action], named: impl Iterator<Item = c_int> + Clone) -> Option<FileActions> {
        // A duplicate that is its own source only loses FD_CLOEXEC (POSIX, Austin Group defect 411).
        let ours = named.clone().map(|fd| Action::of(DUP2, [fd, fd]));
        FileActions::new(given.len() + named.count(), given.iter().copied().chain(ours))
    }

    /// As posix_spawn(3) takes them.
    pub fn address(&self) -> *const c_void {
        (&raw const self.actions).cast()
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        let _ = calls::munmap(self.actions.list.cast_mut().cast(), self.size);
    }
}

#[cfg(test)]
#[path = "tests/actions.rs"]
mod tests;
