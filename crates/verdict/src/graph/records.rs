//! Requirement, raw evidence and the reference between them.

use crate::fields::{
    Identifier, SchemaOne, ascending, distinct, literals, require, ruled_record, text_enums,
};
use cacheon_identity::{DecodeError, Digest, Domain, record};

const BINDING: Domain = Domain::new("cacheon.qualification.graph-binding");
const REQUIREMENT: Domain = Domain::new("cacheon.qualification.graph-requirement");
const RAW: Domain = Domain::new("cacheon.qualification.graph-raw-evidence");
const EVIDENCE_REF: Domain = Domain::new("cacheon.qualification.graph-evidence-ref");

literals! {
    /// `policy_version` of every graph record.
    GraphPolicyV1 = "graph-verification-veto.v1";
}

text_enums! {
    /// How a shape ended; `none` means that it passed.
    FailureKind {
        /// Passed: eager call and every replay.
        None = "none",
        /// Outside the applicable domain.
        NotApplicable = "not_applicable",
        /// The first call failed.
        Eager = "eager",
        /// Capture failed.
        Capture = "capture",
        /// A replay failed.
        Replay = "replay",
        /// Passed eagerly where no graph was demanded.
        GraphNotRequired = "graph_not_required",
    }
}

record! {
    /// One member of the target.
    pub struct MemberBinding {
        /// Its contract.
        pub contract_digest: Digest,
        /// Its slot.
        pub slot_id: Identifier,
        /// Its target row.
        pub target_spec_digest: Digest,
        /// How it is verified.
        pub verification_profile_id: Identifier,
    }
}

ruled_record! {
    /// What exactly is verified.
    pub struct VerificationBinding: VerificationBinding::rules {
        /// The candidate's launch.
        pub candidate_launch_digest: Digest,
        /// The catalog.
        pub catalog_digest: Digest,
        /// The contribution.
        pub contribution_ref_digest: Digest,
        /// The arm.
        pub marginal_arm_digest: Digest,
        /// Members, sorted by slot, at least one.
        pub members: Vec<MemberBinding>,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The target.
        pub target_id: Identifier,
        /// Its row.
        pub target_spec_digest: Digest,
        /// The verification policy.
        pub verification_policy_digest: Digest,
    }
}

impl VerificationBinding {
    fn rules(&self) -> Result<(), DecodeError> {
        let slots: Vec<&Identifier> = self.members.iter().map(|member| &member.slot_id).collect();
        let sorted = !slots.is_empty() && ascending(&slots);
        require(sorted, "members", "members are sorted by slot, unique and at least one", &slots.len())
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        BINDING.digest(self)
    }
}

ruled_record! {
    /// The shapes one variant must show.
    pub struct GraphVariantRequirement: GraphVariantRequirement::rules {
        /// The shapes that must pass: a sorted subset, non-empty exactly when the context is applicable.
        pub applicable_shape_descriptor_digests: Vec<Digest>,
        /// Whether the variant applies here at all.
        pub context_applicable: bool,
        /// All shapes, sorted, at least one.
        pub shape_descriptor_digests: Vec<Digest>,
        /// The slot.
        pub slot_id: Identifier,
        /// The variant.
        pub variant_id: Identifier,
    }
}

impl GraphVariantRequirement {
    fn rules(&self) -> Result<(), DecodeError> {
        let (all, applicable) = (&self.shape_descriptor_digests, &self.applicable_shape_descriptor_digests);
        let rule = "shapes are sorted, unique and at least one";
        require(!all.is_empty() && ascending(all), "shape_descriptor_digests", rule, &all.len())?;
        let subset = ascending(applicable) && applicable.iter().all(|shape| all.binary_search(shape).is_ok());
        let member = "applicable_shape_descriptor_digests";
        require(subset, member, "not a sorted subset of the shapes", &applicable.len())?;
        let rule = "a variant has applicable shapes exactly when its context is applicable";
        require(self.context_applicable != applicable.is_empty(), member, rule, &applicable.len())
    }
}

ruled_record! {
    /// Everything that must be shown.
    pub struct GraphRequirement: GraphRequirement::rules {
        /// What is verified.
        pub binding: VerificationBinding,
        /// Replays of every applicable shape, at least 2.
        pub expected_graph_replays: u64,
        /// Version literal.
        pub policy_version: GraphPolicyV1,
        /// 1.
        pub schema_version: SchemaOne,
        /// Sorted by (slot, variant), covering exactly the members.
        pub variants: Vec<GraphVariantRequirement>,
    }
}

impl GraphRequirement {
    fn rules(&self) -> Result<(), DecodeError> {
        let rule = "at least two replays";
        require(
            self.expected_graph_replays >= 2,
            "expected_graph_replays",
            rule,
            &self.expected_graph_replays,
        )?;
        let keys: Vec<_> =
            self.variants.iter().map(|variant| (&variant.slot_id, &variant.variant_id)).collect();
        require(ascending(&keys), "variants", "variants are sorted by slot and id, unique", &keys.len())?;
        let mut slots: Vec<&Identifier> = self.variants.iter().map(|variant| &variant.slot_id).collect();
        slots.dedup();
        let members = self.binding.members.iter().map(|member| &member.slot_id);
        require(
            slots.iter().copied().eq(members),
            "variants",
            "the variants do not cover exactly the members",
            &slots.len(),
        )
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        REQUIREMENT.digest(self)
    }
}

