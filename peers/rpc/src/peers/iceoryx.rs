//! iceoryx2's request-response: both sides ask without sleeping while there is a turn. Between turns the server sleeps on its stream.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use iceoryx2::config::Config;
use iceoryx2::port::client::Client;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory;

use super::{Binding, Caller};
use crate::place::Place;
use crate::turn::Turn;
use crate::Failure;

/// The last request of a turn.
const LAST: u64 = u64::MAX;

type Calls = PortFactory<ipc::Service, u64, (), u64, ()>;

fn open(place: &Place) -> Result<(Node<ipc::Service>, Calls), Failure> {
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    config.global.prefix = FileName::new(place.name().as_bytes())?;
    config.global.set_root_path(&Path::new(place.socket("iceoryx2").as_os_str().as_encoded_bytes())?);
    let node = NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled).create::<ipc::Service>()?;
    let calls = node.service_builder(&"echo".try_into()?).request_response::<u64, u64>().open_or_create()?;
    Ok((node, calls))
}

pub fn serve(place: &Place, mut told: UnixStream) -> Result<(), Failure> {
    let (_node, calls) = open(place)?;
    let server = calls.server_builder().create()?;
    told.write_all(&[1])?;
    while told.read(&mut [0])? == 1 {
        let mut word = 0;
        while word != LAST {
            let Some(request) = server.receive()? else {
                std::hint::spin_loop();
                continue;
            };
            word = *request;
            request.loan_uninit()?.write_payload(word).send()?;
        }
    }
    Ok(())
}

struct Bound {
    client: Client<ipc::Service, u64, (), u64, ()>,
    told: UnixStream,
    _calls: Calls,
    _node: Node<ipc::Service>,
}

pub fn bind(place: &Place, told: UnixStream) -> Binding {
    let (node, calls) = open(place)?;
    let client = calls.client_builder().create()?;
    Ok(Box::new(Bound { client, told, _calls: calls, _node: node }))
}

impl Bound {
    fn call(&self, word: u64) -> Result<u64, Failure> {
        let pending = self.client.loan_uninit()?.write_payload(word).send()?;
        loop {
            if let Some(answer) = pending.receive()? {
                return Ok(*answer);
            }
            std::hint::spin_loop();
        }
    }
}

impl Caller for Bound {
    fn turn(&mut self, length: Duration) -> Result<f64, Failure> {
        self.told.write_all(&[1])?;
        let (mut turn, mut word) = (Turn::new(length), 0);
        while turn.goes_on() {
            let begun = Instant::now();
            let answer = self.call(word)?;
            turn.note(begun);
            assert_eq!(answer, word, "an echo");
            word += 1;
        }
        self.call(LAST)?;
        Ok(turn.p50())
    }
}
