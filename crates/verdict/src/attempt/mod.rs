//! Reports of candidates and the attempt over a cohort, as published and as reopened (40-qualification §10.2, §10.3).

mod cohort;
mod reference;
mod report;
mod timing;

pub use cohort::{ATTEMPT_LIMIT, AttemptError, AttemptParts, CohortAttempt};
pub use reference::{CandidateIdentity, DeviceRow, ReferenceExecution, ReferenceRuntime, SessionPlan};
pub use report::{CandidateReport, QualityWitness, ReopenContext, ReopenError, ReportParts, ReportSpeed};
pub use timing::TimingWitness;
