//! The executor's proof that every candidate process is gone, as the selection records use it.

use cacheon_identity::float17::{Float17, Float17Error};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Json};
use cacheon_verdict::codec::{QuiescenceReceipt, QuiescenceSchema};
use cacheon_verdict::fields::Hex128;

/// A teardown receipt: at `observed_s` the executor saw no lease, no resource and no container in its namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Quiescence(QuiescenceReceipt);

/// Why a receipt was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuiescenceError {
    /// 32 lower-case hex digits, not all zero.
    #[error("manager instance {0:?} is not 32 lower-case hex digits, or is zero")]
    Manager(String),
    /// Not finite.
    #[error("observed: {0}")]
    Observed(#[from] Float17Error),
    /// A member outside its grammar or range.
    #[error(transparent)]
    Record(#[from] DecodeError),
}

impl Quiescence {
    /// A receipt with empty inventories. `sequence` counts the teardowns of this manager instance from 1, `observed_s`
    /// is in seconds of the controller's monotonic clock.
    ///
    /// # Errors
    /// A member outside its grammar or range.
    pub fn new(
        executor_id: &str,
        manager_instance_id: &str,
        namespace_digest: Digest,
        sequence: u64,
        observed_s: f64,
    ) -> Result<Self, QuiescenceError> {
        let manager = Hex128::parse(manager_instance_id);
        let receipt = QuiescenceReceipt {
            container_ids: Vec::new(),
            executor_id: executor_id.to_owned(),
            lease_records: Vec::new(),
            manager_instance_id: manager
                .ok_or_else(|| QuiescenceError::Manager(manager_instance_id.to_owned()))?,
            namespace_digest,
            observed_monotonic_s: Float17::new(observed_s)?,
            resource_entries: Vec::new(),
            schema: QuiescenceSchema,
            sequence,
        };
        // Reading applies the record's own rules.
        let json = receipt.to_json().map_err(|error| DecodeError::from(DecodeKind::Json(error)))?;
        Ok(Self::decode(&json)?)
    }

    /// The record.
    #[must_use]
    pub fn receipt(&self) -> &QuiescenceReceipt {
        &self.0
    }

    /// SHA-256 of the schema, NUL and the canonical receipt (not an enveloped digest).
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.digest()
    }

    /// Whether a record made under `self` may be used again under `later`: the identical receipt, or the same executor
    /// and namespace, not earlier, and either another manager instance or a sequence not lower (spec 40 §4).
    #[must_use]
    pub fn admits_later(&self, later: &Self) -> bool {
        let (was, is) = (&self.0, &later.0);
        was == is
            || (was.executor_id == is.executor_id
                && was.namespace_digest == is.namespace_digest
                && is.observed_monotonic_s.get() >= was.observed_monotonic_s.get()
                && (was.manager_instance_id != is.manager_instance_id || is.sequence >= was.sequence))
    }
}

impl Canonical for Quiescence {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for Quiescence {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        QuiescenceReceipt::decode(json).map(Self)
    }
}
