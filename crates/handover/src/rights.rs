//! SCM_RIGHTS: accelerated descriptors that are passed to another process stay accelerated there.
//!
//! The companion passes by itself, being a descriptor. The receiver also needs the link's memfd (for a listener: the
//! rendezvous); the sender appends those to the rights, and the receiver takes them out again before the program sees
//! the message. A receiver that may be a program without shunt ([`shunt_table::receiver`]) gets a socket of the kernel in its
//! place, which a relay serves ([`crate::relay`]).

use crate::inherit::{Appended, Counted, Received};
use crate::relay::{Relay, RelayTask};
use crate::{kernel_pair, relay};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use shunt_inbox::datagram::{adopt, Datagram};
use shunt_link as link;
use shunt_rendezvous::exchange::like;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, cmsghdr, msghdr};
use shunt_sys::mapping;
use shunt_sys::{calls, user, Result};
use shunt_table::global::SETUP;
use shunt_table::process::status_page;
use shunt_table::receiver::Receiver;
use shunt_table::table::Kind;
use shunt_table::{private, receiver, table};

/// Room for control messages, ours included.
const ROOM: usize = 4096;
/// Descriptors that we append at most.
const EXTRA: usize = 128;
const HEADER: usize = core::mem::size_of::<cmsghdr>();
/// SCM_MAX_FD of the kernel.
const MOST: usize = 253;

/// Control messages, aligned as the kernel wants them; too large for a stack ([`Control::in_room`]).
#[repr(C, align(8))]
pub struct Control {
    bytes: [u8; ROOM],
    /// Streams whose owners were counted up for this message.
    counted: Counted,
    /// What relays were given for this message.
    tasks: [RelayTask; MOST],
    carried: usize,
    relay: Option<Relay>,
}

const NO_TASK: RelayTask = RelayTask { stream: -1, relay: -1, program: -1, process: 0 };

impl Control {
    /// Empty.
    pub const fn new() -> Control {
        Control { bytes: [0; ROOM], counted: Counted::new(), tasks: [NO_TASK; MOST], carried: 0, relay: None }
    }

    /// An empty one in memory of its own. Errors: ENOMEM.
    pub fn in_room() -> Result<ControlRoom> {
        const EMPTY: Control = Control::new();
        let mut room = mapping::Room::new(core::mem::size_of::<Control>())?;
        // SAFETY: as large, and at a page's start.
        unsafe { room.start().cast::<Control>().write(EMPTY) };
        Ok(ControlRoom(room))
    }
}

/// Control messages in memory of their own.
pub struct ControlRoom(mapping::Room);

impl core::ops::DerefMut for ControlRoom {
    fn deref_mut(&mut self) -> &mut Control {
        // SAFETY: written by `in_room`, and dropped with this.
        unsafe { &mut *self.0.start().cast() }
    }
}

impl core::ops::Deref for ControlRoom {
    type Target = Control;
    fn deref(&self) -> &Control {
        // SAFETY: as above.
        unsafe { &*self.0.first().cast() }
    }
}

impl Drop for ControlRoom {
    fn drop(&mut self) {
        // SAFETY: as above; nobody sees it any more.
        unsafe { core::ptr::drop_in_place(&raw mut **self) };
    }
}

impl Default for Control {
    fn default() -> Self {
        Control::new()
    }
}

/// The descriptors in one SCM_RIGHTS message.
unsafe fn rights<'a>(message: *const cmsghdr) -> &'a mut [i32] {
    // SAFETY: the header's length was checked by the walk.
    unsafe {
        let count = (*message).cmsg_len.saturating_sub(HEADER) / 4;
        core::slice::from_raw_parts_mut(message.add(1).cast::<i32>().cast_mut(), count)
    }
}

/// What the program's control messages hold.
struct Given {
    /// All descriptors that are passed, in their order: the kernel takes several SCM_RIGHTS as one (`scm_fp_copy`).
    passed: [i32; MOST],
    count: usize,
    /// Bytes of the other messages.
    others: usize,
}

