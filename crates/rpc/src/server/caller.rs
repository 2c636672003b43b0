//! A caller, as its thread sees it.

use crate::device::End;
use crate::rendezvous::{Process, Socket};
use crate::window::Window;
use crate::wire::Head;
use crate::xdr::Copies;

/// A caller, as its thread sees it.
pub(super) struct Caller {
    pub(super) end: End,
    pub(super) serial: u64,
    pub(super) state: CallerState,
    /// When it last had something, by the clock.
    pub(super) busy: u64,
    pub(super) wake_at: u64,
}

/// What a call needs beside the service.
pub(super) struct CallerState {
    pub(super) interface: usize,
    pub(super) process: Option<Process>,
    pub(super) window: Window,
    pub(super) direct: bool,
    /// Usual calls go the short way: memory is shared, and nobody watches.
    pub(super) straight: bool,
    pub(super) scratch: Vec<u8>,
    pub(super) copies: Copies,
    pub(super) over: bool,
    pub(super) socket: Socket,
    /// When it was last heard, where memory is not shared.
    pub(super) heard: u64,
}

impl CallerState {
    /// Hears what the caller takes back. True: it has ended.
    pub(super) fn hear(&self) -> bool {
        hear(&self.socket, &self.window)
    }
}

/// Takes a caller's words. True: it has ended.
pub(crate) fn hear(socket: &Socket, window: &Window) -> bool {
    socket.listen(&mut |word| {
        let name = Head::from_word(word).name;
        window.set_cancelled(name.slot, name.generation);
    })
}
