//! The intake policy (spec 30 §5.3) and the scope a database is bound to (§5.2).

use crate::error::Refused;
use cacheon_identity::{Canonical, Digest, Domain, Json, sha256};

const SCOPE: Domain = Domain::new("cacheon.chain.intake-scope");

cacheon_identity::record! {
    /// Limits of one intake. All are positive, `cutoff_blocks` is below `epoch_blocks`, and `max_cohort` is at most
    /// `max_pending`.
    #[derive(Copy)]
    pub struct IntakePolicy {
        /// The last blocks of an epoch that already count for the next one.
        pub cutoff_blocks: u64,
        /// Blocks of one admission epoch.
        pub epoch_blocks: u64,
        /// Blocks after which an unfinished row expires.
        pub expiry_blocks: u64,
        /// Rows of one cohort or selection.
        pub max_cohort: u64,
        /// Rows in the queue.
        pub max_pending: u64,
        /// Rows of one hotkey in one epoch.
        pub max_per_hotkey_epoch: u64,
        /// Rows of one target in one epoch.
        pub max_per_target_epoch: u64,
        /// Dispositions after which a NO_DECISION holds.
        pub max_qualification_retries: u64,
        /// Transport attempts of one row.
        pub max_transport_retries: u64,
    }
}

impl Default for IntakePolicy {
    fn default() -> Self {
        Self {
            cutoff_blocks: 30,
            epoch_blocks: 360,
            expiry_blocks: 500_000,
            max_cohort: 8,
            max_pending: 256,
            max_per_hotkey_epoch: 16,
            max_per_target_epoch: 64,
            max_qualification_retries: 3,
            max_transport_retries: 3,
        }
    }
}

impl IntakePolicy {
    /// The default policy for bundles of this machine: no per-hotkey or per-target crowding, no expiry in practice.
    #[must_use]
    pub fn local() -> Self {
        Self {
            expiry_blocks: 1 << 40,
            max_pending: 1 << 20,
            max_per_hotkey_epoch: 1 << 20,
            max_per_target_epoch: 1 << 20,
            ..Self::default()
        }
    }

    /// The policy, if its limits are consistent.
    ///
    /// # Errors
    /// The first limit that is not.
    pub fn checked(self) -> Result<Self, Refused> {
        let limits = [
            ("cutoff_blocks", self.cutoff_blocks),
            ("epoch_blocks", self.epoch_blocks),
            ("expiry_blocks", self.expiry_blocks),
            ("max_cohort", self.max_cohort),
            ("max_pending", self.max_pending),
            ("max_per_hotkey_epoch", self.max_per_hotkey_epoch),
            ("max_per_target_epoch", self.max_per_target_epoch),
            ("max_qualification_retries", self.max_qualification_retries),
            ("max_transport_retries", self.max_transport_retries),
        ];
        let most = i64::MAX.cast_unsigned();
        if let Some((what, value)) = limits.into_iter().find(|(_, value)| *value == 0 || *value > most) {
            return Err(Refused::bounds(what, value, "positive"));
        }
        if self.cutoff_blocks >= self.epoch_blocks {
            return Err(Refused::bounds("cutoff_blocks", self.cutoff_blocks, "below epoch_blocks"));
        }
        if self.max_cohort > self.max_pending {
            return Err(Refused::bounds("max_cohort", self.max_cohort, "at most max_pending"));
        }
        Ok(self)
    }

    /// The epoch that `block` is admitted in: ⌊block/E⌋, and one more in its last `cutoff` blocks.
    #[must_use]
    pub fn admission_epoch(&self, block: u64) -> u64 {
        let late = block % self.epoch_blocks >= self.epoch_blocks - self.cutoff_blocks;
        block / self.epoch_blocks + u64::from(late)
    }
}

cacheon_identity::record! {
    /// What a database is bound to: a chain and subnet, or one local home.
    pub struct Scope {
        /// `0x` and the 64 hex digits of block 0.
        pub genesis_hash: String,
        /// The subnet.
        pub netuid: u64,
    }
}

impl Scope {
    /// The scope of a chain and subnet.
    ///
    /// # Errors
    /// A hash that is not `0x` and 64 lower-case hex digits; a netuid beyond what the database can hold.
    pub fn chain(genesis_hash: &str, netuid: u64) -> Result<Self, Refused> {
        if !is_block_hash(genesis_hash) {
            return Err(Refused::text("genesis hash", genesis_hash, "0x and 64 lower-case hex digits"));
        }
        if i64::try_from(netuid).is_err() {
            return Err(Refused::bounds("netuid", netuid, "below 2^63"));
        }
        Ok(Self { genesis_hash: genesis_hash.to_owned(), netuid })
    }

    /// The scope of bundles that never saw a chain. `home` names the local home, for example by its identity digest.
    #[must_use]
    pub fn local(home: &str) -> Self {
        let mut text = b"cacheon-rs-local-scope\0".to_vec();
        text.extend_from_slice(home.as_bytes());
        Self { genesis_hash: format!("0x{}", sha256(&text)), netuid: 0 }
    }

    /// Domain `cacheon.chain.intake-scope`.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SCOPE.digest(self)
    }

    /// The value of `metadata.intake_scope`.
    #[must_use]
    pub fn metadata(&self) -> String {
        Canonical::to_ascii(self)
    }
}

/// `0x` and 64 lower-case hex digits.
#[must_use]
pub fn is_block_hash(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|hex| Digest::parse(hex).is_ok())
}

/// The cursor's JSON: `[block, hash]`.
pub(crate) fn cursor_json(block: u64, hash: &str) -> String {
    Json::Array(vec![Json::from(block), Json::from(hash)]).to_ascii()
}
