//! One PASS as settlement holds it, in all five shapes that were ever written (spec 20 §9).

use crate::domains;
use crate::ids::{QualificationDigest, ReproductionDigest, ReservationDigest};
use crate::lane::LaneOrientation;
use crate::rule;
use crate::speedup::Speedup;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json, OrEmpty,
};
use cacheon_records::audit::AuditPolicy;
use cacheon_records::text::SettlementIdentifier;
use cacheon_stack::ids::{ArenaDigest, ArmDigest, SelectedDelta, StackDigest, TreeDigest};
use cacheon_stack::{ContributionRef, EvaluationStack};

/// Speed-evidence policy of shape v1, which does not name one.
pub const SPEED_POLICY_V1: Digest =
    Digest::from_static("35ae0b82a688459691f3e94ed7d01e77c2a41f7befc6b210d8f54c9fd06083ae");
/// Speed-evidence policy version 2: two candidate reads.
pub const SPEED_POLICY_V2: Digest =
    Digest::from_static("3264b11e2ed6b1902df3637d27f112db5b4bc8d161a55525c1baae1aa1a9cf9f");
/// Speed-evidence policy version 3: resident; demands a lane orientation.
pub const SPEED_POLICY_V3: Digest =
    Digest::from_static("0517e0d3049e1197c2190a570c6b1e583b09a201b154893a79590aab41ddd71d");
/// Audit control where none was sealed.
pub const LEGACY_AUDIT_CONTROL: Digest =
    Digest::from_static("913120c11356f302c2427eab901914637494231343d7c5d5ab989a3239b5c72c");
/// Audit evidence where none was sealed.
pub const LEGACY_AUDIT_EVIDENCE: Digest =
    Digest::from_static("f792bc73372892156e77094908be8ef9bd2ebe72888ca194a9aaf2f1babf3c5e");

/// The 26 members every shape has, in code-point order.
pub const BASE_MEMBERS: &[&str] = &[
    "arena_digest",
    "arm_digest",
    "candidate_manifest",
    "candidate_stack_digest",
    "candidate_tree_digest",
    "event_index",
    "event_subindex",
    "finalized_block",
    "hotkey",
    "incumbent_manifest",
    "incumbent_stack_digest",
    "incumbent_tree_digest",
    "lane",
    "members",
    "proposal_digest",
    "qualification_attempt_digest",
    "qualification_authority_digest",
    "qualification_plan_digest",
    "qualification_report_digest",
    "reservation_digest",
    "selected_delta_digest",
    "selection_commitment_digest",
    "selection_evidence_digest",
    "selection_secret_commitment_digest",
    "speedup",
    "target_id",
];
/// The members of the audited shape without orientation.
pub const AUDIT_MEMBERS: &[&str] = &[
    "arena_digest",
    "arm_digest",
    "audit_control_digest",
    "audit_evidence_digest",
    "audit_policy",
    "candidate_manifest",
    "candidate_stack_digest",
    "candidate_tree_digest",
    "event_index",
    "event_subindex",
    "finalized_block",
    "hotkey",
    "incumbent_manifest",
    "incumbent_stack_digest",
    "incumbent_tree_digest",
    "lane",
    "members",
    "proposal_digest",
    "qualification_attempt_digest",
    "qualification_authority_digest",
    "qualification_plan_digest",
    "qualification_report_digest",
    "reservation_digest",
    "selected_delta_digest",
    "selection_commitment_digest",
    "selection_evidence_digest",
    "selection_secret_commitment_digest",
    "speed_evidence_policy_digest",
    "speedup",
    "target_id",
];
const SPEED_POLICY: &str = "speed_evidence_policy_digest";
const AUDIT: [&str; 3] = ["audit_control_digest", "audit_evidence_digest", "audit_policy"];
const ORIENTATION: &str = "resident_lane_orientation";

/// One of the five shapes, named by what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// v1: the base members.
    Base,
    /// v2: names its speed-evidence policy.
    Policy,
    /// v3: audited.
    Audited,
    /// v4: audited, with lane orientation.
    OrientedAudited,
    /// v4 without audit.
    Oriented,
}

/// A stack and its materialised tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmIdentity {
    /// The stack.
    pub stack: StackDigest,
    /// Its tree.
    pub tree: TreeDigest,
}

