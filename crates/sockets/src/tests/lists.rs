//! The lists of the life of the process, read as text: functions of one body may have one address, but each line is a step.

use super::*;
use crate::process::{after_fork_child, after_fork_parent, before_fork};
use shunt_stream::socket::flag;
use std::path::{Path, PathBuf};

const LIFE: &str = include_str!("../process/life.rs");

/// The steps of a list, each with its reason.
fn steps(list: &str) -> Vec<(String, String)> {
    let (_, body) = LIFE.split_once(&format!("const {list}: [Step; ")).expect("a list of that name");
    let (body, _) = body.split_once("\n];").expect("its end");
    let lines = body.lines().skip(1).map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| line.split_once("//").expect("a reason"))
        .map(|(step, why)| (step.trim().trim_end_matches(',').to_owned(), why.trim().to_owned()))
        .collect()
}

const LISTS: [&str; 7] = ["BEFORE_FORK", "PARENT", "FAILED", "CHILD", "BEFORE_OWN_FORK", "PARENT_OF_OWN", "CHILD_OF_OWN"];

#[test]
fn each_step_stands_once_in_its_list_with_a_reason() {
    for list in LISTS {
        let steps = steps(list);
        assert!(steps.len() >= 2, "{list}");
        for (place, (step, why)) in steps.iter().enumerate() {
            assert!(why.len() > 5, "{list}: {step}");
            assert!(!steps[..place].iter().any(|(earlier, _)| earlier == step), "{list}: {step} twice");
        }
    }
}

#[test]
fn steps_keep_the_order_on_which_they_rely() {
    let orders = [
        ("BEFORE_FORK", "kept_pipes::settle_all", "fork::take_locks"),
        ("CHILD", "kept_pipes::forked", "fork::join_streams"),
        ("CHILD_OF_OWN", "kept_pipes::forked", "fork::empty_table"),
        ("BEFORE_FORK", "datagram::prepare_fork", "fork::take_locks"),
        ("BEFORE_FORK", "fork::take_locks", "datagram::before_fork"),
        ("BEFORE_FORK", "fork::take_locks", "epoll::before_fork"),
        ("BEFORE_FORK", "fork::take_locks", "socket_cache::spoil_all"),
        ("BEFORE_FORK", "fork::count_owners", "fork::share_listeners"),
        ("BEFORE_FORK", "fork::share_listeners", "signals::before_fork"),
        ("PARENT", "signals::after_fork", "fork::give_setup"),
        ("PARENT", "fork::uncount", "fork::give_setup"),
        ("FAILED", "fork::take_owners_back", "fork::give_setup"),
        ("CHILD", "fork::free_setup", "thread::forget_id"),
        ("CHILD", "|| sharing::after_fork(Some(1))", "fork::forget_awaited"),
        ("CHILD", "thread::forget_id", "fork::begin_ending"),
        ("CHILD", "fork::look_for_parent", "fork::carriers"),
        ("CHILD", "fork::join_streams", "holding::forked"),
        ("CHILD", "holding::forked", "epoll::forked"),
        ("CHILD", "link::forked", "server::forked"),
        ("CHILD", "signals::after_fork", "section::leave"),
        ("BEFORE_OWN_FORK", "fork::take_setup", "signals::before_fork"),
        ("PARENT_OF_OWN", "signals::after_fork", "fork::give_setup"),
    ];
    for (list, earlier, later) in orders {
        let steps = steps(list);
        let place =
            |wanted: &str| steps.iter().position(|(step, _)| step == wanted).unwrap_or_else(|| panic!("{list}: {wanted}"));
        assert!(place(earlier) < place(later), "{list}: {earlier} before {later}");
    }
}

