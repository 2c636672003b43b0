//! What a call's instructions cost, for a profiler: calls to a server of another thread, `cargo run --release -p shunt-rpc --example
//! measure_calls [seconds [word]]`, null or with one word each way. What calls cost beside other ways is measured by `shunt bench cell rpc`.

use shunt_rpc::xdr::Decoder;
use shunt_rpc::{serve, Answer, Client, Context, Interface, Options, Refusal, Server, ServerOptions, Service};
use std::time::{Duration, Instant};

struct Null;

impl Service for Null {
    fn interfaces(&self) -> Vec<Interface> {
        vec![Interface { program: 1, version: 1, name: "NULL", procedures: &[], text: "" }]
    }

    #[inline]
    fn call(&mut self, _: &Context<'_>, procedure: u16, arguments: Decoder<'_>, answer: &mut Answer<'_>) -> Result<(), Refusal> {
        match procedure {
            0 => serve(arguments, answer, |()| Ok(())),
            1 => serve(arguments, answer, |word: u64| Ok(word)),
            _ => Err(Refusal::NoProcedure),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let address = format!("measure-{}", std::process::id()).parse()?;
    let server = Server::bind(&address, ServerOptions::default())?.spawn(|| Null)?;
    let client = Client::connect(server.address(), 1, 1..=1, Options::default())?;
    let word = std::env::args().nth(2).is_some();
    let (begun, mut calls) = (Instant::now(), 0u64);
    while begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..1000 {
            if word {
                client.call::<u64, u64>(1, &7)?;
            } else {
                client.call::<(), ()>(0, &())?;
            }
        }
        calls += 1000;
    }
    println!("{:.1} ns a call", begun.elapsed().as_nanos() as f64 / calls as f64);
    Ok(())
}
