//! Domain-separated digests: `{"domain":…,"payload":…,"schema_version":…}` (spec 20 §1.3).

use crate::canonical::{Canonical, CanonicalWriter};
use crate::digest::{Digest, Hasher};
use crate::int::Int;

/// A digest domain, checked when it is declared.
///
/// ```
/// use cacheon_identity::Domain;
/// const STACK: Domain = Domain::new("cacheon.stack.evaluation");
/// assert_eq!(STACK.name(), "cacheon.stack.evaluation");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    name: &'static str,
    members: &'static [&'static str],
}

/// Why an envelope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// The domain does not fully match `[a-z0-9][a-z0-9._-]*`.
    #[error("`{0}` is not a digest domain")]
    Name(String),
    /// The schema version is not a positive integer.
    #[error("{0} is not a positive schema version")]
    Version(String),
}

impl Domain {
    /// A domain.
    ///
    /// # Panics
    /// When the name does not fully match `[a-z0-9][a-z0-9._-]*`; in a constant that is a compile error.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self::with_members(name, &[])
    }

    /// A domain with the member names of its payload object, in code-point order, for readers and tests.
    ///
    /// # Panics
    /// As [`Domain::new`].
    #[must_use]
    pub const fn with_members(name: &'static str, members: &'static [&'static str]) -> Self {
        assert!(is_domain(name), "not a digest domain");
        Self { name, members }
    }

    /// The domain text.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The payload's members where declared, else empty.
    #[must_use]
    pub const fn members(&self) -> &'static [&'static str] {
        self.members
    }

    /// The digest of `payload` in this domain at schema version 1, streamed into the hasher.
    #[must_use]
    pub fn digest(&self, payload: &(impl Canonical + ?Sized)) -> Digest {
        envelope(self.name, payload, &1u8)
    }
}

/// The digest of `payload` in a domain given at run time.
///
/// # Errors
/// [`DomainError`].
pub fn envelope_digest(
    domain: &str,
    payload: &(impl Canonical + ?Sized),
    schema_version: &Int,
) -> Result<Digest, DomainError> {
    if !is_domain(domain) {
        return Err(DomainError::Name(domain.chars().take(160).collect()));
    }
    if *schema_version < Int::from(1) {
        return Err(DomainError::Version(schema_version.to_string()));
    }
    Ok(envelope(domain, payload, schema_version))
}

struct Envelope<'a, P: ?Sized, V> {
    domain: &'a str,
    payload: &'a P,
    version: &'a V,
}

impl<P: Canonical + ?Sized, V: Canonical> Canonical for Envelope<'_, P, V> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("domain", self.domain)
                .field("payload", self.payload)
                .field("schema_version", self.version);
        });
    }
}

fn envelope(domain: &str, payload: &(impl Canonical + ?Sized), version: &impl Canonical) -> Digest {
    let mut hasher = Hasher::new();
    CanonicalWriter::hash_into(&mut hasher, &Envelope { domain, payload, version });
    hasher.finish()
}

const fn is_domain(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'a'..=b'z' | b'0'..=b'9' => {}
            b'.' | b'_' | b'-' if at > 0 => {}
            _ => return false,
        }
        at += 1;
    }
    !bytes.is_empty()
}
