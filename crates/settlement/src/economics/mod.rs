//! Emissions policy V1: claims to weights, to the last part per million (spec 20 §10).
//!
//! | Module | Holds |
//! |---|---|
//! | [`policy`] | the policy manifest |
//! | [`context`] | the block, the chain and who is registered |
//! | [`arithmetic`] | decay and largest-remainder allocation |
//! | [`projection`] | from arenas and claims to weights |

pub mod arithmetic;
pub mod context;
pub mod policy;
pub mod projection;

pub use arithmetic::{allocate_pool, credit};
pub use context::{BlockHash, GlobalContext, MetagraphMember};
pub use policy::EmissionsPolicy;
pub use projection::{ArenaStanding, Fault, ProjectError, Projection, Projector};
