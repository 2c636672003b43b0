//! What a server serves: procedures by number, each given its arguments as bytes and a place for its results.

use crate::error::Fault;
use crate::onc::Claim;
use crate::reference::{Reference, Scalar, Shared};
use crate::rendezvous::{Process, Socket};
use crate::server::hear;
use crate::window::Window;
use crate::wire::{Name, Piece, LINE};
use crate::xdr::{self, Bytes, Decoder, Encoder, List, Reason, Xdr};
use std::fmt;
use std::time::Duration;

/// A procedure, for tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: &'static str,
    /// Its definition, as a line of the language.
    pub definition: &'static str,
}

/// A version of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The program's number.
    pub program: u32,
    /// The version's.
    pub version: u32,
    /// The program's name.
    pub name: &'static str,
    /// All of its procedures.
    pub procedures: &'static [Procedure],
    /// The whole definition in the language, for tools that make arguments of words; may be empty.
    pub text: &'static str,
}

/// An interface as a server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The program's number.
    pub program: u32,
    /// The version's.
    pub version: u32,
    /// The program's name.
    pub name: String,
    /// Number, name and definition of each procedure.
    pub procedures: Vec<(u32, String, String)>,
}

impl From<&Interface> for Listed {
    fn from(from: &Interface) -> Self {
        let procedure = |one: &Procedure| (u32::from(one.number), one.name.to_string(), one.definition.to_string());
        let procedures = from.procedures.iter().map(procedure).collect();
        Self { program: from.program, version: from.version, name: from.name.to_string(), procedures }
    }
}

type Words = Bytes<256>;
type Line = Bytes<1024>;

fn words<const N: u32>(bytes: Bytes<N>) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}

impl Xdr for Listed {
    const LEAST: usize = 16;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        let procedures: Vec<_> = self
            .procedures
            .iter()
            .map(|(number, name, definition)| (*number, Words::from(name.as_str()), Line::from(definition.as_str())))
            .collect();
        (self.program, self.version, Words::from(self.name.as_str()), List::<_, 4096>(procedures)).encode(to);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, xdr::Error> {
        let (program, version, name, procedures) = <(u32, u32, Words, List<(u32, Words, Line), 4096>)>::decode(from)?;
        let procedures = procedures.0.into_iter().map(|(number, name, line)| (number, words(name), words(line))).collect();
        Ok(Self { program, version, name: words(name), procedures })
    }
}

/// Why a procedure gives no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is none of this number.
    NoProcedure,
    /// Its arguments are none.
    BadArguments(xdr::Error),
    /// It failed, in its program's own terms.
    Fault(Fault),
}

impl From<xdr::Error> for Refusal {
    fn from(error: xdr::Error) -> Self {
        Self::BadArguments(error)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcedure => to.write_str("no such procedure"),
            Self::BadArguments(error) => error.fmt(to),
            Self::Fault(fault) => fault.fmt(to),
        }
    }
}

/// The caller, and how much of its patience is left.
pub struct Context<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) caller: Option<Process>,
    pub(crate) window: &'a Window,
    pub(crate) name: Name,
    /// CLOCK_MONOTONIC.
    pub(crate) deadline: Option<u64>,
    /// What a caller by SunRPC says of itself.
    pub(crate) claim: Option<&'a Claim>,
    /// Between hosts: what the caller takes back comes by it.
    pub(crate) socket: Option<&'a Socket>,
}

impl<'a> Context<'a> {
    /// The version of the program that the caller is bound to.
    #[must_use]
    pub fn interface(&self) -> &'a Interface {
        self.interface
    }

    /// The caller's process and user, as the kernel says; `None`: it is on another host.
    #[must_use]
    pub fn caller(&self) -> Option<Process> {
        self.caller
    }

    /// What the caller says of itself (AUTH_SYS), where it came by SunRPC and says anything. Nothing of it is proved.
    #[must_use]
    pub fn claim(&self) -> Option<&'a Claim> {
        self.claim
    }

    /// Whether the caller has taken the call back: no thread waits for its results. It is seen while the procedure runs, but not by
    /// SunRPC; between hosts asking is a system call.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        if let Some(socket) = self.socket {
            hear(socket, self.window);
        }
        self.window.is_cancelled(self.name.slot, self.name.generation)
    }

    /// How much time is left; `None`: the caller waits for ever.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(crate::clock::now())))
    }

    /// The same as an address, for C: elements of `size` bytes, at most `most`, and how many they are.
    #[must_use]
    pub fn memory(&self, offset: u32, length: u32, size: u32, most: u32) -> Option<(*mut u8, u32)> {
        let lies = offset.is_multiple_of(size) && length.is_multiple_of(size) && length / size <= most;
        Some((self.window.pointer(Piece { offset, length }).filter(|_| lies)?, length / size))
    }

    /// The caller's memory that an argument names.
    ///
    /// # Errors
    /// `Window`: it does not lie in the caller's window, is not aligned, or has more elements than `most`.
    pub fn shared<T: Scalar>(&self, reference: Reference<T>, most: u32) -> Result<Shared<'_, T>, xdr::Error> {
        let Piece { offset, length } = reference.piece;
        match self.memory(offset, length, size_of::<T>() as u32, most) {
            // SAFETY: in the mapping, which lives as long as the connection; the offset is aligned, and so is the mapping.
            Some((at, count)) => Ok(unsafe { Shared::new(at.cast(), count as usize) }),
            None => Err(xdr::Error { at: 0, reason: Reason::Window }),
        }
    }
}