#[test]
fn what_is_taken_before_a_fork_is_given_back_in_either_process_and_where_it_fails() {
    let has = |list: &str, step: &str| steps(list).iter().any(|(known, _)| known == step);
    for list in ["PARENT", "FAILED", "CHILD", "PARENT_OF_OWN"] {
        assert!(has(list, "signals::after_fork"), "{list}");
        assert!(has(list, "fork::give_setup") != has(list, "fork::free_setup"), "{list}: the set-up lock is free, once");
    }
    for (list, step) in [("PARENT", "exchange::after_fork"), ("FAILED", "exchange::after_fork"), ("CHILD", "exchange::forked")] {
        assert!(has(list, step), "{list}");
    }
    assert_eq!(steps("CHILD").first().unwrap().0, "fork::free_setup");
    assert_eq!(steps("CHILD").last().unwrap().0, "section::leave");
    assert_eq!(steps("BEFORE_FORK").last().unwrap().0, "signals::before_fork");
}

/// The sources of the engine's crates.
fn sources() -> Vec<PathBuf> {
    fn walk(at: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(at).expect("a folder").map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|ext| ext == "rs")
                && !entry.components().any(|part| part.as_os_str() == "tests")
            {
                found.push(entry);
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for name in ["table", "link", "stream", "inbox", "rendezvous", "poll", "near", "remote", "handover", "sockets"] {
        walk(&crates.join(name).join("src"), &mut found);
    }
    found
}

/// The modules below this crate with a public function of that name, each by its own name and the one above, which may export it; and all text.
fn modules_with(function: &str) -> (Vec<[String; 2]>, String) {
    let (mut modules, mut all) = (Vec::new(), String::new());
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        let below = !path.starts_with(env!("CARGO_MANIFEST_DIR"));
        if below && text.lines().any(|line| line.starts_with(&format!("pub fn {function}("))) {
            let folder = path.parent().unwrap();
            let above = if folder.ends_with("src") { folder.parent().unwrap() } else { folder };
            modules.push([path.file_stem().unwrap(), above.file_name().unwrap()].map(|name| name.to_str().unwrap().to_owned()));
        }
        all += &text;
    }
    (modules, all)
}

#[test]
fn each_room_that_has_something_to_do_in_a_child_does_it() {
    let (modules, all) = modules_with("forked");
    assert!(modules.len() > 15);
    for names in modules {
        assert!(names.iter().any(|name| all.contains(&format!("{name}::forked"))), "{names:?} is told of no fork");
    }
}

#[test]
fn each_room_that_keeps_private_numbers_hears_when_one_moves() {
    let (modules, all) = modules_with("moved");
    assert!(modules.len() > 15);
    for names in modules {
        // It is called, or stands in a carrier's table.
        let hears =
            |name: &String| all.contains(&format!("{name}::moved(from, to)")) || all.contains(&format!("moved: {name}::moved,"));
        assert!(names.iter().any(hears), "{names:?} keeps an old number");
    }
}

#[test]
fn the_steps_of_a_moment_are_done_in_their_order() {
    use std::sync::Mutex;
    static DONE: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    crate::process::run(&[|| DONE.lock().unwrap().push(1), || DONE.lock().unwrap().push(2), || DONE.lock().unwrap().push(1)]);
    assert_eq!(*DONE.lock().unwrap(), [1, 2, 1]);
}

#[test]
fn a_fork_leaves_both_processes_with_free_locks_and_the_socket_to_the_kernel() {
    let _alone = alone();
    let (fd, socket) = tcp();
    assert!(!socket.has(flag::PLAIN));
    before_fork();
    // SAFETY: the child looks at its memory and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        after_fork_child();
        // SAFETY: a plain call.
        let own = unsafe { shunt_sys::syscall!(libc::SYS_gettid) } as u32;
        let free = global::SETUP.lock().is_some() && shunt_sys::thread::id() == own;
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!free || !socket.has(flag::PLAIN))) };
    }
    after_fork_parent();
    let mut status = -1;
    // SAFETY: the child of this test.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(global::SETUP.lock().is_some());
    assert!(socket.has(flag::PLAIN) && !socket.has(flag::COUNTED), "two processes have it, and either may connect it");
    close(fd);
}
