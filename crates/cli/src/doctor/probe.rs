//! The two programs of the trial connection: `shunt doctor` runs this command twice more, under shunt.
//!
//! They use sockets as any program does. Each prints a line when it has done its part, and keeps the connection until
//! its standard input ends.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::failure::Failure;

const QUESTION: &[u8; 8] = b"question";
const ANSWER: &[u8; 8] = b"answered";

/// No side waits longer for the other one; a test connection on one host takes microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves one connection: prints the port, answers, and waits for the end of standard input.
pub fn serve() -> Result<u8, Failure> {
    talk(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        say(&listener.local_addr()?.port().to_string())?;
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut question = [0; 8];
        stream.read_exact(&mut question)?;
        if &question != QUESTION {
            return Err(std::io::Error::other("the question arrived damaged"));
        }
        stream.write_all(ANSWER)?;
        until_input_ends()
    })
}

/// Asks the server at `port`.
pub fn ask(port: u16) -> Result<u8, Failure> {
    talk(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(QUESTION)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        if &answer != ANSWER {
            return Err(std::io::Error::other("the answer arrived damaged"));
        }
        say("answered")?;
        until_input_ends()
    })
}

fn talk(conversation: impl FnOnce() -> std::io::Result<()>) -> Result<u8, Failure> {
    conversation().map(|()| 0).map_err(|error| Failure::of_environment(format_args!("the trial connection failed: {error}")))
}

fn say(line: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

fn until_input_ends() -> std::io::Result<()> {
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
