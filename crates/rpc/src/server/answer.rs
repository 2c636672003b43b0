//! Answers: results, or why there are none.

use crate::error::Fault;
use crate::service::{Answer, Place, Refusal};
use crate::wire::{flag, handler, status, Call, Head, Name};
use crate::xdr::{self, Bytes};
use shunt_am::{Message, Replier};

pub(super) type Outcomes = Result<Result<(), Refusal>, Box<dyn std::any::Any + Send>>;

/// The status of an answer.
pub(super) fn outcome(result: &Outcomes, place: Place) -> u16 {
    match (result, place) {
        (Ok(Ok(())), Place::Line | Place::Scratch | Place::Window(_)) => status::OK,
        (Ok(Ok(())), Place::TooLong(_) | Place::Over) => status::TOO_LONG,
        (Ok(Err(Refusal::NoProcedure)), _) => status::NO_PROCEDURE,
        (Ok(Err(Refusal::BadArguments(_))), _) => status::BAD_ARGUMENTS,
        (Ok(Err(Refusal::Fault(_))), _) => status::APPLICATION,
        (Err(_), _) => status::PANICKED,
    }
}

/// What a caller is told of a panic.
const PANIC: &str = "the server's standard error says more";

/// The answer to a call that is being served, should its procedure panic. Messages of a line leave nothing half done behind in the
/// engine and the device, so for these the panic is caught far outside: catching it here would cost a twelfth of a call.
pub(super) struct Answering<'r> {
    pub(super) replier: Option<Replier<'r>>,
    pub(super) name: Name,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        if let Some(replier) = self.replier.take() {
            let data = xdr::to_bytes(&Bytes::<4096>(PANIC.into()));
            let head = Head { name: self.name, code: status::PANICKED, flags: 0 };
            let _ = replier.reply(handler::ANSWER, &[head.word()], &data);
        }
    }
}

/// A request that breaks the format: its name is where one is looked for.
#[cold]
pub(super) fn refuse_words(message: &Message<'_>, replier: Replier<'_>) {
    match message.words.first() {
        Some(&word) => {
            let words = [Head { code: status::PROTOCOL, flags: 0, ..Head::from_word(word) }.word()];
            let _ = replier.reply(handler::ANSWER, &words, &[]);
        }
        None => replier.refuse(),
    }
}

fn head(call: &Call<'_>, code: u16, flags: u16) -> u64 {
    Head { name: call.head.name, code, flags }.word()
}

/// An answer without results, with words for people.
#[cold]
pub(super) fn answer_status(replier: Replier<'_>, call: &Call<'_>, code: u16, text: &str) {
    if call.head.flags & flag::ONE_WAY != 0 {
        return;
    }
    let data = if text.is_empty() { vec![] } else { xdr::to_bytes(&Bytes::<4096>(cut(text))) };
    let _ = replier.reply(handler::ANSWER, &[head(call, code, 0)], &data);
}

fn cut(text: &str) -> Vec<u8> {
    text.as_bytes()[..text.len().min(1024)].to_vec()
}

#[inline(never)]
pub(super) fn answer_in_general(replier: Replier<'_>, call: &Call<'_>, result: Outcomes, answer: &Answer<'_>) {
    match (result, answer.place) {
        (Ok(Ok(())), Place::Scratch | Place::Line) => {
            let line = bytemuck::cast_slice(&answer.line);
            let data = if answer.place == Place::Line { &line[..answer.length] } else { &answer.scratch[..answer.length] };
            let _ = replier.reply(handler::ANSWER, &[head(call, status::OK, 0)], data);
        }
        (Ok(Ok(())), Place::Window(piece)) => {
            let words = [head(call, status::OK, flag::LARGE), piece.word()];
            let _ = replier.reply(handler::ANSWER, &words, &[]);
        }
        (Ok(Ok(())), Place::TooLong(bytes)) => {
            let room = call.room.map_or(answer.scratch.len(), |room| room.length as usize);
            let text = format!("results of {bytes} bytes, and room for {room}: Options::room sets more aside");
            answer_status(replier, call, status::TOO_LONG, &text);
        }
        (Ok(Ok(())), Place::Over) => {
            answer_status(
                replier,
                call,
                status::TOO_LONG,
                "a result has more elements than its definition allows, or is nested too deeply",
            );
        }
        (Ok(Err(Refusal::NoProcedure)), _) => {
            answer_status(replier, call, status::NO_PROCEDURE, &format!("number {}", call.head.code));
        }
        (Ok(Err(Refusal::BadArguments(error))), _) => {
            answer_status(replier, call, status::BAD_ARGUMENTS, &error.to_string());
        }
        (Ok(Err(Refusal::Fault(Fault { code, text }))), _) => {
            let data = xdr::to_bytes(&(code, Bytes::<4096>(cut(&text))));
            let _ = replier.reply(handler::ANSWER, &[head(call, status::APPLICATION, 0)], &data);
        }
        (Err(_), _) => answer_status(replier, call, status::PANICKED, PANIC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_people_are_bounded() {
        assert_eq!(cut("short"), b"short");
        assert_eq!(cut(&"long".repeat(10_000)).len(), 1024);
    }
}
