//! Speed: what one read is, how reads are compared, and what a version of the policy decides (40-qualification §2).

mod grade;
mod legacy;
mod policy;
mod read;
mod record;
pub mod score;
mod witness;

pub use grade::{
    GradeError, Graded, Live, Outcome, grade, grade_conditional, grade_live, grade_two_processes,
    grade_witness, margin_limits,
};
pub use legacy::{ChargedRate, EvidencePolicy, LegacyRegrade, LegacySpeedWitness};
pub use policy::{POLICY, PolicyFrame, Role, SpeedPolicy, SpeedPolicyParts, Version, WindowRules};
pub use read::{ReadError, ReadRate, TimedWindow, conditioning_regressed};
pub use record::{BracketRecord, NoiseRecord, OutcomeSchema, SpeedOutcomeRecord};
pub use score::{Bar, ScoreError, SpeedFailure, SpeedupVerdict, TwoReadLimits};
pub use witness::{
    LiveSpeedWitness, LiveWitnessLinks, Regrade, ResidentSpeedWitness, SpeedBinding, SpeedWitness,
    WitnessError, WitnessLinks,
};
