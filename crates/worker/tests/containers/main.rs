//! The worker in real containers: sources built in the prebuild container, read by the host, bound read-only, served
//! under full isolation. The test binary is its own supervisor.
//!
//! Each test that ran appends its name to the file named by `CACHEON_CONTAINER_TESTS_LOG` (the names are in
//! `container-tests.txt`). Without root only `dev_*` runs.

#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bed;
mod cases;

use std::io::Write;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(cacheon_sandbox::SUPERVISOR_VERB) {
        return cacheon_sandbox::supervisor_main();
    }
    let arguments = Arguments::from_args();
    let loadable = cacheon_model::abi::target_flags().is_some();
    let root = rustix::process::geteuid().is_root();
    let trials = cases::ALL
        .iter()
        .map(|(name, test)| {
            let run = move || {
                test();
                record(name).map_err(Failed::from)
            };
            let runnable = loadable && (root || name.starts_with("dev_"));
            Trial::test(*name, run).with_ignored_flag(!runnable)
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn record(name: &str) -> std::io::Result<()> {
    match std::env::var_os("CACHEON_CONTAINER_TESTS_LOG") {
        Some(path) => writeln!(std::fs::OpenOptions::new().create(true).append(true).open(path)?, "{name}"),
        None => Ok(()),
    }
}
