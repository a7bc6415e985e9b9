//! Durable products: what an intake hands out and takes back (40-qualification §7, §11).

mod hold;
mod intake;
mod remote;

pub use hold::{GraphHold, GraphHoldCode, HoldReason, RemoteHold, RemoteHoldParts, ScreenLane};
pub use intake::{
    AuthorityManifest, IntakeBatch, IntakeOutcome, RegisteredLane, Reservation, RetryPlan, Strategy,
    failure_digest, no_decision_batch, report_retry, report_retry_digest, retry_plan, stage_retry,
    stage_retry_digest,
};
pub use remote::{RemoteArtifact, RemoteProduct};
