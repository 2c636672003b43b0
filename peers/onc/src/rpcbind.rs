//! rpcbind, asked by the crates `nfs3_client` (version 2, asynchronous) and `sun_rpc_client` (version 4).

use crate::Failure;
use nfs3_client::tokio::TokioIo;
use nfs3_client::PortmapperClient;
use std::net::TcpStream;
use sun_rpc_client::{RpcClient, NULL_PROCEDURE, PORT_MAPPER, PORT_MAPPER_PORT};

/// rpcbind's own procedure that tells the time (RFC 1833).
const GET_TIME: u32 = 6;

pub fn ask() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(by_nfs3())?;
    let mut stream = TcpStream::connect(("127.0.0.1", PORT_MAPPER_PORT))?;
    let mut client = RpcClient::new(PORT_MAPPER);
    for _ in 0..100 {
        client.send_request(&mut stream, NULL_PROCEDURE, ()).map_err(told)?;
        client.receive_reply::<()>(&mut stream).map_err(told)?;
    }
    client.send_request(&mut stream, GET_TIME, ()).map_err(told)?;
    println!("a time {}", client.receive_reply::<u32>(&mut stream).map_err(told)? > 1_700_000_000);
    client.send_request(&mut stream, 77, ()).map_err(told)?;
    println!("unknown {:?}", client.receive_reply::<()>(&mut stream));
    Ok(())
}

fn told(error: sun_rpc_client::Error) -> Failure {
    format!("{error:?}").into()
}

async fn by_nfs3() -> Result<(), Failure> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", PORT_MAPPER_PORT)).await?;
    let mut client = PortmapperClient::new(TokioIo::new(stream));
    for _ in 0..100 {
        client.null().await?;
    }
    println!("rpcbind's port {:?}", client.getport(PORT_MAPPER, 2, 6).await.ok());
    println!("nobody's port {}", client.getport(0x2000_0099, 1, 6).await.is_err());
    let mut all: Vec<_> = client.dump().await?.iter().map(|one| (one.prog, one.vers, one.prot, one.port)).collect();
    all.sort_unstable();
    println!("{all:?}");
    Ok(())
}
