//! Stacks: what a contribution is, which contributions make an engine, and what replacing one of them means.
//!
//! | Module | Holds | Spec 20 |
//! |---|---|---|
//! | [`ids`] | digests and identifiers of this area, each its own type | §1.6, §2 |
//! | [`contribution`] | proposal and integrated references, the selected delta | §2 |
//! | [`manifest`] | evaluation stacks and engine releases, and the context they are checked against | §2 |
//! | [`reference`] | the pristine reference manifest, full and measured digest | §2.1 |

pub mod contribution;
pub mod ids;
pub mod manifest;
pub mod reference;
mod text;

pub use contribution::{ContributionRef, IntegratedRef, ProposalRef};
pub use ids::TargetId;
pub use manifest::{CatalogSnapshot, EngineRelease, EvaluationStack, StackContext, StackManifest};
pub use reference::ReferenceManifest;
