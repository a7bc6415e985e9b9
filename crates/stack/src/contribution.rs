//! Contribution references (spec 20 §2): what a stack entry points at.

use crate::ids::{
    ArtifactDigest, Attribution, ContributionDigest, ReviewDigest, SelectedDelta, SelectedPayload,
    SourceTree, TargetId, TargetSpec,
};
use crate::text::object;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Domain, Fields, Json};

/// Version of both reference objects.
const SCHEMA_VERSION: u64 = 1;

const PROPOSAL: Domain = Domain::with_members("cacheon.contribution.proposal", ProposalRef::MEMBERS);
const INTEGRATED: Domain = Domain::with_members("cacheon.contribution.integrated", IntegratedRef::MEMBERS);
const SELECTED_DELTA: Domain = Domain::with_members(
    "cacheon.contribution.selected_delta",
    &["selected_payload_digest", "target_id", "target_spec_digest"],
);

/// The executable difference of a payload at a target; attribution is outside it, so two people who submit the same
/// executable share a delta.
#[must_use]
pub fn selected_delta(payload: &SelectedPayload, target: &TargetId, spec: &TargetSpec) -> SelectedDelta {
    SelectedDelta::new(SELECTED_DELTA.digest(&object(|o| {
        o.field("selected_payload_digest", payload)
            .field("target_id", target)
            .field("target_spec_digest", spec);
    })))
}

/// A bundle as submitted, at one target of one catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalRef {
    /// The bundle's content hash.
    pub artifact: ArtifactDigest,
    /// Who it is credited to.
    pub attribution: Attribution,
    /// The executable payload.
    pub payload: SelectedPayload,
    /// The target it replaces.
    pub target: TargetId,
    /// That target's row in the catalog.
    pub target_spec: TargetSpec,
}

impl ProposalRef {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "artifact_digest",
        "attribution_digest",
        "schema_version",
        "selected_payload_digest",
        "target_id",
        "target_spec_digest",
        "type",
    ];
    /// The value of `type`.
    pub const TYPE: &'static str = "proposal";

    /// The digest of this reference.
    #[must_use]
    pub fn digest(&self) -> ContributionDigest {
        ContributionDigest::new(PROPOSAL.digest(self))
    }

    /// The executable difference.
    #[must_use]
    pub fn selected_delta(&self) -> SelectedDelta {
        selected_delta(&self.payload, &self.target, &self.target_spec)
    }
}

impl Canonical for ProposalRef {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("artifact_digest", &self.artifact)
                .field("attribution_digest", &self.attribution)
                .field("schema_version", &SCHEMA_VERSION)
                .field("selected_payload_digest", &self.payload)
                .field("target_id", &self.target)
                .field("target_spec_digest", &self.target_spec)
                .field("type", Self::TYPE);
        });
    }
}

impl Decode for ProposalRef {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        fields.take("type")?.exactly(Self::TYPE)?;
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
        Ok(Self {
            artifact: fields.decode("artifact_digest")?,
            attribution: fields.decode("attribution_digest")?,
            payload: fields.decode("selected_payload_digest")?,
            target: fields.decode("target_id")?,
            target_spec: fields.decode("target_spec_digest")?,
        })
    }
}

/// Reviewed source that keeps a crowned payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegratedRef {
    /// Who it is credited to.
    pub attribution: Attribution,
    /// The reviewed source tree.
    pub source_tree: SourceTree,
    /// The review that admitted it.
    pub review: ReviewDigest,
    /// The executable payload, equal to the crowned one.
    pub payload: SelectedPayload,
    /// The target it replaces.
    pub target: TargetId,
    /// That target's row in the catalog.
    pub target_spec: TargetSpec,
}

