//! The command line, as clap sees it. The options of `shunt run` come from the table of options.
use std::ffi::OsString;

use clap::{value_parser, Arg, ArgAction, Command, CommandFactory};
use shunt_config::{Entry, TABLE};

/// The whole command.
pub fn command() -> Command {
    Command::new("shunt")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A low-resistance path beside the kernel's network stack, for unmodified programs on one host")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run())
        .subcommand(config())
        .subcommand(spmd())
        .subcommand(Command::new("spmd-agent").about("A host's part of a job, started by shunt spmd --hosts").hide(true))
        .subcommand(ss())
        .subcommand(why())
        .subcommand(crate::top::command())
        .subcommand(metrics())
        .subcommand(doctor())
        .subcommand(crate::capture::command())
        .subcommand(crate::cut::command())
        .subcommand(crate::report::command())
        .subcommands(crate::unit::commands())
        .subcommand(agent())
        .subcommand(hostd())
        .subcommand(crate::rpc::command())
        .subcommand(shunt_bench::Bench::command().name("bench"))
        .subcommand(man())
        .subcommand(completions())
}

fn run() -> Command {
    Command::new("run")
        .about("Run a program; its TCP connections to other shunt programs on this host use shared memory")
        .override_usage("shunt run [OPTIONS] [--] PROGRAM [ARGUMENT]...")
        .args(TABLE.iter().map(option))
        .arg(profile())
        .arg(
            Arg::new(crate::run::REQUIRE)
                .long(crate::run::REQUIRE)
                .help("Fail where the library is missing or cannot be loaded, rather than run the program on the kernel")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .help("The program and its arguments")
                .required(true)
                .num_args(1..)
                .trailing_var_arg(true)
                .value_parser(value_parser!(OsString)),
        )
        .after_help(
            "A flag is stronger than its variable, a variable than /etc/shunt/shunt.toml and ~/.config/shunt/shunt.toml, which may have\n\
             a section [programs.NAME]; `shunt config NAME` prints what holds, and where it was said. The program replaces this command: it keeps its arguments, standard\n\
             descriptors, signals and process number, and its exit status is the command's.\n\
             Exit status: 2 wrong option, 126 not executable, 127 not found, otherwise the program's own.",
        )
}

fn config() -> Command {
    Command::new("config")
        .about("Tell what each option is for a program, and where that was said: by a flag, a variable, a file or a profile")
        .args(TABLE.iter().map(|entry| option(entry).hide(true)))
        .arg(profile())
        .arg(json())
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .help("The program, whose section holds")
                .value_parser(value_parser!(OsString)),
        )
        .after_help(
            "The flags of shunt run are taken, too. All sections of the files are checked.\n\
             Exit status: 2 if a file or a value has a mistake.",
        )
}

fn profile() -> Arg {
    let named = shunt_config::PROFILES.map(|profile| profile.name).join(", ");
    Arg::new(crate::settings::PROFILE_FLAG)
        .long(crate::settings::PROFILE_FLAG)
        .value_name("NAME")
        .help(format!(
            "Take the options of a profile where nothing stronger is said: {named}, none, or one of a file [{}]",
            crate::settings::PROFILE_VARIABLE
        ))
        .action(ArgAction::Set)
        .overrides_with(crate::settings::PROFILE_FLAG)
        .value_parser(value_parser!(OsString))
}

fn option(entry: &'static Entry) -> Arg {
    Arg::new(entry.name)
        .long(entry.name)
        .value_name(entry.value_name)
        .help(format!(
            "{} [{}; default: {}; allowed: {}; example: {}]",
            entry.help.replace('`', ""),
            entry.variable,
            entry.default,
            entry.range,
            entry.example
        ))
        .action(ArgAction::Set)
        .overrides_with(entry.name)
        // A negative number is a wrong value, which the table of options explains, and no flag.
        .allow_negative_numbers(true)
        .value_parser(value_parser!(OsString))
}

