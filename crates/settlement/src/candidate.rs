//! Pairing: when two qualifications are one candidate (spec 20 §9).

use crate::domains;
use crate::ids::{CandidateDigest, ReservationDigest};
use crate::qualification::{ArmIdentity, FinalizedPosition, Qualification, Shape};
use crate::speedup::{ONE_PPM, Speedup};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Fields, Json};
use cacheon_stack::ContributionRef;

/// Why two qualifications are no pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// Rule 1: another arena, target, delta, hotkey or arm.
    #[error("the two qualifications differ in what they reproduce: `{0}`")]
    ReproductionIdentity(&'static str),
    /// Rule 2: the same contribution, differently bound.
    #[error("the two qualifications bind the contribution differently: `{0}`")]
    ContributionIdentity(&'static str),
    /// Rule 3: a digest that must be new is shared.
    #[error("the reproduction reuses the primary's `{0}`")]
    AuthorityReuse(&'static str),
    /// Rule 4: audit on one side only, or the same seed or evidence twice.
    #[error("the reproduction's audit is not independent: `{0}`")]
    AuditReuse(&'static str),
    /// Rule 5: orientation on one side only, or lanes not exactly exchanged.
    #[error("the reproduction did not exchange the lanes of the primary")]
    LaneNotSwapped,
    /// Rule 6: a new pair without audit and without orientation.
    #[error("a new candidate must be audited or lane-oriented on both sides")]
    AuditlessNewCandidate,
}

/// Two qualifications that agree on what they measured and share nothing they measured it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    primary: Qualification,
    reproduction: Qualification,
}

impl Candidate {
    /// Pairs two qualifications into a new candidate.
    ///
    /// # Errors
    /// The first [`PairError`] in rule order.
    pub fn new(primary: Qualification, reproduction: Qualification) -> Result<Self, PairError> {
        let pair = Self::reopen(primary, reproduction)?;
        // Both sides have the same groups here, so one side speaks for both.
        if pair.primary.audit.is_none() && pair.primary.orientation.is_none() {
            return Err(PairError::AuditlessNewCandidate);
        }
        Ok(pair)
    }

    /// Pairs two qualifications that were a candidate already; pairs without audit and orientation still reopen.
    ///
    /// # Errors
    /// The first [`PairError`] in rule order.
    pub fn reopen(primary: Qualification, reproduction: Qualification) -> Result<Self, PairError> {
        let (a, b) = (&primary, &reproduction);
        unequal([
            ("arena_digest", a.arena == b.arena),
            ("target_id", a.target == b.target),
            ("selected_delta_digest", a.selected_delta == b.selected_delta),
            ("hotkey", a.hotkey == b.hotkey),
            ("incumbent_stack_digest", a.incumbent.stack == b.incumbent.stack),
            ("incumbent_tree_digest", a.incumbent.tree == b.incumbent.tree),
            ("candidate_stack_digest", a.candidate.stack == b.candidate.stack),
            ("candidate_tree_digest", a.candidate.tree == b.candidate.tree),
        ])
        .map_or(Ok(()), |member| Err(PairError::ReproductionIdentity(member)))?;
        unequal([
            ("lane", a.proposal().is_some() == b.proposal().is_some()),
            ("reservation_digest", a.reservation == b.reservation),
            ("finalized_block", a.position.block == b.position.block),
            ("event_index", a.position.event_index == b.position.event_index),
            ("event_subindex", a.position.event_subindex == b.position.event_subindex),
            ("members", a.members == b.members),
            ("arm_digest", a.arm == b.arm),
            ("incumbent_manifest", a.incumbent_manifest == b.incumbent_manifest),
            ("candidate_manifest", a.candidate_manifest() == b.candidate_manifest()),
            ("proposal_digest", a.proposal() == b.proposal()),
            ("speed_evidence_policy_digest", a.speed_policy() == b.speed_policy()),
            ("audit_control_digest", a.audit_control() == b.audit_control()),
        ])
        .map_or(Ok(()), |member| Err(PairError::ContributionIdentity(member)))?;
        let reused = a.independence.named().into_iter().zip(b.independence.named()).find(|(x, y)| x.1 == y.1);
        if let Some(((member, _), _)) = reused {
            return Err(PairError::AuthorityReuse(member));
        }
        match (&a.audit, &b.audit) {
            (None, None) => {}
            (Some(x), Some(y)) if x.policy.validator_seed == y.policy.validator_seed => {
                return Err(PairError::AuditReuse("validator_seed"));
            }
            (Some(x), Some(y)) if x.evidence == y.evidence => {
                return Err(PairError::AuditReuse("audit_evidence_digest"));
            }
            (Some(_), Some(_)) => {}
            _ => return Err(PairError::AuditReuse("audit_policy")),
        }
        match (&a.orientation, &b.orientation) {
            (None, None) => {}
            (Some(x), Some(y)) if x.is_swap_of(y) => {}
            _ => return Err(PairError::LaneNotSwapped),
        }
        Ok(Self { primary, reproduction })
    }

    /// The first qualification.
    #[must_use]
    pub const fn primary(&self) -> &Qualification {
        &self.primary
    }

    /// The independent second one.
    #[must_use]
    pub const fn reproduction(&self) -> &Qualification {
        &self.reproduction
    }

    /// The candidate's digest, in the domain of its shape.
    #[must_use]
    pub fn digest(&self) -> CandidateDigest {
        CandidateDigest::new(match self.primary.shape() {
            Shape::Base | Shape::Policy => domains::CANDIDATE_V2.digest(self),
            Shape::Audited => domains::CANDIDATE_V3.digest(self),
            Shape::Oriented | Shape::OrientedAudited => domains::CANDIDATE_V4.digest(self),
        })
    }

    /// The smaller of the two speedups: what settles.
    #[must_use]
    pub fn speedup(&self) -> &Speedup {
        (&self.primary.speedup).min(&self.reproduction.speedup)
    }

    /// The reservation.
    #[must_use]
    pub fn reservation(&self) -> ReservationDigest {
        self.primary.reservation
    }

    /// Finalized order: block, event, subindex, reservation.
    #[must_use]
    pub fn finalized_order(&self) -> (FinalizedPosition, ReservationDigest) {
        (self.primary.position, self.primary.reservation)
    }

    /// The arm it was measured against.
    #[must_use]
    pub fn incumbent(&self) -> ArmIdentity {
        self.primary.incumbent
    }

    /// The contribution at the target; the discovery lane has none.
    #[must_use]
    pub fn contribution(&self) -> Option<&ContributionRef> {
        self.primary.contribution()
    }

    /// Whether a crown could be claimed at all: a speedup in (1, 1.000001) floors to 1,000,000 ppm, which no claim
    /// accepts, so that the deployed commit would abort for ever. Ask before leasing, and hold with the reason.
    #[must_use]
    pub fn claim_fault(&self) -> Option<ClaimFault> {
        (self.speedup().ppm() <= ONE_PPM)
            .then(|| ClaimFault { candidate: self.digest(), speedup: self.speedup().clone() })
    }
}

/// A reproduced speedup that no claim can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "candidate {candidate}: speedup {speedup} floors to 1000000 ppm, which no claim accepts; \
     hold it, a commit could never succeed"
)]
pub struct ClaimFault {
    /// The candidate.
    pub candidate: CandidateDigest,
    /// Its settled speedup.
    pub speedup: Speedup,
}

impl ClaimFault {
    /// The reason under which the candidate is held.
    pub const REASON: &'static str = "speedup_below_claim_resolution";
}

fn unequal<const N: usize>(checks: [(&'static str, bool); N]) -> Option<&'static str> {
    checks.into_iter().find(|(_, equal)| !equal).map(|(member, _)| member)
}

impl Canonical for Candidate {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("primary", &self.primary).field("reproduction", &self.reproduction);
        });
    }
}

impl Decode for Candidate {
    /// Reopens a stored pair.
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["primary", "reproduction"])?;
        let (primary, reproduction) = (fields.decode("primary")?, fields.decode("reproduction")?);
        Self::reopen(primary, reproduction).map_err(|error| DecodeError::invalid("not a pair", &error))
    }
}
