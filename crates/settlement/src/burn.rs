//! Weights before the first crown: the whole pool to one hotkey (spec 20 §10).

use crate::claim::Hotkey;
use crate::domains;
use cacheon_identity::Digest;

cacheon_identity::record! {
    /// The authority of a fixed burn hotkey. Its digest stands as both evaluation and sole arena digest.
    pub struct BurnAuthority {
        /// Who receives the pool.
        pub burn_hotkey: Hotkey,
        /// The chain.
        pub chain_scope_digest: Digest,
        /// Who is registered.
        pub metagraph_digest: Digest,
        /// The subnet.
        pub netuid: u64,
        /// The emissions policy.
        pub policy_digest: Digest,
        /// The settlement state, which holds no crown.
        pub settlement_state_digest: Digest,
        /// The validator.
        pub validator_hotkey: Hotkey,
    }
}

cacheon_identity::record! {
    /// The authority of a burn to the subnet owner. Its digest stands as both evaluation and sole arena digest.
    pub struct OwnerBurnAuthority {
        /// Who receives the pool: one of the owner's hotkeys.
        pub burn_hotkey: Hotkey,
        /// UIDs whose coldkey is the owner, sorted and unique.
        pub candidate_uids: Vec<u64>,
        /// The chain.
        pub chain_scope_digest: Digest,
        /// Who is registered.
        pub metagraph_digest: Digest,
        /// The subnet.
        pub netuid: u64,
        /// The owner's coldkey.
        pub owner_coldkey: Hotkey,
        /// The owner hotkey on chain; may be empty.
        pub owner_hotkey: String,
        /// The emissions policy.
        pub policy_digest: Digest,
        /// The settlement state, which holds no crown.
        pub settlement_state_digest: Digest,
        /// The validator.
        pub validator_hotkey: Hotkey,
    }
}

impl BurnAuthority {
    /// Its digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::BURN_AUTHORITY.digest(self)
    }
}

impl OwnerBurnAuthority {
    /// Its digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        debug_assert!(self.candidate_uids.is_sorted_by(|a, b| a < b));
        domains::OWNER_BURN_AUTHORITY.digest(self)
    }
}

/// Why no burn bootstrap is admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BurnError {
    /// Somebody has a claim.
    #[error("{0} active claims stand; a burn bootstrap is only for a store without any")]
    ActiveClaims(usize),
    /// A stack has changed.
    #[error("a stack is at generation {0}; a burn bootstrap is only for generation 0")]
    Generation(u64),
    /// Nobody registered belongs to the owner.
    #[error("no registered hotkey belongs to the subnet owner")]
    NoOwnerUid,
}

/// Admits a burn bootstrap: no active claim, and no stack beyond generation 0.
///
/// # Errors
/// [`BurnError::ActiveClaims`], [`BurnError::Generation`].
pub fn admit(active_claims: usize, generations: impl IntoIterator<Item = u64>) -> Result<(), BurnError> {
    if active_claims > 0 {
        return Err(BurnError::ActiveClaims(active_claims));
    }
    match generations.into_iter().find(|generation| *generation > 0) {
        Some(generation) => Err(BurnError::Generation(generation)),
        None => Ok(()),
    }
}

/// Chooses among the UIDs whose coldkey is the owner's: the owner hotkey if it is among them, else the lowest UID's.
/// Gives the chosen hotkey and the UIDs, sorted and unique.
///
/// # Errors
/// [`BurnError::NoOwnerUid`].
pub fn choose_owner<'a>(
    owned: impl IntoIterator<Item = (u64, &'a Hotkey)>,
    owner_hotkey: &str,
) -> Result<(&'a Hotkey, Vec<u64>), BurnError> {
    let mut owned: Vec<_> = owned.into_iter().collect();
    owned.sort();
    owned.dedup_by_key(|(uid, _)| *uid);
    let lowest = owned.first().ok_or(BurnError::NoOwnerUid)?.1;
    let named = owned.iter().find(|(_, hotkey)| hotkey.as_str() == owner_hotkey);
    let chosen = named.map_or(lowest, |(_, hotkey)| *hotkey);
    Ok((chosen, owned.into_iter().map(|(uid, _)| uid).collect()))
}