fn spmd() -> Command {
    Command::new("spmd")
        .about("Start a program several times as one job, whose processes share a symmetric heap (OpenSHMEM, Split-C)")
        .override_usage("shunt spmd -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENT]...")
        .arg(
            Arg::new("ranks")
                .short('n')
                .long("ranks")
                .visible_alias("np")
                .value_name("RANKS")
                .help("How many processes [default: as many as there are processors]")
                .value_parser(value_parser!(u16).range(1..=1024)),
        )
        .arg(
            Arg::new("heap")
                .long("heap")
                .value_name("SIZE")
                .help("Bytes of each symmetric heap, as 64M or 2G [default: SHMEM_SYMMETRIC_SIZE, or 1G; pages exist once they are written]"),
        )
        .arg(
            Arg::new("view")
                .long("view")
                .value_name("PID")
                .help("Start nothing, but show what each rank of a job waits for; PID is that of a rank or of the command that started it")
                .value_parser(value_parser!(u32).range(1..=i64::from(i32::MAX)))
                .conflicts_with_all(["ranks", "heap", "label", "bind", "check", "hosts", "trace", "program"]),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .help("Show it again and again, so far apart, until the job is over")
                .value_parser(value_parser!(u64).range(1..=3600))
                .requires("view"),
        )
        .arg(
            Arg::new("trace")
                .long("trace")
                .value_name("FILE")
                .help("Write what each rank waited for, its collectives and its large transfers there, for Perfetto or chrome://tracing")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("hosts")
                .long("hosts")
                .value_name("HOST:RANKS,...")
                .help("Start the ranks there, as a:4,b:4 or, in equal shares, a,b; all of them share one address space"),
        )
        .arg(
            Arg::new("device")
                .long("device")
                .value_name("DEVICE")
                .default_value("udp")
                .value_parser(["udp", "xdp"])
                .help("Frames between hosts go by the kernel, or past it by the agent of the interface [shunt agent]"),
        )
        .arg(
            Arg::new("rsh")
                .long("rsh")
                .value_name("COMMAND")
                .default_value("ssh")
                .help("Reach hosts by this command, in which {host} is the host [or its last word]"),
        )
        .arg(Arg::new("label").long("label").help("Begin each line of output with its rank").action(ArgAction::SetTrue))
        .arg(
            Arg::new("bind")
                .long("bind")
                .help("Give each rank a processor of its own, where there are enough")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("check")
                .long("check")
                .help("Look up the address of each operation: one that is not within an object that is allocated ends the job")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .help("The program and its arguments")
                .required_unless_present("view")
                .num_args(1..)
                .trailing_var_arg(true)
                .value_parser(value_parser!(OsString)),
        )
        .after_help(
            "Programs are compiled with shunt-shmemcc. Rank 0 has this command's standard input, the others have none. The first\n\
             rank that is killed, exits with another status than 0 or leaves without shmem_finalize ends the job, and is named on\n\
             standard error. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to all.\n\
             Exit status: that of the rank that ended the job (128 and the signal, if it was killed; 1, if it just left), 0 if all\n\
             went well, 2 wrong option, 126 not executable, 127 not found.",
        )
}

fn ss() -> Command {
    Command::new("ss")
        .about("Show the accelerated connections of your processes (of all processes, for root)")
        .arg(json())
        .arg(Arg::new("all").long("all").help("Show ended connections, too, whose memory is kept").action(ArgAction::SetTrue))
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .help("The largest first: bytes sent, or age")
                .value_parser(["sent", "age"]),
        )
        .arg(
            Arg::new("filter")
                .value_name("FILTER")
                .help("Show only these, as ss(8) takes it: dport = :6379 and not state closing")
                .num_args(0..),
        )
        .after_help(format!(
            "FILTER joins terms by and, or, not and parentheses; a term is a key and a value, with = or != between them or not. Keys: {};\n\
             client and sport are of the end that connected, server and dport of the one that accepted, the others of either.\n\n\
             A program with ? in place of its process's number has ended, or runs where this command does not see it, as in a PID\n\
             namespace beside this one; its name is then the one by which it introduced itself. SENT counts the bytes that an end has sent; RING tells how many of them the other end has not received, and\n\
             the size of the ring. WAIT tells how the end last waited: it spins, sleeps in a call, or polls. Of connections to\n\
             other hosts, UNDER-WAY counts bytes that the other host may not have; ROUND-TRIP is the smoothed one, WINDOW the\n\
             packets that are under way and those that may be, SENT-AGAIN the packets that were. With --json there are also\n\
             its deviation, the time-out, the pacing, the other host's room, and what the agent says of the endpoint.",
            crate::filter::KEYS
        ))
}

fn why() -> Command {
    Command::new("why")
        .about("Tell for every socket of a process, or of all, what carries it, and why")
        .override_usage("shunt why [OPTIONS] [PROCESS] [FILTER]...")
        .arg(
            Arg::new("words")
                .value_name("PROCESS|FILTER")
                .help("The process: its number (PID), or its program's name if one process alone has that [default: all under shunt]; and which sockets, as shunt ss takes it: reason peer-plain and dport = :6379")
                .num_args(0..)
                .allow_negative_numbers(true),
        )
        .arg(json())
        .after_help(format!(
            "FILTER joins terms by and, or, not and parentheses, as for shunt ss. Keys: {}; of a socket that the kernel carries, the end at\n\
             a port where the process listens is the server's. The first word is the process, unless a term begins with it.\n\n\
             Of each connection to another host it also tells the round trip, its deviation and the time-out that follows; the\n\
             window by the congestion control and the largest, packets under way and waiting, and the pacing; what was sent\n\
             again; the other host's room; and what the agent of the interface says of the endpoint, if its device is xdp.",
            crate::filter::KEYS
        ))
}

