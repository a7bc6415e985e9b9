//! Records of the CPU arena, which the deployed record set cannot describe without inventing GPU facts.
//!
//! Every type here is a version of our own (`docs/compatibility.md` lists what it stands beside). Raw records hold what
//! the host saw and nothing derived from it: a verdict is always recomputed from them.

mod conformance;
mod launch;
mod plan;
mod speed;
mod trace;

pub use conformance::{CallFacts, ConformanceCase, ConformanceRaw, ShapeKind};
pub use launch::{
    CONTAINER_POLICY, ContainerPolicy, CpuLane, CpuLaunch, CpuPlatform, LANE, LAUNCH, MountedPublication,
};
pub use plan::{Cell, PLAN, PlannedPrompt, SealedPlan, Tolerances};
pub use speed::{ClosedFacts, CounterFacts, ReadRecord, SessionRecord, SpeedRaw, SwapRecord, TimedRequest};
pub use trace::{AuditRaw, ReferenceRaw, Rollout, SampledCall, SlotCalls, TeardownRecord, Tensor};
