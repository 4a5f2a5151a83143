//! Times the recurrent operations on any device of Burn, beside their peers.

mod burn_nn;
mod device;
mod memory;
mod options;
mod ours;
mod plot;
mod problem;
mod reference;
mod report;
mod run;
mod strategy;
mod subject;
mod table;
mod timing;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::options::{Command, CommandLine};

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let result = match command_line.command {
        Some(Command::Plot(options)) => plot::run(&options),
        Some(Command::Table(options)) => table::run(&options),
        None => run::run(&command_line.timing),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
