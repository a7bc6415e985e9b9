//! HOLD products: nothing runs again until an operator releases the request.

use crate::fields::{AnyDigest, distinct, require, ruled_record, text_enums, unruled};
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Int, Json, OrEmpty,
};

const V1: Domain = Domain::new("cacheon.chain.remote-qualification-hold.v1");
const V2: Domain = Domain::new("cacheon.chain.remote-qualification-hold.v2");
const GRAPH_HOLD: Domain = Domain::new("cacheon.eval.b300-qualification-graph-gate-hold.v1");
const KIND: &str = "remote_qualification_hold";
/// Longest failure message, in characters.
const LONGEST_MESSAGE: usize = 16_644;
/// Longest service identity, in characters.
const LONGEST_IDENTITY: usize = 512;

text_enums! {
    /// First qualification or independent reproduction.
    ScreenLane {
        /// First.
        Primary = "primary",
        /// Second; of one reservation.
        Reproduction = "reproduction",
    }
    /// Why a request is held.
    HoldReason {
        /// The graph evidence does not decide.
        GraphEvidenceIncomplete = "graph_evidence_incomplete",
        /// The graph evidence cannot be read.
        GraphEvidenceUnavailable = "graph_evidence_unavailable",
        /// It is unknown whether the graph exit was published.
        GraphExitPublicationAmbiguous = "graph_exit_publication_ambiguous",
        /// Resident evidence is missing, unproven or ambiguous.
        ResidentEvidenceUnavailable = "resident_evidence_unavailable",
        /// An isolated worker failed.
        QualificationWorkerError = "qualification_worker_error",
    }
    /// What the graph gate saw.
    GraphHoldCode {
        /// The provider did not answer.
        ProviderUnavailable = "graph_provider_unavailable",
        /// The raw evidence cannot be read.
        RawEvidenceUnavailable = "raw_evidence_unavailable",
        /// The raw evidence does not decide.
        RawEvidenceIncomplete = "raw_evidence_incomplete",
        /// It is unknown whether the exit was published.
        ExitPublicationAmbiguous = "exit_publication_ambiguous",
    }
}

ruled_record! {
    /// The diagnostic of a graph-gate HOLD.
    pub struct GraphHold: unruled {
        /// The authority's context.
        pub authority_context_digest: AnyDigest,
        /// What the gate saw.
        pub code: GraphHoldCode,
        /// Why the request is held.
        pub reason: HoldReason,
        /// The request.
        pub request_digest: AnyDigest,
    }
}

impl GraphHold {
    /// The diagnostic digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        GRAPH_HOLD.digest(self)
    }
}

/// A held request (versions 1 and 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteHold {
    parts: RemoteHoldParts,
}

/// The members of a HOLD product; [`RemoteHold::new`] checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteHoldParts {
    /// The request.
    pub request_digest: AnyDigest,
    /// 1 to 512 characters without controls.
    pub service_identity: String,
    /// The service.
    pub service_digest: AnyDigest,
    /// The worker's readiness.
    pub worker_readiness_digest: AnyDigest,
    /// The worker's READY receipt.
    pub ready_receipt_digest: AnyDigest,
    /// Its epoch, at least 0.
    pub ready_epoch: Int,
    /// First look or reproduction.
    pub screen_lane: ScreenLane,
    /// Reservations, unique.
    pub reservation_digests: Vec<AnyDigest>,
    /// Deltas; may repeat.
    pub selected_delta_digests: Vec<AnyDigest>,
    /// Candidates, unique.
    pub candidate_digests: Vec<AnyDigest>,
    /// Why.
    pub reason: HoldReason,
    /// The diagnostic, if there is one.
    pub diagnostic_digest: OrEmpty<AnyDigest>,
    /// Type and message of a failure: `Some` is version 2, both empty or neither.
    pub failure: Option<(String, String)>,
}

fn is_type(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let mut bytes = text.bytes();
    text.len() <= 128
        && bytes.next().is_some_and(first)
        && bytes.all(|b| first(b) || b.is_ascii_digit() || b == b'.')
}

