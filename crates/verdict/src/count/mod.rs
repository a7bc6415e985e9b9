//! Fixed-stock exact counts: numeric answers of a candidate against those of a stock that was recorded once
//! (40-qualification §5.3).

mod compare;
mod judge;
mod plan;
mod records;

pub use compare::{CountError, Gold, RegisteredCount, compare, judge_observation, register, rejudge};
pub use judge::{agree, numeric_answer};
pub use plan::{
    LaneAdmission, NumericJudge, PlannedOccurrence, batch_shape_digest, hidden_task_policy_digest,
    prompt_plan, prompt_plan_digest,
};
pub use records::{
    CountDecision, CountEnvelope, CountEvidence, CountJudgeReceipt, CountObservation, CountPolicy,
    CountPrompt, CountResult, CountRole, CountStockAuthority, CountVerdict, OBSERVATION_LIMIT,
    RegisteredCountAuthority, RegisteredCountResult,
};
