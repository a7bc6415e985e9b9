//! The resident screen: cheap brackets before qualification, its receipts, and what may be swapped at all
//! (40-qualification §1.1, §14).

mod bracket;
mod evidence;
mod receipt;
mod swap;

pub use bracket::{
    CandidateScreenVerdict, Lifetime, ScreenCandidate, ScreenError, ScreenGrade, ScreenPolicy, ScreenSession,
    Screened, TimedBatch,
};
pub use evidence::{
    CanaryRecovery, CandidateVerdictRecord, StageEvidence, lane_waiver_digest, service_waiver_digest,
    stage_evidence_digest,
};
pub use receipt::{ScreenDecision, ScreenReceipt, ScreenResult, ScreenStage, StageGrade};
pub use swap::{QUANTIZED_SLOTS, ScreenQuantError, SwapTraits, slot_quant_requirements, swap_refusal};