fn metrics() -> Command {
    Command::new("metrics")
        .about("Tell Prometheus of the processes and accelerated connections of your programs (of all, for root)")
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("FILE")
                .help("Write them there at once, as node_exporter's textfile collector reads them")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .help("Serve them by HTTP at /metrics until ended, as in 127.0.0.1:9745")
                .conflicts_with("output"),
        )
        .after_help(
            "Over HTTP they are OpenMetrics for readers that ask for it. Series are by program, role, the server's port and carrier, never by connection. Watched programs do nothing for it: their\n\
             memory is read from outside.",
        )
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Check what this machine lets shunt do, and say what follows")
        .arg(json())
        .arg(
            Arg::new("unit")
                .long("unit")
                .value_name("NAME")
                .help("Find the directives of a service of systemd that keep its connections on the kernel, or limit them"),
        )
        .arg(
            Arg::new("root")
                .long("root")
                .value_name("DIRECTORY")
                .help("With --unit: units lie below this directory [default: /]")
                .requires("unit")
                .value_parser(value_parser!(OsString)),
        )
        // The programs of the trial connection, see doctor/probe.rs.
        .arg(Arg::new("probe").long("probe").hide(true).num_args(1..=2))
        .after_help("Exit status: 0 if connections can be accelerated here, 1 if something that they need is missing.")
}

fn agent() -> Command {
    let value = |name: &'static str, value_name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value_name).help(help).action(ArgAction::Set)
    };
    let number = |name, value_name, help| value(name, value_name, help).value_parser(value_parser!(u32));
    Command::new("agent")
        .about("Serve endpoints on a network interface through AF_XDP (needs root)")
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("status")
                .about("Show the agents of this network namespace and your endpoints (all endpoints, for root)")
                .arg(value("interface", "NAME", "The agent of this interface alone"))
                .arg(json()),
        )
        .arg(value("interface", "NAME", "The interface, and the only one that is touched").required(true))
        .arg(value("port", "PORT", "UDP port of its endpoints [default: 29544]").value_parser(value_parser!(u16).range(1..)))
        .arg(value(
            "lend",
            "QUEUES",
            "Queues that endpoints may have for themselves, as in 1,2 or 1-3 or none [default: all but 0; with --take: 0]",
        ))
        .arg(
            value("trust", "USERS", "Users besides root that may have a queue, and so send any frame by the interface (one by one: runs are root's): names or numbers")
                .value_delimiter(','),
        )
        .arg(
            Arg::new("take")
                .long("take")
                .help("Take established TCP connections from the kernel for processes that have a queue and ask for it [experimental: shield it from users that are not trusted, see crates/agent]")
                .action(ArgAction::SetTrue),
        )
        // For measurements: `shunt bench hosts --tables inet-loss`.
        .arg(value("recovery", "HOW", "What recovers from losses on these").value_parser(["give-back", "own"]).hide(true))
        .arg(
            value("capture", "FILE", "Write every frame of its queues, those that are lent included, to FILE in the format pcapng; - for standard output: shunt agent ... --capture - | tshark -r -")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            number("capture-length", "BYTES", "Bytes of each frame that are kept [default: 262144]")
                .value_parser(value_parser!(u32).range(1..=1 << 18))
                .requires("capture"),
        )
        .arg(
            Arg::new("despite-rules")
                .long("despite-rules")
                .help("Take connections also where rules of netfilter count, limit or log packets, or connection tracking accounts: these see none of a taken connection's")
                .requires("take")
                .action(ArgAction::SetTrue),
        )
        .arg(
            value("attach", "HOW", "Run the program in the driver or before the stack [default: native, then generic; on a veth of one queue the other way round]")
                .value_parser(["native", "generic"]),
        )
        .arg(
            value("mode", "MODE", "Who copies frames: nobody or the kernel [default: the first that works]")
                .value_parser(["zero-copy", "copy"]),
        )
        .arg(number("endpoints", "COUNT", "Endpoints that one user may have [default: 16]"))
        .arg(number("memory", "MIB", "Mebibytes that one user's endpoints may have [default: 64]"))
        .arg(number("tags", "COUNT", "Tags that one user may have [default: 4096]"))
        .arg(number("spin", "MICROSECONDS", "How long it looks for work before it sleeps [default: 50]"))
        .after_help(
            "Where queues are lent, with --attach, or from the first endpoint on that needs it, it attaches a program that takes\n\
             the frames for its endpoints off the interface; all others go to the kernel as before. SIGTERM, SIGINT or the end of\n\
             the process undo everything. Without it, endpoints of the device `udp` work for every user.\n\n\
             Programs that start under `shunt run` while it runs use it by default: once its TCP connection is made, what they send\n\
             to hosts of the interface's subnets that run an agent and shunt, too, goes over UDP, from any port to any port, or by\n\
             a lent queue past every packet filter, traffic control and capture of this host. `--hosts none` keeps a program from\n\
             it. Their listeners are found by UDP port 29545, which hosts of those subnets must reach.\n\n\
             What goes by a queue is in no capture of the kernel's: --capture writes it, in order of time, with the queue, its process and the\n\
             direction. Processes note their frames in 4 MiB of memory each and wait for nothing: what finds no room is missing, and counted\n\
             (on standard error at the end, in `shunt agent status`, in the file). Where FILE cannot be written any more, or its reader ends, the capture\n\
             ends, with a file of whole packets, and the agent goes on.",
        )
}

