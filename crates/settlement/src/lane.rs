//! Which physical lane an arm ran on, and what both qualifications of a pair must hold equal (spec 20 §9).

use crate::domains;
use crate::rule;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, Decode, DecodeError, Digest, Json};

/// The newest resident speed policy a lane control can name.
pub const MAX_RESIDENT_POLICY: u64 = 8;

cacheon_identity::record! {
    /// The members of an orientation, not yet checked against each other.
    #[derive(Copy)]
    pub struct LaneOrientationFacts {
        /// The lane of the incumbent.
        pub baseline_physical_lane_digest: Digest,
        /// The lane of the candidate.
        pub candidate_physical_lane_digest: Digest,
        /// The [`LaneControl`] both qualifications ran under.
        pub control_digest: Digest,
        /// The speed-evidence policy.
        pub speed_evidence_policy_digest: Digest,
    }
}

/// Which lane each arm ran on; the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneOrientation(LaneOrientationFacts);

impl LaneOrientation {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = LaneOrientationFacts::MEMBERS;

    /// An orientation over two different lanes.
    ///
    /// # Errors
    /// [`rule::SAME_LANE`].
    pub fn new(facts: LaneOrientationFacts) -> Result<Self, DecodeError> {
        if facts.baseline_physical_lane_digest == facts.candidate_physical_lane_digest {
            return Err(DecodeError::invalid(rule::SAME_LANE, &facts.candidate_physical_lane_digest));
        }
        Ok(Self(facts))
    }

    /// The members.
    #[must_use]
    pub const fn facts(&self) -> &LaneOrientationFacts {
        &self.0
    }

    /// The orientation's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::LANE_ORIENTATION.digest(self)
    }

    /// True when `other` ran under the same policy and control with the two lanes exactly exchanged.
    #[must_use]
    pub fn is_swap_of(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.speed_evidence_policy_digest == b.speed_evidence_policy_digest
            && a.control_digest == b.control_digest
            && a.baseline_physical_lane_digest == b.candidate_physical_lane_digest
            && a.candidate_physical_lane_digest == b.baseline_physical_lane_digest
    }
}

impl Canonical for LaneOrientation {
    fn write(&self, w: &mut cacheon_identity::CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for LaneOrientation {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Self::new(LaneOrientationFacts::decode(json)?)
    }
}

cacheon_identity::record! {
    /// What makes two resident qualifications comparable, never the lane's own calibration.
    pub struct LaneControl {
        /// Noise bound of the speed policy.
        pub max_noise: Float17,
        /// Budget of the whole qualification, in seconds.
        pub max_qualification_seconds: u64,
        /// Budget of one stage, in seconds.
        pub max_stage_seconds: u64,
        /// Smallest margin of the bar.
        pub min_margin: Float17,
        /// Factor from noise to bar.
        pub noise_multiplier: Float17,
        /// Version of the resident speed policy, 1..=8.
        pub resident_policy_version: u64,
        /// Runtime resource policies of both sides, sorted; a duplicate is kept.
        pub runtime_resource_policies: Vec<Digest>,
        /// The speed-evidence policy.
        pub speed_evidence_policy: Digest,
        /// The workload.
        pub workload: Digest,
    }
}

impl LaneControl {
    /// Checks bounds and order, and gives the digest that an orientation names.
    ///
    /// # Errors
    /// [`rule::CONTROL_VERSION`] or [`rule::CONTROL_POLICIES`].
    pub fn digest(&self) -> Result<Digest, DecodeError> {
        if !(1..=MAX_RESIDENT_POLICY).contains(&self.resident_policy_version) {
            return Err(DecodeError::invalid(rule::CONTROL_VERSION, &self.resident_policy_version));
        }
        if self.runtime_resource_policies.len() != 2 || !self.runtime_resource_policies.is_sorted() {
            let count = self.runtime_resource_policies.len();
            return Err(DecodeError::invalid(rule::CONTROL_POLICIES, &count));
        }
        Ok(domains::LANE_CONTROL.digest(self))
    }
}