impl Canonical for ArmIdentity {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("stack_digest", &self.stack).field("tree_digest", &self.tree);
        });
    }
}

impl Decode for ArmIdentity {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["stack_digest", "tree_digest"])?;
        Ok(Self { stack: fields.decode("stack_digest")?, tree: fields.decode("tree_digest")? })
    }
}

/// Where the submission stands in the finalized chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FinalizedPosition {
    /// Block number.
    pub block: u64,
    /// Event in the block.
    pub event_index: u64,
    /// Position within the event.
    pub event_subindex: u64,
}

/// What was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum Lane {
    /// A registered target, with the stack that results.
    Registered {
        /// The candidate's whole manifest.
        candidate_manifest: EvaluationStack,
    },
    /// The discovery lane of an earlier deployment; it only reopens.
    Discovery {
        /// The proposal.
        proposal: Digest,
    },
}

/// The seven digests in which two qualifications of one candidate must all differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Independence {
    /// Qualification authority.
    pub authority: Digest,
    /// Qualification plan.
    pub plan: Digest,
    /// The retained attempt.
    pub attempt: Digest,
    /// The candidate report.
    pub report: Digest,
    /// Commitment to the selection.
    pub selection_commitment: Digest,
    /// Commitment to the selection secret.
    pub secret_commitment: Digest,
    /// Selection evidence; for a resident acceptance exit the count result.
    pub selection_evidence: Digest,
}

impl Independence {
    /// The seven with their member names, in the order in which they are compared.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Digest); 7] {
        [
            ("qualification_authority_digest", self.authority),
            ("qualification_plan_digest", self.plan),
            ("qualification_attempt_digest", self.attempt),
            ("qualification_report_digest", self.report),
            ("selection_commitment_digest", self.selection_commitment),
            ("selection_secret_commitment_digest", self.secret_commitment),
            ("selection_evidence_digest", self.selection_evidence),
        ]
    }
}

/// What an audited qualification adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditBinding {
    /// The audit's evidence.
    pub evidence: Digest,
    /// The policy, whose control both sides share.
    pub policy: AuditPolicy,
}

/// Everything a qualification states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QualificationFacts {
    /// The arena.
    pub arena: ArenaDigest,
    /// The marginal arm plan.
    pub arm: ArmDigest,
    /// Audit, in audited shapes.
    pub audit: Option<AuditBinding>,
    /// Stack and tree of the candidate.
    pub candidate: ArmIdentity,
    /// Where the submission was finalized.
    pub position: FinalizedPosition,
    /// Who submitted.
    pub hotkey: SettlementIdentifier,
    /// The incumbent's whole manifest.
    pub incumbent_manifest: EvaluationStack,
    /// Stack and tree of the incumbent.
    pub incumbent: ArmIdentity,
    /// What was submitted.
    pub lane: Lane,
    /// Targets the contribution covers, sorted and unique.
    pub members: Vec<SettlementIdentifier>,
    /// What a second qualification must not share.
    pub independence: Independence,
    /// Lane orientation, exactly with speed-evidence policy version 3.
    pub orientation: Option<LaneOrientation>,
    /// The reservation.
    pub reservation: ReservationDigest,
    /// The executable difference.
    pub selected_delta: SelectedDelta,
    /// Speed-evidence policy; absent only in shape v1.
    pub speed_policy: Option<Digest>,
    /// Measured speedup.
    pub speedup: Speedup,
    /// The target.
    pub target: SettlementIdentifier,
}

/// A qualification whose members agree with each other. Read its facts by dereference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qualification(QualificationFacts);

impl std::ops::Deref for Qualification {
    type Target = QualificationFacts;

    fn deref(&self) -> &QualificationFacts {
        &self.0
    }
}

cacheon_identity::record! {
    /// What both qualifications of a pair must hold equal above all.
    pub struct ReproductionIdentity {
        /// The arena.
        pub arena_digest: ArenaDigest,
        /// Candidate stack.
        pub candidate_stack_digest: StackDigest,
        /// Candidate tree.
        pub candidate_tree_digest: TreeDigest,
        /// Submitter.
        pub hotkey: SettlementIdentifier,
        /// Incumbent stack.
        pub incumbent_stack_digest: StackDigest,
        /// Incumbent tree.
        pub incumbent_tree_digest: TreeDigest,
        /// The executable difference.
        pub selected_delta_digest: SelectedDelta,
        /// The target.
        pub target_id: SettlementIdentifier,
    }
}

