//! Beside other preloaded libraries: allocators, sanitizers' run-times, other clocks, proxies; before and behind ours.

use shunt_testkit::{in_mode, program, script, Host, Process, SECOND};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(120);

/// Where Debian keeps libraries, and a name in there.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Compiles one of the suite's programs as `name`, with what gcc is told besides.
fn compile(host: &Host, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let target = host.scratch().join(name);
    host.plain(program("gcc", "gcc"))
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&target)
        .arg(script(source))
        .args(flags)
        .run(DEADLINE)
        .expect_success();
    target
}

fn neighbour(host: &Host, flags: &[&str]) -> PathBuf {
    compile(host, "neighbour.c", &format!("neighbour{}", flags.concat()), flags)
}

fn installed(name: &str, package: &str) -> String {
    let path = if name.starts_with('/') { name.into() } else { format!("{LIBRARIES}/{name}") };
    assert!(PathBuf::from(&path).exists(), "{path} is not installed: apt-get install {package}");
    path
}

/// The program is fine with the list as LD_PRELOAD, and no connection of its went through the kernel.
fn is_fine_with(host: &Host, neighbour: &Path, preload: &str, environment: &[(&str, &str)]) {
    let mut launch = host.plain(neighbour.to_path_buf()).env("LD_PRELOAD", preload);
    for (name, value) in environment {
        launch = launch.env(name, value);
    }
    let output = launch.run(DEADLINE);
    assert_eq!(output.text(), "fine; the kernel opened 0\n", "LD_PRELOAD={preload}\n{}", output.describe());
    // A run-time that watches has nothing to report, a library that was not found nothing to say.
    assert_eq!(output.error_text(), "", "LD_PRELOAD={preload}");
}

/// Before and behind ours.
fn in_both_orders(host: &Host, libraries: &[(&str, &str)], environment: &[(&str, &str)]) {
    let neighbour = neighbour(host, &[]);
    let ours = host.library();
    for (name, package) in libraries {
        let other = installed(name, package);
        is_fine_with(host, &neighbour, &format!("{other}:{ours}"), environment);
        is_fine_with(host, &neighbour, &format!("{ours}:{other}"), environment);
    }
}

fn allocators(host: &Host) {
    let libraries = [
        ("libjemalloc.so.2", "libjemalloc2"),
        ("libtcmalloc.so.4", "libgoogle-perftools4"),
        ("libmimalloc.so.2", "libmimalloc2.0"),
    ];
    in_both_orders(host, &libraries, &[]);
}
in_mode!(beside_allocators, Both, allocators);

fn profilers_and_small_ones(host: &Host) {
    let libraries = [
        ("libprofiler.so.0", "libgoogle-perftools4"),
        ("libeatmydata.so.1", "libeatmydata1"),
        ("/usr/libexec/coreutils/libstdbuf.so", "coreutils"),
    ];
    in_both_orders(host, &libraries, &[("_STDBUF_O", "L")]);
}
in_mode!(beside_profilers_and_small_ones, Both, profilers_and_small_ones);

/// mptcpize's library makes MPTCP sockets of a program's TCP sockets, by syscall(2).
fn multipath(host: &Host) {
    let libraries = [("mptcpize/libmptcpwrap.so.0.0.1", "mptcpize")];
    in_both_orders(host, &libraries, &[]);
}
in_mode!(beside_mptcpize, Both, multipath);

fn another_clock(host: &Host) {
    let libraries = [("faketime/libfaketime.so.1", "libfaketime"), ("faketime/libfaketimeMT.so.1", "libfaketime")];
    in_both_orders(host, &libraries, &[("FAKETIME", "-400d")]);
}
in_mode!(beside_another_clock, Both, another_clock);

/// Programs that gcc made with a sanitizer: `shunt run` as always, and from a shell that it runs.
fn sanitizers(host: &Host) {
    for sanitizer in ["address", "leak", "undefined"] {
        let neighbour = neighbour(host, &[&format!("-fsanitize={sanitizer}")]);
        for shell in [false, true] {
            let launch =
                if shell { host.client("/bin/sh".into()).arg("-c").arg(&neighbour) } else { host.client(neighbour.clone()) };
            let output = launch.run(DEADLINE);
            assert_eq!(output.text(), "fine; the kernel opened 0\n", "{sanitizer}\n{}", output.describe());
            assert_eq!(output.error_text(), "", "{sanitizer}");
        }
    }
    // The run-time before ours, where it sees the program's calls.
    let address = neighbour(host, &["-fsanitize=address"]);
    is_fine_with(host, &address, &format!("libasan.so.8:{}", host.library()), &[]);
    // ThreadSanitizer has to, to see what orders the threads.
    let thread = neighbour(host, &["-fsanitize=thread"]);
    is_fine_with(host, &thread, &format!("libtsan.so.2:{}", host.library()), &[]);
}
in_mode!(sanitized_programs, Both, sanitizers);

/// A proxy's library hands each connection to a proxy on this host, whose both sides are accelerated.
fn proxies(host: &Host) {
    let stop = |process: Process<'_>| {
        process.signal(libc::SIGTERM);
        process.wait(10 * SECOND);
    };
    let web = host.server(shunt_testkit::python_program()).args(["-m", "http.server", "--bind", "127.0.0.1", "9000"]).start();
    let proxy = host.server(program("microsocks", "microsocks")).args(["-i", "127.0.0.1", "-p", "1080"]).start();
    host.wait_for_listener(&web, 9000);
    host.wait_for_listener(&proxy, 1080);
    let content = "through two connections\n".repeat(100_000);
    host.scratch().write("page", content.as_bytes());
    let configuration = host.scratch().write("proxychains.conf", b"strict_chain\n[ProxyList]\nsocks5 127.0.0.1 1080\n");
    for _ in 0..5 {
        host.client(program("proxychains4", "proxychains4"))
            .args(["-q", "-f"])
            .arg(&configuration)
            .arg(program("curl", "curl"))
            .args(["--silent", "--show-error", "--fail", "http://127.0.0.1:9000/page"])
            .run(DEADLINE)
            .expect_text(&content);
    }
    host.expect_path(0);
    stop(proxy);
    stop(web);
}
in_mode!(beside_proxychains, Both, proxies);

