//! Selection of prompts after the fact: committed before the first read, drawn by entropy after the last candidate
//! process is gone (40-qualification §4).

mod profile;
mod reveal;

pub(crate) use profile::is_tail_threshold;
pub use profile::{
    HiddenJudgeBinding, HiddenTasks, ProfilePolicyV1, QualificationProfile, hidden_judge_output,
    hidden_task_plan, hidden_task_plan_digest,
};
pub use reveal::{
    CommitmentParts, EntropyReceipt, Secret, SelectionCommitment, SelectionError, SelectionPolicyV1,
    SelectionReceipt, audit_seed, declared_entropy_source, entropy_authority_receipt, rank, reopen, reveal,
};
