//! Runs the golden cases of the deployed implementation (development only).
//!
//! A test names one file, one closure per case and the operations that belong to later work:
//!
//! ```no_run
//! cacheon_vectors::run("stacks_canonical", &[], |case| match case.op() {
//!     "canonical_json" => Ok(()),
//!     other => Err(cacheon_vectors::unknown_op(other)),
//! });
//! ```
//!
//! The folder is `$CACHEON_VECTORS`, by default `../shared/vectors` seen from the workspace root. A missing file fails
//! the test. A clone without the folder skips loudly, unless `CACHEON_VECTORS_REQUIRED=1` (set by the project's own
//! check). Every run prints `vectors <file>: N run, M deferred`.

use serde_json::Value;
use std::path::PathBuf;

/// One golden case: its id, operation, inputs and expectation as raw JSON.
#[derive(Debug)]
pub struct Case<'a> {
    /// The whole file, for shared data that stands beside `cases`.
    pub file: &'a Value,
    /// The case object.
    pub value: &'a Value,
}

impl<'a> Case<'a> {
    /// The case's `id`, or `?` when it has none.
    #[must_use]
    pub fn id(&self) -> &'a str {
        self.value.get("id").and_then(Value::as_str).unwrap_or("?")
    }

    /// The case's `op`, or the empty string.
    #[must_use]
    pub fn op(&self) -> &'a str {
        self.value.get("op").and_then(Value::as_str).unwrap_or("")
    }

    /// A required member of the case.
    ///
    /// # Errors
    /// Says which member is missing.
    pub fn get(&self, member: &str) -> Result<&'a Value, String> {
        self.value.get(member).ok_or_else(|| format!("case has no `{member}`"))
    }

    /// A required string member of the case.
    ///
    /// # Errors
    /// Says which member is missing or not a string.
    pub fn text(&self, member: &str) -> Result<&'a str, String> {
        self.get(member)?.as_str().ok_or_else(|| format!("`{member}` is not a string"))
    }
}

/// The failure text for an operation the runner does not know.
#[must_use]
pub fn unknown_op(op: &str) -> String {
    format!("operation `{op}` is not implemented and not deferred")
}

/// The vector folder, or `None` when this clone has none (and none is required).
///
/// # Panics
/// When `CACHEON_VECTORS` names a folder that is not there, or one is required and absent.
#[must_use]
#[allow(clippy::panic)]
pub fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("CACHEON_VECTORS").map(PathBuf::from);
    let default = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors"));
    match named {
        Some(path) if path.is_dir() => Some(path),
        Some(path) => panic!("CACHEON_VECTORS names {}, which is not a folder", path.display()),
        None if default.is_dir() => Some(default),
        None if std::env::var_os("CACHEON_VECTORS_REQUIRED").is_some() => {
            panic!("no vector folder at {}; set CACHEON_VECTORS", default.display())
        }
        None => None,
    }
}

/// Reads one vector file (`name` without `.json`), or `None` when this clone has no vector folder.
///
/// # Panics
/// When the folder is there but the file is missing or is not JSON.
#[must_use]
#[allow(clippy::panic)]
pub fn load(name: &str) -> Option<Value> {
    let path = folder()?.join(format!("{name}.json"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Runs every case of one file. `deferred` names the operations that belong to later work; they are counted and printed,
/// never counted as passed.
///
/// # Panics
/// When a case fails, the file is missing, or no case ran at all.
#[allow(clippy::panic, clippy::print_stdout)]
pub fn run(name: &str, deferred: &[&str], mut check: impl FnMut(&Case<'_>) -> Result<(), String>) {
    let Some(file) = load(name) else {
        println!("vectors {name}: SKIPPED, this clone has no vector folder (set CACHEON_VECTORS)");
        return;
    };
    let Some(cases) = file.get("cases").and_then(Value::as_array) else {
        panic!("{name}: no `cases` array");
    };
    let (mut ran, mut later, mut failures) = (0usize, 0usize, Vec::new());
    for value in cases {
        let case = Case { file: &file, value };
        if deferred.contains(&case.op()) {
            later += 1;
            continue;
        }
        ran += 1;
        if let Err(why) = check(&case) {
            failures.push(format!("  {} ({}): {why}", case.id(), case.op()));
        }
    }
    println!("vectors {name}: {ran} run, {later} deferred");
    if !failures.is_empty() {
        let shown = failures.len().min(40);
        panic!("{name}: {} of {ran} cases failed\n{}", failures.len(), failures[..shown].join("\n"));
    }
    assert!(ran + later > 0, "{name}: the file holds no case");
}