/// The place for a procedure's results.
pub struct Answer<'a> {
    pub(crate) line: [u64; LINE / 8],
    pub(crate) length: usize,
    /// What is longer than a line: as long as a message's data.
    pub(crate) scratch: &'a mut Vec<u8>,
    /// Bytes that lie in the scratch although there is room in the window.
    pub(crate) near: usize,
    pub(crate) room: Option<Piece>,
    pub(crate) window: &'a Window,
    pub(crate) place: Place,
    /// The scratch may grow to so many bytes, where results need not fit a message.
    pub(crate) grows: usize,
}

/// Where results lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Line,
    Scratch,
    Window(Piece),
    /// Nowhere: they have so many bytes.
    TooLong(usize),
    /// Nowhere: they are none of the definition's.
    Over,
}

impl Answer<'_> {
    /// Puts the results. The last ones that were put count.
    #[inline(always)]
    pub fn put<T: Xdr>(&mut self, results: &T) {
        if T::MOST <= LINE {
            let mut encoder = Encoder::new(bytemuck::cast_slice_mut(&mut self.line));
            results.encode(&mut encoder);
            self.length = encoder.needed();
            self.place = if encoder.is_over() { Place::Over } else { Place::Line };
            return;
        }
        self.put_long(&|to| results.encode(to));
    }

    /// Puts results that are encoded already.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(4));
        self.put_long(&|to| to.fixed(bytes));
    }

    #[inline(never)]
    fn put_long(&mut self, encode: &dyn Fn(&mut Encoder<'_>)) {
        let room = self.room.and_then(|room| Some((room, self.window.sink(room)?)));
        let (room, larger) = room.unzip();
        let near = if room.is_some() { self.near } else { self.scratch.len() };
        let mut encoder = match larger {
            Some(larger) => Encoder::spilling(&mut self.scratch[..near], larger),
            None => Encoder::new(self.scratch),
        };
        encode(&mut encoder);
        let (needed, fits, over) = (encoder.needed(), encoder.fits(), encoder.is_over());
        self.length = needed;
        self.place = match room {
            _ if over => Place::Over,
            _ if needed <= LINE => {
                bytemuck::cast_slice_mut::<u64, u8>(&mut self.line)[..needed].copy_from_slice(&self.scratch[..needed]);
                Place::Line
            }
            _ if needed <= near => Place::Scratch,
            Some(Piece { offset, .. }) if fits => Place::Window(Piece { offset, length: needed as u32 }),
            _ if needed <= self.scratch.len().max(self.grows) => {
                self.scratch.resize(self.scratch.len().max(needed), 0);
                encode(&mut Encoder::new(self.scratch));
                Place::Scratch
            }
            _ => Place::TooLong(needed),
        };
    }
}

/// A service: what generated code implements over a trait of typed procedures.
pub trait Service {
    /// The versions of programs that it has.
    fn interfaces(&self) -> Vec<Interface>;

    /// Runs a procedure of [`Context::interface`].
    ///
    /// # Errors
    /// [`Refusal`]: what the caller is told instead of results.
    fn call(
        &mut self,
        context: &Context<'_>,
        procedure: u16,
        arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal>;
}

impl<S: Service + ?Sized> Service for Box<S> {
    fn interfaces(&self) -> Vec<Interface> {
        (**self).interfaces()
    }
    #[inline]
    fn call(
        &mut self,
        context: &Context<'_>,
        procedure: u16,
        arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal> {
        (**self).call(context, procedure, arguments, answer)
    }
}

/// Several services of one server, by program and version.
#[derive(Default)]
pub struct Services {
    services: Vec<(Vec<Interface>, Box<dyn Service>)>,
}

impl Services {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more. Where two have the same version of a program, the first is called.
    #[must_use]
    pub fn with(mut self, service: impl Service + 'static) -> Self {
        self.services.push((service.interfaces(), Box::new(service)));
        self
    }
}

impl Service for Services {
    fn interfaces(&self) -> Vec<Interface> {
        self.services.iter().flat_map(|(interfaces, _)| interfaces.clone()).collect()
    }

    fn call(
        &mut self,
        context: &Context<'_>,
        procedure: u16,
        arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal> {
        let wanted = (context.interface.program, context.interface.version);
        let has = |(interfaces, _): &&mut (Vec<Interface>, Box<dyn Service>)| {
            interfaces.iter().any(|one| (one.program, one.version) == wanted)
        };
        match self.services.iter_mut().find(|one| has(one)) {
            Some((_, service)) => service.call(context, procedure, arguments, answer),
            None => Err(Refusal::NoProcedure),
        }
    }
}

/// Runs a procedure with its arguments decoded to the end: what generated code writes for each.
///
/// # Errors
/// [`Refusal`].
#[inline(always)]
pub fn serve<A: Xdr, R: Xdr>(
    mut arguments: Decoder<'_>,
    answer: &mut Answer<'_>,
    procedure: impl FnOnce(A) -> Result<R, Refusal>,
) -> Result<(), Refusal> {
    let values = A::decode(&mut arguments)?;
    arguments.end()?;
    answer.put(&procedure(values)?);
    Ok(())
}
