//! gRPC by tonic over AF_UNIX.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::{loops, Binding, Caller};
use crate::echo_proto::echo_client::EchoClient;
use crate::echo_proto::echo_server::{Echo, EchoServer};
use crate::echo_proto::Word;
use crate::place::Place;
use crate::Failure;

struct Echoing;

#[tonic::async_trait]
impl Echo for Echoing {
    async fn echo(&self, request: Request<Word>) -> Result<Response<Word>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

pub fn serve(place: &Place, told: UnixStream) -> Result<(), Failure> {
    loops::runtime()?.block_on(async {
        let incoming = UnixListenerStream::new(UnixListener::bind(place.socket("grpc"))?);
        let serving = async { Ok(Server::builder().add_service(EchoServer::new(Echoing)).serve_with_incoming(incoming).await?) };
        loops::serve_until_told(told, serving).await
    })
}

struct Bound {
    client: EchoClient<Channel>,
    runtime: Runtime,
    _told: UnixStream,
}

pub fn bind(place: &Place, told: UnixStream) -> Binding {
    let runtime = loops::runtime()?;
    let endpoint = Endpoint::from_shared(format!("unix:{}", place.socket("grpc").display()))?;
    let client = EchoClient::new(runtime.block_on(endpoint.connect())?);
    Ok(Box::new(Bound { client, runtime, _told: told }))
}

impl Caller for Bound {
    fn turn(&mut self, length: Duration) -> Result<f64, Failure> {
        let client = &mut self.client;
        self.runtime.block_on(loops::calls(length, async |word| Ok(client.echo(Word { word }).await?.into_inner().word)))
    }
}
