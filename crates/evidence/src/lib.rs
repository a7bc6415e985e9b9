//! Retained evidence: the content-addressed store, continuation records, selection secrets and the operation journal
//! (spec 40 §4, §12, §13).
//!
//! Everything here is synchronous, follows no symlink and acknowledges nothing before it is flushed to the device.

pub mod fs;
pub mod fsck;
pub mod once;
pub mod reference;
pub mod step;
pub mod store;

pub use reference::{EvidenceDomain, EvidenceLabel, EvidenceRef, EvidenceSchema, MediaType, ReferenceError};
pub use step::{Step, Steps, Stopped};
pub use store::{Deadline, EvidenceStore, StoreError};
