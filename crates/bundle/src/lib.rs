//! What a miner's bundle is, and everything that can be said of it without running it
//! (`spec/10-contribution.md`; kernels in C follow the same contract under their own ABI id).
//!
//! | Module | Holds |
//! |---|---|
//! | [`hash`], [`tree`], [`path`] | reading a directory without following links; the content hash |
//! | [`archive`] | the packager, and the strict reader that intake shares |
//! | [`manifest`], [`toml`] | `manifest.toml` as typed values |
//! | [`capability`], [`pyjson`], [`pretty`] | for which calls a kernel is meant; metadata in and out |
//! | [`artifact`] | direct artifacts and their identities |
//! | [`patch`], [`rebuild`] | dependency patches and the build steps a bundle asks for |
//! | [`python`], [`closure`] | Python sources, and which of them belong to a contribution |
//! | [`c`], [`cuda`], [`scan`] | static rules |
//! | [`catalog`] | the registered slots and targets |
//! | [`fingerprint`] | copy fingerprints and the verdict on two of them |
//! | [`target`], [`inspect`] | target resolution, selected payload and delta |
//! | [`finding`], [`rule`], [`report`] | what is wrong, where, and what to do |
//!
//! Bundle bytes are hostile: every reader is bounded, no reader panics, and whatever the bytes are to blame for is a
//! [`Finding`]; only the machine's own failures are anything else.

pub mod archive;
pub mod artifact;
pub mod bundle;
pub mod c;
pub mod capability;
pub mod catalog;
pub mod closure;
pub mod cuda;
pub mod finding;
pub mod fingerprint;
pub mod hash;
pub mod inspect;
pub mod manifest;
pub mod patch;
pub mod path;
pub mod pretty;
pub mod pyjson;
pub mod python;
pub mod rebuild;
pub mod report;
pub mod rule;
pub mod scan;
pub mod target;
pub mod text;
pub mod toml;
pub mod tree;
pub mod unicode;
mod walk;

pub use bundle::Bundle;
pub use finding::{BundleError, Finding, Place, Ruled};
pub use fingerprint::{Fingerprint, fingerprint};
pub use hash::{committed_content_hash, content_hash};
pub use inspect::{Inspection, NotSwappable, inspect, swappable};
pub use manifest::{Abi, Manifest};
pub use report::Report;
pub use rule::Rule;
pub use target::{TargetKind, TargetRow, Targets};
pub use tree::{Limits, Tree};
