//! Plain sockets of the kernel: sent and received whole, both ends ask without sleeping.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use super::{Reader, Receive, Send};
use crate::place::Place;
use crate::{hear, say, Failure, SIZES};

struct End<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S> End<S> {
    fn new(stream: S) -> Box<Self> {
        Box::new(Self { stream, buffer: vec![0; SIZES[SIZES.len() - 1]] })
    }
}

pub fn unix_sender(place: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    let path = place.file("unix");
    let listener = UnixListener::bind(&path)?;
    say(told, path.as_os_str().as_encoded_bytes())?;
    let stream = listener.accept()?.0;
    stream.set_nonblocking(true)?;
    Ok(End::new(stream))
}

pub fn unix_receiver(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Receive>, Failure> {
    let stream = UnixStream::connect(String::from_utf8(hear(told)?)?)?;
    stream.set_nonblocking(true)?;
    Ok(End::new(stream))
}

pub fn tcp_sender(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    say(told, listener.local_addr()?.to_string().as_bytes())?;
    let stream = listener.accept()?.0;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(End::new(stream))
}

pub fn tcp_receiver(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Receive>, Failure> {
    let stream = TcpStream::connect(String::from_utf8(hear(told)?)?)?;
    stream.set_nonblocking(true)?;
    Ok(End::new(stream))
}

impl<S: Write> Send for End<S> {
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure> {
        self.buffer[..size].fill(filling);
        Ok(())
    }

    fn send(&mut self, size: usize) -> Result<(), Failure> {
        let mut left = &self.buffer[..size];
        while !left.is_empty() {
            match self.stream.write(left) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                written => left = &left[written?..],
            }
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<S: Read> Receive for End<S> {
    fn receive(&mut self, size: usize, read: Reader<'_>) -> Result<(), Failure> {
        let mut had = 0;
        while had < size {
            match self.stream.read(&mut self.buffer[had..size]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Ok(0) => return Err("its sender is gone".into()),
                more => had += more?,
            }
        }
        read(&self.buffer[..size])
    }
}
