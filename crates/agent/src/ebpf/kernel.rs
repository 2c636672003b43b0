//! bpf(2): maps, programs and links, as descriptors that undo themselves when they are closed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const PROGRAM_LOAD: i32 = 5;
const TEST_RUN: i32 = 10;
const PROGRAM_BY_ID: i32 = 13;
const INFORMATION: i32 = 15;
const LINK_CREATE: i32 = 28;

/// `enum bpf_attach_type`: BPF_XDP.
const ATTACH_XDP: u32 = 37;
/// `enum xdp_action`: XDP_PASS.
const PASS: i32 = 2;
/// `enum bpf_prog_type`: BPF_PROG_TYPE_XDP.
const PROGRAM_XDP: u32 = 6;

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum MapKind {
    /// Keys of any bytes.
    Hash = 1,
    /// Keys 0, 1, 2, ...
    Array = 2,
    /// As `Array`, with values for each processor.
    PerProcessorArray = 6,
    /// Queue number to AF_XDP socket.
    Sockets = 17,
}

/// Calls bpf(2) with a structure that begins as `union bpf_attr` does for that command.
fn bpf<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the structure is initialised and as long as said; the pointers in it are the callers' to uphold.
    let value = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value as i32)
    }
}

/// As [`bpf`], for commands that answer with a new descriptor (close-on-exec, as the kernel makes them).
fn bpf_descriptor<T>(command: i32, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the kernel has just made has no other owner.
    bpf(command, attributes).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn name_of(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// A map. It lives while a process has a descriptor of it or a loaded program uses it.
pub struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// A map of `entries` at most, with keys and values of so many bytes. `name` has at most 15 bytes.
    ///
    /// # Errors
    /// EPERM without CAP_BPF; before Linux 5.11 also where RLIMIT_MEMLOCK is too small.
    pub fn new(kind: MapKind, name: &str, key: usize, value: usize, entries: u32) -> io::Result<Map> {
        Map::with(kind, name, (key, value, entries), 0)
    }

    /// As [`Map::new`] of [`MapKind::Hash`], whose entries take memory only as long as they are there.
    ///
    /// # Errors
    /// As there.
    pub fn sparse(name: &str, key: usize, value: usize, entries: u32) -> io::Result<Map> {
        /// BPF_F_NO_PREALLOC.
        const NOT_BEFOREHAND: u32 = 1;
        Map::with(MapKind::Hash, name, (key, value, entries), NOT_BEFOREHAND)
    }

    fn with(kind: MapKind, name: &str, (key, value, entries): (usize, usize, u32), flags: u32) -> io::Result<Map> {
        #[repr(C)]
        struct Create {
            kind: u32,
            key: u32,
            value: u32,
            entries: u32,
            flags: u32,
            inner: u32,
            node: u32,
            name: [u8; 16],
        }
        let (key_size, value_size) = (key as u32, value as u32);
        let mut create = Create {
            kind: kind as u32,
            key: key_size,
            value: value_size,
            entries,
            flags,
            inner: 0,
            node: 0,
            name: name_of(name),
        };
        Ok(Map { fd: bpf_descriptor(MAP_CREATE, &mut create)?, key, value })
    }

    fn element(&self, command: i32, key: &[u8], value: *mut u8, flags: u64) -> io::Result<()> {
        assert_eq!(key.len(), self.key);
        let map = self.fd.as_raw_fd() as u32;
        let mut element = Element { map, padding: 0, key: key.as_ptr() as u64, value: value as u64, flags };
        bpf(command, &mut element).map(|_| ())
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// E2BIG or ENOMEM when the map is full, EBADF where a value must be a socket and is not.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value);
        self.element(MAP_UPDATE, key, value.as_ptr().cast_mut(), 0)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// ENOENT.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        self.element(MAP_DELETE, key, std::ptr::null_mut(), 0)
    }

    /// The sum over all processors of the number at `index` of a [`MapKind::PerProcessorArray`] of u64.
    ///
    /// # Errors
    /// ENOENT.
    pub fn sum(&self, index: u32) -> io::Result<u64> {
        let mut values = vec![0u64; possible_processors()];
        self.element(MAP_LOOKUP, &index.to_ne_bytes(), values.as_mut_ptr().cast(), 0)?;
        Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
    }

    /// For [`super::assembler::Assembler::map`].
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Processors that may ever be there: the kernel writes a value for each of them.
fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<usize>().ok());
    // Where /sys is not mounted: more than any kernel has, so that it cannot write behind the end.
    last.map_or(8192, |last| last + 1)
}