impl IntegratedRef {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "attribution_digest",
        "integrated_source_tree_digest",
        "integration_record_digest",
        "schema_version",
        "selected_payload_digest",
        "target_id",
        "target_spec_digest",
        "type",
    ];
    /// The value of `type`.
    pub const TYPE: &'static str = "integrated";

    /// The digest of this reference.
    #[must_use]
    pub fn digest(&self) -> ContributionDigest {
        ContributionDigest::new(INTEGRATED.digest(self))
    }

    /// The executable difference.
    #[must_use]
    pub fn selected_delta(&self) -> SelectedDelta {
        selected_delta(&self.payload, &self.target, &self.target_spec)
    }
}

impl Canonical for IntegratedRef {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("attribution_digest", &self.attribution)
                .field("integrated_source_tree_digest", &self.source_tree)
                .field("integration_record_digest", &self.review)
                .field("schema_version", &SCHEMA_VERSION)
                .field("selected_payload_digest", &self.payload)
                .field("target_id", &self.target)
                .field("target_spec_digest", &self.target_spec)
                .field("type", Self::TYPE);
        });
    }
}

impl Decode for IntegratedRef {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        fields.take("type")?.exactly(Self::TYPE)?;
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
        Ok(Self {
            attribution: fields.decode("attribution_digest")?,
            source_tree: fields.decode("integrated_source_tree_digest")?,
            review: fields.decode("integration_record_digest")?,
            payload: fields.decode("selected_payload_digest")?,
            target: fields.decode("target_id")?,
            target_spec: fields.decode("target_spec_digest")?,
        })
    }
}

/// Either kind of reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContributionRef {
    /// As submitted.
    Proposal(ProposalRef),
    /// Reviewed and integrated.
    Integrated(IntegratedRef),
}

macro_rules! either {
    ($self:ident, $it:ident => $value:expr) => {
        match $self {
            ContributionRef::Proposal($it) => $value,
            ContributionRef::Integrated($it) => $value,
        }
    };
}

impl ContributionRef {
    /// The target it replaces.
    #[must_use]
    pub fn target(&self) -> &TargetId {
        either!(self, it => &it.target)
    }

    /// That target's row in the catalog.
    #[must_use]
    pub fn target_spec(&self) -> TargetSpec {
        either!(self, it => it.target_spec)
    }

    /// The executable payload.
    #[must_use]
    pub fn payload(&self) -> SelectedPayload {
        either!(self, it => it.payload)
    }

    /// Who it is credited to.
    #[must_use]
    pub fn attribution(&self) -> Attribution {
        either!(self, it => it.attribution)
    }

    /// The digest of this reference, in the domain of its kind.
    #[must_use]
    pub fn digest(&self) -> ContributionDigest {
        either!(self, it => it.digest())
    }

    /// The executable difference.
    #[must_use]
    pub fn selected_delta(&self) -> SelectedDelta {
        either!(self, it => it.selected_delta())
    }

    /// The value of `type`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Proposal(_) => ProposalRef::TYPE,
            Self::Integrated(_) => IntegratedRef::TYPE,
        }
    }

    /// The proposal, if it is one.
    #[must_use]
    pub const fn as_proposal(&self) -> Option<&ProposalRef> {
        if let Self::Proposal(it) = self { Some(it) } else { None }
    }

    /// The integrated reference, if it is one.
    #[must_use]
    pub const fn as_integrated(&self) -> Option<&IntegratedRef> {
        if let Self::Integrated(it) = self { Some(it) } else { None }
    }
}

impl From<ProposalRef> for ContributionRef {
    fn from(value: ProposalRef) -> Self {
        Self::Proposal(value)
    }
}

impl From<IntegratedRef> for ContributionRef {
    fn from(value: IntegratedRef) -> Self {
        Self::Integrated(value)
    }
}

impl Canonical for ContributionRef {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        either!(self, it => it.write(w));
    }
}

impl Decode for ContributionRef {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let kind = Fields::open(json)?.take("type")?;
        match kind.json().as_str() {
            Some(IntegratedRef::TYPE) => IntegratedRef::decode(json).map(Self::Integrated),
            // Anything else is read as a proposal, whose type tag then refuses it.
            _ => ProposalRef::decode(json).map(Self::Proposal),
        }
    }
}
