//! Files over FTP between memory file systems, of the sizes that SOVIA's table I has: vsftpd and curl.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::getuid;

use super::pair::run_load;
use super::START_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

const SERVER: External = External { name: "vsftpd", package: "vsftpd" };
const CLIENT: External = External { name: "curl", package: "curl" };
/// Row, title, bytes.
const FILES: [(&str, &str, usize); 2] =
    [("ftp/19M", "FTP, 19 MB file", 19_090_223), ("ftp/146M", "FTP, 146 MB file", 145_864_380)];

/// vsftpd serves files of /dev/shm, curl writes them there.
#[derive(Debug, Default)]
pub struct Ftp {
    /// What the server offers.
    root: PathBuf,
    /// Removes it all.
    memory: Option<Memory>,
}

/// A directory in a memory file system, removed with this value.
#[derive(Debug)]
struct Memory(PathBuf);

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.0.join("root"), fs::Permissions::from_mode(0o755));
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Cell for Ftp {
    fn name(&self) -> &'static str {
        "ftp"
    }

    fn about(&self) -> &'static str {
        "vsftpd and curl: files of 19 and 146 MB between memory file systems, as in SOVIA's table I"
    }

    fn needs(&self) -> &'static [External] {
        &[SERVER, CLIENT]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(5)
    }

    fn prepare(&mut self, _instrument: &mut Instrument) -> io::Result<()> {
        let memory = PathBuf::from(format!("/dev/shm/shunt-bench-{}", std::process::id()));
        self.root = memory.join("root");
        fs::create_dir_all(&self.root)?;
        fs::create_dir_all(memory.join("empty"))?;
        self.memory = Some(Memory(memory));
        for (row, _, size) in FILES {
            fs::write(self.root.join(file_name(row)), vec![b'f'; size])?;
        }
        // vsftpd refuses an anonymous root that its user may write.
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o555))
    }

    fn floors(&mut self, _instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let figures = FILES.map(|(row, title, size)| {
            let elapsed = copy(&self.root.join(file_name(row)), &self.target())?;
            Ok(Figure::new(row, title, Unit::BytesPerSecond, size as f64 / elapsed.as_secs_f64()))
        });
        collector.add_floor("local copy", figures.into_iter().collect::<io::Result<_>>()?);
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let port = instrument.ports.take()?;
        let server = self.start_server(instrument, contender, port)?;
        let mut turn = Turn::default();
        for (row, title, size) in FILES {
            let client = Launch::through(contender, &CLIENT.find().map_err(io::Error::other)?)
                .args(["-sS", "-w", "%{size_download} %{time_total} %{time_pretransfer}\\n", "-o"])
                .args([self.target()])
                .args([format!("ftp://127.0.0.1:{port}/{}", file_name(row))])
                .core(instrument.machine.client_core);
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let (output, cpu) = run_load(instrument, client, from_ref(&server), look, &mut turn)?;
            let seconds = parse(&output, size)?;
            let figure = Figure::new(row, title, Unit::BytesPerSecond, size as f64 / seconds);
            turn.figures.push(figure.with_cpu(cpu));
        }
        // The listener has no handler for the signal, and its sessions have ended.
        server.stop(Signal::SIGTERM, Duration::from_secs(2));
        Ok(turn)
    }
}

impl Ftp {
    /// Where the file is written.
    fn target(&self) -> PathBuf {
        self.root.with_file_name("received")
    }

    fn start_server(&self, instrument: &Instrument, contender: &Contender, port: u16) -> io::Result<Running> {
        let user = if getuid().is_root() { "" } else { "run_as_launching_user=YES\nanon_world_readable_only=NO\n" };
        let configuration = instrument.scratch.join(format!("vsftpd-{port}.conf"));
        fs::write(
            &configuration,
            format!(
                "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\n\
                 local_enable=NO\nno_anon_password=YES\nanon_root={}\npasv_enable=YES\nuse_sendfile=YES\n\
                 connect_from_port_20=NO\nsecure_chroot_dir={}\nxferlog_enable=NO\n{user}",
                self.root.display(),
                self.root.with_file_name("empty").display()
            ),
        )?;
        let mut server = Launch::through(contender, &SERVER.find().map_err(io::Error::other)?)
            .args([configuration])
            .core(instrument.machine.server_core)
            .start(&instrument.scratch)?;
        server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
        Ok(server)
    }
}

/// `ftp/19M` is the row of file `19M`.
fn file_name(row: &str) -> &str {
    row.rsplit('/').next().unwrap_or(row)
}

/// Copies a file by read(2) and write(2) of 64 KiB.
fn copy(from: &Path, to: &Path) -> io::Result<Duration> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let mut piece = vec![0; 64 << 10];
    let begin = Instant::now();
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(begin.elapsed()),
            count => to.write_all(&piece[..count])?,
        }
    }
}

/// Seconds of the transfer itself, without log-in and set-up; an error unless all bytes came.
fn parse(output: &str, size: usize) -> io::Result<f64> {
    let fields: Vec<f64> = output.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    match fields[..] {
        [bytes, total, before] if bytes == size as f64 && total > before => Ok(total - before),
        _ => Err(io::Error::other(format!("curl did not get all {size} bytes: {output:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_transfer_is_read() {
        assert_eq!(parse("19090223 0.500 0.250\n", 19_090_223).unwrap(), 0.25);
        assert!(parse("1000 0.5 0.2\n", 19_090_223).is_err());
    }
}
