//! Development tasks, reached through the aliases of `.cargo/config.toml`:
//! `cargo demo`, `cargo ci` and `cargo bench-all`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let result = match task.as_str() {
        "demo" => demo(&rest),
        "ci" => ci(&rest),
        "bench" => bench(&rest),
        _ => {
            eprintln!("usage: cargo demo [ARGS…] | cargo ci [STEP…] | cargo bench-all [NAME…]");
            return ExitCode::from(3);
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("xtask {task}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The cargo that started us.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a step and fails unless it exits 0.
fn step(name: &str, command: &mut Command) -> Result<(), String> {
    eprintln!("── {name}");
    let status = command.status().map_err(|error| format!("{name} did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed ({status})")) }
}

/// Where cargo puts its output.
fn target_directory() -> Result<PathBuf, String> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .map_err(|error| format!("cargo metadata did not start: {error}"))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata names no target".into())
}

/// Builds both programs (release) and returns the path of `cacheon`.
fn build_programs() -> Result<PathBuf, String> {
    step("build", cargo().args(["build", "--release", "-p", "cacheon", "-p", "cacheon-worker"]))?;
    Ok(target_directory()?.join("release/cacheon"))
}

/// Builds both programs and runs `cacheon demo`; its exit code is ours.
fn demo(rest: &[String]) -> Result<u8, String> {
    let program = build_programs()?;
    let status = Command::new(&program)
        .arg("demo")
        .args(rest)
        .status()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// One step of the check.
type Step = fn() -> Result<(), String>;

/// Runs the project's check, or the named steps of it.
fn ci(only: &[String]) -> Result<u8, String> {
    let steps: [(&str, Step); 4] = [("fmt", fmt), ("clippy", clippy), ("test", test), ("deny", deny)];
    for (name, run) in steps {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            run()?;
        }
    }
    Ok(0)
}

fn fmt() -> Result<(), String> {
    step("fmt", cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), String> {
    step("clippy", cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Runs every test, then checks that each named container test really ran in full isolation.
fn test() -> Result<(), String> {
    step("build programs", cargo().args(["build", "-p", "cacheon", "-p", "cacheon-worker"]))?;
    let log = std::env::temp_dir().join(format!("cacheon-container-tests-{}", std::process::id()));
    std::fs::write(&log, "").map_err(|error| format!("{}: {error}", log.display()))?;
    let result = step("test", cargo().args(["test", "--workspace"]).env("CACHEON_CONTAINER_TESTS_LOG", &log));
    let ran = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    result?;
    container_tests(&ran)
}

/// Compares the container tests that ran with those that are named.
fn container_tests(ran: &str) -> Result<(), String> {
    let mut missing = Vec::new();
    let mut named = 0;
    for list in container_test_lists()? {
        for name in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            named += 1;
            if !ran.lines().any(|line| line.trim() == name) {
                missing.push(name.to_owned());
            }
        }
    }
    if ran.lines().any(|line| line.contains("isolation=dev")) {
        return Err("a container test ran with --isolation dev".into());
    }
    if missing.is_empty() && named > 0 {
        eprintln!("container tests: {named} named, all ran");
        return Ok(());
    }
    Err(format!(
        "{} of {named} named container tests did not run (they need root): {missing:?}",
        missing.len()
    ))
}

/// The `container-tests.txt` of every crate that has one.
fn container_test_lists() -> Result<Vec<String>, String> {
    let crates = root().join("crates");
    let entries = std::fs::read_dir(&crates).map_err(|error| format!("{}: {error}", crates.display()))?;
    Ok(entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("container-tests.txt")).ok())
        .collect())
}

/// Licences, bans and sources always; advisories only where their database can be reached.
fn deny() -> Result<(), String> {
    let there = cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !there {
        step(
            "install cargo-deny",
            cargo().args(["install", "--locked", "cargo-deny", "--version", "0.20.2"]),
        )?;
    }
    step("deny", cargo().args(["deny", "check", "licenses", "bans", "sources"]))?;
    let reached = cargo().args(["deny", "fetch", "db"]).output().is_ok_and(|output| output.status.success());
    if !reached {
        eprintln!("advisories: not checked, their database cannot be reached from here");
        return Ok(());
    }
    step("deny advisories", cargo().args(["deny", "check", "advisories"]))
}

/// Builds with optimisation and prints every bench, each with its ratios.
fn bench(only: &[String]) -> Result<u8, String> {
    build_programs()?;
    let mut command = cargo();
    command.args(["bench", "--workspace"]);
    if !only.is_empty() {
        for name in only {
            command.args(["--bench", name]);
        }
    }
    step("bench", &mut command)?;
    Ok(0)
}
