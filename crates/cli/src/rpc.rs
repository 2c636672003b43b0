//! `shunt rpc`: what servers of the specialised RPC are there, a call by hand, and who calls what for how long. Everything that it
//! knows of a program the server told it, or a file of the language.
mod call;
mod list;
mod trace;

use std::time::Duration;

use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};
use shunt_rpc::{Address, Options};

use crate::failure::Failure;

/// The commands.
pub fn command() -> Command {
    let json = || Arg::new("json").long("json").help("Print JSON").action(ArgAction::SetTrue);
    let address = || {
        Arg::new("address")
            .value_name("ADDRESS")
            .help("NAME, shm:NAME, udp:HOST:PORT, sunrpc+tcp://HOST[:PORT] or sunrpc+udp://HOST[:PORT]")
    };
    Command::new("rpc")
        .about("Look at servers of shunt's remote procedure calls, call them, and watch their calls")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list")
                .about("Show the servers of this host, or the one at an address, with their programs and procedures; of sunrpc+tcp://HOST, what rpcbind there has registered")
                .arg(address())
                .arg(json()),
        )
        .subcommand(
            Command::new("call")
                .about("Call a procedure, and print its results as JSON")
                .arg(address().required(true))
                .arg(
                    Arg::new("procedure")
                        .value_name("PROGRAM.PROCEDURE")
                        .help("Names or numbers; PROGRAM.VERSION.PROCEDURE chooses a version [default: the highest that has it]")
                        .required(true),
                )
                .arg(
                    Arg::new("arguments")
                        .value_name("ARGUMENT")
                        .help("One for each parameter, as JSON; what is no JSON is a string. Opaque bytes: 0x and digits, or text")
                        .num_args(0..)
                        .allow_negative_numbers(true),
                )
                .arg(
                    Arg::new("interface")
                        .long("interface")
                        .value_name("FILE.x")
                        .help("Take the definitions from this file, and do not ask the server"),
                )
                .arg(
                    Arg::new("xdr")
                        .long("xdr")
                        .help("The argument is all arguments, encoded, as hexadecimal digits; so are the results")
                        .action(ArgAction::SetTrue),
                )
                .arg(
                    Arg::new("deadline")
                        .long("deadline")
                        .value_name("MILLISECONDS")
                        .help("How long to wait for the results")
                        .default_value("10000")
                        .value_parser(value_parser!(u64).range(1..)),
                )
                .after_help(
                    "A parameter by reference (IN, INOUT) is a list, or the bytes of an opaque; for OUT it is the number of elements.\n\
                     Where there are some, the results are an object with `result` and what the server left in each.\n\
                     Exit status: 0 the results are printed, 1 the call came to nothing, 2 something in the command line is wrong.",
                ),
        )
        .subcommand(
            Command::new("trace")
                .about("Print a line for each call that a server of this host serves from now on, or how long they took")
                .arg(
                    Arg::new("server")
                        .value_name("PID|ADDRESS")
                        .help("The server: its process's number, or its address")
                        .required(true),
                )
                .arg(
                    Arg::new("histogram")
                        .long("histogram")
                        .help("Sum up, and print a table at the end: calls, mean and quantiles of each procedure")
                        .action(ArgAction::SetTrue),
                )
                .arg(
                    Arg::new("seconds")
                        .long("seconds")
                        .value_name("SECONDS")
                        .help("How long [default: until the server ends; 10 with --histogram]")
                        .value_parser(value_parser!(u64).range(1..)),
                )
                .arg(
                    Arg::new("calls")
                        .long("calls")
                        .value_name("COUNT")
                        .help("End after so many calls")
                        .value_parser(value_parser!(u64).range(1..)),
                )
                .arg(json())
                .after_help(
                    "The duration is the server's: from when it took the call up until it was answered. A server that is watched serves\n\
                     its calls by a longer way; one that nobody watches pays nothing. It does not wait for this command: what is lost\n\
                     is counted. Only the server's user, and root, may watch.",
                ),
        )
}

/// Runs one of them.
pub fn rpc(matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list::list(matches),
        Some(("call", matches)) => call::call(matches),
        Some(("trace", matches)) => trace::trace(matches),
        _ => unreachable!("clap accepts these alone"),
    }
}

fn address(text: &str) -> Result<Address, Failure> {
    text.parse().map_err(|error| Failure::of_usage(format_args!("{text} is no address: {error}")))
}

/// Tools do not wait for a server that may start later.
fn options() -> Options {
    Options { patience: Duration::from_secs(1), ..Options::default() }
}
