//! The audit witness: policy, receipts and the decision that follows from them.

use super::gate::gate_receipts;
use crate::decision::Decision;
use crate::fields::{AnyDigest, Hex128, require, ruled_record};
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain};
use cacheon_records::audit::{AuditPolicy, AuditReceipt};

const WITNESS: Domain = Domain::new("cacheon.qualification.slot-audit-witness.v1");
const EXECUTION: Domain = Domain::new("cacheon.qualification.slot-audit-execution.v1");

ruled_record! {
    /// A retained audit. Reading it grades the receipts again; decision and detail must follow.
    pub struct AuditWitness: AuditWitness::rules {
        /// The audit's launch.
        pub candidate_launch_digest: AnyDigest,
        /// PASS or FAIL.
        pub decision: Decision,
        /// The gate's exact text.
        pub detail: String,
        /// Digest of the execution that produced the receipts.
        pub execution_identity_digest: AnyDigest,
        /// Policy, seed included.
        pub policy: AuditPolicy,
        /// Receipts, order significant.
        pub receipts: Vec<AuditReceipt>,
        /// Runtime resources.
        pub runtime_resource_policy_digest: AnyDigest,
        /// The audited delta.
        pub selected_delta_digest: AnyDigest,
        /// The engine session.
        pub session_id: Hex128,
    }
}

/// What an audit is graded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditWitnessParts {
    /// The audit's launch.
    pub candidate_launch_digest: AnyDigest,
    /// Digest of the execution that produced the receipts.
    pub execution_identity_digest: AnyDigest,
    /// Policy, seed included.
    pub policy: AuditPolicy,
    /// Receipts, order significant.
    pub receipts: Vec<AuditReceipt>,
    /// Runtime resources.
    pub runtime_resource_policy_digest: AnyDigest,
    /// The audited delta.
    pub selected_delta_digest: AnyDigest,
    /// The engine session.
    pub session_id: Hex128,
}

impl AuditWitness {
    /// Grades the receipts.
    #[must_use]
    pub fn graded(parts: AuditWitnessParts) -> Self {
        let gate = gate_receipts(&parts.policy, &parts.receipts);
        Self {
            candidate_launch_digest: parts.candidate_launch_digest,
            decision: if gate.passed { Decision::Pass } else { Decision::Fail },
            detail: gate.detail,
            execution_identity_digest: parts.execution_identity_digest,
            policy: parts.policy,
            receipts: parts.receipts,
            runtime_resource_policy_digest: parts.runtime_resource_policy_digest,
            selected_delta_digest: parts.selected_delta_digest,
            session_id: parts.session_id,
        }
    }

    fn rules(&self) -> Result<(), DecodeError> {
        let gate = gate_receipts(&self.policy, &self.receipts);
        let decision = if gate.passed { Decision::Pass } else { Decision::Fail };
        require(self.decision == decision, "decision", "the receipts grade otherwise", &self.decision)?;
        require(self.detail == gate.detail, "detail", "not the gate's text", &self.detail)
    }

    /// Digest of the whole witness.
    #[must_use]
    pub fn digest(&self) -> Digest {
        WITNESS.digest(self)
    }
}

/// The execution behind an audit's receipts; its digest is the witness's `execution_identity_digest`.
#[derive(Clone, Copy, Debug)]
pub struct AuditExecution<'a> {
    /// Receipt of the mounted model.
    pub arena_model_receipt: Digest,
    /// The audit policy, seed included.
    pub audit_policy: Digest,
    /// The launch.
    pub launch: Digest,
    /// The native publication.
    pub native_publication: Digest,
    /// The build specification.
    pub prebuild: Digest,
    /// Receipts.
    pub receipts: &'a [AuditReceipt],
    /// Leases recovered before it.
    pub recovered_leases: &'a [String],
    /// Opaque hash of the launch command.
    pub runtime_argv: Digest,
    /// The preflight receipt.
    pub runtime_preflight: Digest,
    /// Runtime resources.
    pub runtime_resource_policy: Digest,
    /// The engine session.
    pub session_id: &'a Hex128,
}

impl AuditExecution<'_> {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        EXECUTION.digest(self)
    }
}

impl Canonical for AuditExecution<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_model_receipt", &self.arena_model_receipt)
                .field("audit_policy", &self.audit_policy)
                .field("launch", &self.launch)
                .field("native_publication", &self.native_publication)
                .field("prebuild", &self.prebuild)
                .field("receipts", self.receipts)
                .field("recovered_leases", self.recovered_leases)
                .field("runtime_argv", &self.runtime_argv)
                .field("runtime_preflight", &self.runtime_preflight)
                .field("runtime_resource_policy", &self.runtime_resource_policy)
                .field("session_id", self.session_id);
        });
    }
}
