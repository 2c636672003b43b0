//! Callers and servers of other origin for ONC RPC: `onc-peers onc-rpc server`, which writes its port; `onc-peers onc-rpc client PORT`;
//! `onc-peers rpcbind`, by two crates, at rpcbind's port. What calls say is printed.

mod onc;
mod rpcbind;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["onc-rpc", "server"] => onc::serve(),
        ["onc-rpc", "client", port] => onc::call(port.parse()?),
        ["rpcbind"] => rpcbind::ask(),
        _ => Err("onc-peers onc-rpc server | onc-peers onc-rpc client PORT | onc-peers rpcbind".into()),
    }
}
