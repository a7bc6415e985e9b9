//! Stacks: what a contribution is, which contributions make an engine, and what replacing one of them means.
//!
//! | Module | Holds | Spec 20 |
//! |---|---|---|
//! | [`cubin`] | what a driver saw in a loaded CUBIN | §7 |
//! | [`disk`] | why a tree on disk was refused | |
//! | [`ids`] | digests and identifiers of this area, each its own type | §1.6, §2 |
//! | [`arena`] | service manifests, admission, screens, receipts | §6 |
//! | [`catalog`] | target catalogs as versioned data, closures, active sets | §3 |
//! | [`contribution`] | proposal and integrated references, the selected delta | §2 |
//! | [`manifest`] | evaluation stacks and engine releases, and the context they are checked against | §2 |
//! | [`native`] | sealed publications, build specs, compile profiles | §8 |
//! | [`plan`] | marginal arms, rollback, cohorts | §4 |
//! | [`reference`] | the pristine reference manifest, full and measured digest | §2.1 |
//! | [`tree`] | engine trees: materialise, publish, reopen | §5 |
//! | [`review`] | integration review records and release coverage | §2.2 |

pub mod arena;
pub mod catalog;
pub mod contribution;
pub mod cubin;
pub mod disk;
pub mod ids;
pub mod manifest;
pub mod native;
pub mod plan;
pub mod reference;
pub mod review;
mod text;
pub mod tree;

pub use catalog::Catalog;
pub use contribution::{ContributionRef, IntegratedRef, ProposalRef};
pub use ids::TargetId;
pub use manifest::{CatalogSnapshot, EngineRelease, EvaluationStack, StackContext, StackManifest};
pub use reference::ReferenceManifest;
pub use review::IntegrationReview;
