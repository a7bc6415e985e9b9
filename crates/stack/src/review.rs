//! Integration review: the record that lets reviewed source stand for a crowned proposal (spec 20 §2.2).

use crate::contribution::IntegratedRef;
use crate::ids::{
    Attribution, ContributionDigest, ReviewDigest, SelectedPayload, SourceTree, TargetId, TargetSpec,
};
use crate::manifest::EngineRelease;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};
use cacheon_records::evidence::EvidenceRef;
use std::collections::{BTreeMap, BTreeSet};

const SCHEMA_VERSION: u64 = 1;

const REVIEW: Domain =
    Domain::with_members("cacheon.contribution.integration-review", IntegrationReview::MEMBERS);
const ARTIFACTS: Domain =
    Domain::with_members("cacheon.integration-review.artifacts", ReviewArtifacts::MEMBERS);

/// A rule of this module, as it stands in error messages.
pub mod rule {
    /// `approved`.
    pub const APPROVED: &str = "only an approval is a review record";
    /// `reviewer`.
    pub const REVIEWER: &str =
        "a reviewer is 1 to 256 characters without surrounding white space, NUL, CR or LF";
    /// `review_commit`.
    pub const COMMIT: &str = "a review commit is 40 lowercase hexadecimal digits";
    /// The two attempts.
    pub const ATTEMPT_REUSE: &str = "primary and reproduction name the same attempt";
    /// Labels of an artifact.
    pub const ARTIFACT_SCHEMA: &str = "an artifact has another domain, schema or media type than its member";
    /// Two artifacts with the same bytes.
    pub const ARTIFACT_DISTINCT: &str = "two artifacts name the same bytes";
    /// An artifact that is not what the record cites.
    pub const ARTIFACT_BINDING: &str = "an artifact is not the one whose digest the record holds";
}

cacheon_identity::record! {
    /// The seven retained objects a review cites.
    pub struct ReviewArtifacts {
        /// Compatibility evidence.
        pub compatibility as "compatibility_evidence_ref": EvidenceRef,
        /// Licence evidence.
        pub license as "license_evidence_ref": EvidenceRef,
        /// The first qualification attempt.
        pub primary_attempt as "primary_attempt_ref": EvidenceRef,
        /// Provenance evidence.
        pub provenance as "provenance_evidence_ref": EvidenceRef,
        /// The reproduction's attempt.
        pub reproduction_attempt as "reproduction_attempt_ref": EvidenceRef,
        /// The security review.
        pub security_review as "security_review_ref": EvidenceRef,
        /// Test evidence.
        pub test as "test_evidence_ref": EvidenceRef,
    }
}

impl ReviewArtifacts {
    /// The digest of the seven references.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ARTIFACTS.digest(self)
    }

    /// Member name, reference, and the domain and schema it must have.
    fn rows(&self) -> [(&'static str, &EvidenceRef, &'static str, &'static str); 7] {
        const ATTEMPT: (&str, &str) =
            ("qualification.cohort-attempt", "cacheon.qualification.cohort-attempt.v1");
        [
            ("primary_attempt_ref", &self.primary_attempt, ATTEMPT.0, ATTEMPT.1),
            ("reproduction_attempt_ref", &self.reproduction_attempt, ATTEMPT.0, ATTEMPT.1),
            ("license_evidence_ref", &self.license, "integration.license", "cacheon.integration.license.v1"),
            (
                "provenance_evidence_ref",
                &self.provenance,
                "integration.provenance",
                "cacheon.integration.provenance.v1",
            ),
            (
                "security_review_ref",
                &self.security_review,
                "integration.security-review",
                "cacheon.integration.security-review.v1",
            ),
            (
                "compatibility_evidence_ref",
                &self.compatibility,
                "integration.compatibility",
                "cacheon.integration.compatibility.v1",
            ),
            ("test_evidence_ref", &self.test, "integration.tests", "cacheon.integration.tests.v1"),
        ]
    }
}

