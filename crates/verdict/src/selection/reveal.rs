//! Commitment, entropy, reveal.

use crate::fields::{Hex128, SchemaOne, ascending, literals, require, ruled_record, within};
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain, Hasher, record, sha256};
use cacheon_stack::reference::ReferenceManifest;

const COMMITMENT: Domain = Domain::new("cacheon.qualification.selection-commitment");
const ENTROPY: Domain = Domain::new("cacheon.qualification.selection-entropy");
const RECEIPT: Domain = Domain::new("cacheon.qualification.selection-receipt");
const KEY: Domain = Domain::new("cacheon.qualification.selection-key");
const DECLARED_ENTROPY: Domain = Domain::new("cacheon.eval.b300-declared-entropy-provider.v1");
const AUTHORITY_RECEIPT: Domain = Domain::new("cacheon.eval.selection-entropy-authority-receipt.v1");
const SECRET_PREFIX: &[u8] = b"cacheon-selection-secret-v1\0";
const AUDIT_SEED_PREFIX: &[u8] = b"cacheon-b300-registered-audit-seed-v1\0";

literals! {
    /// `policy_version` of a commitment.
    SelectionPolicyV1 = "qualification-selection.v1";
}

/// Why a selection is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A record is malformed.
    #[error("selection record: {0}")]
    Record(#[from] DecodeError),
    /// Secrets have at least 32 bytes.
    #[error("a selection secret has at least 32 bytes, this has {0}")]
    SecretLength(usize),
    /// Two records that must agree do not.
    #[error("selection: {what} is {found}, expected {expected}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What was found.
        found: Digest,
        /// What the other record says.
        expected: Digest,
    },
    /// The receipt names other prompts than its entropy selects.
    #[error("the selected prompts are not those that the commitment and the entropy select")]
    Selected,
}

fn same(what: &'static str, found: Digest, expected: Digest) -> Result<(), SelectionError> {
    if found == expected { Ok(()) } else { Err(SelectionError::Mismatch { what, found, expected }) }
}

/// A selection secret: at least 32 bytes that never leave the controller.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes.
    ///
    /// # Errors
    /// Fewer than 32 of them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SelectionError> {
        let bytes = bytes.into();
        if bytes.len() < 32 { Err(SelectionError::SecretLength(bytes.len())) } else { Ok(Self(bytes)) }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The commitment to it, which is also its reveal digest.
    #[must_use]
    pub fn commitment(&self) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(SECRET_PREFIX);
        hasher.update(&self.0);
        hasher.finish()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

struct Declared(Digest);

impl Canonical for Declared {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("selection_policy_digest", &self.0);
        });
    }
}

/// The entropy source that a selection policy declares.
#[must_use]
pub fn declared_entropy_source(selection_policy_digest: Digest) -> Digest {
    DECLARED_ENTROPY.digest(&Declared(selection_policy_digest))
}

ruled_record! {
    /// What is fixed before the first read.
    pub struct SelectionCommitment: SelectionCommitment::rules {
        /// The source that will give entropy.
        pub entropy_source_digest: Digest,
        /// Version literal.
        pub policy_version: SelectionPolicyV1,
        /// The pool: occurrence digests of the whole plan, sorted, unique.
        pub prompt_digests: Vec<Digest>,
        /// **Full** digest of the pristine manifest.
        pub reference_manifest_digest: Digest,
        /// 1.
        pub schema_version: SchemaOne,
        /// Hash of the secret.
        pub secret_commitment: Digest,
        /// How many prompts, 1 to the size of the pool.
        pub select_count: u64,
        /// The sealed plan.
        pub source_plan_digest: Digest,
        /// The manifest's workload.
        pub workload_digest: Digest,
    }
}

/// What a commitment is made of.
#[derive(Clone, Debug)]
pub struct CommitmentParts<'a> {
    /// The pristine manifest.
    pub reference: &'a ReferenceManifest,
    /// The sealed plan.
    pub source_plan_digest: Digest,
    /// The secret.
    pub secret: &'a Secret,
    /// Occurrence digests of the whole plan, in any order.
    pub pool: Vec<Digest>,
    /// How many to select.
    pub select_count: u64,
}

impl SelectionCommitment {
    /// Seals a secret over a pool.
    ///
    /// # Errors
    /// A repeated prompt, an empty pool, or a count outside it.
    pub fn seal(parts: CommitmentParts<'_>) -> Result<Self, SelectionError> {
        let mut prompt_digests = parts.pool;
        prompt_digests.sort();
        let commitment = Self {
            entropy_source_digest: declared_entropy_source(parts.reference.selection_policy),
            policy_version: SelectionPolicyV1,
            prompt_digests,
            reference_manifest_digest: parts.reference.digest().digest(),
            schema_version: SchemaOne,
            secret_commitment: parts.secret.commitment(),
            select_count: parts.select_count,
            source_plan_digest: parts.source_plan_digest,
            workload_digest: parts.reference.workload,
        };
        Ok(commitment.checked()?)
    }

    fn rules(&self) -> Result<(), DecodeError> {
        let pool = &self.prompt_digests;
        require(ascending(pool), "prompt_digests", "the pool is sorted and unique", &pool.len())?;
        within("select_count", self.select_count, 1, pool.len() as u64)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        COMMITMENT.digest(self)
    }
}

record! {
    /// The entropy of one commitment, drawn once.
    #[derive(Copy)]
    pub struct EntropyReceipt {
        /// Binds commitment, entropy, source and the teardown before it.
        pub authority_receipt_digest: Digest,
        /// The commitment.
        pub commitment_digest: Digest,
        /// SHA-256 of the entropy bytes.
        pub entropy_digest: Digest,
        /// The declared source.
        pub source_digest: Digest,
    }
}