/// Reads the program's control messages, and copies those that pass no descriptors to `target`. `None`: the kernel has to refuse
/// them (`CMSG_OK`, SCM_MAX_FD), or they fault.
///
/// # Safety
/// The messages may fault. `target` holds as many bytes as they have, and 7 more.
unsafe fn read(message: &msghdr, target: *mut u8) -> Option<Given> {
    let (start, end) = (message.msg_control as usize, message.msg_controllen);
    let mut given = Given { passed: [-1; MOST], count: 0, others: 0 };
    let mut at = 0;
    while at + HEADER <= end {
        // SAFETY: any bytes are a header; promised by the caller.
        let header = unsafe { user::read((start + at) as *const cmsghdr) }.ok()?;
        let length = header.cmsg_len as usize;
        if length < HEADER || length > end - at {
            return None;
        }
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            for i in 0..(length - HEADER) / 4 {
                // SAFETY: as before.
                *given.passed.get_mut(given.count)? = unsafe { user::read((start + at + HEADER + i * 4) as *const i32) }.ok()?;
                given.count += 1;
            }
        } else {
            // SAFETY: promised by the caller.
            if !unsafe { user::copy((start + at) as *const u8, target.add(given.others), length) } {
                return None;
            }
            given.others += aligned(length);
        }
        at += aligned(length);
    }
    Some(given)
}

/// Whether a message passes descriptors, or that cannot be told. Most do not, and need no more than this look.
///
/// # Safety
/// The messages may fault.
pub unsafe fn are_in(message: &msghdr) -> bool {
    let (start, end) = (message.msg_control as usize, message.msg_controllen);
    let mut at = 0;
    while at + HEADER <= end {
        // SAFETY: any bytes are a header; promised by the caller.
        let Ok(header) = (unsafe { user::read((start + at) as *const cmsghdr) }) else { return true };
        let length = header.cmsg_len;
        if length < HEADER || length > end - at || header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            return true;
        }
        at += aligned(length);
    }
    false
}

/// CMSG_ALIGN of cmsg(3).
fn aligned(length: usize) -> usize {
    (length + 7) & !7
}

/// Before sendmsg on `over`, a socket that is not ours: if the rights hold accelerated descriptors, writes the control
/// message that the receiver needs and gives true; the caller sends with it, and then calls [`sent`].
///
/// # Safety
/// `message` is valid as sendmsg(2) asks, and is the caller's own copy.
pub unsafe fn extend(over: i32, message: &mut msghdr, control: &mut Control) -> bool {
    // SAFETY: promised by the caller; lengths are checked before each copy.
    unsafe {
        if message.msg_control.is_null() || message.msg_controllen > ROOM - EXTRA * 4 - 16 {
            return false;
        }
        let target = control.bytes.as_mut_ptr();
        let Some(found) = read(message, target) else { return false };
        let given = &found.passed[..found.count];
        if given.iter().any(|fd| shunt_stream::socket::stream(*fd).is_some_and(|socket| socket.has(flag::MAY_LEAVE))) {
            shunt_rendezvous::carriers::sharing::<false>();
        }
        // Until the streams among them are marked as shared ones, which are left to no kernel; what the first keeps holds for all.
        let _stay = given.iter().find_map(|fd| shunt_rendezvous::exchange::stays(*fd));
        given.iter().for_each(|fd| drop(shunt_rendezvous::exchange::stays(*fd)));
        given.iter().for_each(|fd| {
            if let Some(socket) = shunt_table::table::find::<Datagram>(*fd) {
                adopt::before_handing(*fd, socket);
            }
        });
        let ours = given.iter().any(|fd| {
            let word = table::get(*fd);
            let waits = || word.object::<Datagram>().is_some_and(|socket| adopt::needed(socket).is_some());
            matches!(word.kind(), Kind::Stream | Kind::Listener) || waits()
        });
        let receiver = match SETUP.lock() {
            Some(_setup) if ours => receiver::of(over),
            _ => Receiver::Plain,
        };
        let direct = receiver == Receiver::Own;
        let mut extra = [-1i32; EXTRA];
        let mut extras = 0;
        let mut passed = [-1i32; MOST];
        for (place, fd) in passed.iter_mut().zip(given.iter()) {
            *place = *fd;
            let word = table::get(*fd);
            if let Some(inbox) =
                word.object::<Datagram>().and_then(adopt::needed).filter(|inbox| !extra[..extras].contains(inbox))
            {
                if direct && extras < EXTRA && given.len() + extras < MOST {
                    extra[extras] = inbox;
                    extras += 1;
                }
            }
            let Some(socket) = word.object::<Socket>() else { continue };
            let needed = match word.kind() {
                Kind::Stream => {
                    let index = socket.connected.link_index.load(Ordering::Relaxed) as usize;
                    let alone = || receiver == Receiver::Other && link::make_dedicated(index);
                    SETUP.lock().filter(|_setup| direct || alone()).map_or(-1, |_setup| link::descriptor(index))
                }
                Kind::Listener => socket.private_fd.load(Ordering::Relaxed),
                Kind::Tcp => {
                    shunt_rendezvous::socket_cache::spoil(socket);
                    // The receiver may listen there, too, and would see the kernel's clients only.
                    socket.set(flag::PLAIN | flag::FILTERED);
                    continue;
                }
                _ => continue,
            };
            let known = extra[..extras].contains(&needed);
            let fits = known || (extras < EXTRA && given.len() + extras < MOST);
            let whole = direct || word.kind() == Kind::Stream;
            if !whole || needed < 0 || !fits || !control.counted.has_room() {
                *place = plain(*fd, word.kind(), socket, control);
                continue;
            }
            if word.kind() == Kind::Stream {
                socket.share();
                shunt_stream::references::keep::on_sharing(socket);
                control.counted.count(socket);
            } else {
                shunt_rendezvous::listen::forward::before_handing(socket);
            }
            if !known {
                extra[extras] = needed;
                extras += 1;
            }
        }
        if !ours {
            return false;
        }
        if control.carried > 0 {
            control.relay = relay::fork(&control.tasks[..control.carried]).ok();
            if control.relay.is_none() {
                // A socket that is connected to nothing is better than one on which nothing comes.
                for item in &control.tasks[..control.carried] {
                    shunt_table::process::helper::dies_by_reset(item.relay, false);
                    let _ = calls::shutdown(item.program, libc::SHUT_RDWR);
                    status_page::count(Reason::NotCarried);
                }
            }
        }
        let count = given.len() + extras;
        let header = target.add(found.others).cast::<cmsghdr>();
        let length = libc::CMSG_LEN((count * 4) as u32);
        header.write(cmsghdr { cmsg_len: length as _, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS });
        let numbers = header.add(1).cast::<i32>();
        core::ptr::copy_nonoverlapping(passed.as_ptr(), numbers, given.len());
        core::ptr::copy_nonoverlapping(extra.as_ptr(), numbers.add(given.len()), extras);
        let length = found.others + length as usize;
        message.msg_control = target.cast();
        message.msg_controllen = length as _;
        true
    }
}

