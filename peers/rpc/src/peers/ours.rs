//! shunt-rpc, without stubs: a word each way.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use shunt_rpc::xdr::Decoder;
use shunt_rpc::{Address, Answer, Client, Context, Interface, Options, Refusal, Server, ServerOptions, Service};

use super::{Binding, Caller};
use crate::place::Place;
use crate::turn::Turn;
use crate::Failure;

const PROGRAM: u32 = 0x2000_0002;
const ECHO: u16 = 1;

struct Echo;

impl Service for Echo {
    fn interfaces(&self) -> Vec<Interface> {
        vec![Interface { program: PROGRAM, version: 1, name: "ECHO", procedures: &[], text: "" }]
    }

    #[inline]
    fn call(&mut self, _: &Context<'_>, procedure: u16, arguments: Decoder<'_>, answer: &mut Answer<'_>) -> Result<(), Refusal> {
        match procedure {
            ECHO => shunt_rpc::serve(arguments, answer, |word: u64| Ok(word)),
            _ => Err(Refusal::NoProcedure),
        }
    }
}

pub fn serve(place: &Place, mut told: UnixStream) -> Result<(), Failure> {
    let address: Address = place.name().parse()?;
    let server = Server::bind(&address, ServerOptions::default())?.spawn(|| Echo)?;
    told.write_all(&[1])?;
    told.read_to_end(&mut vec![])?;
    drop(server);
    Ok(())
}

struct Bound {
    client: Client,
    _told: UnixStream,
}

pub fn bind(place: &Place, told: UnixStream) -> Binding {
    let address: Address = place.name().parse()?;
    let client = Client::connect(&address, PROGRAM, 1..=1, Options::default())?;
    Ok(Box::new(Bound { client, _told: told }))
}

impl Caller for Bound {
    fn turn(&mut self, length: Duration) -> Result<f64, Failure> {
        let (mut turn, mut word) = (Turn::new(length), 0u64);
        while turn.goes_on() {
            let begun = Instant::now();
            let answer: u64 = self.client.call(ECHO, &word)?;
            turn.note(begun);
            assert_eq!(answer, word, "an echo");
            word += 1;
        }
        Ok(turn.p50())
    }
}
