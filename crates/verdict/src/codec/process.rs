//! The proof that every process of an executor is gone.

use crate::fields::{Hex128, Instant, literals, require, ruled_record};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, DecodeError, Digest, Hasher};

literals! {
    /// Schema of [`QuiescenceReceipt`], which is also the prefix of its hash.
    QuiescenceSchema = "cacheon.oci-quiescence.v1";
}

ruled_record! {
    /// At `observed_monotonic_s` the executor held no lease, no resource and no container.
    pub struct QuiescenceReceipt: QuiescenceReceipt::rules {
        /// Empty.
        pub container_ids: Vec<String>,
        /// `[a-z0-9][a-z0-9_.-]{0,127}`.
        pub executor_id: String,
        /// Empty.
        pub lease_records: Vec<String>,
        /// The manager.
        pub manager_instance_id: Hex128,
        /// The executor's namespace.
        pub namespace_digest: Digest,
        /// Controller time, s; at least 0.
        pub observed_monotonic_s: Float17,
        /// Empty.
        pub resource_entries: Vec<String>,
        /// Schema literal.
        pub schema: QuiescenceSchema,
        /// From 1.
        pub sequence: u64,
    }
}

fn is_executor(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut bytes = text.bytes();
    text.len() <= 128 && bytes.next().is_some_and(lower) && bytes.all(|b| lower(b) || b"_.-".contains(&b))
}

impl QuiescenceReceipt {
    fn rules(&self) -> Result<(), DecodeError> {
        require(is_executor(&self.executor_id), "executor_id", "not an executor id", &self.executor_id)?;
        require(self.sequence >= 1, "sequence", "teardowns are counted from 1", &self.sequence)?;
        let seen = &self.observed_monotonic_s;
        require(seen.get() >= 0.0, "observed_monotonic_s", "before the clock started", seen)?;
        let left = self.container_ids.len() + self.lease_records.len() + self.resource_entries.len();
        require(left == 0, "container_ids", "something was left", &left)
    }

    /// The quiescence hash: SHA-256 of the schema, NUL and the canonical record.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(QuiescenceSchema::TEXT.as_bytes());
        hasher.update(&[0]);
        hasher.update(self.to_ascii().as_bytes());
        hasher.finish()
    }

    /// When it was seen.
    #[must_use]
    pub fn observed(&self) -> Option<Instant> {
        Instant::new(self.observed_monotonic_s.get())
    }

    /// Whether `self` is the next teardown of the same executor, manager and namespace.
    #[must_use]
    pub fn follows(&self, before: &Self) -> bool {
        self.executor_id == before.executor_id
            && self.manager_instance_id == before.manager_instance_id
            && self.namespace_digest == before.namespace_digest
            && before.sequence.checked_add(1) == Some(self.sequence)
    }
}
