//! The causal authority: everything a qualification is allowed to depend on, sealed before the baseline's first read.

use crate::speed::EvidencePolicy;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, record};
use cacheon_records::audit::AuditPolicy;
use cacheon_records::evidence::EvidenceRef;

const BRACKET: Domain = Domain::new("cacheon.qualification.causal-authority.audit-v1");
const REPEAT: Domain = Domain::new("cacheon.qualification.causal-authority.v2.audit-v1");
const RESIDENT: Domain = Domain::new("cacheon.qualification.causal-authority.v3.eager-audit-v2");
const OBSERVING: Domain =
    Domain::new("cacheon.qualification.causal-authority.v3.eager-audit-v2.calibration-observation-v1");

record! {
    /// One candidate of the cohort.
    pub struct AuthorityCandidate {
        /// The marginal arm.
        pub arm: Digest,
        /// The delta.
        pub delta: Digest,
        /// The retained graph evidence.
        pub graph_artifact: EvidenceRef,
        /// Digest of the evidence reference.
        pub graph_evidence_ref: Digest,
        /// What had to be shown of its graph.
        pub graph_requirement: Digest,
        /// Its launch.
        pub launch: Digest,
        /// Its native build.
        pub native: Digest,
        /// Its preflight.
        pub preflight: Digest,
        /// The profile.
        pub profile: Digest,
        /// The target.
        pub target: String,
    }
}

/// The calibration: a row of four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedCalibration {
    /// The threshold policy.
    pub threshold_policy: Digest,
    /// The manifest.
    pub manifest: Digest,
    /// The context.
    pub context: Digest,
    /// The retained evidence set.
    pub evidence: EvidenceRef,
}

impl Canonical for SealedCalibration {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.threshold_policy).item(&self.manifest).item(&self.context).item(&self.evidence);
        });
    }
}

/// The policies of launches: a row of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityPolicies {
    /// Launch resources.
    pub launch: Digest,
    /// Runtime resources.
    pub runtime: Digest,
    /// Device state.
    pub device: Digest,
}

impl Canonical for AuthorityPolicies {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        [self.launch, self.runtime, self.device].write(w);
    }
}

/// The teacher: a row of seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityReference {
    /// The pristine stack.
    pub stack: Digest,
    /// The launch.
    pub launch: Digest,
    /// The native build.
    pub native_build: Digest,
    /// The controller's distribution.
    pub controller_distribution: Digest,
    /// The preflight receipt.
    pub preflight_receipt: Digest,
    /// Engine configuration.
    pub engine_config: Digest,
    /// Preflight facts.
    pub preflight_facts: Digest,
}

impl Canonical for AuthorityReference {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        [
            self.stack,
            self.launch,
            self.native_build,
            self.controller_distribution,
            self.preflight_receipt,
            self.engine_config,
            self.preflight_facts,
        ]
        .write(w);
    }
}

/// What happens after a speed miss of resident evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The qualification ends. The only one that the intake may use.
    Decide,
    /// It goes on, to collect stock quality for a calibration.
    Calibrate,
}

/// What the authority seals about the speed evidence to come. Aggregate kinds exist for reopening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Three aggregate reads.
    Bracket,
    /// Five aggregate reads.
    Repeat,
    /// A resident pair.
    Resident {
        /// The audit's authority.
        audit_authority: Digest,
        /// The crossover plan.
        speed_plan: Digest,
        /// After a miss.
        observation: Observation,
    },
}

/// What every kind of authority seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityCommon {
    /// The calibration.
    pub calibration: SealedCalibration,
    /// The candidates.
    pub candidates: Vec<AuthorityCandidate>,
    /// The selection commitment.
    pub commitment: Digest,
    /// Preflight of the incumbent.
    pub incumbent_preflight: Digest,
    /// The mounted model.
    pub model_mount: Digest,
    /// The policies.
    pub policies: AuthorityPolicies,
    /// The teacher.
    pub reference: AuthorityReference,
    /// One audit policy per candidate.
    pub slot_audit_policies: Vec<AuditPolicy>,
    /// The source.
    pub source: Digest,
}

/// A causal authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausalAuthority {
    /// Common to every kind.
    pub common: AuthorityCommon,
    /// The speed evidence to come.
    pub evidence: Evidence,
}

impl CausalAuthority {
    /// The authority digest, in the domain of its kind.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let domain = match self.evidence {
            Evidence::Bracket => BRACKET,
            Evidence::Repeat => REPEAT,
            Evidence::Resident { observation: Observation::Decide, .. } => RESIDENT,
            Evidence::Resident { observation: Observation::Calibrate, .. } => OBSERVING,
        };
        domain.digest(self)
    }
}

impl Canonical for CausalAuthority {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let common = &self.common;
        w.object(|o| {
            o.field("calibration", &common.calibration)
                .field("candidates", &common.candidates)
                .field("commitment", &common.commitment)
                .field("incumbent_preflight", &common.incumbent_preflight)
                .field("model_mount", &common.model_mount)
                .field("policies", &common.policies)
                .field("reference", &common.reference);
            if let Evidence::Resident { audit_authority, speed_plan, .. } = &self.evidence {
                o.field("resident_audit_authority", audit_authority).field("resident_speed_plan", speed_plan);
            }
            o.field("slot_audit_policies", &common.slot_audit_policies).field("source", &common.source);
            match self.evidence {
                Evidence::Bracket => {}
                Evidence::Repeat => {
                    o.field("speed_evidence_policy", &EvidencePolicy::Repeat);
                }
                Evidence::Resident { observation, .. } => {
                    o.field("speed_evidence_policy", &EvidencePolicy::Resident);
                    if observation == Observation::Calibrate {
                        o.field("speed_stage_disposition", "calibration_observation");
                    }
                }
            }
        });
    }
}