/// A reviewer: 1 to 256 characters.
fn is_reviewer(text: &str) -> bool {
    (1..=256).contains(&text.chars().count()) && text.trim() == text && !text.contains(['\0', '\r', '\n'])
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// An approval that binds a crowned proposal to reviewed source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegrationReview {
    /// The seven retained objects.
    pub artifacts: ReviewArtifacts,
    /// Who is credited.
    pub attribution: Attribution,
    /// Compatibility evidence.
    pub compatibility_evidence: Digest,
    /// The CROWN event.
    pub crown_event: Digest,
    /// The reviewed source.
    pub source_tree: SourceTree,
    /// Licence evidence.
    pub license_evidence: Digest,
    /// The first attempt.
    pub primary_attempt: Digest,
    /// The crowned proposal.
    pub proposal: ContributionDigest,
    /// Provenance evidence.
    pub provenance_evidence: Digest,
    /// The reproduction's attempt.
    pub reproduction_attempt: Digest,
    /// The commit reviewed: 40 lowercase hexadecimal digits.
    pub review_commit: String,
    /// Who reviewed.
    pub reviewer: String,
    /// The security review.
    pub security_review: Digest,
    /// The crowned payload, kept by the source.
    pub payload: SelectedPayload,
    /// The settlement candidate.
    pub settlement_candidate: Digest,
    /// The settlement evidence receipt.
    pub settlement_evidence: Digest,
    /// The target.
    pub target: TargetId,
    /// The target's catalog row.
    pub target_spec: TargetSpec,
    /// Test evidence.
    pub test_evidence: Digest,
}

impl IntegrationReview {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "approved",
        "artifacts",
        "attribution_digest",
        "compatibility_evidence_digest",
        "crown_event_digest",
        "integrated_source_tree_digest",
        "license_evidence_digest",
        "primary_attempt_digest",
        "proposal_contribution_digest",
        "provenance_evidence_digest",
        "reproduction_attempt_digest",
        "review_commit",
        "reviewer",
        "schema_version",
        "security_review_digest",
        "selected_payload_digest",
        "settlement_candidate_digest",
        "settlement_evidence_digest",
        "target_id",
        "target_spec_digest",
        "test_evidence_digest",
    ];

    /// The record's digest.
    #[must_use]
    pub fn digest(&self) -> ReviewDigest {
        ReviewDigest::new(REVIEW.digest(self))
    }

    /// The integrated reference this record projects to.
    #[must_use]
    pub fn integrated_ref(&self) -> IntegratedRef {
        IntegratedRef {
            attribution: self.attribution,
            source_tree: self.source_tree,
            review: self.digest(),
            payload: self.payload,
            target: self.target.clone(),
            target_spec: self.target_spec,
        }
    }

    /// Checks the rules that join members: distinct attempts, and artifacts that are what the record cites.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check(&self) -> Result<(), DecodeError> {
        if self.primary_attempt == self.reproduction_attempt {
            return Err(DecodeError::invalid(rule::ATTEMPT_REUSE, &self.primary_attempt));
        }
        let within = |name: &str, rule, value: &Digest| {
            Err(DecodeError::invalid(rule, value).within(name).within("artifacts"))
        };
        let rows = self.artifacts.rows();
        let mut seen = BTreeSet::new();
        for (name, reference, domain, schema) in &rows {
            let label = &reference.label;
            let right = label.domain.as_str() == *domain
                && label.schema.as_str() == *schema
                && label.media_type.as_str() == "application/json";
            if !right {
                return within(name, rule::ARTIFACT_SCHEMA, &reference.sha256);
            }
            if !seen.insert(reference.sha256) {
                return within(name, rule::ARTIFACT_DISTINCT, &reference.sha256);
            }
        }
        let cited = [
            self.primary_attempt,
            self.reproduction_attempt,
            self.license_evidence,
            self.provenance_evidence,
            self.security_review,
            self.compatibility_evidence,
            self.test_evidence,
        ];
        match rows.iter().zip(cited).find(|((_, reference, ..), cited)| reference.sha256 != *cited) {
            Some(((name, reference, ..), _)) => within(name, rule::ARTIFACT_BINDING, &reference.sha256),
            None => Ok(()),
        }
    }
}