fn hostd() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("COUNT").help(help).value_parser(value_parser!(u32).range(1..))
    };
    let directory = || {
        Arg::new("directory")
            .long("directory")
            .value_name("DIRECTORY")
            .help("The directory that containers have in common, as their option `near` names it [default: /run/shunt]")
            .value_parser(value_parser!(OsString))
    };
    Command::new("hostd")
        .about("Introduce the ends of connections between containers, whatever is translated between them (needs root)")
        .args_conflicts_with_subcommands(true)
        .subcommand(
            Command::new("status").about("Show whether one answers, and what it has counted").arg(directory()).arg(json()).after_help(
                "Exit status: 0 if one answers, 1 if none does.",
            ),
        )
        .arg(directory())
        .arg(number("claims", "Claims that wait for their other half, of all [default: 16384]"))
        .arg(number("per-user", "Of one user [default: half of them]"))
        .arg(number("per-network", "Of one network namespace [default: 2048]"))
        .arg(number("patience", "How long a claim waits for its other half: milliseconds [default: 100]").value_name("MILLISECONDS"))
        .arg(
            Arg::new("user-namespaces")
                .long("user-namespaces")
                .help("Introduce networks of other user namespaces, too, whose root can pretend to have another's connection")
                .action(ArgAction::SetTrue),
        )
        .after_help(
            "It listens at DIRECTORY/hostd, which is to be mounted into the containers, read-only where they need not meet without it.\n\
             Programs under shunt whose connection was just made, and has translated addresses, pass it their TCP socket; it compares\n\
             the sequence numbers that the kernel tells, closes it, and gives both an end of a pair of AF_UNIX sockets. It sees no byte\n\
             of the connection, and when it ends, by SIGTERM or otherwise, connections that are there stay as they are.",
        )
}

fn json() -> Arg {
    Arg::new("json").long("json").help("Print JSON").action(ArgAction::SetTrue)
}

fn man() -> Command {
    Command::new("man")
        .about("Print the manual page, or that of a command (shunt man run | man -l -)")
        .arg(
            Arg::new("options").long("options").help("Print the table of options in Markdown instead").action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .value_name("DIRECTORY")
                .help("Write all pages there")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(0..)
                .help("A command, as: agent status")
                .conflicts_with_all(["options", "all"]),
        )
}

fn completions() -> Command {
    Command::new("completions")
        .about("Print the completions for a shell")
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(clap_complete::Shell)))
}

/// The words as this command reads them: other launchers write `-np 4`, which is `-n p` elsewhere.
pub fn words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_some_and(|word| word == "spmd") && words.get(2).is_some_and(|word| word == "-np") {
        words[2] = "--np".into();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_contradiction() {
        command().debug_assert();
    }

    #[test]
    fn ranks_are_counted_as_other_launchers_do() {
        for line in ["shunt spmd -np 4 prog -np 3", "shunt spmd -n 4 prog -np 3", "shunt spmd --np 4 -- prog -np 3"] {
            let matches = command().try_get_matches_from(words(line.split(' ').map(OsString::from))).unwrap();
            let (_, spmd) = matches.subcommand().unwrap();
            assert_eq!(spmd.get_one::<u16>("ranks"), Some(&4), "{line}");
            let program: Vec<_> = spmd.get_many::<OsString>("program").unwrap().collect();
            assert_eq!(program, ["prog", "-np", "3"], "{line}");
        }
    }

    #[test]
    fn what_follows_the_program_belongs_to_it() {
        for line in [
            "shunt run --ring 64K prog --ring 1M -- x",
            "shunt run --ring 64K -- prog --ring 1M -- x",
            "shunt run --ring=1M --ring=64K -- prog --ring 1M -- x",
        ] {
            let matches = command().try_get_matches_from(line.split(' ')).unwrap();
            let (_, run) = matches.subcommand().unwrap();
            assert_eq!(run.get_one::<OsString>("ring").unwrap(), "64K", "{line}");
            let words: Vec<_> = run.get_many::<OsString>("program").unwrap().collect();
            assert_eq!(words, ["prog", "--ring", "1M", "--", "x"], "{line}");
        }
    }
}