/// A loaded program.
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Loads an XDP program; `name` has at most 15 bytes. `parts`: it can be shown a packet of which only the beginning lies in
    /// one piece, if this kernel knows of such (Linux 5.18).
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_NET_ADMIN; what the verifier said, if it rejects the program.
    pub fn load(name: &str, code: &[u64], parts: bool) -> io::Result<Program> {
        /// BPF_F_XDP_HAS_FRAGS.
        const HAS_PARTS: u32 = 1 << 5;
        #[repr(C)]
        struct Load {
            kind: u32,
            count: u32,
            code: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
            name: [u8; 16],
            interface: u32,
            attach: u32,
        }
        let mut load = Load {
            kind: PROGRAM_XDP,
            count: code.len() as u32,
            code: code.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: if parts { HAS_PARTS } else { 0 },
            name: name_of(name),
            interface: 0,
            attach: ATTACH_XDP,
        };
        let error = match bpf_descriptor(PROGRAM_LOAD, &mut load) {
            Ok(fd) => return Ok(Program { fd }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
            Err(error) if parts && error.raw_os_error() == Some(libc::EINVAL) => return Program::load(name, code, false),
            Err(error) => error,
        };
        // Once more, to hear why.
        let mut log = vec![0u8; 1 << 16];
        (load.log_level, load.log_size, load.log) = (1, log.len() as u32, log.as_mut_ptr() as u64);
        match bpf_descriptor(PROGRAM_LOAD, &mut load) {
            Ok(fd) => Ok(Program { fd }),
            Err(_) => {
                let said = String::from_utf8_lossy(&log);
                let said = said.trim_end_matches('\0').trim();
                Err(io::Error::new(error.kind(), format!("{error}; the verifier said: {said}")))
            }
        }
    }

    /// A program that leaves every frame to the kernel.
    ///
    /// # Errors
    /// As for [`Program::load`].
    pub fn that_passes(name: &str) -> io::Result<Program> {
        let mut code = super::assembler::Assembler::default();
        code.set(super::assembler::Register::R0, PASS);
        code.exit();
        Program::load(name, &code.finish(), false)
    }

    /// Runs the program on a frame as if the interface with this index had received it on its first queue, and has the kernel do what the
    /// program says (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18).
    ///
    /// # Errors
    /// EINVAL: an older kernel, or a frame that is longer than a page less what the kernel needs; ENODEV.
    pub fn run_on(&self, interface: u32, frame: &[u8]) -> io::Result<()> {
        const LIVE_FRAMES: u32 = 1 << 1;
        /// `struct xdp_md`.
        #[repr(C)]
        struct Context {
            data: u32,
            data_end: u32,
            data_meta: u32,
            interface: u32,
            queue: u32,
            egress: u32,
        }
        #[repr(C)]
        struct Run {
            program: u32,
            result: u32,
            size_in: u32,
            size_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
            context_size_in: u32,
            context_size_out: u32,
            context_in: u64,
            context_out: u64,
            flags: u32,
            processor: u32,
            batch: u32,
            padding: u32,
        }
        let size = frame.len() as u32;
        let context = Context { data: 0, data_end: size, data_meta: 0, interface, queue: 0, egress: 0 };
        let mut run = Run {
            program: self.fd.as_raw_fd() as u32,
            result: 0,
            size_in: size,
            size_out: 0,
            data_in: frame.as_ptr() as u64,
            data_out: 0,
            repeat: 1,
            duration: 0,
            context_size_in: size_of::<Context>() as u32,
            context_size_out: 0,
            context_in: (&raw const context) as u64,
            context_out: 0,
            flags: LIVE_FRAMES,
            processor: 0,
            batch: 0,
            padding: 0,
        };
        bpf(TEST_RUN, &mut run).map(|_| ())
    }

    /// The program with this number, and its name.
    ///
    /// # Errors
    /// ENOENT if it is gone, EPERM without CAP_SYS_ADMIN.
    pub fn name_of(number: u32) -> io::Result<String> {
        let mut request = [number, 0, 0];
        let fd = bpf_descriptor(PROGRAM_BY_ID, &mut request)?;
        // `struct bpf_prog_info`: the name stands at byte 64.
        let mut information = [0u8; 128];
        #[repr(C)]
        struct Ask {
            fd: u32,
            size: u32,
            information: u64,
        }
        let mut ask =
            Ask { fd: fd.as_raw_fd() as u32, size: information.len() as u32, information: information.as_mut_ptr() as u64 };
        bpf(INFORMATION, &mut ask)?;
        let name = &information[64..80];
        Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
    }

    /// Attaches the program to the interface with this index. The kernel detaches it when the link is closed, so also when
    /// this process dies, however it dies.
    ///
    /// # Errors
    /// EBUSY if another program is attached; EOPNOTSUPP, ERANGE, EINVAL and others if the driver cannot.
    pub fn attach(&self, interface: u32, how: Attachment) -> io::Result<Link> {
        let mut create = [self.fd.as_raw_fd() as u32, interface, ATTACH_XDP, how as u32];
        bpf_descriptor(LINK_CREATE, &mut create).map(|fd| Link { _fd: fd })
    }
}