impl Canonical for IntegrationReview {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("approved", &true)
                .field("artifacts", &self.artifacts)
                .field("attribution_digest", &self.attribution)
                .field("compatibility_evidence_digest", &self.compatibility_evidence)
                .field("crown_event_digest", &self.crown_event)
                .field("integrated_source_tree_digest", &self.source_tree)
                .field("license_evidence_digest", &self.license_evidence)
                .field("primary_attempt_digest", &self.primary_attempt)
                .field("proposal_contribution_digest", &self.proposal)
                .field("provenance_evidence_digest", &self.provenance_evidence)
                .field("reproduction_attempt_digest", &self.reproduction_attempt)
                .field("review_commit", &self.review_commit)
                .field("reviewer", &self.reviewer)
                .field("schema_version", &SCHEMA_VERSION)
                .field("security_review_digest", &self.security_review)
                .field("selected_payload_digest", &self.payload)
                .field("settlement_candidate_digest", &self.settlement_candidate)
                .field("settlement_evidence_digest", &self.settlement_evidence)
                .field("target_id", &self.target)
                .field("target_spec_digest", &self.target_spec)
                .field("test_evidence_digest", &self.test_evidence);
        });
    }
}

impl Decode for IntegrationReview {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
        let approved = fields.take("approved")?;
        if *approved.json() != Json::Bool(true) {
            return Err(approved.error(DecodeKind::invalid(rule::APPROVED, approved.json())));
        }
        let review = Self {
            artifacts: fields.decode("artifacts")?,
            attribution: fields.decode("attribution_digest")?,
            compatibility_evidence: fields.decode("compatibility_evidence_digest")?,
            crown_event: fields.decode("crown_event_digest")?,
            source_tree: fields.decode("integrated_source_tree_digest")?,
            license_evidence: fields.decode("license_evidence_digest")?,
            primary_attempt: fields.decode("primary_attempt_digest")?,
            proposal: fields.decode("proposal_contribution_digest")?,
            provenance_evidence: fields.decode("provenance_evidence_digest")?,
            reproduction_attempt: fields.decode("reproduction_attempt_digest")?,
            review_commit: fields.take("review_commit")?.str_where(rule::COMMIT, is_commit)?.to_owned(),
            reviewer: fields.take("reviewer")?.str_where(rule::REVIEWER, is_reviewer)?.to_owned(),
            security_review: fields.decode("security_review_digest")?,
            payload: fields.decode("selected_payload_digest")?,
            settlement_candidate: fields.decode("settlement_candidate_digest")?,
            settlement_evidence: fields.decode("settlement_evidence_digest")?,
            target: fields.decode("target_id")?,
            target_spec: fields.decode("target_spec_digest")?,
            test_evidence: fields.decode("test_evidence_digest")?,
        };
        review.check()?;
        Ok(review)
    }
}

/// Why a set of records does not carry a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoverageError {
    /// The records are no map from target to record, or one stands under another target.
    #[error("review records: {0}")]
    Records(DecodeError),
    /// A target without a record, or a record without a target.
    #[error("the release and its review records disagree about target `{0}`")]
    Coverage(TargetId),
    /// A record that projects to another reference than the release holds.
    #[error("the review record of `{0}` does not reproduce the release's entry")]
    Mismatch(TargetId),
}

/// Reads a map from target to review record; each stands under its own target.
///
/// # Errors
/// [`CoverageError::Records`].
pub fn decode_records(json: &Json) -> Result<BTreeMap<TargetId, IntegrationReview>, CoverageError> {
    let read = || -> Result<_, DecodeError> {
        let members =
            json.as_object().ok_or(DecodeKind::Type { expected: "an object", found: json.kind() })?;
        let mut records = BTreeMap::new();
        for (key, json) in members {
            let record = IntegrationReview::decode(json).map_err(|error| error.within(key.as_str()))?;
            if record.target.as_str() != key {
                return Err(DecodeError::invalid("a record stands under another target than its own", key));
            }
            records.insert(record.target.clone(), record);
        }
        Ok(records)
    };
    read().map_err(CoverageError::Records)
}

/// Checks that `records` has exactly the release's targets and that each reproduces its entry.
///
/// # Errors
/// [`CoverageError`].
pub fn check_coverage(
    release: &EngineRelease,
    records: &BTreeMap<TargetId, IntegrationReview>,
) -> Result<(), CoverageError> {
    let alone = |target: &&TargetId| release.entries().contains_key(*target) != records.contains_key(*target);
    if let Some(target) = release.entries().keys().chain(records.keys()).find(alone) {
        return Err(CoverageError::Coverage(target.clone()));
    }
    for (target, record) in records {
        if release.entries().get(target) != Some(&record.integrated_ref()) {
            return Err(CoverageError::Mismatch(target.clone()));
        }
    }
    Ok(())
}
