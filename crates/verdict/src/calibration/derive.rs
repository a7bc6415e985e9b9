//! From measured controls to a frozen manifest, and back from retained bytes.

use super::{
    CalibrationContext, CalibrationControl, CalibrationError, CalibrationManifest, CalibrationObservation,
    CalibrationThresholdPolicy, ControlKind, ExpectedOutcome, ManifestPolicyV1, grade_control,
};
use crate::decision::Decision;
use crate::fields::{SchemaOne, decode_canonical, literals};
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, record, sha256};
use cacheon_records::evidence::EvidenceRef;

const RAW_EVIDENCE: Domain = Domain::new("cacheon.qualification.calibration-raw-evidence");
/// Store domain of an evidence set.
pub const EVIDENCE_DOMAIN: &str = "qualification-calibration";
/// Schema label of an evidence set.
pub const EVIDENCE_SCHEMA: &str = "calibration-evidence-set-v1";

literals! {
    /// `policy_version` of an evidence set and of the raw-evidence payload.
    EvidencePolicyV1 = "qualification-calibration-evidence.v1";
}

record! {
    /// The retained observations of a calibration.
    pub struct CalibrationEvidenceSet {
        /// Digest of the manifest they were taken for.
        pub configured_manifest_digest: Digest,
        /// Negative, positive, stock.
        pub observations: Vec<CalibrationObservation>,
        /// Version literal.
        pub policy_version: EvidencePolicyV1,
        /// 1.
        pub schema_version: SchemaOne,
        /// Digest of the threshold policy.
        pub threshold_policy_digest: Digest,
    }
}

struct RawEvidence<'a>(&'a [CalibrationObservation]);

impl Canonical for RawEvidence<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("observations", self.0).field("policy_version", EvidencePolicyV1::TEXT);
        });
    }
}

/// Derives the manifest of a threshold policy from its three controls.
///
/// # Errors
/// Observations out of order, shared seeds, other series than the policy needs, or a control that does not grade as it
/// must.
pub fn derive_manifest(
    policy: &CalibrationThresholdPolicy,
    observations: &[CalibrationObservation],
) -> Result<CalibrationManifest, CalibrationError> {
    let kinds: Vec<ControlKind> = observations.iter().map(|observation| observation.control_kind).collect();
    if kinds != ControlKind::ALL {
        return Err(CalibrationError::Controls(kinds.iter().map(|kind| kind.as_str()).collect()));
    }
    let mut seeds: Vec<Digest> = observations.iter().map(|observation| observation.seed_digest).collect();
    seeds.sort();
    seeds.dedup();
    if seeds.len() != observations.len() {
        return Err(CalibrationError::Seeds);
    }
    let expected = policy.series();
    let mut controls = Vec::with_capacity(observations.len());
    for observation in observations {
        let control = observation.control_kind.as_str();
        let found: Vec<String> =
            observation.measurements.iter().map(|series| series.name.as_str().to_owned()).collect();
        if found != expected {
            return Err(CalibrationError::Coverage { control, found, expected });
        }
        let wanted = observation.control_kind.expected();
        let decision = grade_control(policy, observation)?.decision;
        let kept = match wanted {
            ExpectedOutcome::Pass => decision == Decision::Pass,
            ExpectedOutcome::Fail => decision == Decision::Fail,
        };
        if !kept {
            return Err(CalibrationError::Outcome {
                control,
                found: decision.as_str(),
                expected: wanted.as_str(),
            });
        }
        controls.push(CalibrationControl {
            expected_outcome: wanted,
            kind: observation.control_kind,
            raw_evidence_digest: observation.digest(),
            seed_digest: observation.seed_digest,
        });
    }
    let manifest = CalibrationManifest {
        algorithm_id: policy.algorithm_id.clone(),
        context: policy.context,
        controls,
        familywise_z: policy.familywise_z.clone(),
        policy_version: ManifestPolicyV1,
        quality_metrics: policy.quality_metrics.clone(),
        raw_evidence_digest: RAW_EVIDENCE.digest(&RawEvidence(observations)),
        schema_version: SchemaOne,
        seed_digests: seeds,
        speed: policy.speed.clone(),
        status: policy.status,
    };
    Ok(manifest.checked()?)
}

fn same(what: &'static str, found: impl ToString, expected: impl ToString) -> Result<(), CalibrationError> {
    let (found, expected) = (found.to_string(), expected.to_string());
    if found == expected { Ok(()) } else { Err(CalibrationError::Mismatch { what, found, expected }) }
}

/// Re-derives a calibration from the retained bytes of its evidence set.
///
/// # Errors
/// Bytes that are not what `reference` cites, or that derive another manifest than `expected` in `context`.
pub fn reopen(
    payload: &[u8],
    reference: &EvidenceRef,
    policy: &CalibrationThresholdPolicy,
    expected: &CalibrationManifest,
    context: &CalibrationContext,
) -> Result<CalibrationManifest, CalibrationError> {
    same("the store domain", reference.label.domain.as_str(), EVIDENCE_DOMAIN)?;
    same("the media type", reference.label.media_type.as_str(), "application/json")?;
    same("the schema", reference.label.schema.as_str(), EVIDENCE_SCHEMA)?;
    same("the size", payload.len(), reference.size)?;
    same("the digest", sha256(payload), reference.sha256)?;
    let set: CalibrationEvidenceSet = decode_canonical(payload)?;
    same("the threshold policy", set.threshold_policy_digest, policy.digest())?;
    same("the configured manifest", set.configured_manifest_digest, expected.digest())?;
    let derived = derive_manifest(policy, &set.observations)?;
    same("the derived manifest", derived.digest(), expected.digest())?;
    derived.require_context(context)?;
    Ok(derived)
}
