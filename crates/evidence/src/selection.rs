//! Durable private records of a selection: its secret and its entropy (spec 40 §4).
//!
//! A secret is written before its commitment is published and read again at the reveal. Entropy is drawn exactly once,
//! after the teardown that proves every candidate process gone; a restarted controller gets the stored receipt back
//! only under a teardown that cannot lie before the one it was drawn under.

use crate::fs::{Dir, FsError, SEALED_FILE};
use crate::once::hex;
use crate::quiescence::Quiescence;
use crate::step::{Steps, Stopped};
use crate::store::read_sealed;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};
use cacheon_verdict::selection::{EntropyReceipt, SelectionCommitment};
use std::path::{Path, PathBuf};

/// Schema of a secret record.
pub const SECRET_SCHEMA: &str = "cacheon.eval.selection-secret-record.v1";
/// Schema of an entropy record.
pub const ENTROPY_SCHEMA: &str = "cacheon.eval.selection-entropy-record.v1";
/// Fewest and most bytes of a secret or of entropy.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 32..=4096;

const INVENTORY: Domain = Domain::new("cacheon.eval.selection-secret-inventory.v1");
const LOCK: &str = ".lock";
const RECORD_LIMIT: u64 = 8 << 20;

/// Why a selection record was refused.
#[derive(Debug, thiserror::Error)]
pub enum SelectionStoreError {
    /// The file system, a mode, an owner, a link.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Secrets and entropy have 32 to 4096 bytes.
    #[error("{0} bytes; a selection secret or entropy has 32 to 4096")]
    Length(usize),
    /// No such record.
    #[error("{0}: no such selection record")]
    Absent(PathBuf),
    /// The record exists with another content.
    #[error("{0}: exists with other bytes; a selection record is written once")]
    Conflict(PathBuf),
    /// A killed writer left a partial file; nothing may be published under this name until a person looked at it.
    #[error(
        "{0}: left by a writer that died; inspect and remove it (`discard_partials`) if its record was never used"
    )]
    Partial(PathBuf),
    /// The record is not what it claims to be.
    #[error("{path}: {why}")]
    Altered {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The entropy was drawn under a teardown that the given one may precede.
    #[error("{0}: the entropy was drawn under another teardown; it cannot be replayed under this one")]
    Teardown(PathBuf),
    /// The commitment is not a selection commitment.
    #[error("selection commitment: {0}")]
    Commitment(DecodeError),
}

impl From<Stopped> for SelectionStoreError {
    fn from(stopped: Stopped) -> Self {
        Self::Fs(FsError::Stopped(stopped))
    }
}

/// The entropy of a commitment, as it was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnEntropy {
    receipt: EntropyReceipt,
    /// The digest of the teardown it was drawn under, which the receipt binds. After a restart this is the stored
    /// teardown, not the one presented.
    pub teardown_digest: Digest,
}

impl std::ops::Deref for DrawnEntropy {
    type Target = EntropyReceipt;

    fn deref(&self) -> &EntropyReceipt {
        &self.receipt
    }
}

/// The private directory of selection secrets and entropy.
#[derive(Debug)]
pub struct SelectionStore {
    root: PathBuf,
    steps: Steps,
}

impl SelectionStore {
    /// Opens (creating when its parent exists) the private directory `root`.
    ///
    /// # Errors
    /// A root that is not absolute, normalised, 0700 and ours.
    pub fn open(root: &Path, steps: Steps) -> Result<Self, SelectionStoreError> {
        Dir::ensure_private(root, &steps, "selection.root.created")?;
        Ok(Self { root: root.to_owned(), steps })
    }

    fn dir(&self) -> Result<Dir, SelectionStoreError> {
        Ok(Dir::open_private(&self.root)?)
    }

    /// Stores `secret` under `reference`; the same bytes again are a no-op.
    ///
    /// # Errors
    /// A wrong length, a reference with other bytes, a leftover partial, a record or root that was tampered with.
    pub fn put_secret(&self, reference: &Digest, secret: &[u8]) -> Result<(), SelectionStoreError> {
        if !SECRET_BYTES.contains(&secret.len()) {
            return Err(SelectionStoreError::Length(secret.len()));
        }
        let record = SecretRecord { reference: *reference, secret: secret.to_vec() };
        let dir = self.dir()?;
        let _lock = dir.lock(LOCK, &|| true)?;
        let name = secret_name(reference);
        match self.read_secret(&dir, reference)? {
            Some(stored) if stored == record => Ok(()),
            Some(_) => Err(SelectionStoreError::Conflict(dir.join(name))),
            None => self.publish(&dir, &name, &record.to_canonical()),
        }
    }

