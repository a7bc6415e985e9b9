//! Bundles as archives: what a miner uploads and what intake fetches (`spec/10-contribution.md` §2.2,
//! `spec/30-intake.md` §3.2). One strict reader serves both: the packager reads back what it wrote.

mod gunzip;
mod header;
mod inventory;
mod name;
mod package;
mod pax;
mod read;

pub use inventory::{Inventory, Member};
pub use package::{Packaged, package};
pub use read::{Sink, preflight, read, unpack};

use crate::finding::{BundleError, Finding, Place};
use crate::rule::Rule;

const MIB: u64 = 1 << 20;

/// Bytes of the archive as it travels.
pub const MAX_COMPRESSED: u64 = 64 * MIB;
/// Bytes of all files.
pub const MAX_EXTRACTED: u64 = 256 * MIB;
/// Bytes of the tar stream: files, headers, padding.
pub const MAX_STREAM: u64 = MAX_EXTRACTED + 4096 * 1024 + MIB + 12 * 1024;
/// Files and directories.
pub const MAX_MEMBERS: usize = 4096;
/// Tar headers, extensions included.
pub const MAX_HEADERS: usize = 8192;
/// Bytes of one file.
pub const MAX_FILE: u64 = 16 * MIB;
/// Bytes of one file whose text is inspected.
pub const MAX_INSPECTABLE_FILE: u64 = 8 * MIB;
/// Bytes of all such files.
pub const MAX_INSPECTABLE: u64 = 32 * MIB;
/// Bytes of one extension header.
pub const MAX_EXTENSION: u64 = 64 * 1024;
/// Bytes of all extension headers.
pub const MAX_EXTENSIONS: u64 = MIB;
/// Bytes of one member's path: what the system opens.
pub const MAX_PATH: usize = 4095;

/// One block of a tar stream.
const BLOCK: usize = 512;

/// Whether intake counts the file as inspectable; C sources are not on its list.
fn inspectable(path: &str) -> bool {
    matches!(crate::path::suffix(path), ".py" | ".cu" | ".cuh" | ".patch" | ".diff" | ".toml" | ".json")
}

fn refused(problem: impl Into<String>) -> BundleError {
    Finding::new(Rule::Archive, Place::bundle(), problem).into()
}

/// A refusal that names the member, with the name made short and printable.
fn refused_member(member: &str, problem: impl Into<String>) -> BundleError {
    let shown: String = member.chars().take(120).flat_map(char::escape_default).collect();
    Finding::new(Rule::Archive, Place::file(shown), problem).into()
}
