//! The project's own commands, as `cargo xtask COMMAND`.

mod apt;
mod bench_metal;
mod clang;
mod conformance;
mod msl;
mod test;
mod vulkan;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Test(test::Test),
    Conformance(conformance::Conformance),
    Msl(msl::Msl),
    BenchMetal(bench_metal::BenchMetal),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Test(command) => command.run(),
        Command::Conformance(command) => command.run(),
        Command::Msl(command) => command.run(),
        Command::BenchMetal(command) => command.run(),
    };
    match done {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}
