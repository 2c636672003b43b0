//! Runs a program whose shunt library is refused system calls, as a kernel without memory, full tables or a filter would do it.
//!
//! ```text
//! testkit-refuser list PROGRAM...                    nothing fails
//! testkit-refuser once CALL NTH ERRNO PROGRAM...     the NTH of that number fails
//! testkit-refuser always CALL ERRNO PROGRAM...       all of that number fail
//! ```
//!
//! A call is the library's if the instruction that makes it lies in `libshunt.so`; calls of the program and of the C library are left alone.
//! Calls are counted over all processes that descend from the program, in the order in which they come. A call that fails is not made.
//!
//! What failed, or for `list` could have, is written to the file that the variable `TESTKIT_REFUSALS` names: number, which of them, and where in
//! the library. The program's end is this program's.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::ops::Range;

/// What is to fail.
enum Plan {
    Nothing,
    Once { call: u64, nth: u64, errno: i32 },
    Always { call: u64, errno: i32 },
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| words[index].parse::<u64>().expect("a number");
    let (plan, program) = match words[0].as_str() {
        "list" => (Plan::Nothing, &words[1..]),
        "once" => (Plan::Once { call: number(1), nth: number(2), errno: number(3) as i32 }, &words[4..]),
        "always" => (Plan::Always { call: number(1), errno: number(2) as i32 }, &words[3..]),
        other => panic!("{other}: list | once CALL NTH ERRNO | always CALL ERRNO, then a program"),
    };
    let log =
        fs::OpenOptions::new().append(true).create(true).open(std::env::var_os("TESTKIT_REFUSALS").unwrap_or("/dev/null".into()));
    let refuser = Refuser {
        plan,
        log: log.expect("the file can be written"),
        threads: HashMap::new(),
        libraries: HashMap::new(),
        counts: HashMap::new(),
        done: false,
    };
    let status = refuser.follow(start(program));
    std::process::exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) });
}

/// The program, stopped before its first instruction.
fn start(program: &[String]) -> i32 {
    let line: Vec<_> = program.iter().map(|word| std::ffi::CString::new(word.as_str()).expect("no zero byte")).collect();
    let mut pointers: Vec<_> = line.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: this process has one thread; the child makes system calls only. The requests have no addresses.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            libc::execvp(pointers[0], pointers.as_ptr());
            libc::_exit(127);
        }
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_EXITKILL;
        libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options);
        child
    }
}

/// A traced thread.
struct Thread {
    process: i32,
    /// Between the entry of a call that fails and its end: with what.
    fails: Option<i32>,
}

struct Refuser {
    plan: Plan,
    log: fs::File,
    threads: HashMap<i32, Thread>,
    /// Where each process has the library.
    libraries: HashMap<i32, Range<u64>>,
    /// Calls of each number.
    counts: HashMap<u64, u64>,
    /// Nothing more is to fail.
    done: bool,
}

impl Refuser {
    /// Follows `child` and all its descendants to their ends; gives its own.
    fn follow(mut self, child: i32) -> i32 {
        let (mut thread, mut status, mut end) = (child, libc::SIGSTOP << 8 | 0x7f, 0);
        while thread > 0 {
            if libc::WIFSTOPPED(status) {
                let signal = self.stopped(thread, status);
                let request = if self.done { libc::PTRACE_CONT } else { libc::PTRACE_SYSCALL };
                // SAFETY: a request without addresses.
                unsafe { libc::ptrace(request, thread, 0, signal) };
            } else {
                self.threads.remove(&thread);
                end = if thread == child { status } else { end };
            }
            // SAFETY: the kernel writes an integer.
            thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        }
        end
    }

    /// Gives the signal with which it goes on.
    fn stopped(&mut self, thread: i32, status: i32) -> i32 {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let known = self.threads.entry(thread).or_insert_with(|| Thread { process: process_of(thread), fails: None });
        if event == libc::PTRACE_EVENT_EXEC {
            known.process = thread;
            self.libraries.remove(&thread);
        }
        match signal {
            // A thread that begins stops, too.
            libc::SIGTRAP | libc::SIGSTOP => 0,
            CALL => {
                self.calls(thread);
                0
            }
            signal => signal,
        }
    }

    /// A call begins or ends.
    fn calls(&mut self, thread: i32) {
        // SAFETY: plain integers, which the kernel fills in.
        let mut call: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let size = std::mem::size_of_val(&call);
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut call) };
        if call.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            // SAFETY: the kernel says that it is an entry.
            let fails = self.begins(thread, unsafe { call.u.entry.nr }, call.instruction_pointer);
            if fails.is_some() {
                set_register(thread, std::mem::offset_of!(libc::user_regs_struct, orig_rax), u64::MAX);
            }
            self.threads.get_mut(&thread).expect("it was entered").fails = fails;
        } else if let Some(errno) = self.threads.get_mut(&thread).and_then(|known| known.fails.take()) {
            set_register(thread, std::mem::offset_of!(libc::user_regs_struct, rax), i64::from(-errno) as u64);
            self.done = matches!(self.plan, Plan::Once { .. });
        }
    }

    /// The error with which the call is to fail.
    fn begins(&mut self, thread: i32, number: u64, instruction: u64) -> Option<i32> {
        let process = self.threads[&thread].process;
        let library = self.library(process)?;
        if !library.contains(&instruction) || GIVES_BACK.contains(&(number as i64)) {
            return None;
        }
        let count = self.counts.entry(number).or_insert(0);
        *count += 1;
        let fails = match self.plan {
            Plan::Once { call, nth, errno } => (call == number && nth == *count).then_some(errno),
            Plan::Always { call, errno } => (call == number).then_some(errno),
            Plan::Nothing => None,
        };
        if fails.is_some() || matches!(self.plan, Plan::Nothing) {
            writeln!(self.log, "{number} {count} {:#x}", instruction - library.start).expect("the file can be written");
        }
        fails
    }

    fn library(&mut self, process: i32) -> Option<Range<u64>> {
        if let Some(known) = self.libraries.get(&process) {
            return Some(known.clone());
        }
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
        let lines = || maps.lines().filter(|line| line.contains("/libshunt"));
        lines().find(|line| line.contains(" r-xp "))?; // the loader maps the whole first, and the parts over it
        let ends = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
        };
        let whole = ends(lines().next()?)?.start..ends(lines().next_back()?)?.end;
        self.libraries.insert(process, whole.clone());
        Some(whole)
    }
}

/// How a thread stops for a call (PTRACE_O_TRACESYSGOOD).
const CALL: i32 = libc::SIGTRAP | 0x80;

fn set_register(thread: i32, offset: usize, value: u64) {
    // SAFETY: an offset into the registers of a stopped thread.
    unsafe { libc::ptrace(libc::PTRACE_POKEUSER, thread, offset, value) };
}

fn process_of(thread: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).unwrap_or(thread)
}

/// Calls that give something back, or that no kernel can fail: they do not.
const GIVES_BACK: [i64; 15] = [
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_munmap,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
];
