//! By hand.

fn main() -> std::process::ExitCode {
    shunt_rpcgen::command::main()
}