/// A program that has the names of calls itself and passes them on, and an allocator; with `-Bsymbolic`, as others link.
fn own_symbols(host: &Host) {
    let own = script("own_symbols.c");
    let own = own.to_str().expect("the checkout's path is text");
    for (name, flags) in [
        ("calls", &[own][..]),
        ("memory", &[own, "-DOWN_MEMORY", "-fno-builtin"]),
        ("symbolic", &[own, "-DOWN_MEMORY", "-fno-builtin", "-pie", "-fPIE", "-Wl,-Bsymbolic"]),
    ] {
        let target = host.scratch().join(name);
        host.plain(program("gcc", "gcc"))
            .args(["-O1", "-pthread", "-o"])
            .arg(&target)
            .arg(script("neighbour.c"))
            .args(flags)
            .run(DEADLINE)
            .expect_success();
        let output = host.client(target).run(DEADLINE);
        assert_eq!(output.text(), "fine; the kernel opened 0\n", "{name}\n{}", output.describe());
        assert_eq!(output.error_text(), "", "{name}");
    }
}
in_mode!(own_symbols_of_a_program, Both, own_symbols);

/// A library that wraps calls and looks the C library's up in that itself: before ours it is given ours, and behind it must not be,
/// because ours calls it.
fn wrappers(host: &Host) {
    let neighbour = neighbour(host, &[]);
    let ours = host.library();
    for (name, how) in [("libnext.so", "-UBY_HANDLE"), ("libhandle.so", "-DBY_HANDLE")] {
        let wrapper = compile(host, "own_symbols.c", name, &["-shared", "-fPIC", how]);
        is_fine_with(host, &neighbour, &format!("{}:{ours}", wrapper.display()), &[]);
        is_fine_with(host, &neighbour, &format!("{ours}:{}", wrapper.display()), &[]);
    }
}
in_mode!(beside_wrappers, Both, wrappers);

/// A library that the loader binds to the C library past ours, as PHP's extensions are.
fn bound_deeply(host: &Host) {
    let program = compile(host, "bound_deeply.c", "bound_deeply", &[]);
    for (name, how) in [("liblazy.so", "-Wl,-z,lazy"), ("libnow.so", "-Wl,-z,now,-z,relro")] {
        let library = compile(host, "bound_deeply.c", name, &["-DLIBRARY", "-shared", "-fPIC", how, "-Wl,--no-as-needed", "-lc"]);
        let expected = "firstboundnamedlast\n".repeat(2);
        host.plain(program.clone()).arg(&library).run(DEADLINE).expect_text(&expected);
        host.client(program.clone()).arg(&library).run(DEADLINE).expect_text(&expected);
    }
}
in_mode!(beside_deep_bindings, Both, bound_deeply);

/// A library with system calls of its own: between ours and the C library in memory, where it cannot be trapped; loaded when there are
/// connections; and a part of the program.
fn instructions(host: &Host) {
    let compile = |name: &str, flags: &[&str]| compile(host, "own_instructions.c", name, flags);
    let library = compile("libown.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    let path = library.to_str().expect("the scratch directory has a plain name");
    let linked = compile("linked", &["-DLINKED", path]);
    let loads = compile("loads", &[]);
    let object = compile("own.o", &["-DLIBRARY", "-c"]);
    let inside = compile("inside", &["-DLINKED", object.to_str().expect("as above")]);
    let shunt = host.library().replace("libshunt.so", "shunt");
    for (name, target, told) in [
        ("linked", linked, ["calls by instructions of libown.so (read is one) cannot be trapped", "raw-instructions: "]),
        ("loads", loads, ["calls by instructions of libown.so (read is one) ", "fine"]),
        ("inside", inside, ["calls by instructions of inside (read is one) are trapped", "accelerated: "]),
    ] {
        host.plain(target.clone()).arg(&library).run(DEADLINE).expect_text("fine\n");
        let output = host.client(target).arg(&library).arg(&shunt).run(DEADLINE);
        let text = output.text();
        assert!(text.starts_with("fine\n") && told.iter().all(|told| text.contains(told)), "{name}\n{}", output.describe());
    }
}
in_mode!(beside_own_instructions, Both, instructions);

/// A library's constructor makes sockets, while the loader's lock is held, and another thread does.
fn constructors(host: &Host) {
    let library = compile(host, "loading.c", "libloaded.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    host.client(compile(host, "loading.c", "loading", &[])).arg(library).run(DEADLINE).expect_text("fine\n");
}
in_mode!(beside_constructors, Both, constructors);

/// A profiler that starts the program with its own preloaded library and looks on by signals.
fn collectors(host: &Host) {
    let neighbour = neighbour(host, &[]);
    let experiment = host.scratch().join("experiment.er");
    let output =
        host.client(program("gprofng", "binutils")).args(["collect", "app", "-O"]).arg(&experiment).arg(&neighbour).run(DEADLINE);
    assert!(output.text().ends_with("fine; the kernel opened 0\n"), "{}", output.describe());
    assert!(experiment.is_dir(), "{}", output.describe());
}
in_mode!(beside_gprofng, Both, collectors);