/// What a receiver without shunt gets for `fd`: for a stream an end of a kernel connection, noted in `control`; the
/// listener itself, which becomes the kernel's alone.
fn plain(fd: i32, kind: Kind, socket: &'static Socket, control: &mut Control) -> i32 {
    if kind == Kind::Listener {
        crate::waiting::give_listener(fd, socket);
        socket.set(flag::LISTENER_SHARED);
        if let Some(_setup) = shunt_table::global::SETUP.lock() {
            shunt_rendezvous::listen::sharing::out_of_sight(socket);
        }
        return fd;
    }
    // A descriptor that is passed twice is the same connection twice.
    let same = |item: &&RelayTask| shunt_stream::socket::is_of(item.stream, socket);
    if let Some(item) = control.tasks[..control.carried].iter().find(same) {
        return item.program;
    }
    let made =
        kernel_pair::pair(socket).or_else(|_| kernel_pair::dead(socket.family.load(Ordering::Relaxed)).map(|dead| (dead, -1)));
    let Ok((program, relay)) = made else { return -1 };
    like(socket, fd, program);
    let program = private::keep(program).unwrap_or(-1);
    if relay < 0 || control.carried == MOST || program < 0 {
        if relay >= 0 {
            shunt_table::process::helper::dies_by_reset(relay, false);
            let _ = calls::close(relay);
        }
        status_page::count(Reason::NotCarried);
        return program;
    }
    control.tasks[control.carried] = RelayTask { stream: fd, relay, program, process: 0 };
    control.carried += 1;
    status_page::count(Reason::Carried);
    program
}

/// The message was sent, or not: then no other process owns the streams after all.
pub fn sent(control: &mut Control, delivered: bool) {
    if !delivered {
        control.counted.take_back();
    }
    match control.relay.take() {
        Some(relay) if delivered => relay.begin(),
        Some(relay) => relay.give_up(),
        None => {}
    }
    for item in &control.tasks[..control.carried] {
        let _ = calls::close(item.relay);
        private::close(item.program);
    }
}

/// Room for what a message brings, ours included: what the kernel has not written is not looked at.
#[repr(C, align(8))]
pub struct Wider(MaybeUninit<[u8; ROOM]>);

impl Wider {
    /// With nothing in it.
    pub const fn new() -> Wider {
        Wider(MaybeUninit::uninit())
    }
}

impl Default for Wider {
    fn default() -> Self {
        Wider::new()
    }
}

/// Before recvmsg on a socket that is not ours, with room for control messages: gives the kernel more room, for what a
/// sender may have appended. False: leave the message as it is.
pub fn widen(over: i32, message: &mut msghdr, wider: &mut Wider) -> bool {
    // More than this no message fills: 253 rights, credentials and times have 1.2 KiB.
    let room = message.msg_controllen.min(ROOM - EXTRA * 4);
    if message.msg_control.is_null() || room < HEADER + 4 {
        return false;
    }
    receiver::declare(over);
    message.msg_control = wider.0.as_mut_ptr().cast();
    message.msg_controllen = (room + EXTRA * 4) as _;
    true
}

