//! When each part of a qualification ran.

use crate::fields::{AnyDigest, require, ruled_record, within};
use cacheon_identity::float17::Float17;
use cacheon_identity::{DecodeError, Digest, Domain};

const TIMING: Domain = Domain::new("cacheon.qualification.operational-timing.v1");
/// Bounds of a whole-run budget, s.
const SHORTEST_BUDGET: u64 = 60;
const LONGEST_BUDGET: u64 = 14_400;

ruled_record! {
    /// Speed, audit and teacher in order, one after the other, within the run's budget. Stamps are controller time.
    pub struct TimingWitness: TimingWitness::rules {
        /// s.
        pub audit_completed_monotonic_s: Float17,
        /// The audit.
        pub audit_evidence_digest: AnyDigest,
        /// s.
        pub audit_started_monotonic_s: Float17,
        /// The policy's whole-run budget, s.
        pub max_qualification_seconds: u64,
        /// The resident speed policy.
        pub policy_digest: AnyDigest,
        /// s.
        pub qualification_completed_monotonic_s: Float17,
        /// The teacher's session.
        pub reference_session_digest: AnyDigest,
        /// s.
        pub speed_completed_monotonic_s: Float17,
        /// The reads.
        pub speed_evidence_digest: AnyDigest,
        /// s.
        pub speed_started_monotonic_s: Float17,
        /// s.
        pub t_completed_monotonic_s: Float17,
        /// s.
        pub t_started_monotonic_s: Float17,
    }
}

impl TimingWitness {
    fn rules(&self) -> Result<(), DecodeError> {
        let budget = self.max_qualification_seconds;
        within("max_qualification_seconds", budget, SHORTEST_BUDGET, LONGEST_BUDGET)?;
        let spans = [
            ("speed_completed_monotonic_s", self.speed_started_monotonic_s, self.speed_completed_monotonic_s),
            ("audit_completed_monotonic_s", self.audit_started_monotonic_s, self.audit_completed_monotonic_s),
            ("t_completed_monotonic_s", self.t_started_monotonic_s, self.t_completed_monotonic_s),
        ];
        for (member, start, end) in spans {
            require(start.get() < end.get(), member, "does not end after it starts", &end)?;
        }
        let turns = [
            ("audit_started_monotonic_s", self.speed_completed_monotonic_s, self.audit_started_monotonic_s),
            ("t_started_monotonic_s", self.audit_completed_monotonic_s, self.t_started_monotonic_s),
            (
                "qualification_completed_monotonic_s",
                self.t_completed_monotonic_s,
                self.qualification_completed_monotonic_s,
            ),
        ];
        for (member, before, after) in turns {
            require(before.get() <= after.get(), member, "before the part that it follows", &after)?;
        }
        let elapsed = self.qualification_completed_monotonic_s.get() - self.speed_started_monotonic_s.get();
        let rule = "the run is over its budget";
        require(elapsed <= budget as f64, "max_qualification_seconds", rule, &budget)
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        TIMING.digest(self)
    }
}