impl EntropyReceipt {
    /// The receipt of entropy drawn for a commitment after a teardown.
    #[must_use]
    pub fn of(commitment: &SelectionCommitment, entropy: &[u8], teardown_digest: Digest) -> Self {
        let (commitment_digest, entropy_digest) = (commitment.digest(), sha256(entropy));
        let source_digest = commitment.entropy_source_digest;
        Self {
            authority_receipt_digest: entropy_authority_receipt(
                commitment_digest,
                entropy_digest,
                source_digest,
                teardown_digest,
            ),
            commitment_digest,
            entropy_digest,
            source_digest,
        }
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ENTROPY.digest(self)
    }
}

struct Authority {
    commitment: Digest,
    entropy: Digest,
    source: Digest,
    teardown: Digest,
}

impl Canonical for Authority {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("commitment_digest", &self.commitment)
                .field("entropy_digest", &self.entropy)
                .field("source_digest", &self.source)
                .field("teardown_digest", &self.teardown);
        });
    }
}

/// The authority receipt of an entropy draw; `teardown` is the quiescence hash of the teardown before it.
#[must_use]
pub fn entropy_authority_receipt(
    commitment: Digest,
    entropy: Digest,
    source: Digest,
    teardown: Digest,
) -> Digest {
    AUTHORITY_RECEIPT.digest(&Authority { commitment, entropy, source, teardown })
}

record! {
    /// Which prompts were selected, and from what that follows.
    pub struct SelectionReceipt {
        /// The commitment.
        pub commitment_digest: Digest,
        /// Digest of the entropy receipt.
        pub entropy_receipt_digest: Digest,
        /// Hash of the secret.
        pub reveal_digest: Digest,
        /// Every trajectory of the cohort, sealed before the entropy existed.
        pub sealed_cohort_trajectory_digest: Digest,
        /// The selected prompts, sorted.
        pub selected_prompt_digests: Vec<Digest>,
    }
}

impl SelectionReceipt {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RECEIPT.digest(self)
    }
}

struct Key {
    commitment: Digest,
    entropy: Digest,
    prompt: Digest,
    reveal: Digest,
}

impl Canonical for Key {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("commitment_digest", &self.commitment)
                .field("post_commit_entropy_digest", &self.entropy)
                .field("prompt_digest", &self.prompt)
                .field("secret", &self.reveal);
        });
    }
}

/// The prompts that a commitment, a reveal and an entropy select: the smallest keys, sorted by prompt.
#[must_use]
pub fn rank(commitment: &SelectionCommitment, reveal_digest: Digest, entropy_digest: Digest) -> Vec<Digest> {
    let own = commitment.digest();
    let mut keyed: Vec<(Digest, Digest)> = commitment
        .prompt_digests
        .iter()
        .map(|prompt| {
            let key =
                Key { commitment: own, entropy: entropy_digest, prompt: *prompt, reveal: reveal_digest };
            (KEY.digest(&key), *prompt)
        })
        .collect();
    keyed.sort();
    let count = usize::try_from(commitment.select_count).unwrap_or(usize::MAX);
    let mut selected: Vec<Digest> = keyed.into_iter().take(count).map(|(_, prompt)| prompt).collect();
    selected.sort();
    selected
}

fn check_entropy(commitment: &SelectionCommitment, entropy: &EntropyReceipt) -> Result<(), SelectionError> {
    same("the commitment of the entropy", entropy.commitment_digest, commitment.digest())?;
    same("the source of the entropy", entropy.source_digest, commitment.entropy_source_digest)
}

/// Reveals a selection.
///
/// # Errors
/// The secret or the entropy is of another commitment.
pub fn reveal(
    commitment: &SelectionCommitment,
    secret: &Secret,
    entropy: &EntropyReceipt,
    sealed_cohort_trajectory: Digest,
) -> Result<SelectionReceipt, SelectionError> {
    check_entropy(commitment, entropy)?;
    let reveal_digest = secret.commitment();
    same("the revealed secret", reveal_digest, commitment.secret_commitment)?;
    Ok(SelectionReceipt {
        commitment_digest: commitment.digest(),
        entropy_receipt_digest: entropy.digest(),
        reveal_digest,
        sealed_cohort_trajectory_digest: sealed_cohort_trajectory,
        selected_prompt_digests: rank(commitment, reveal_digest, entropy.entropy_digest),
    })
}

/// Checks a retained selection against its commitment and entropy. The trajectory it seals is checked by whoever
/// holds the trajectories.
///
/// # Errors
/// Any record that does not follow from the others.
pub fn reopen(
    commitment: &SelectionCommitment,
    entropy: &EntropyReceipt,
    receipt: &SelectionReceipt,
) -> Result<(), SelectionError> {
    check_entropy(commitment, entropy)?;
    same("the commitment of the selection", receipt.commitment_digest, commitment.digest())?;
    same("the entropy of the selection", receipt.entropy_receipt_digest, entropy.digest())?;
    same("the revealed secret", receipt.reveal_digest, commitment.secret_commitment)?;
    let selected = rank(commitment, receipt.reveal_digest, entropy.entropy_digest);
    if receipt.selected_prompt_digests == selected { Ok(()) } else { Err(SelectionError::Selected) }
}

/// The audit's sampling seed: drawn from the secret and the delta, so that neither side chooses it. `None` if the hash
/// is zero in its first half, which no one has seen.
#[must_use]
pub fn audit_seed(secret: &Secret, selected_delta: Digest) -> Option<Hex128> {
    let mut hasher = Hasher::new();
    hasher.update(AUDIT_SEED_PREFIX);
    hasher.update(secret.as_bytes());
    hasher.update(selected_delta.as_bytes());
    hasher.finish().to_hex().get(..32).and_then(Hex128::parse)
}
