//! tarpc over AF_UNIX with bincode. The server answers in its connection's own task, which saves it a task for each request.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use futures::StreamExt as _;
use tarpc::serde_transport::unix;
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::{client, context};
use tokio::runtime::Runtime;

use super::{loops, Binding, Caller};
use crate::place::Place;
use crate::Failure;

#[tarpc::service]
trait Echo {
    async fn echo(word: u64) -> u64;
}

#[derive(Clone)]
struct Echoing;

impl Echo for Echoing {
    async fn echo(self, _: context::Context, word: u64) -> u64 {
        word
    }
}

pub fn serve(place: &Place, told: UnixStream) -> Result<(), Failure> {
    loops::runtime()?.block_on(async {
        let mut listener = unix::listen(place.socket("tarpc"), Bincode::default).await?;
        let serving = async {
            while let Some(connection) = listener.next().await {
                BaseChannel::with_defaults(connection?).execute(Echoing.serve()).for_each(|answering| answering).await;
            }
            Ok(())
        };
        loops::serve_until_told(told, serving).await
    })
}

struct Bound {
    client: EchoClient,
    runtime: Runtime,
    _told: UnixStream,
}

pub fn bind(place: &Place, told: UnixStream) -> Binding {
    let runtime = loops::runtime()?;
    let client = runtime.block_on(async {
        let connection = unix::connect(place.socket("tarpc"), Bincode::default).await?;
        Ok::<_, Failure>(EchoClient::new(client::Config::default(), connection).spawn())
    })?;
    Ok(Box::new(Bound { client, runtime, _told: told }))
}

impl Caller for Bound {
    fn turn(&mut self, length: Duration) -> Result<f64, Failure> {
        let client = &self.client;
        self.runtime.block_on(loops::calls(length, async |word| Ok(client.echo(context::current(), word).await?)))
    }
}