impl ReproductionIdentity {
    /// Its digest.
    #[must_use]
    pub fn digest(&self) -> ReproductionDigest {
        ReproductionDigest::new(domains::REPRODUCTION_IDENTITY.digest(self))
    }
}

cacheon_identity::record! {
    /// How the prompts of a qualification were selected.
    #[derive(Copy)]
    pub struct SelectionEvidence {
        /// The commitment made before the entropy was known.
        pub commitment_digest: Digest,
        /// The entropy.
        pub entropy_digest: Digest,
        /// The selection that follows from both.
        pub selection_digest: Digest,
    }
}

impl SelectionEvidence {
    /// Its digest, the `selection_evidence_digest` of a qualification.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::SELECTION_EVIDENCE.digest(self)
    }
}

impl Qualification {
    /// Checks the facts against each other.
    ///
    /// # Errors
    /// The first [`rule`] they break, at the member that shows it.
    pub fn new(facts: QualificationFacts) -> Result<Self, DecodeError> {
        let broken = |member: &'static str, rule: &'static str, value: &dyn std::fmt::Display| {
            Err(DecodeError::invalid(rule, &value.to_string()).within(member))
        };
        if facts.members.is_empty() || !facts.members.is_sorted_by(|a, b| a < b) {
            return broken("members", rule::MEMBERS, &facts.members.len());
        }
        if facts.speed_policy.is_none() && (facts.audit.is_some() || facts.orientation.is_some()) {
            return Err(DecodeKind::Missing(SPEED_POLICY.to_owned()).into());
        }
        if let Some(orientation) = &facts.orientation {
            let policy = orientation.facts().speed_evidence_policy_digest;
            if facts.speed_policy != Some(SPEED_POLICY_V3) || policy != SPEED_POLICY_V3 {
                return broken(ORIENTATION, rule::ORIENTATION_POLICY, &policy);
            }
        } else if facts.speed_policy == Some(SPEED_POLICY_V3) {
            return broken(SPEED_POLICY, rule::ORIENTATION_REQUIRED, &SPEED_POLICY_V3);
        }
        if facts.candidate.tree == facts.incumbent.tree {
            return broken("candidate_tree_digest", rule::TREE_UNCHANGED, &facts.candidate.tree);
        }
        if facts.candidate.stack == facts.incumbent.stack {
            return broken("candidate_stack_digest", rule::STACK_UNCHANGED, &facts.candidate.stack);
        }
        let fits = |manifest: &EvaluationStack, stack: StackDigest| {
            manifest.arena == facts.arena && manifest.digest() == stack
        };
        if !fits(&facts.incumbent_manifest, facts.incumbent.stack) {
            return broken("incumbent_manifest", rule::MANIFEST, &facts.incumbent.stack);
        }
        if let Lane::Registered { candidate_manifest } = &facts.lane {
            if !fits(candidate_manifest, facts.candidate.stack) {
                return broken("candidate_manifest", rule::MANIFEST, &facts.candidate.stack);
            }
            let entry = candidate_manifest.entries().get(facts.target.as_str());
            if entry.map(ContributionRef::selected_delta) != Some(facts.selected_delta) {
                return broken("candidate_manifest", rule::CANDIDATE_ENTRY, &facts.target);
            }
        }
        Ok(Self(facts))
    }

