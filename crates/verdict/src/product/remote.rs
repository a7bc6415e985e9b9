//! A qualification's product as it travels: the batch and every artifact it cites.

use super::hold::ScreenLane;
use super::intake::{AuthorityManifest, IntakeBatch};
use crate::fields::{distinct, require};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Int, Json, sha256,
};
use cacheon_records::evidence::EvidenceRef;
use cacheon_stack::EvaluationStack;

const PRODUCT: Domain = Domain::new("cacheon.chain.remote-qualification-product.v1");
/// `schema_version` of a product.
const VERSION: u64 = 2;
const MOST_ARTIFACTS: usize = 256;
const LARGEST_ARTIFACT: usize = 16 << 20;
const LARGEST_TOTAL: usize = 32 << 20;

/// One artifact with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteArtifact {
    payload: Vec<u8>,
    reference: EvidenceRef,
}

impl RemoteArtifact {
    /// Bytes that are what they are cited as.
    ///
    /// # Errors
    /// Another size or hash, or more than 16 MiB.
    pub fn new(payload: Vec<u8>, reference: EvidenceRef) -> Result<Self, DecodeError> {
        require(payload.len() <= LARGEST_ARTIFACT, "payload_base64", "more than 16 MiB", &payload.len())?;
        let cited = payload.len() as u64 == reference.size && sha256(&payload) == reference.sha256;
        require(cited, "payload_base64", "not the cited bytes", &reference)?;
        Ok(Self { payload, reference })
    }

    /// The bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// What they are cited as.
    #[must_use]
    pub fn reference(&self) -> &EvidenceRef {
        &self.reference
    }
}

impl Canonical for RemoteArtifact {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("payload_base64", &STANDARD.encode(&self.payload)).field("reference", &self.reference);
        });
    }
}

impl Decode for RemoteArtifact {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["payload_base64", "reference"])?;
        let text = fields.take("payload_base64")?;
        // The standard engine demands padding and zero trailing bits, so there is one spelling.
        let payload = STANDARD.decode(text.as_str()?).map_err(|error| {
            DecodeError::invalid("not canonical padded base64", &error).within("payload_base64")
        })?;
        Self::new(payload, fields.decode("reference")?)
    }
}

/// A remote qualification product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteProduct {
    /// The authority.
    pub authority_manifest: AuthorityManifest,
    /// The outcomes.
    pub batch: IntakeBatch,
    /// Artifacts, aligned with the inventory.
    pub evidence: Vec<RemoteArtifact>,
    /// The stack that was measured against; its arena is the service.
    pub incumbent_stack: EvaluationStack,
    /// Its tree.
    pub incumbent_tree_digest: Digest,
    /// The worker's epoch, at least 0.
    pub ready_epoch: Int,
    /// Its READY receipt.
    pub ready_receipt_digest: Digest,
    /// First look or reproduction.
    pub screen_lane: ScreenLane,
    /// The service.
    pub service_digest: Digest,
    /// The worker's readiness.
    pub worker_readiness_digest: Digest,
}

impl RemoteProduct {
    /// The product, once its parts fit together.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn checked(self) -> Result<Self, DecodeError> {
        require(!self.ready_epoch.is_negative(), "ready_epoch", "below 0", &self.ready_epoch)?;
        self.check_outcomes()?;
        self.check_evidence()?;
        let arena = self.incumbent_stack.arena.digest();
        require(arena == self.service_digest, "incumbent_stack", "a stack of another service", &arena)?;
        let rows = self.authority_manifest.reservations.len();
        let single = self.screen_lane == ScreenLane::Primary || rows == 1;
        require(single, "screen_lane", "a reproduction has one reservation", &rows)?;
        Ok(self)
    }

    fn check_outcomes(&self) -> Result<(), DecodeError> {
        let manifest = self.authority_manifest.digest();
        let named = self.batch.authority_manifest_digest;
        require(named == manifest, "batch", "a batch of another authority", &named)?;
        let rows = self.authority_manifest.reservations.iter();
        let asked = rows.map(|row| (row.reservation_digest, row.selected_delta_digest));
        let answers = self.batch.outcomes.iter().map(|it| (it.reservation_digest, it.selected_delta_digest));
        require(
            answers.eq(asked),
            "batch",
            "not the reservations and deltas of the authority in order",
            &manifest,
        )
    }

    fn check_evidence(&self) -> Result<(), DecodeError> {
        let count = self.evidence.len();
        require(count <= MOST_ARTIFACTS, "evidence", "more than 256 artifacts", &count)?;
        let total: usize = self.evidence.iter().map(|artifact| artifact.payload.len()).sum();
        require(total <= LARGEST_TOTAL, "evidence", "more than 32 MiB", &total)?;
        let key = |artifact: &RemoteArtifact| {
            let label = artifact.reference.label.clone();
            (label.domain, artifact.reference.sha256, label.media_type, label.schema)
        };
        let keys: Vec<_> = self.evidence.iter().map(key).collect();
        let sorted = keys.is_sorted();
        require(sorted, "evidence_inventory", "not sorted by domain, hash, media type, schema", &count)?;
        let hashes: Vec<Digest> = self.evidence.iter().map(|artifact| artifact.reference.sha256).collect();
        require(distinct(&hashes), "evidence_inventory", "the same bytes under two labels", &count)?;
        let carried = self
            .batch
            .attempt_ref
            .as_ref()
            .is_none_or(|attempt| self.evidence.iter().any(|artifact| artifact.reference == *attempt));
        require(carried, "evidence_inventory", "the attempt is not carried", &count)
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PRODUCT.digest(self)
    }
}

impl Canonical for RemoteProduct {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let inventory: Vec<&EvidenceRef> = self.evidence.iter().map(RemoteArtifact::reference).collect();
        w.object(|o| {
            o.field("authority_manifest", &self.authority_manifest)
                .field("batch", &self.batch)
                .field("evidence", &self.evidence)
                .field("evidence_inventory", &inventory)
                .field("incumbent_stack", &self.incumbent_stack)
                .field("incumbent_tree_digest", &self.incumbent_tree_digest)
                .field("ready_epoch", &self.ready_epoch)
                .field("ready_receipt_digest", &self.ready_receipt_digest)
                .field("schema_version", &VERSION)
                .field("screen_lane", &self.screen_lane)
                .field("service_digest", &self.service_digest)
                .field("worker_readiness_digest", &self.worker_readiness_digest);
        });
    }
}

impl Decode for RemoteProduct {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        fields.take("schema_version")?.exactly_int(VERSION)?;
        let inventory: Vec<EvidenceRef> = fields.decode("evidence_inventory")?;
        let product = Self {
            authority_manifest: fields.decode("authority_manifest")?,
            batch: fields.decode("batch")?,
            evidence: fields.decode("evidence")?,
            incumbent_stack: fields.decode("incumbent_stack")?,
            incumbent_tree_digest: fields.decode("incumbent_tree_digest")?,
            ready_epoch: fields.take("ready_epoch")?.as_int()?.clone(),
            ready_receipt_digest: fields.decode("ready_receipt_digest")?,
            screen_lane: fields.decode("screen_lane")?,
            service_digest: fields.decode("service_digest")?,
            worker_readiness_digest: fields.decode("worker_readiness_digest")?,
        };
        fields.finish()?;
        let aligned = product.evidence.iter().map(RemoteArtifact::reference).eq(&inventory);
        require(aligned, "evidence", "not the inventory's artifacts in order", &inventory.len())?;
        product.checked()
    }
}