    /// The secret stored under `reference`.
    ///
    /// # Errors
    /// An absent or altered record.
    pub fn secret(&self, reference: &Digest) -> Result<Vec<u8>, SelectionStoreError> {
        let dir = self.dir()?;
        match self.read_secret(&dir, reference)? {
            Some(record) => Ok(record.secret),
            None => Err(SelectionStoreError::Absent(dir.join(secret_name(reference)))),
        }
    }

    fn read_secret(
        &self,
        dir: &Dir,
        reference: &Digest,
    ) -> Result<Option<SecretRecord>, SelectionStoreError> {
        let name = secret_name(reference);
        let Some(bytes) = read_sealed(dir, &name, RECORD_LIMIT)? else { return Ok(None) };
        let altered = |why: String| SelectionStoreError::Altered { path: dir.join(&name), why };
        let json = Json::parse_canonical(&bytes).map_err(|error| altered(error.to_string()))?;
        let record = SecretRecord::decode(&json).map_err(|error| altered(error.to_string()))?;
        match record.reference == *reference && record.to_canonical() == bytes {
            true => Ok(Some(record)),
            false => Err(altered("the record names another reference or hash".to_owned())),
        }
    }

    /// Digest of all secrets held: domain `cacheon.eval.selection-secret-inventory.v1` over
    /// `{records: [{reference, secret_sha256}]}` by reference.
    ///
    /// # Errors
    /// An altered record.
    pub fn inventory_digest(&self) -> Result<Digest, SelectionStoreError> {
        let dir = self.dir()?;
        let mut records = Vec::new();
        for name in dir.names()? {
            let reference = name
                .to_str()
                .and_then(|text| text.strip_prefix("secret-")?.strip_suffix(".json"))
                .and_then(|text| Digest::parse(text).ok());
            if let Some(reference) = reference
                && let Some(record) = self.read_secret(&dir, &reference)?
            {
                records.push(Json::object([
                    ("reference", Json::from(reference.to_string())),
                    ("secret_sha256", Json::from(cacheon_identity::sha256(&record.secret).to_string())),
                ]));
            }
        }
        Ok(INVENTORY.digest(&Json::object([("records", Json::Array(records))])))
    }

    /// The entropy of `commitment` (a `cacheon.qualification.selection-commitment` record).
    /// `draw` is called at most once in the life of the commitment, and only when nothing is stored; a later call gets
    /// the stored receipt if `teardown` cannot precede the stored one.
    ///
    /// # Errors
    /// A wrong entropy length, an altered record, a teardown that may precede the stored one, a leftover partial.
    pub fn entropy(
        &self,
        commitment: &Json,
        teardown: &Quiescence,
        draw: impl FnOnce() -> Vec<u8>,
    ) -> Result<DrawnEntropy, SelectionStoreError> {
        let commitment = SelectionCommitment::decode(commitment).map_err(SelectionStoreError::Commitment)?;
        let commitment_digest = commitment.digest();
        let dir = self.dir()?;
        let _lock = dir.lock(LOCK, &|| true)?;
        let name = entropy_name(&commitment_digest);
        if let Some(stored) = self.read_entropy(&dir, &commitment_digest)? {
            return match stored.teardown.admits_later(teardown) {
                true => Ok(stored.drawn()),
                false => Err(SelectionStoreError::Teardown(dir.join(name))),
            };
        }
        refuse_partial(&dir, &name)?;
        let entropy = draw();
        if !SECRET_BYTES.contains(&entropy.len()) {
            return Err(SelectionStoreError::Length(entropy.len()));
        }
        let record = EntropyRecord { commitment, entropy, teardown: teardown.clone() };
        self.publish(&dir, &name, &record.to_canonical())?;
        Ok(record.drawn())
    }

    /// The stored entropy receipt and bytes of a commitment, if entropy was drawn.
    ///
    /// # Errors
    /// An altered record.
    pub fn stored_entropy(
        &self,
        commitment_digest: &Digest,
    ) -> Result<Option<(DrawnEntropy, Vec<u8>)>, SelectionStoreError> {
        let stored = self.read_entropy(&self.dir()?, commitment_digest)?;
        Ok(stored.map(|record| (record.drawn(), record.entropy)))
    }

    fn read_entropy(
        &self,
        dir: &Dir,
        commitment: &Digest,
    ) -> Result<Option<EntropyRecord>, SelectionStoreError> {
        let name = entropy_name(commitment);
        let Some(bytes) = read_sealed(dir, &name, RECORD_LIMIT)? else { return Ok(None) };
        let altered = |why: String| SelectionStoreError::Altered { path: dir.join(&name), why };
        let json = Json::parse_canonical(&bytes).map_err(|error| altered(error.to_string()))?;
        let record = EntropyRecord::decode(&json).map_err(|error| altered(error.to_string()))?;
        match record.commitment.digest() == *commitment && record.to_canonical() == bytes {
            true => Ok(Some(record)),
            false => {
                Err(altered("the record names another commitment, or its receipt does not follow".to_owned()))
            }
        }
    }

