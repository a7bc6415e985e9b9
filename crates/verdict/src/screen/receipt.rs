//! What the screens of one candidate ended in.

use crate::fields::{require, ruled_record, text_enums, within};
use cacheon_identity::{DecodeError, Digest, Domain};

const RECEIPT: Domain = Domain::new("cacheon.arena.screen-receipt");

text_enums! {
    /// The screens in order.
    ScreenStage {
        /// Static scan.
        Static = "static",
        /// Build.
        Build = "build",
        /// Binary interface.
        Abi = "abi",
        /// Graph evidence.
        Graph = "graph",
        /// A short serving bracket.
        AbbreviatedServing = "abbreviated_serving",
    }
    /// How one screen ended.
    StageGrade {
        /// Passed.
        Pass = "pass",
        /// Failed.
        Fail = "fail",
        /// Did not decide.
        NoDecision = "no_decision",
    }
    /// What follows.
    ScreenDecision {
        /// Five passes: to qualification.
        Promote = "promote",
        /// A fail.
        Reject = "reject",
        /// No decision: again.
        Retry = "retry",
        /// No decision: held.
        Hold = "hold",
    }
}

ruled_record! {
    /// One screen's end.
    pub struct ScreenResult: ScreenResult::rules {
        /// ms, at least 1.
        pub elapsed_ms: u64,
        /// Its evidence.
        pub evidence_digest: Digest,
        /// How it ended.
        pub grade: StageGrade,
        /// Which.
        pub stage: ScreenStage,
    }
}

impl ScreenResult {
    fn rules(&self) -> Result<(), DecodeError> {
        within("elapsed_ms", self.elapsed_ms, 1, u64::MAX)
    }
}

ruled_record! {
    /// All screens of one candidate: a prefix of the order, all but the last passed.
    pub struct ScreenReceipt: ScreenReceipt::rules {
        /// The candidate.
        pub candidate_digest: Digest,
        /// What follows.
        pub decision: ScreenDecision,
        /// One to five.
        pub results: Vec<ScreenResult>,
        /// From 1.
        pub screen_attempt: u64,
        /// The service.
        pub service_digest: Digest,
    }
}

impl ScreenReceipt {
    fn rules(&self) -> Result<(), DecodeError> {
        within("screen_attempt", self.screen_attempt, 1, u64::MAX)?;
        let results = &self.results;
        let count = results.len();
        let ordered = count <= ScreenStage::ALL.len()
            && results.iter().zip(ScreenStage::ALL).all(|(result, stage)| result.stage == *stage);
        require(ordered, "results", "not a prefix of the screens in order", &count)?;
        let Some((last, before)) = results.split_last() else {
            return require(false, "results", "no result", &count);
        };
        let passed = before.iter().all(|result| result.grade == StageGrade::Pass);
        require(passed, "results", "a screen ran after one that did not pass", &count)?;
        let fits = match self.decision {
            ScreenDecision::Promote => last.grade == StageGrade::Pass && count == ScreenStage::ALL.len(),
            ScreenDecision::Reject => last.grade == StageGrade::Fail,
            ScreenDecision::Retry | ScreenDecision::Hold => last.grade == StageGrade::NoDecision,
        };
        require(fits, "decision", "does not follow from the results", &self.decision)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RECEIPT.digest(self)
    }
}
