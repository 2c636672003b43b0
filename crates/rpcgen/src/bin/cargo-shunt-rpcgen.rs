//! As a command of cargo's: `cargo shunt-rpcgen FILE.x`.

fn main() -> std::process::ExitCode {
    shunt_rpcgen::command::main()
}
