//! The first process of a container: see the library's page.

use std::process::ExitCode;

fn main() -> ExitCode {
    match cacheon_worker::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cacheon-worker: {error}");
            ExitCode::FAILURE
        }
    }
}
