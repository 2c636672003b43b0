//! Loops of tokio on one thread, which tarpc, Cap'n Proto and tonic stand on.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

use crate::turn::Turn;
use crate::Failure;

pub fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Says that the server can be called, and serves until the stream ends.
pub async fn serve_until_told(told: UnixStream, serving: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    told.set_nonblocking(true)?;
    let mut told = tokio::net::UnixStream::from_std(told)?;
    told.write_all(&[1]).await?;
    let mut end = [0];
    tokio::select! {
        result = serving => result,
        _ = told.read(&mut end) => Ok(()),
    }
}

/// Calls, one after the other, for a turn's length.
pub async fn calls(length: Duration, mut call: impl AsyncFnMut(u64) -> Result<u64, Failure>) -> Result<f64, Failure> {
    let (mut turn, mut word) = (Turn::new(length), 0);
    while turn.goes_on() {
        let begun = Instant::now();
        let answer = call(word).await?;
        turn.note(begun);
        assert_eq!(answer, word, "an echo");
        word += 1;
    }
    Ok(turn.p50())
}
