//! Settlement: two independent PASSes become a crown, a stack transition and a claim; claims become weights.
//!
//! Everything here is a pure function of records (spec 20 §9, §10). Nothing here reads a clock, a file or a chain.
//!
//! | Module | Holds |
//! |---|---|
//! | [`qualification`], [`lane`], [`speedup`] | one PASS, in all five shapes that were ever written |
//! | [`candidate`] | pairing: independence, reproduction identity, lane exchange |
//! | [`receipt`] | the evidence receipt a claim retains |
//! | [`event`] | the journal: events and their chain |
//! | [`mod@plan`] | from candidates and an incumbent to events and a transition |
//! | [`state`] | what a transition leaves behind |
//! | [`claim`] | standing claims and discovery bounties |
//! | [`economics`] | emissions policy V1: claims to weights |
//! | [`burn`] | weights before the first crown |
//! | [`domains`], [`ids`], [`rule`] | digests by name, typed ids, rules in words |

pub mod burn;
pub mod candidate;
pub mod claim;
pub mod domains;
pub mod economics;
pub mod event;
pub mod ids;
pub mod lane;
pub mod plan;
pub mod qualification;
pub mod receipt;
pub mod rule;
pub mod speedup;
pub mod state;

pub use candidate::{Candidate, PairError};
pub use claim::{DiscoveryClaim, StandingClaim};
pub use event::{Event, EventType};
pub use plan::{Plan, PlanError, plan};
pub use qualification::Qualification;
pub use receipt::EvidenceReceipt;
pub use speedup::Speedup;
pub use state::StackState;
