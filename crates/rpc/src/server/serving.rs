//! One call: what it asks for is judged, its procedure run, and its answer given.

use super::answer::{answer_in_general, answer_status, outcome, refuse_words, Answering};
use super::caller::CallerState;
use crate::calls::one_line;
use crate::clock::now;
use crate::service::{Answer, Context, Interface, Place, Service};
use crate::trace::{Journal, Outcome, Subject};
use crate::wire::{flag, handler, status, Call, Head, Name, LINE, SHORT};
use crate::xdr::Decoder;
use shunt_am::{Dispatch, Event, Message, Replier};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// How often a caller on another host is heard, while its calls are served one after the other.
const HEARS: u64 = 50_000;

/// Runs the calls of one caller.
pub(super) struct Serving<'a, 'w, S> {
    pub(super) service: &'a mut S,
    pub(super) interfaces: &'a [Interface],
    pub(super) caller: &'a mut CallerState,
    pub(super) journal: &'a mut Journal<'w>,
}

impl<S: Service> Dispatch for Serving<'_, '_, S> {
    #[inline(always)]
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        if message.handler == handler::CALL {
            self.call(message, replier);
        } else {
            self.other(message, replier);
        }
    }

    /// Servers are answered nothing.
    fn reply(&mut self, _: Message<'_>) {}

    fn segment(&mut self, _: u32) -> &mut [u8] {
        if self.caller.direct {
            return &mut [];
        }
        // SAFETY: where memory is not shared, the window is this process's alone; the engine has it while it copies.
        unsafe { self.caller.window.bytes() }
    }

    /// Callers look for answers when they please; one that has ended closes its socket.
    fn vouches(&mut self, _: u32) -> bool {
        !self.caller.hear()
    }

    fn event(&mut self, _: u32, event: Event) {
        if matches!(event, Event::Lost(_)) {
            self.caller.over = true;
        }
    }
}

impl<S: Service> Serving<'_, '_, S> {
    #[inline(never)]
    fn other(&mut self, message: Message<'_>, replier: Replier<'_>) {
        match (message.handler, message.words) {
            (handler::PART, _) => {}
            _ => replier.refuse(),
        }
    }

    /// What almost all calls are: a line, an answer wanted, no deadline.
    #[inline(always)]
    fn call(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let head = Head::from_word(message.words.first().copied().unwrap_or(u64::from(flag::ONE_WAY) << 48));
        let words = message.words.get(1..).unwrap_or(&[]);
        let half = usize::from(head.flags) * 4;
        let usual = head.flags & !flag::HALF == 0 && message.data.is_empty() && self.caller.straight && words.len() * 8 >= half;
        if !usual || self.caller.window.is_cancelled(head.name.slot, head.name.generation) {
            return self.call_in_general(message, replier);
        }
        let arguments: &[u8] = bytemuck::cast_slice(words);
        let arguments = Decoder::new(&arguments[..arguments.len() - half]);
        let CallerState { window, scratch, process, interface, .. } = &mut *self.caller;
        let interface = &self.interfaces[*interface];
        let context = Context { interface, caller: *process, window, name: head.name, deadline: None, claim: None, socket: None };
        let mut answer =
            Answer { near: 0, line: [0; LINE / 8], length: 0, scratch, room: None, window, place: Place::Line, grows: 0 };
        let mut answering = Answering { replier: Some(replier), name: head.name };
        let result = self.service.call(&context, head.code, arguments, &mut answer);
        let Some(replier) = answering.replier.take() else { return };
        if result.is_ok() && answer.place == Place::Line {
            let (words, count) = one_line(Head { code: status::OK, flags: 0, ..head }, answer.line, answer.length);
            let _ = replier.reply(handler::ANSWER, &words[..count], &[]);
            return;
        }
        let call = Call { head, deadline: None, large: None, room: None, inline: &[] };
        answer_in_general(replier, &call, Ok(result), &answer);
    }

    #[inline(never)]
    fn call_in_general(&mut self, message: Message<'_>, replier: Replier<'_>) {
        if self.journal.wants == 0 {
            self.serve_in_general(message, replier);
            return;
        }
        let begun = now();
        let head = Head::from_word(message.words.first().copied().unwrap_or(0));
        let bytes = crate::wire::judge(message.words, message.data).map_or(0, |(_, _, bytes)| bytes);
        let (outcome, results) = self.serve_in_general(message, replier);
        let interface = &self.interfaces[self.caller.interface];
        let (program, version) = (interface.program, interface.version);
        let subject = Subject { program, version, procedure: head.code, outcome: Outcome(outcome) };
        let caller = self.caller.process.map_or(0, |process| process.pid);
        self.journal.note(subject, begun, now() - begun, caller, bytes, results);
    }

    /// Whether a call between hosts is still wanted: a procedure may have run for long before its turn came.
    fn hear_of(&mut self, name: Name) {
        let time = now();
        if time >= self.caller.heard + HEARS {
            self.caller.heard = time;
            self.caller.hear();
        }
        self.caller.window.forget_others(name.slot, name.generation);
    }

    /// Gives the status of the answer, and the bytes of its results.
    #[inline(always)]
    fn serve_in_general(&mut self, message: Message<'_>, replier: Replier<'_>) -> (u16, usize) {
        let Some(call) = Call::parse(message.words, message.data) else {
            refuse_words(&message, replier);
            return (status::PROTOCOL, 0);
        };
        let name = call.head.name;
        let deadline = match call.deadline {
            Some(time) if !self.caller.direct => Some(now().saturating_add(time)),
            other => other,
        };
        if !self.caller.direct {
            self.hear_of(name);
        }
        if self.caller.window.is_cancelled(name.slot, name.generation) {
            answer_status(replier, &call, status::CANCELLED, "");
            return (status::CANCELLED, 0);
        }
        if deadline.is_some_and(|deadline| now() >= deadline) {
            answer_status(replier, &call, status::DEADLINE, "");
            return (status::DEADLINE, 0);
        }
        let CallerState { window, scratch, copies, process, interface, direct, socket, .. } = &mut *self.caller;
        let arguments = match call.large {
            None => Some(Decoder::new(call.inline)),
            Some(piece) => window.decoder(piece, copies),
        };
        let Some(arguments) = arguments else {
            answer_status(replier, &call, status::BAD_ARGUMENTS, "they do not lie in the window");
            return (status::BAD_ARGUMENTS, 0);
        };
        let socket = (!*direct).then_some(&*socket);
        let interface = &self.interfaces[*interface];
        let context = Context { interface, caller: *process, window, name, deadline, claim: None, socket };
        // Where memory is shared, results are written once, to where their caller decodes them.
        let near = if *direct { SHORT.min(scratch.len()) } else { scratch.len() };
        let mut answer =
            Answer { near, line: [0; LINE / 8], length: 0, scratch, room: call.room, window, place: Place::Line, grows: 0 };
        let service = &mut *self.service;
        let result = catch_unwind(AssertUnwindSafe(|| service.call(&context, call.head.code, arguments, &mut answer)));
        let told = (outcome(&result, answer.place), if matches!(result, Ok(Ok(()))) { answer.length } else { 0 });
        if call.head.flags & flag::ONE_WAY == 0 {
            answer_in_general(replier, &call, result, &answer);
        }
        copies.reuse();
        told
    }
}