    /// The shape it is written in.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        match (&self.0.orientation, &self.0.audit, &self.0.speed_policy) {
            (Some(_), Some(_), _) => Shape::OrientedAudited,
            (Some(_), None, _) => Shape::Oriented,
            (None, Some(_), _) => Shape::Audited,
            (None, None, Some(_)) => Shape::Policy,
            (None, None, None) => Shape::Base,
        }
    }

    /// The digest, in the domain of its shape.
    #[must_use]
    pub fn digest(&self) -> QualificationDigest {
        QualificationDigest::new(match self.shape() {
            Shape::Base | Shape::Policy => domains::QUALIFICATION.digest(self),
            Shape::Audited => domains::QUALIFICATION_AUDITED.digest(self),
            Shape::Oriented | Shape::OrientedAudited => domains::QUALIFICATION_ORIENTED.digest(self),
        })
    }

    /// The speed-evidence policy, version 1 where none is named.
    #[must_use]
    pub fn speed_policy(&self) -> Digest {
        self.0.speed_policy.unwrap_or(SPEED_POLICY_V1)
    }

    /// The audit control, the legacy digest where no audit was sealed.
    #[must_use]
    pub fn audit_control(&self) -> Digest {
        self.0.audit.as_ref().map_or(LEGACY_AUDIT_CONTROL, |audit| audit.policy.control.digest())
    }

    /// The audit evidence, the legacy digest where no audit was sealed.
    #[must_use]
    pub fn audit_evidence(&self) -> Digest {
        self.0.audit.as_ref().map_or(LEGACY_AUDIT_EVIDENCE, |audit| audit.evidence)
    }

    /// The candidate's manifest; the discovery lane has none.
    #[must_use]
    pub const fn candidate_manifest(&self) -> Option<&EvaluationStack> {
        match &self.0.lane {
            Lane::Registered { candidate_manifest } => Some(candidate_manifest),
            Lane::Discovery { .. } => None,
        }
    }

    /// The contribution at the target; the discovery lane has none.
    #[must_use]
    pub fn contribution(&self) -> Option<&ContributionRef> {
        self.candidate_manifest().and_then(|manifest| manifest.entries().get(self.0.target.as_str()))
    }

    /// The proposal of the discovery lane.
    #[must_use]
    pub const fn proposal(&self) -> Option<Digest> {
        match &self.0.lane {
            Lane::Registered { .. } => None,
            Lane::Discovery { proposal } => Some(*proposal),
        }
    }

    /// What a reproduction must hold equal.
    #[must_use]
    pub fn reproduction_identity(&self) -> ReproductionIdentity {
        let facts = &self.0;
        ReproductionIdentity {
            arena_digest: facts.arena,
            candidate_stack_digest: facts.candidate.stack,
            candidate_tree_digest: facts.candidate.tree,
            hotkey: facts.hotkey.clone(),
            incumbent_stack_digest: facts.incumbent.stack,
            incumbent_tree_digest: facts.incumbent.tree,
            selected_delta_digest: facts.selected_delta,
            target_id: facts.target.clone(),
        }
    }
}

impl Canonical for Qualification {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let f = &self.0;
        let lane = if self.proposal().is_some() { "discovery" } else { "registered" };
        w.object(|o| {
            o.field("arena_digest", &f.arena).field("arm_digest", &f.arm);
            if let Some(audit) = &f.audit {
                o.field("audit_control_digest", &audit.policy.control.digest())
                    .field("audit_evidence_digest", &audit.evidence)
                    .field("audit_policy", &audit.policy);
            }
            o.field("candidate_manifest", &self.candidate_manifest())
                .field("candidate_stack_digest", &f.candidate.stack)
                .field("candidate_tree_digest", &f.candidate.tree)
                .field("event_index", &f.position.event_index)
                .field("event_subindex", &f.position.event_subindex)
                .field("finalized_block", &f.position.block)
                .field("hotkey", &f.hotkey)
                .field("incumbent_manifest", &f.incumbent_manifest)
                .field("incumbent_stack_digest", &f.incumbent.stack)
                .field("incumbent_tree_digest", &f.incumbent.tree)
                .field("lane", lane)
                .field("members", &f.members)
                .field("proposal_digest", &OrEmpty(self.proposal()))
                .field("qualification_attempt_digest", &f.independence.attempt)
                .field("qualification_authority_digest", &f.independence.authority)
                .field("qualification_plan_digest", &f.independence.plan)
                .field("qualification_report_digest", &f.independence.report)
                .field("reservation_digest", &f.reservation)
                .field_if(ORIENTATION, f.orientation.as_ref())
                .field("selected_delta_digest", &f.selected_delta)
                .field("selection_commitment_digest", &f.independence.selection_commitment)
                .field("selection_evidence_digest", &f.independence.selection_evidence)
                .field("selection_secret_commitment_digest", &f.independence.secret_commitment)
                .field_if(SPEED_POLICY, f.speed_policy.as_ref())
                .field("speedup", &f.speedup)
                .field("target_id", &f.target);
        });
    }
}