ruled_record! {
    /// What one shape showed; one of six states.
    pub struct GraphShapeEvidence: GraphShapeEvidence::rules {
        /// Inside the applicable domain.
        pub applicable: bool,
        /// The shape.
        pub descriptor_digest: Digest,
        /// The first call matched.
        pub eager_passed: bool,
        /// How it ended.
        pub failure_kind: FailureKind,
        /// Every replay matched.
        pub graph_passed: bool,
        /// Replays made.
        pub graph_replays: u64,
        /// Whether replays were demanded.
        pub graph_required: bool,
    }
}

impl GraphShapeEvidence {
    fn rules(&self) -> Result<(), DecodeError> {
        let flags = (self.applicable, self.eager_passed, self.graph_required, self.graph_passed);
        let replays = self.graph_replays;
        let admitted = match self.failure_kind {
            FailureKind::None => flags == (true, true, true, true) && replays >= 1,
            FailureKind::NotApplicable => flags == (false, false, false, false) && replays == 0,
            FailureKind::Eager => flags == (true, false, true, false) && replays == 0,
            FailureKind::Capture => flags == (true, true, true, false) && replays == 0,
            FailureKind::Replay => flags == (true, true, true, false),
            FailureKind::GraphNotRequired => flags == (true, true, false, false) && replays == 0,
        };
        require(
            admitted,
            "failure_kind",
            "the flags and replays are not a state of this kind",
            &self.failure_kind,
        )
    }
}

ruled_record! {
    /// What one variant showed.
    pub struct GraphVariantEvidence: GraphVariantEvidence::rules {
        /// Whether the context was applicable; if not, no shape is.
        pub context_applicable: bool,
        /// Whether every registered shape of the domain was run.
        pub domain_coverage_complete: bool,
        /// Sorted by descriptor, unique, at least one.
        pub shapes: Vec<GraphShapeEvidence>,
        /// The slot.
        pub slot_id: Identifier,
        /// The variant.
        pub variant_id: Identifier,
    }
}

impl GraphVariantEvidence {
    fn rules(&self) -> Result<(), DecodeError> {
        let shapes: Vec<Digest> = self.shapes.iter().map(|shape| shape.descriptor_digest).collect();
        let rule = "shapes are sorted, unique and at least one";
        require(!shapes.is_empty() && ascending(&shapes), "shapes", rule, &shapes.len())?;
        let rule = "a shape is applicable in a context that is not";
        let consistent = self.context_applicable || self.shapes.iter().all(|shape| !shape.applicable);
        require(consistent, "shapes", rule, &self.variant_id)
    }
}

ruled_record! {
    /// What one member showed.
    pub struct GraphMemberEvidence: GraphMemberEvidence::rules {
        /// The slot.
        pub slot_id: Identifier,
        /// Its variants, sorted, unique, at least one.
        pub variants: Vec<GraphVariantEvidence>,
    }
}

impl GraphMemberEvidence {
    fn rules(&self) -> Result<(), DecodeError> {
        let ids: Vec<&Identifier> = self.variants.iter().map(|variant| &variant.variant_id).collect();
        let rule = "variants are sorted, unique and at least one";
        require(!ids.is_empty() && distinct(&ids) && ascending(&ids), "variants", rule, &ids.len())?;
        let own = self.variants.iter().all(|variant| variant.slot_id == self.slot_id);
        require(own, "variants", "a variant of another slot", &self.slot_id)
    }
}

ruled_record! {
    /// The raw evidence, as the conformance stage retains it.
    pub struct GraphRawEvidence: GraphRawEvidence::rules {
        /// Members, sorted by slot, unique, at least one.
        pub members: Vec<GraphMemberEvidence>,
        /// Version literal.
        pub policy_version: GraphPolicyV1,
        /// The requirement it answers.
        pub requirement_digest: Digest,
        /// 1.
        pub schema_version: SchemaOne,
    }
}

impl GraphRawEvidence {
    fn rules(&self) -> Result<(), DecodeError> {
        let slots: Vec<&Identifier> = self.members.iter().map(|member| &member.slot_id).collect();
        let sorted = !slots.is_empty() && ascending(&slots);
        require(sorted, "members", "members are sorted by slot, unique and at least one", &slots.len())
    }

    /// The record digest (not the SHA-256 of the artifact's bytes).
    #[must_use]
    pub fn digest(&self) -> Digest {
        RAW.digest(self)
    }
}

record! {
    /// Names the evidence of one requirement.
    pub struct GraphEvidenceRef {
        /// What was verified.
        pub binding: VerificationBinding,
        /// Version literal.
        pub policy_version: GraphPolicyV1,
        /// Record digest of the raw evidence.
        pub raw_evidence_digest: Digest,
        /// The requirement.
        pub requirement_digest: Digest,
        /// 1.
        pub schema_version: SchemaOne,
    }
}

impl GraphEvidenceRef {
    /// The reference that a requirement and its raw evidence make.
    #[must_use]
    pub fn of(requirement: &GraphRequirement, raw_evidence_digest: Digest) -> Self {
        Self {
            binding: requirement.binding.clone(),
            policy_version: GraphPolicyV1,
            raw_evidence_digest,
            requirement_digest: requirement.digest(),
            schema_version: SchemaOne,
        }
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        EVIDENCE_REF.digest(self)
    }
}