    fn publish(&self, dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), SelectionStoreError> {
        refuse_partial(dir, name)?;
        let partial = format!(".{name}.partial");
        dir.write_new(
            &partial,
            bytes,
            SEALED_FILE,
            &self.steps,
            "selection.partial.written",
            "selection.partial.synced",
        )?;
        dir.rename_new(&partial, dir, name)?;
        self.steps.reach("selection.record.named")?;
        dir.sync()?;
        self.steps.reach("selection.record.durable")?;
        Ok(())
    }

    /// Removes partial files that dead writers left. Only a caller that knows (from its journal) that no record of
    /// theirs was ever used may do this: a partial secret could have been committed to.
    ///
    /// # Errors
    /// I/O errors.
    pub fn discard_partials(&self) -> Result<Vec<PathBuf>, SelectionStoreError> {
        let dir = self.dir()?;
        let _lock = dir.lock(LOCK, &|| true)?;
        let mut removed = Vec::new();
        for name in dir.names()? {
            let text = name.to_string_lossy();
            if text.starts_with(".secret-") || text.starts_with(".entropy-") {
                dir.unlink(&name)?;
                removed.push(dir.join(&name));
            }
        }
        dir.sync()?;
        Ok(removed)
    }
}

fn refuse_partial(dir: &Dir, name: &str) -> Result<(), SelectionStoreError> {
    let prefix = format!(".{name}.");
    match dir.names()?.iter().find(|entry| entry.to_string_lossy().starts_with(&prefix)) {
        Some(partial) => Err(SelectionStoreError::Partial(dir.join(partial))),
        None => Ok(()),
    }
}

fn secret_name(reference: &Digest) -> String {
    format!("secret-{reference}.json")
}

fn entropy_name(commitment: &Digest) -> String {
    format!("entropy-{commitment}.json")
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SecretRecord {
    reference: Digest,
    secret: Vec<u8>,
}

impl Canonical for SecretRecord {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("reference", &self.reference)
                .field("schema", SECRET_SCHEMA)
                .field("secret_hex", &hex(&self.secret))
                .field("secret_sha256", &cacheon_identity::sha256(&self.secret));
        });
    }
}

impl Decode for SecretRecord {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["reference", "schema", "secret_hex", "secret_sha256"])?;
        fields.take("schema")?.exactly(SECRET_SCHEMA)?;
        let reference = fields.take("reference")?.digest_or_zero()?;
        let secret = unhex(&mut fields, "secret_hex")?;
        fields.take("secret_sha256")?.exactly(&cacheon_identity::sha256(&secret).to_string())?;
        Ok(Self { reference, secret })
    }
}

#[derive(Debug, Clone, PartialEq)]
struct EntropyRecord {
    commitment: SelectionCommitment,
    entropy: Vec<u8>,
    teardown: Quiescence,
}

impl EntropyRecord {
    fn drawn(&self) -> DrawnEntropy {
        let teardown_digest = self.teardown.digest();
        let receipt = EntropyReceipt::of(&self.commitment, &self.entropy, teardown_digest);
        DrawnEntropy { receipt, teardown_digest }
    }
}

impl Canonical for EntropyRecord {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("commitment", &self.commitment)
                .field("entropy_hex", &hex(&self.entropy))
                .field("receipt", &self.drawn().receipt)
                .field("schema", ENTROPY_SCHEMA)
                .field("teardown", &self.teardown);
        });
    }
}

impl Decode for EntropyRecord {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields =
            Fields::closed(json, &["commitment", "entropy_hex", "receipt", "schema", "teardown"])?;
        fields.take("schema")?.exactly(ENTROPY_SCHEMA)?;
        let _: EntropyReceipt = fields.decode("receipt")?;
        Ok(Self {
            commitment: fields.decode("commitment")?,
            entropy: unhex(&mut fields, "entropy_hex")?,
            teardown: fields.decode("teardown")?,
        })
    }
}

fn unhex(fields: &mut Fields<'_>, name: &str) -> Result<Vec<u8>, DecodeError> {
    let member = fields.take(name)?;
    let valid = |text: &str| {
        text.len().is_multiple_of(2)
            && SECRET_BYTES.contains(&(text.len() / 2))
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let text = member.str_where("32 to 4096 bytes of lower-case hex", valid)?;
    let digit = |byte: u8| if byte.is_ascii_digit() { byte - b'0' } else { byte - b'a' + 10 };
    Ok(text.as_bytes().as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect())
}
