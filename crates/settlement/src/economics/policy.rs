//! The emissions policy manifest (spec 20 §10).

use crate::domains;
use crate::ids::PolicyDigest;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Fields, Json};

/// The whole pool, in parts per million.
pub const POOL_PPM: u64 = 1_000_000;

/// How claims decay and how the pool is divided. The first successful projection binds its digest to a store for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmissionsPolicy {
    discovery_lifetime_blocks: u64,
    discovery_pool_ppm: u64,
    half_life_blocks: u64,
}

impl EmissionsPolicy {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "discovery_lifetime_blocks",
        "discovery_pool_ppm",
        "half_life_blocks",
        "policy_version",
        "schema_version",
    ];
    /// The value of `policy_version`.
    pub const VERSION: &'static str = "cacheon.emissions.v1";

    /// A policy: lifetime and half-life at least one block, discovery pool 0..=999,999 ppm.
    ///
    /// # Errors
    /// A value out of bounds.
    pub fn new(
        half_life: u64,
        discovery_lifetime: u64,
        discovery_pool_ppm: u64,
    ) -> Result<Self, DecodeError> {
        let policy = Self {
            discovery_lifetime_blocks: discovery_lifetime,
            discovery_pool_ppm,
            half_life_blocks: half_life,
        };
        Self::decode(&policy.to_json().map_err(cacheon_identity::DecodeKind::Json)?)
    }

    /// Blocks after which a claim's credit has halved.
    #[must_use]
    pub const fn half_life_blocks(&self) -> u64 {
        self.half_life_blocks
    }

    /// Blocks for which a discovery is paid.
    #[must_use]
    pub const fn discovery_lifetime_blocks(&self) -> u64 {
        self.discovery_lifetime_blocks
    }

    /// What live discoveries share, in parts per million.
    #[must_use]
    pub const fn discovery_pool_ppm(&self) -> u64 {
        self.discovery_pool_ppm
    }

    /// The policy's digest.
    #[must_use]
    pub fn digest(&self) -> PolicyDigest {
        PolicyDigest::new(domains::EMISSIONS_POLICY.digest(self))
    }
}

impl Canonical for EmissionsPolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("discovery_lifetime_blocks", &self.discovery_lifetime_blocks)
                .field("discovery_pool_ppm", &self.discovery_pool_ppm)
                .field("half_life_blocks", &self.half_life_blocks)
                .field("policy_version", Self::VERSION)
                .field("schema_version", &1u8);
        });
    }
}

impl Decode for EmissionsPolicy {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("policy_version")?.exactly(Self::VERSION)?;
        fields.take("schema_version")?.exactly_int(1)?;
        Ok(Self {
            discovery_lifetime_blocks: fields.take("discovery_lifetime_blocks")?.u64_in(1, u64::MAX)?,
            discovery_pool_ppm: fields.take("discovery_pool_ppm")?.u64_in(0, POOL_PPM - 1)?,
            half_life_blocks: fields.take("half_life_blocks")?.u64_in(1, u64::MAX)?,
        })
    }
}