/// After such a recvmsg: takes out what was appended, takes up the streams, and gives the program its control messages,
/// cut where the kernel would have cut them had it known the program's own room.
///
/// # Safety
/// `got` is what the kernel filled; `given` is the program's own header.
pub unsafe fn narrow(got: &mut msghdr, given: &mut msghdr, flags: i32) {
    // SAFETY: promised by the caller; `Room` checks lengths before each copy.
    unsafe {
        let came = if flags & libc::MSG_PEEK != 0 { Received::Peeked } else { Received::Taken };
        let mut room = Room { at: given.msg_control.cast(), left: given.msg_controllen, cut: false, came };
        let mut message = libc::CMSG_FIRSTHDR(got);
        while !message.is_null() && (*message).cmsg_len as usize >= HEADER {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                room.put_rights(message, rights(message), got.msg_flags & libc::MSG_CTRUNC != 0);
            } else {
                room.put(message);
            }
            message = libc::CMSG_NXTHDR(got, message);
        }
        given.msg_controllen = (room.at as usize - given.msg_control as usize) as _;
        given.msg_namelen = got.msg_namelen;
        given.msg_flags = got.msg_flags | if room.cut { libc::MSG_CTRUNC } else { 0 };
    }
}

/// What is left of the program's room for control messages.
struct Room {
    at: *mut u8,
    left: usize,
    cut: bool,
    came: Received,
}

impl Room {
    /// One message, as `put_cmsg` of the kernel (net/core/scm.c) writes it: what does not fit is cut off, and told.
    ///
    /// # Safety
    /// `message` is one of the kernel's, with all the bytes that its length says.
    unsafe fn put(&mut self, message: *const cmsghdr) {
        if self.left < HEADER {
            self.cut = true;
            return;
        }
        // SAFETY: `length` is at most what the message has and what the room has.
        unsafe {
            let whole = (*message).cmsg_len;
            let length = whole.min(self.left);
            self.cut |= length < whole;
            core::ptr::copy_nonoverlapping(message.cast::<u8>(), self.at, length);
            self.at.cast::<cmsghdr>().write_unaligned(cmsghdr { cmsg_len: length as _, ..*message });
            self.advance(libc::CMSG_SPACE((whole - HEADER) as u32) as usize);
        }
    }

    /// Rights: without what a sender appended, and as many as fit. The others are closed, as the kernel would not have
    /// opened them (`scm_detach_fds`).
    ///
    /// # Safety
    /// `all` are the descriptors of `message`, which is one of the kernel's.
    unsafe fn put_rights(&mut self, message: *const cmsghdr, all: &mut [i32], short: bool) {
        let mut appended = Appended::new();
        let mut kept = 0;
        for i in 0..all.len() {
            table::take(all[i]);
            if appended.take(all[i]) {
                continue;
            }
            all[kept] = all[i];
            kept += 1;
        }
        let came = kept;
        kept = 0;
        for i in 0..came {
            // What has no number is closed, and told, as the kernel does. Passed on as it is, the program would read bells from it.
            if appended.serve(all[i], self.came) || !short {
                all[kept] = all[i];
                kept += 1;
            } else {
                let _ = calls::close(all[i]);
                self.cut = true;
            }
        }
        let all = &all[..kept];
        drop(appended);
        let (fitting, others) = all.split_at((self.left.saturating_sub(HEADER) / 4).min(kept));
        for fd in others {
            shunt_table::upcalls::operations::closing(*fd);
            let _ = calls::close(*fd);
        }
        self.cut |= !others.is_empty();
        if fitting.is_empty() {
            return;
        }
        // SAFETY: the room holds a header and the descriptors that fit.
        unsafe {
            let bytes = fitting.len() * 4;
            let length = libc::CMSG_LEN(bytes as u32);
            self.at.cast::<cmsghdr>().write_unaligned(cmsghdr { cmsg_len: length as _, ..*message });
            core::ptr::copy_nonoverlapping(fitting.as_ptr().cast::<u8>(), self.at.add(HEADER), bytes);
            self.advance(libc::CMSG_SPACE(bytes as u32) as usize);
        }
    }

    /// # Safety
    /// The room begins inside the program's buffer.
    unsafe fn advance(&mut self, space: usize) {
        let space = space.min(self.left);
        // SAFETY: at most to the end of the room.
        self.at = unsafe { self.at.add(space) };
        self.left -= space;
    }
}