impl RemoteHold {
    /// Checks the members.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn new(parts: RemoteHoldParts) -> Result<Self, DecodeError> {
        let identity = &parts.service_identity;
        let length = identity.chars().count();
        let plain = (1..=LONGEST_IDENTITY).contains(&length) && !identity.chars().any(char::is_control);
        require(plain, "service_identity", "not 1 to 512 characters without controls", &length)?;
        require(!parts.ready_epoch.is_negative(), "ready_epoch", "below 0", &parts.ready_epoch)?;
        let counts = [&parts.reservation_digests, &parts.selected_delta_digests, &parts.candidate_digests]
            .map(|list| list.len());
        let even = counts[0] > 0 && counts[0] == counts[1] && counts[1] == counts[2];
        require(
            even,
            "reservation_digests",
            "the three lists are not equally long and at least one",
            &counts[0],
        )?;
        let unique = distinct(&parts.reservation_digests) && distinct(&parts.candidate_digests);
        require(unique, "reservation_digests", "a reservation or candidate is repeated", &counts[0])?;
        let single = parts.screen_lane == ScreenLane::Primary || counts[0] == 1;
        require(single, "screen_lane", "a reproduction has one reservation", &counts[0])?;
        let (kind, message) = match &parts.failure {
            Some((kind, message)) => (kind.as_str(), message.as_str()),
            None => ("", ""),
        };
        require(
            kind.is_empty() == message.is_empty(),
            "failure_message",
            "type and message go together",
            kind,
        )?;
        require(kind.is_empty() || is_type(kind), "failure_type", "not a type name", kind)?;
        let length = message.chars().count();
        let fits = length <= LONGEST_MESSAGE && !message.contains('\0');
        require(fits, "failure_message", "longer than 16644 characters, or with NUL", &length)?;
        let told = parts.reason != HoldReason::QualificationWorkerError || !kind.is_empty();
        require(told, "failure_type", "a worker error names its failure (version 2)", &parts.reason)?;
        Ok(Self { parts })
    }

    /// The members.
    #[must_use]
    pub fn parts(&self) -> &RemoteHoldParts {
        &self.parts
    }

    /// 1, or 2 when it carries failure members.
    #[must_use]
    pub fn schema_version(&self) -> u64 {
        if self.parts.failure.is_some() { 2 } else { 1 }
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        if self.parts.failure.is_some() { V2.digest(self) } else { V1.digest(self) }
    }

    /// The reason as a ledger keeps it.
    #[must_use]
    pub fn durable_reason(&self) -> String {
        format!("{KIND}:{}", self.parts.reason)
    }
}

impl Canonical for RemoteHold {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = &self.parts;
        w.object(|o| {
            o.field("candidate_digests", &it.candidate_digests)
                .field("diagnostic_digest", &it.diagnostic_digest);
            if let Some((kind, message)) = &it.failure {
                o.field("failure_message", message).field("failure_type", kind);
            }
            o.field("kind", KIND)
                .field("ready_epoch", &it.ready_epoch)
                .field("ready_receipt_digest", &it.ready_receipt_digest)
                .field("reason", &it.reason)
                .field("request_digest", &it.request_digest)
                .field("reservation_digests", &it.reservation_digests)
                .field("schema_version", &self.schema_version())
                .field("screen_lane", &it.screen_lane)
                .field("selected_delta_digests", &it.selected_delta_digests)
                .field("service_digest", &it.service_digest)
                .field("service_identity", &it.service_identity)
                .field("worker_readiness_digest", &it.worker_readiness_digest);
        });
    }
}

impl Decode for RemoteHold {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        fields.take("kind")?.exactly(KIND)?;
        let version = fields.take("schema_version")?.u64_in(1, 2)?;
        let failure = match version {
            2 => Some((fields.decode("failure_type")?, fields.decode("failure_message")?)),
            _ => None,
        };
        let ready_epoch = fields.take("ready_epoch")?;
        let parts = RemoteHoldParts {
            request_digest: fields.decode("request_digest")?,
            service_identity: fields.decode("service_identity")?,
            service_digest: fields.decode("service_digest")?,
            worker_readiness_digest: fields.decode("worker_readiness_digest")?,
            ready_receipt_digest: fields.decode("ready_receipt_digest")?,
            ready_epoch: ready_epoch.as_int()?.clone(),
            screen_lane: fields.decode("screen_lane")?,
            reservation_digests: fields.decode("reservation_digests")?,
            selected_delta_digests: fields.decode("selected_delta_digests")?,
            candidate_digests: fields.decode("candidate_digests")?,
            reason: fields.decode("reason")?,
            diagnostic_digest: fields.decode("diagnostic_digest")?,
            failure,
        };
        fields.finish()?;
        Self::new(parts)
    }
}