impl Decode for Qualification {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let optional = [AUDIT[0], AUDIT[1], AUDIT[2], ORIENTATION, SPEED_POLICY];
        let mut fields = Fields::closed_with(json, BASE_MEMBERS, &optional)?;
        let has = |name: &str| json.get(name).is_some();
        let audited = AUDIT.iter().any(|name| has(name));
        if !has(SPEED_POLICY) && (audited || has(ORIENTATION)) {
            return Err(DecodeKind::Missing(SPEED_POLICY.to_owned()).into());
        }
        let audit = if audited { Some(decode_audit(&mut fields)?) } else { None };
        let proposal_member = fields.take("proposal_digest")?;
        let OrEmpty(proposal) = proposal_member.decode::<OrEmpty<Digest>>()?;
        let manifest_member = fields.take("candidate_manifest")?;
        let lane_member = fields.take("lane")?;
        let wrong = |member: &cacheon_identity::decode::Member<'_>, rule: &'static str| {
            let shown = member.json().as_str().unwrap_or(member.json().kind()).to_owned();
            member.error(DecodeKind::invalid(rule, &shown))
        };
        let lane = match lane_member.as_str()? {
            "registered" if proposal.is_some() => return Err(wrong(&proposal_member, rule::PROPOSAL)),
            "registered" => Lane::Registered { candidate_manifest: manifest_member.decode()? },
            "discovery" if *manifest_member.json() != Json::Null => {
                return Err(wrong(&manifest_member, rule::DISCOVERY_MANIFEST));
            }
            "discovery" => {
                let proposal = proposal.ok_or_else(|| wrong(&proposal_member, rule::PROPOSAL))?;
                Lane::Discovery { proposal }
            }
            _ => return Err(wrong(&lane_member, rule::LANE)),
        };
        Self::new(QualificationFacts {
            arena: fields.decode("arena_digest")?,
            arm: fields.decode("arm_digest")?,
            audit,
            candidate: ArmIdentity {
                stack: fields.decode("candidate_stack_digest")?,
                tree: fields.decode("candidate_tree_digest")?,
            },
            position: FinalizedPosition {
                block: fields.decode("finalized_block")?,
                event_index: fields.decode("event_index")?,
                event_subindex: fields.decode("event_subindex")?,
            },
            hotkey: fields.decode("hotkey")?,
            incumbent_manifest: fields.decode("incumbent_manifest")?,
            incumbent: ArmIdentity {
                stack: fields.decode("incumbent_stack_digest")?,
                tree: fields.decode("incumbent_tree_digest")?,
            },
            lane,
            members: fields.decode("members")?,
            independence: Independence {
                authority: fields.decode("qualification_authority_digest")?,
                plan: fields.decode("qualification_plan_digest")?,
                attempt: fields.decode("qualification_attempt_digest")?,
                report: fields.decode("qualification_report_digest")?,
                selection_commitment: fields.decode("selection_commitment_digest")?,
                secret_commitment: fields.decode("selection_secret_commitment_digest")?,
                selection_evidence: fields.decode("selection_evidence_digest")?,
            },
            orientation: fields.decode_optional(ORIENTATION)?,
            reservation: fields.decode("reservation_digest")?,
            selected_delta: fields.decode("selected_delta_digest")?,
            speed_policy: fields.decode_optional(SPEED_POLICY)?,
            speedup: fields.decode("speedup")?,
            target: fields.decode("target_id")?,
        })
    }
}

fn decode_audit(fields: &mut Fields<'_>) -> Result<AuditBinding, DecodeError> {
    let control = fields.take("audit_control_digest")?;
    let claimed = control.digest()?;
    let evidence = fields.decode("audit_evidence_digest")?;
    let policy: AuditPolicy = fields.decode("audit_policy")?;
    if policy.control.digest() != claimed {
        return Err(control.error(DecodeKind::invalid(rule::AUDIT_CONTROL, &claimed)));
    }
    Ok(AuditBinding { evidence, policy })
}
