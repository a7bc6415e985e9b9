//! Tests that really run containers. The test binary is its own supervisor and its own payload, so nothing but it and
//! the libraries it links is ever inside.
//!
//! Each test that ran appends its name to the file named by `CACHEON_CONTAINER_TESTS_LOG`, so that the project's check
//! can tell "passed" from "skipped" (`container-tests.txt` lists the names). Without root only the `dev_*` tests run.

#![allow(unsafe_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod builds;
mod cases;
mod inside;
mod support;

use std::io::Write;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(cacheon_sandbox::SUPERVISOR_VERB) => return cacheon_sandbox::supervisor_main(),
        Some("@inside") => return inside::run(args.get(2).map_or("", String::as_str)),
        Some("@full-disk") => return support::full_disk(&args[2..]),
        Some("@rootless") => return support::rootless(&args[2..]),
        Some("@controller") => return support::controller(&args[2..]),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let root = rustix::process::geteuid().is_root();
    let trials = cases::ALL
        .iter()
        .map(|(name, test)| {
            let runnable = root || name.starts_with("dev_");
            Trial::test(*name, move || {
                test();
                record(name).map_err(Failed::from)
            })
            .with_ignored_flag(!runnable)
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
