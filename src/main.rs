//! The program: parse the command line and call a command.

use std::process::ExitCode;

use clap::Parser;
use gpu_quarantine::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
