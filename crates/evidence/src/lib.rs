//! Retained evidence: the content-addressed store, continuation records, selection secrets and the operation journal
//! (spec 40 §4, §12, §13).
//!
//! Everything here is synchronous, follows no symlink and acknowledges nothing before it is flushed to the device.
//!
//! | Module | Holds |
//! |---|---|
//! | [`store`], [`mod@reference`], [`fsck`] | the content-addressed store |
//! | [`continuation`] | at-most-once stage records of one qualification, and the restart table |
//! | [`journal`] | the CPU arena's intent and effect records, and its resume table |
//! | [`selection`], [`quiescence`] | durable secrets and entropy, teardown receipts |
//! | [`failure_ledger`] | the operator's list of failures |
//! | [`fs`], [`once`], [`step`] | private directories, create-once records, durable steps |

pub mod continuation;
pub mod cpu;
pub mod failure_ledger;
pub mod fs;
pub mod fsck;
pub mod journal;
pub mod once;
pub mod quiescence;
pub mod reference;
pub mod selection;
pub mod step;
pub mod store;

pub use reference::{EvidenceDomain, EvidenceLabel, EvidenceRef, EvidenceSchema, MediaType, ReferenceError};
pub use step::{Step, Steps, Stopped};
pub use store::{Deadline, EvidenceStore, StoreError};
