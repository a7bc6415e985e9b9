//! `cacheon`: a referee for kernel contributions to an LLM serving engine.
//!
//! This program wires and renders; it decides nothing. Exit codes: 0 done, 1 the machine failed, 2 a verdict against the
//! input or input that was refused, 3 the command line cannot be understood.

mod args;
mod commands;
mod diff;
mod home;
mod output;
mod pretty;
mod results;
mod run;
mod session;
mod table;

use std::process::ExitCode;

use args::{ArenaCommand, Cli, Command, EvidenceCommand, StackCommand, WeightsCommand};
use clap::Parser as _;
use commands::{arena, bundle, digest, evidence, stack, weights};
use output::{Failure, Output, USAGE};

fn main() -> ExitCode {
    // The sandbox starts this program again as the supervisor of one container, before anything else may run.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == cacheon_sandbox::SUPERVISOR_VERB) {
        return cacheon_sandbox::supervisor_main();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let output = Output::new(cli.command.common().json);
    match dispatch(&cli.command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(output);
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: &Command, output: Output) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => session::demo(args, output),
        Command::Arena(ArenaCommand::Init(args)) => session::init(args, output),
        Command::Arena(ArenaCommand::Calibrate(args)) => session::calibrate(args, output),
        Command::Arena(ArenaCommand::Run(args)) => session::run(args, output),
        Command::Arena(ArenaCommand::Status(args)) => arena::status(args, output),
        Command::Arena(ArenaCommand::Release(args)) => arena::release_held(args, output),
        Command::Evidence(EvidenceCommand::List(args)) => evidence::list_objects(args, output),
        Command::Evidence(EvidenceCommand::Show(args)) => evidence::show(args, output),
        Command::Evidence(EvidenceCommand::Verify(args)) => evidence::verify_attempts(args, output),
        Command::Stack(StackCommand::Show(args)) => stack::show(args, output),
        Command::Stack(StackCommand::Plan(args)) => stack::plan(args, output),
        Command::Stack(StackCommand::Diff(args)) => stack::diff(args, output),
        Command::Stack(StackCommand::Materialize(args)) => stack::write_tree(args, output),
        Command::Stack(StackCommand::VerifyTree(args)) => stack::verify_tree(args, output),
        Command::Weights(WeightsCommand::Project(args)) => weights::project(args, output),
        Command::Scan(args) => bundle::scan(args, output),
        Command::Inspect(args) => bundle::inspect_one(args, output),
        Command::Digest(args) => digest::name(args, output),
    }
}
