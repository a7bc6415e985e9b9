//! From a reopened PASS to the qualification that settlement holds, and when two of them are independent.

use cacheon_identity::{DecodeError, Digest, Domain, OrEmpty};
use cacheon_ledger::Reservation;
use cacheon_ledger::row::ReservationId;
use cacheon_records::arena::{Decision, Role};
use cacheon_records::text::{SettlementIdentifier, TextError};
use cacheon_settlement::lane::{LaneOrientation, LaneOrientationFacts};
use cacheon_settlement::qualification::{
    ArmIdentity, FinalizedPosition, Independence, Lane, QualificationFacts, SPEED_POLICY_V3,
};
use cacheon_settlement::{Qualification, Speedup};
use cacheon_stack::Catalog;
use cacheon_stack::ids::{StackDigest, TreeDigest};

use super::reopen::Reopened;

/// Domain of [`Cohort`].
pub const COHORT: Domain = Domain::with_members("cacheon.rs.local-cohort.v1", Cohort::MEMBERS);

cacheon_identity::record! {
    /// Who competes with whom: the qualification authority of a local run. Primary attempts at the same targets against
    /// the same incumbent share one, so that the best of them is crowned; each reproduction has its own.
    pub struct Cohort {
        /// The arena.
        pub arena_digest: Digest,
        /// The incumbent.
        pub incumbent_stack_digest: StackDigest,
        /// Its tree.
        pub incumbent_tree_digest: TreeDigest,
        /// Targets that exclude each other, sorted.
        pub members: Vec<String>,
        /// The reservation of a reproduction; empty for a primary.
        pub reservation_digest: OrEmpty<ReservationId>,
        /// `primary` or `reproduction`.
        pub role: String,
    }
}

impl Cohort {
    /// The cohort of one order.
    #[must_use]
    pub fn of(
        arena: Digest,
        incumbent: ArmIdentity,
        members: Vec<String>,
        role: Role,
        reservation: ReservationId,
    ) -> Self {
        Self {
            arena_digest: arena,
            incumbent_stack_digest: incumbent.stack,
            incumbent_tree_digest: incumbent.tree,
            members,
            reservation_digest: match role {
                Role::Primary => OrEmpty::EMPTY,
                Role::Reproduction => OrEmpty(Some(reservation)),
            },
            role: role.as_str().to_owned(),
        }
    }

    /// The authority digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        COHORT.digest(self)
    }
}

/// The members that cannot be crowned beside each other: those of every target that shares a member with `members`,
/// directly or not. Sorted.
#[must_use]
pub fn contested(catalog: &Catalog, members: &[String]) -> Vec<String> {
    let mut found: std::collections::BTreeSet<String> = members.iter().cloned().collect();
    loop {
        let before = found.len();
        for row in cacheon_bundle::Targets::targets(catalog) {
            if row.members.iter().any(|member| found.contains(member)) {
                found.extend(row.members.iter().cloned());
            }
        }
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

/// Why an attempt is no qualification of a reservation, or two are no pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairingError {
    /// The attempt was made for something else.
    #[error("the attempt is of another {0}")]
    Foreign(&'static str),
    /// A PASS lacks a part.
    #[error("a PASS without {0} cannot settle")]
    Incomplete(&'static str),
    /// The two attempts share prompts.
    #[error("the reproduction shares {0} prompts with the primary")]
    Prompts(usize),
    /// The two attempts did not exchange their lanes.
    #[error(
        "the reproduction ran the incumbent on {baseline} and the candidate on {candidate}; the lanes were not exactly exchanged"
    )]
    Lanes {
        /// The reproduction's lane of the incumbent.
        baseline: String,
        /// The reproduction's lane of the candidate.
        candidate: String,
    },
    /// A rule of settlement.
    #[error("{0}")]
    Rule(String),
}

impl PairingError {
    /// The reason code under which a reproduction is held.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Foreign(_) => "evidence_of_another_order",
            Self::Incomplete(_) => "evidence_incomplete",
            Self::Prompts(_) => "reproduction_shares_prompts",
            Self::Lanes { .. } => "reproduction_lanes_not_exchanged",
            Self::Rule(_) => "reproduction_not_independent",
        }
    }
}

impl From<DecodeError> for PairingError {
    fn from(error: DecodeError) -> Self {
        Self::Rule(error.to_string())
    }
}

impl From<TextError> for PairingError {
    fn from(error: TextError) -> Self {
        Self::Rule(error.to_string())
    }
}