/// Whether programs of a cgroup, or of one above it, see packets of its sockets that come (BPF_CGROUP_INET_INGRESS) or leave (_EGRESS).
///
/// # Errors
/// What bpf(2) answers: EBADF where it is no cgroup of version 2.
pub fn cgroup_sees_packets(cgroup: RawFd) -> io::Result<bool> {
    /// BPF_F_QUERY_EFFECTIVE: those of groups above, too.
    const EFFECTIVE: u32 = 1;
    // BPF_CGROUP_INET_INGRESS and BPF_CGROUP_INET_EGRESS.
    Ok(programs(cgroup as u32, 0, EFFECTIVE)? + programs(cgroup as u32, 1, EFFECTIVE)? > 0)
}

/// Whether programs of tcx see what comes or leaves by an interface. Kernels before Linux 6.6 have none.
pub fn interface_sees_packets(interface: u32) -> bool {
    /// BPF_TCX_INGRESS and BPF_TCX_EGRESS.
    const PLACES: [u32; 2] = [46, 47];
    PLACES.into_iter().any(|place| programs(interface, place, 0).is_ok_and(|count| count > 0))
}

/// How many programs are attached there.
fn programs(target: u32, kind: u32, flags: u32) -> io::Result<u32> {
    const PROGRAMS_OF: i32 = 16;
    #[repr(C)]
    struct Query {
        target: u32,
        kind: u32,
        flags: u32,
        attached: u32,
        numbers: u64,
        count: u32,
        padding: u32,
        /// Flags of each, links, their flags, and a revision, which the kernel writes whatever the length.
        others: [u64; 4],
    }
    let mut query = Query { target, kind, flags, attached: 0, numbers: 0, count: 0, padding: 0, others: [0; 4] };
    bpf(PROGRAMS_OF, &mut query)?;
    Ok(query.count)
}

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Attachment {
    /// In the driver, before the kernel makes a packet of the frame (XDP_FLAGS_DRV_MODE).
    Native = 1 << 2,
    /// In the kernel's stack, for drivers that know nothing of XDP (XDP_FLAGS_SKB_MODE).
    Generic = 1 << 1,
}

impl Attachment {
    /// The word of reports.
    pub fn word(self) -> &'static str {
        match self {
            Attachment::Native => "native",
            Attachment::Generic => "generic",
        }
    }
}

/// A program's tie to an interface; dropping it detaches.
pub struct Link {
    _fd: OwnedFd,
}
