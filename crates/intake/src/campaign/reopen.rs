//! Retained attempts, reopened: what settlement may believe of an attempt is what follows from its bytes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cacheon_evidence::EvidenceStore;
use cacheon_evidence::cpu::attempt::{Artifact, Attempt, RevealFacts, read_record};
use cacheon_evidence::cpu::verify::{Verified, VerifyError, open_calibration, verify};
use cacheon_identity::{Digest, Domain, Json};
use cacheon_records::arena::{Decision, LanePair, Role};
use cacheon_records::cpu::{CpuLane, SealedPlan, SpeedRaw};
use cacheon_records::evidence::EvidenceRef;
use cacheon_settlement::lane::LaneControl;
use cacheon_settlement::qualification::{AuditBinding, SPEED_POLICY_V3, SelectionEvidence};
use cacheon_stack::EvaluationStack;
use cacheon_stack::ids::{ArenaDigest, ArmDigest, SelectedDelta, TreeDigest};

const SELECTION: Domain = Domain::new("cacheon.qualification.selection-receipt");

/// Why an attempt does not support what is claimed of it.
#[derive(Debug, thiserror::Error)]
pub enum ReopenError {
    /// It does not verify.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A record in it is not what it should be.
    #[error("{what}: {why}")]
    Record {
        /// Which.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl ReopenError {
    pub(crate) fn record(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Record { what, why: why.to_string() }
    }
}

/// How the prompts of an attempt were selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionFacts {
    /// The commitment.
    pub commitment: Digest,
    /// The commitment to the secret.
    pub secret_commitment: Digest,
    /// Commitment, entropy and selection, bound together.
    pub evidence: Digest,
}

/// What one attempt says, once its verdict was derived again from its raw records.
#[derive(Debug, Clone)]
pub struct Reopened {
    /// SHA-256 of the attempt's bytes.
    pub sha256: Digest,
    /// Digest of the attempt's record.
    pub record: Digest,
    /// SHA-256 of the sealed plan's bytes.
    pub plan: Digest,
    /// The arena.
    pub arena: ArenaDigest,
    /// The marginal arm.
    pub arm: ArmDigest,
    /// The reservation that ordered it.
    pub reservation: Digest,
    /// Submitter.
    pub hotkey: String,
    /// Content hash of the candidate bundle.
    pub content_hash: Digest,
    /// First look or reproduction.
    pub role: Role,
    /// Attempt number.
    pub number: u32,
    /// Target.
    pub target: String,
    /// The executable difference.
    pub selected_delta: SelectedDelta,
    /// What it was measured against.
    pub incumbent: EvaluationStack,
    /// Its tree.
    pub incumbent_tree: TreeDigest,
    /// What results.
    pub candidate: EvaluationStack,
    /// Its tree.
    pub candidate_tree: TreeDigest,
    /// The derived verdict.
    pub decision: Decision,
    /// Its reason.
    pub reason: String,
    /// Whether the candidate ended the attempt itself.
    pub charged: bool,
    /// Measured speedup, `%.17g`.
    pub speedup: Option<String>,
    /// The bar, `%.17g`.
    pub bar: Option<String>,
    /// Lane of the incumbent, with the CPUs that the host read back.
    pub baseline_lane: CpuLane,
    /// Lane of the candidate.
    pub candidate_lane: CpuLane,
    /// What makes two attempts comparable.
    pub control: LaneControl,
    /// Occurrence digests of every prompt, warm-up included.
    pub prompts: BTreeSet<Digest>,
    /// The audit, when it was reached.
    pub audit: Option<AuditBinding>,
    /// The selection, when it was disclosed.
    pub selection: Option<SelectionFacts>,
}

impl Reopened {
    /// The attempt's facts for a table.
    #[must_use]
    pub fn outline(&self) -> Outline {
        let lane = |lane: &CpuLane| format!("{}:{}", lane.lane_id, lane.cpus);
        Outline {
            lanes: Some(LanePair {
                baseline: lane(&self.baseline_lane),
                candidate: lane(&self.candidate_lane),
            }),
            speedup: self.speedup.clone(),
            bar: self.bar.clone(),
            advisories: Vec::new(),
        }
    }
}

/// What a table shows of an attempt: as recorded, not derived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// Lanes.
    pub lanes: Option<LanePair>,
    /// Speedup, `%.17g`.
    pub speedup: Option<String>,
    /// Bar, `%.17g`.
    pub bar: Option<String>,
    /// Facts for a human, never part of a verdict.
    pub advisories: Vec<String>,
}

/// Reopens retained attempts.
pub trait Reopen {
    /// Derives the verdict of an attempt from its bytes and compares it with the recorded one.
    ///
    /// # Errors
    /// [`ReopenError`]: the first thing that does not hold.
    fn reopen(&self, attempt: Digest) -> Result<Reopened, ReopenError>;

    /// Reads what a table shows, without deriving anything.
    ///
    /// # Errors
    /// [`ReopenError`] when the bytes are gone or altered.
    fn outline(&self, attempt: Digest) -> Result<Outline, ReopenError>;
}

/// The attempts of a local evidence store.
#[derive(Debug)]
pub struct RetainedAttempts {
    store: EvidenceStore,
}

impl RetainedAttempts {
    /// Attempts retained below `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { store: EvidenceStore::new(root) }
    }
}

impl Reopen for RetainedAttempts {
    fn reopen(&self, attempt: Digest) -> Result<Reopened, ReopenError> {
        let verified = verify(&self.store, attempt)?;
        let calibration = open_calibration(&self.store, &verified.plan.sealed.calibration)?;
        facts(&verified, calibration.context.workload_digest)
    }

