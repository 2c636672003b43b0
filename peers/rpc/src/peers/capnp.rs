//! Cap'n Proto RPC over AF_UNIX.

use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::twoparty::VatNetwork;
use capnp_rpc::RpcSystem;
use tokio::net;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use super::{loops, Binding, Caller};
use crate::echo_capnp::echo;
use crate::place::Place;
use crate::Failure;

struct Echoing;

impl echo::Server for Echoing {
    async fn echo(self: Rc<Self>, words: echo::EchoParams, mut answer: echo::EchoResults) -> Result<(), capnp::Error> {
        answer.get().set_word(words.get()?.get_word());
        Ok(())
    }
}

fn network(stream: net::UnixStream, side: Side) -> Box<VatNetwork<impl futures::AsyncRead + Unpin>> {
    let (reader, writer) = stream.into_split();
    let reader = futures::io::BufReader::new(reader.compat());
    let writer = futures::io::BufWriter::new(writer.compat_write());
    Box::new(VatNetwork::new(reader, writer, side, Default::default()))
}

pub fn serve(place: &Place, told: UnixStream) -> Result<(), Failure> {
    let local = LocalSet::new();
    local.block_on(&loops::runtime()?, async {
        let listener = net::UnixListener::bind(place.socket("capnp"))?;
        let serving = async {
            loop {
                let (stream, _) = listener.accept().await?;
                let client: echo::Client = capnp_rpc::new_client(Echoing);
                RpcSystem::new(network(stream, Side::Server), Some(client.client)).await?;
            }
        };
        loops::serve_until_told(told, serving).await
    })
}

struct Bound {
    client: echo::Client,
    local: LocalSet,
    runtime: Runtime,
    _told: UnixStream,
}

pub fn bind(place: &Place, told: UnixStream) -> Binding {
    let (runtime, local) = (loops::runtime()?, LocalSet::new());
    let client = local.block_on(&runtime, async {
        let stream = net::UnixStream::connect(place.socket("capnp")).await?;
        let mut system = RpcSystem::new(network(stream, Side::Client), None);
        let client = system.bootstrap(Side::Server);
        tokio::task::spawn_local(system);
        Ok::<_, Failure>(client)
    })?;
    Ok(Box::new(Bound { client, local, runtime, _told: told }))
}

impl Caller for Bound {
    fn turn(&mut self, length: Duration) -> Result<f64, Failure> {
        let client = &self.client;
        let call = async |word| {
            let mut request = client.echo_request();
            request.get().set_word(word);
            Ok(request.send().promise.await?.get()?.get_word())
        };
        self.local.block_on(&self.runtime, loops::calls(length, call))
    }
}
