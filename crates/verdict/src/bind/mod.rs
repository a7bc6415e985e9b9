//! Identities that bind a qualification together: the authority sealed before the first read, lanes and crossover
//! plans, executions, the audit's and the teacher's plans, trajectories and lifecycles (40-qualification §10.2;
//! payloads in digest-domains).
//!
//! Member names and order are the digest payload's; nothing here is stored by itself.

mod authority;
mod resident;
mod stage;
mod trajectory;

pub use authority::{
    AuthorityCandidate, AuthorityCommon, AuthorityPolicies, AuthorityReference, CausalAuthority, Evidence,
    Observation, SealedCalibration,
};
pub use resident::{
    BatchRow, BracketSummary, CrossoverArm, CrossoverPlan, CrossoverSpeed, DeviceUse, EngineIdentity,
    LaneAuthority, PairCrossoverPlan, PairLanePlan, PairPlanBinding, prompt_batches_digest,
};
pub use stage::{
    AuditAllocation, AuditOperation, AuditSessionPlan, Degrees, PairLifecycle, PairRequestAuthority,
    PairRequestEpoch, ReferenceRequestPlan, ResidentLifecycle, TeacherOperation,
};
pub use trajectory::{
    CohortTrajectory, Frame, PromptTrajectory, SelectedTrajectory, TopPosition, TrajectoryError,
};