    fn outline(&self, attempt: Digest) -> Result<Outline, ReopenError> {
        let (domain, _) = Artifact::Attempt.names();
        let found =
            self.store.find(domain, &attempt).map_err(|error| ReopenError::record("attempt", error))?;
        let bytes = found.ok_or(VerifyError::Absent(attempt))?;
        let record: Attempt = read_record(&bytes).map_err(|error| ReopenError::record("attempt", error))?;
        let plan: SealedPlan = self.read("plan", &record.plan)?;
        let lane = |lane: &CpuLane| format!("{}:{}", lane.lane_id, lane.cpus);
        let advisories = match &record.speed {
            Some(reference) => denied(&self.read("speed", reference)?),
            None => Vec::new(),
        };
        Ok(Outline {
            lanes: Some(LanePair {
                baseline: lane(&plan.baseline_lane),
                candidate: lane(&plan.candidate_lane),
            }),
            speedup: record.speedup.map(|value| value.to_string()),
            bar: record.bar.map(|value| value.to_string()),
            advisories,
        })
    }
}

impl RetainedAttempts {
    fn read<T: cacheon_identity::Decode + cacheon_identity::Canonical>(
        &self,
        what: &'static str,
        reference: &EvidenceRef,
    ) -> Result<T, ReopenError> {
        let bytes = self.store.reopen(reference).map_err(|error| ReopenError::record(what, error))?;
        read_record(&bytes).map_err(|error| ReopenError::record(what, error))
    }
}

/// System calls that the filters denied while the candidate served.
fn denied(raw: &SpeedRaw) -> Vec<String> {
    let closed = raw.reads.iter().filter(|read| read.role == "C").flat_map(|read| &read.swaps);
    let (network, other) = closed.filter_map(|swap| swap.closed.as_ref()).fold((0u64, 0u64), |(n, o), it| {
        (n.saturating_add(it.denied_network), o.saturating_add(it.denied_other))
    });
    let mut advisories = Vec::new();
    if network > 0 {
        advisories.push(format!("{network} network system calls denied while the candidate served"));
    }
    if other > 0 {
        advisories.push(format!("{other} other system calls denied while the candidate served"));
    }
    advisories
}

fn facts(verified: &Verified, workload: Digest) -> Result<Reopened, ReopenError> {
    let (attempt, plan, derived) = (&verified.attempt, &verified.plan, &verified.derived);
    let sealed = &plan.sealed;
    let role = Role::parse(&sealed.role)
        .ok_or_else(|| ReopenError::record("plan", format!("role {:?}", sealed.role)))?;
    let parts = plan.speed.parts();
    let mut policies = vec![sealed.baseline_launch_digest, sealed.candidate_launch_digest];
    policies.sort_unstable();
    let control = LaneControl {
        max_noise: parts.max_noise,
        max_qualification_seconds: parts.max_qualification_seconds,
        max_stage_seconds: parts.max_stage_seconds,
        min_margin: parts.min_margin,
        noise_multiplier: parts.noise_multiplier,
        resident_policy_version: plan.speed.version().number(),
        // A launch names its container policy and everything else that a lane, role or session does not decide.
        runtime_resource_policies: policies,
        speed_evidence_policy: SPEED_POLICY_V3,
        workload,
    };
    let selection = match &attempt.reveal {
        None => None,
        Some(reveal) => Some(SelectionFacts {
            commitment: plan.commitment.digest(),
            secret_commitment: plan.commitment.secret_commitment,
            evidence: selection_evidence(plan.commitment.digest(), reveal)?,
        }),
    };
    Ok(Reopened {
        sha256: verified.sha256,
        record: attempt.digest(),
        plan: attempt.plan.sha256,
        arena: ArenaDigest::new(sealed.arena_digest),
        arm: ArmDigest::new(sealed.arm_plan_digest),
        reservation: sealed.reservation,
        hotkey: sealed.hotkey.clone(),
        content_hash: sealed.content_hash,
        role,
        number: sealed.attempt,
        target: sealed.target_id.clone(),
        selected_delta: SelectedDelta::new(sealed.selected_delta_digest),
        incumbent: plan.incumbent.clone(),
        incumbent_tree: TreeDigest::new(sealed.incumbent_tree_digest),
        candidate: plan.candidate.clone(),
        candidate_tree: TreeDigest::new(sealed.candidate_tree_digest),
        decision: derived.decision,
        reason: derived.reason.clone(),
        charged: attempt.failure.as_ref().is_some_and(|failure| failure.attributable),
        speedup: derived.speedup.map(|value| value.to_string()),
        bar: derived.bar.map(|value| value.to_string()),
        baseline_lane: sealed.baseline_lane.clone(),
        candidate_lane: sealed.candidate_lane.clone(),
        control,
        prompts: sealed.prompts.iter().flatten().map(|prompt| prompt.digest).collect(),
        audit: attempt
            .audit
            .as_ref()
            .map(|reference| AuditBinding { evidence: reference.sha256, policy: plan.audit.clone() }),
        selection,
    })
}

/// The reveal was checked against the commitment when the attempt was verified; here its digests are only bound.
fn selection_evidence(commitment: Digest, reveal: &RevealFacts) -> Result<Digest, ReopenError> {
    let named = |name: &'static str| {
        let text = reveal.selection.get(name).and_then(Json::as_str).unwrap_or_default();
        Digest::parse(text).map_err(|error| ReopenError::record("selection receipt", error))
    };
    Ok(SelectionEvidence {
        commitment_digest: commitment,
        entropy_digest: named("entropy_receipt_digest")?,
        selection_digest: SELECTION.digest(&reveal.selection),
    }
    .digest())
}