/// What an attempt must be about.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The row.
    pub row: &'a Reservation,
    /// The arena.
    pub arena: Digest,
    /// First look or reproduction.
    pub role: Role,
    /// Attempt number.
    pub number: u32,
}

/// Checks that an attempt is the one that was ordered.
///
/// # Errors
/// [`PairingError::Foreign`].
pub fn ordered(expected: &Expected<'_>, attempt: &Reopened) -> Result<(), PairingError> {
    let row = expected.row;
    let facts = [
        ("arena", attempt.arena.digest() == expected.arena),
        ("reservation", attempt.reservation == row.id.digest()),
        ("submitter", attempt.hotkey == row.hotkey),
        ("bundle", attempt.content_hash.to_string() == row.content_hash),
        ("target", attempt.target == row.target_id),
        ("role", attempt.role == expected.role),
        ("attempt number", attempt.number == expected.number),
    ];
    match facts.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(PairingError::Foreign(what)),
        None => Ok(()),
    }
}

/// The qualification that a PASS amounts to.
///
/// # Errors
/// A part that a PASS must have is missing, or settlement refuses a fact.
pub fn qualification(
    row: &Reservation,
    members: &[String],
    authority: Digest,
    attempt: &Reopened,
) -> Result<Qualification, PairingError> {
    if attempt.decision != Decision::Pass {
        return Err(PairingError::Incomplete("the decision PASS"));
    }
    let audit = attempt.audit.clone().ok_or(PairingError::Incomplete("an audit"))?;
    let selection = attempt.selection.ok_or(PairingError::Incomplete("a disclosed selection"))?;
    let speedup = attempt.speedup.as_deref().ok_or(PairingError::Incomplete("a speedup"))?;
    let orientation = LaneOrientation::new(LaneOrientationFacts {
        baseline_physical_lane_digest: attempt.baseline_lane.digest(),
        candidate_physical_lane_digest: attempt.candidate_lane.digest(),
        control_digest: attempt.control.digest()?,
        speed_evidence_policy_digest: SPEED_POLICY_V3,
    })?;
    Ok(Qualification::new(QualificationFacts {
        arena: attempt.arena,
        arm: attempt.arm,
        audit: Some(audit),
        candidate: ArmIdentity { stack: attempt.candidate.digest(), tree: attempt.candidate_tree },
        position: FinalizedPosition {
            block: row.block,
            event_index: row.event_index,
            event_subindex: row.event_subindex,
        },
        hotkey: SettlementIdentifier::parse(&row.hotkey)?,
        incumbent_manifest: attempt.incumbent.clone(),
        incumbent: ArmIdentity { stack: attempt.incumbent.digest(), tree: attempt.incumbent_tree },
        lane: Lane::Registered { candidate_manifest: attempt.candidate.clone() },
        members: members
            .iter()
            .map(|member| SettlementIdentifier::parse(member))
            .collect::<Result<_, _>>()?,
        independence: Independence {
            authority,
            plan: attempt.plan,
            attempt: attempt.sha256,
            report: attempt.record,
            selection_commitment: selection.commitment,
            secret_commitment: selection.secret_commitment,
            selection_evidence: selection.evidence,
        },
        orientation: Some(orientation),
        reservation: row.id,
        selected_delta: attempt.selected_delta,
        speed_policy: Some(SPEED_POLICY_V3),
        speedup: Speedup::parse(speedup)?,
        target: SettlementIdentifier::parse(&attempt.target)?,
    })?)
}

/// Checks what settlement's own pairing cannot see: that no prompt was used twice, and that the host read back exactly
/// exchanged CPU lists.
///
/// # Errors
/// [`PairingError::Prompts`], [`PairingError::Lanes`].
pub fn independent(primary: &Reopened, reproduction: &Reopened) -> Result<(), PairingError> {
    let shared = primary.prompts.intersection(&reproduction.prompts).count();
    if shared > 0 || primary.prompts.is_empty() || reproduction.prompts.is_empty() {
        return Err(PairingError::Prompts(shared));
    }
    let exchanged = primary.baseline_lane == reproduction.candidate_lane
        && primary.candidate_lane == reproduction.baseline_lane
        && primary.baseline_lane.cpus != primary.candidate_lane.cpus;
    if exchanged {
        return Ok(());
    }
    let lane = |lane: &cacheon_records::cpu::CpuLane| format!("{}:{}", lane.lane_id, lane.cpus);
    Err(PairingError::Lanes {
        baseline: lane(&reproduction.baseline_lane),
        candidate: lane(&reproduction.candidate_lane),
    })
}
