//! The sealed plan: everything that decides an attempt, published before the first engine starts.

use cacheon_identity::float17::Float17;
use cacheon_identity::{Digest, Domain, Json, record};

use super::CpuLane;
use crate::evidence::EvidenceRef;

/// Domain of [`SealedPlan`]; its digest is the attempt's authority.
pub const PLAN: Domain = Domain::with_members("cacheon.rs.cpu.sealed-plan.draft1", SealedPlan::MEMBERS);

record! {
    /// The workload cell (chapter 40 §1.2).
    pub struct Cell {
        /// Name.
        pub cell_id: String,
        /// Prompts per batch.
        pub concurrency: u32,
        /// Tokens per prompt.
        pub input_tokens: u32,
        /// Tokens generated per prompt.
        pub output_tokens: u32,
        /// Timed batches.
        pub timed_reads: u32,
    }
}

record! {
    /// One prompt: its text, and the token ids the worker is given.
    pub struct PlannedPrompt {
        /// Occurrence digest (domain `cacheon.qualification.prompt-occurrence`).
        pub digest: Digest,
        /// Text.
        pub text: String,
        /// Tokens.
        pub tokens: Vec<u32>,
    }
}

record! {
    /// How a slot's output is compared with its reference.
    pub struct Tolerances {
        /// Largest error of any element, as a share of the reference's root mean square.
        pub cap: Float17,
        /// Largest relative L2 distance between the candidate's inputs and those of the candidate-free replay.
        pub input_bound: Float17,
        /// Share of elements that must be within tolerance.
        pub min_ratio: Float17,
        /// Error allowed relative to the reference element.
        pub relative: Float17,
        /// Error allowed relative to the reference's root mean square.
        pub scaled: Float17,
        /// Slot.
        pub slot: String,
    }
}

record! {
    /// The sealed plan of one attempt.
    pub struct SealedPlan {
        /// The arena's service digest.
        pub arena_digest: Digest,
        /// Digest of the marginal-arm plan.
        pub arm_plan_digest: Digest,
        /// Attempt number within reservation and role, from 1.
        pub attempt: u32,
        /// 32 hex digits, fresh for each attempt.
        pub attempt_id: String,
        /// Slot-audit policy (chapter 40 §6), seed included.
        pub audit_policy: Json,
        /// Lane of the incumbent.
        pub baseline_lane: CpuLane,
        /// Launch of the incumbent.
        pub baseline_launch_digest: Digest,
        /// Deadline of one batch, ms.
        pub batch_timeout_ms: u32,
        /// The frozen calibration.
        pub calibration: EvidenceRef,
        /// Its digest.
        pub calibration_digest: Digest,
        /// Lane of the candidate.
        pub candidate_lane: CpuLane,
        /// Launch of the candidate.
        pub candidate_launch_digest: Digest,
        /// Candidate evaluation-stack manifest.
        pub candidate_manifest: Json,
        /// Its tree.
        pub candidate_tree_digest: Digest,
        /// Workload cell.
        pub cell: Cell,
        /// Selection commitment (chapter 40 §4).
        pub commitment: Json,
        /// Batches charged as conditioning, the last of the warm-up.
        pub conditioning_count: u32,
        /// Content hash of the candidate bundle.
        pub content_hash: Digest,
        /// Graph requirement (chapter 40 §7).
        pub graph_requirement: Json,
        /// Who submitted it.
        pub hotkey: String,
        /// Incumbent evaluation-stack manifest.
        pub incumbent_manifest: Json,
        /// Its tree.
        pub incumbent_tree_digest: Digest,
        /// Warm-up batches first, then timed ones; each of `concurrency` prompts.
        pub prompts: Vec<Vec<PlannedPrompt>>,
        /// Quality profile (chapter 40 §4, §5.2).
        pub quality_profile: Json,
        /// Launch of the pristine reference.
        pub reference_launch_digest: Digest,
        /// The ledger's reservation.
        pub reservation: Digest,
        /// `primary` or `reproduction`.
        pub role: String,
        /// `cacheon.rs.cpu.sealed-plan.draft1`.
        pub schema: String,
        /// What is selected for grading of the whole plan.
        pub select_count: u32,
        /// Selected delta of the candidate.
        pub selected_delta_digest: Digest,
        /// Speed policy (chapter 40 §2.1).
        pub speed_policy: Json,
        /// Target.
        pub target_id: String,
        /// One per slot of the target, sorted.
        pub tolerances: Vec<Tolerances>,
        /// Warm-up batches.
        pub warmup_count: u32,
        /// Workload digest (chapter 40 §1.2).
        pub workload_digest: Digest,
    }
}

impl SealedPlan {
    /// The one schema this type reads and writes.
    pub const SCHEMA: &'static str = "cacheon.rs.cpu.sealed-plan.draft1";

    /// The authority digest of the attempt.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PLAN.digest(self)
    }
}
