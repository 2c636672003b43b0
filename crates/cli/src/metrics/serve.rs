//! Metrics by HTTP: one thread, a bounded number of clients, and none of them can hold the others up.
//!
//! A request is a head of at most 8 KiB; a body is never read, and a connection carries one request. What a client does not send or does not
//! read costs its own connection alone: it ends after two seconds, or when its place is needed.
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::text::Format;
use crate::failure::Failure;
use crate::output;

/// The longest head of a request.
const HEAD: usize = 8 << 10;
/// Header lines of a request.
const LINES: usize = 64;
/// Clients at a time.
const CLIENTS: usize = 32;
/// From the connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer is given again for this long: making one walks through all processes.
const FRESH: Duration = Duration::from_millis(500);

/// Serves what `now` makes until the command is ended.
///
/// # Errors
/// If the address is not to be had.
pub fn serve(address: &str, now: impl Fn(Format) -> String) -> Result<u8, Failure> {
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| unusable(address, &error))?;
    let bound = listener.local_addr().map_err(|error| unusable(address, &error))?;
    output::print(&format!("http://{bound}/metrics\n"))?;
    let mut server = Server { now, bound, made: None, clients: vec![] };
    loop {
        server.turn(&listener);
    }
}

fn unusable(address: &str, error: &std::io::Error) -> Failure {
    Failure::of_environment(format_args!("--listen: \"{}\": {error}; example: 127.0.0.1:9745", address.escape_debug()))
}

struct Server<Now> {
    now: Now,
    bound: SocketAddr,
    /// The last answer, in the format that it has, and when it was made.
    made: Option<(Format, String, Instant)>,
    /// In the order of their coming.
    clients: Vec<Client>,
}

struct Client {
    socket: TcpStream,
    since: Instant,
    request: Vec<u8>,
    /// What is still to be written, once there is an answer.
    answer: Option<Vec<u8>>,
}

impl<Now: Fn(Format) -> String> Server<Now> {
    /// Waits until something can be done, and does it. One client more at most: those that are there come first.
    fn turn(&mut self, listener: &TcpListener) {
        let mut asked = vec![PollFd::new(listener, PollFlags::IN)];
        asked.extend(
            self.clients
                .iter()
                .map(|client| PollFd::new(&client.socket, if client.answer.is_some() { PollFlags::OUT } else { PollFlags::IN })),
        );
        let limit = self.clients.first().map(|client| PATIENCE.saturating_sub(client.since.elapsed()));
        let limit = limit.and_then(|limit| (limit + Duration::from_millis(1)).try_into().ok());
        // An error is a signal, or no memory: what is ready is found without it.
        let _ = rustix::event::poll(&mut asked, limit.as_ref());
        let comes = !asked[0].revents().is_empty();

        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| self.goes_on(client) && client.since.elapsed() < PATIENCE);
        if comes {
            match listener.accept() {
                Ok((socket, _)) if socket.set_nonblocking(true).is_ok() => {
                    if clients.len() == CLIENTS {
                        clients.remove(0);
                    }
                    clients.push(Client { socket, since: Instant::now(), request: vec![], answer: None });
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
                // Out of descriptors or memory: the listener stays readable, and asking on would only use the processor.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        self.clients = clients;
    }

    /// Reads and writes what can be; false once the client has its answer or is lost.
    fn goes_on(&mut self, client: &mut Client) -> bool {
        if client.answer.is_none() {
            let mut piece = [0; 1024];
            match client.socket.read(&mut piece) {
                Ok(0) => return false,
                Ok(count) => client.request.extend_from_slice(&piece[..count]),
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
            client.answer = self.answer(&client.request);
        }
        let Some(left) = &mut client.answer else { return true };
        match client.socket.write(left) {
            Ok(count) => {
                left.drain(..count);
                !left.is_empty()
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    /// The answer to what was read so far; none if more has to come.
    fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let plain = "text/plain; charset=utf-8";
        let refused = |status, text: &str| Some(response(status, plain, text, true));
        let mut lines = [httparse::EMPTY_HEADER; LINES];
        let mut head = httparse::Request::new(&mut lines);
        match head.parse(request) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if request.len() < HEAD => return None,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return refused("431 Request Header Fields Too Large", "the head of the request is too long\n");
            }
            Err(_) => return refused("400 Bad Request", "this is not HTTP\n"),
        }
        let line = |name: &str| head.headers.iter().find(|line| line.name.eq_ignore_ascii_case(name)).map(|line| line.value);
        if self.bound.ip().is_loopback() && !line("Host").is_none_or(is_of_this_machine) {
            return refused("421 Misdirected Request", "no name but localhost is served here\n");
        }
        let reads = match head.method {
            Some("GET") => true,
            Some("HEAD") => false,
            _ => return refused("405 Method Not Allowed", "GET and HEAD are answered\n"),
        };
        if head.path.and_then(|path| path.split('?').next()) != Some("/metrics") {
            return Some(response("404 Not Found", plain, "see /metrics\n", reads));
        }
        let asks_for_open = line("Accept").is_some_and(|value| String::from_utf8_lossy(value).contains("openmetrics-text"));
        let format = if asks_for_open { Format::Open } else { Format::Plain };
        let text = self.metrics(format);
        Some(response("200 OK", format.media_type(), text, reads))
    }

    fn metrics(&mut self, format: Format) -> &str {
        let kept = self.made.take().filter(|(of, _, at)| *of == format && at.elapsed() < FRESH);
        let made = kept.unwrap_or_else(|| (format, (self.now)(format), Instant::now()));
        &self.made.insert(made).1
    }
}

/// Whether a browser of this machine that was led here by a foreign name would have sent another one.
fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    host.parse::<SocketAddr>().is_ok()
        || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
        || host.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case("localhost"))
}

fn response(status: &str, media: &str, text: &str, with_body: bool) -> Vec<u8> {
    let length = text.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut bytes = head.into_bytes();
    if with_body {
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(request: &str) -> Option<String> {
        let bound = "127.0.0.1:9745".parse().unwrap();
        let mut server = Server { now: |format| format!("{format:?}\n"), bound, made: None, clients: vec![] };
        server.answer(request.as_bytes()).map(|answer| String::from_utf8(answer).unwrap())
    }

    #[test]
    fn requests_have_the_answers_of_http() {
        for (request, status, text) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost:9745\r\n\r\n", "200", "Plain\n"),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "200", "Plain\n"),
            ("GET /metrics HTTP/1.1\r\nhost: [::1]:9745\r\naccept: application/openmetrics-text\r\n\r\n", "200", "Open\n"),
            ("HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "200", ""),
            ("GET / HTTP/1.1\r\n\r\n", "404", "see /metrics\n"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", "405", "GET and HEAD are answered\n"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421", "no name but localhost is served here\n"),
            ("\u{1}\r\n\r\n", "400", "this is not HTTP\n"),
        ] {
            let answer = served(request).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(&format!("\r\n\r\n{text}")),
                "{request}: {answer}"
            );
        }
    }

    #[test]
    fn a_head_without_an_end_is_refused() {
        assert_eq!(served("GET /metrics HTTP/1.1\r\nA: "), None);
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(HEAD));
        assert!(served(&long).unwrap().starts_with("HTTP/1.1 431 "));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(LINES + 1));
        assert!(served(&many).unwrap().starts_with("HTTP/1.1 431 "));
    }
}
