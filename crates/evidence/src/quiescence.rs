//! The executor's proof that every candidate process is gone (schema `cacheon.oci-quiescence.v1`).

use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Hasher, Json, float17,
};

/// The receipt's schema, which is also the prefix of its digest.
pub const SCHEMA: &str = "cacheon.oci-quiescence.v1";
const MEMBERS: &[&str] = &[
    "container_ids",
    "executor_id",
    "lease_records",
    "manager_instance_id",
    "namespace_digest",
    "observed_monotonic_s",
    "resource_entries",
    "schema",
    "sequence",
];

/// A teardown receipt: at `observed_s` the executor saw no lease, no resource and no container in its namespace.
///
/// The three inventories are part of the record and always empty; a receipt with anything in one does not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Quiescence {
    executor_id: String,
    manager_instance_id: String,
    namespace_digest: Digest,
    sequence: u64,
    observed_s: f64,
}

/// Why a receipt was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuiescenceError {
    /// `[a-z0-9][a-z0-9_.-]{0,127}`.
    #[error("executor id {0:?} breaks its grammar")]
    Executor(String),
    /// 32 lower-case hex digits.
    #[error("manager instance {0:?} is not 32 lower-case hex digits")]
    Manager(String),
    /// Sequences count from 1.
    #[error("sequence 0; teardowns are counted from 1")]
    Sequence,
    /// Finite and not negative.
    #[error("observed at {0} monotonic seconds")]
    Observed(String),
}

impl Quiescence {
    /// A receipt with empty inventories.
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
        if !executor_ok(executor_id) {
            return Err(QuiescenceError::Executor(executor_id.to_owned()));
        }
        if !hex128_ok(manager_instance_id) {
            return Err(QuiescenceError::Manager(manager_instance_id.to_owned()));
        }
        if sequence == 0 {
            return Err(QuiescenceError::Sequence);
        }
        if !(observed_s.is_finite() && observed_s >= 0.0) {
            return Err(QuiescenceError::Observed(observed_s.to_string()));
        }
        Ok(Self {
            executor_id: executor_id.to_owned(),
            manager_instance_id: manager_instance_id.to_owned(),
            namespace_digest,
            sequence,
            observed_s,
        })
    }

    /// When the absence was observed, in seconds of the controller's monotonic clock.
    #[must_use]
    pub fn observed_s(&self) -> f64 {
        self.observed_s
    }

    /// The count of teardowns of this manager instance, from 1.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// SHA-256 of the schema, NUL and the canonical receipt (not an enveloped digest).
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(SCHEMA.as_bytes());
        hasher.update(b"\0");
        hasher.update(self.to_ascii().as_bytes());
        hasher.finish()
    }

    /// Whether a record made under `self` may be used again under `later`: the identical receipt, or the same executor
    /// and namespace, not earlier, and either another manager instance or a sequence not lower (spec 40 §4).
    #[must_use]
    pub fn admits_later(&self, later: &Self) -> bool {
        self == later
            || (self.executor_id == later.executor_id
                && self.namespace_digest == later.namespace_digest
                && later.observed_s >= self.observed_s
                && (self.manager_instance_id != later.manager_instance_id || later.sequence >= self.sequence))
    }
}

impl Canonical for Quiescence {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let none: [bool; 0] = [];
        w.object(|o| {
            o.field("container_ids", &none)
                .field("executor_id", &self.executor_id)
                .field("lease_records", &none)
                .field("manager_instance_id", &self.manager_instance_id)
                .field("namespace_digest", &self.namespace_digest)
                .field("observed_monotonic_s", &float17::format(self.observed_s))
                .field("resource_entries", &none)
                .field("schema", SCHEMA)
                .field("sequence", &self.sequence);
        });
    }
}

impl Decode for Quiescence {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, MEMBERS)?;
        fields.take("schema")?.exactly(SCHEMA)?;
        for inventory in ["container_ids", "lease_records", "resource_entries"] {
            let member = fields.take(inventory)?;
            if !member.as_array()?.is_empty() {
                return Err(member.error(DecodeKind::invalid("an empty inventory", inventory)));
            }
        }
        let executor = fields.take("executor_id")?.str_where("an executor id", executor_ok)?;
        let manager = fields.take("manager_instance_id")?.str_where("32 lower-case hex digits", hex128_ok)?;
        let namespace = fields.take("namespace_digest")?.digest()?;
        let observed = fields.take("observed_monotonic_s")?;
        let text = observed.as_str()?;
        let refuse = || observed.error(DecodeKind::invalid("a non-negative float17", text));
        let seconds = float17::parse(text).map_err(|_| refuse())?;
        let sequence = fields.take("sequence")?.u64_in(1, u64::MAX)?;
        Self::new(executor, manager, namespace, sequence, seconds).map_err(|_| refuse())
    }
}

fn executor_ok(text: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 128
        && text.as_bytes().first().is_some_and(plain)
        && text.bytes().all(|byte| plain(&byte) || matches!(byte, b'_' | b'.' | b'-'))
}

/// 32 lower-case hex digits.
#[must_use]
pub(crate) fn hex128_ok(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
