//! References into the evidence store: what a record cites when it cites retained bytes (spec 40 §13).

use cacheon_identity::decode::Member;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};
use std::fmt;

/// The largest size a reference may state, in bytes (1 GiB).
pub const MAX_REFERENCE_SIZE: u64 = 1 << 30;

/// Why a reference, or a part of one, is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// A label breaks its grammar.
    #[error("evidence {what} {value:?} breaks its grammar")]
    Label {
        /// `domain`, `schema` or `media type`.
        what: &'static str,
        /// The text.
        value: String,
    },
    /// The size is negative or over 1 GiB.
    #[error("evidence size {0} is not within 0..=1073741824")]
    Size(String),
}

fn tail_ok(text: &str, limit: usize, allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match bytes.split_first() {
        Some((first, rest)) => {
            rest.len() <= limit
                && (first.is_ascii_lowercase() || first.is_ascii_digit())
                && rest
                    .iter()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || allowed(*byte))
        }
        None => false,
    }
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $what:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Parses the label.
            ///
            /// # Errors
            /// The text breaks the grammar.
            pub fn parse(text: &str) -> Result<Self, ReferenceError> {
                let valid: fn(&str) -> bool = $valid;
                match valid(text) {
                    true => Ok(Self(text.to_owned())),
                    false => Err(ReferenceError::Label { what: $what, value: text.to_owned() }),
                }
            }

            /// The label's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

label!(
    /// The store's first directory level: `[a-z0-9][a-z0-9._-]{0,95}`.
    EvidenceDomain,
    "domain",
    |text| tail_ok(text, 95, |byte| matches!(byte, b'.' | b'_' | b'-'))
);
label!(
    /// The name of the record format: `[a-z0-9][a-z0-9._-]{0,127}`.
    EvidenceSchema,
    "schema",
    |text| tail_ok(text, 127, |byte| matches!(byte, b'.' | b'_' | b'-'))
);
label!(
    /// `type/subtype`, each `[a-z0-9][a-z0-9!#$&^_.+-]{0,63}`, without parameters.
    MediaType,
    "media type",
    |text| match text.split_once('/') {
        Some((kind, subtype)) => [kind, subtype].iter().all(|part| {
            tail_ok(part, 63, |byte| {
                matches!(byte, b'!' | b'#' | b'$' | b'&' | b'^' | b'_' | b'.' | b'+' | b'-')
            })
        }),
        None => false,
    }
);

/// Where bytes are published and what they are called there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EvidenceLabel {
    /// The directory the bytes live under.
    pub domain: EvidenceDomain,
    /// Lives only in the reference.
    pub media_type: MediaType,
    /// Lives only in the reference.
    pub schema: EvidenceSchema,
}

impl EvidenceLabel {
    /// Parses the three labels.
    ///
    /// # Errors
    /// The first that breaks its grammar.
    pub fn parse(domain: &str, media_type: &str, schema: &str) -> Result<Self, ReferenceError> {
        Ok(Self {
            domain: EvidenceDomain::parse(domain)?,
            media_type: MediaType::parse(media_type)?,
            schema: EvidenceSchema::parse(schema)?,
        })
    }

    /// Canonical JSON records: `application/json` under `domain`, named `schema`.
    ///
    /// # Errors
    /// A label that breaks its grammar.
    pub fn json(domain: &str, schema: &str) -> Result<Self, ReferenceError> {
        Self::parse(domain, "application/json", schema)
    }
}

/// A reference to retained bytes: domain, SHA-256, size, media type, schema.
///
/// The bytes are authenticated by `sha256` and `size`; media type and schema are labels of the citing record and are
/// not stored beside the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EvidenceRef {
    /// Where and as what.
    pub label: EvidenceLabel,
    /// SHA-256 of the bytes; the all-zero digest is accepted here.
    pub sha256: Digest,
    /// Size in bytes, at most [`MAX_REFERENCE_SIZE`].
    pub size: u64,
}

impl EvidenceRef {
    /// A reference to `size` bytes that hash to `sha256`.
    ///
    /// # Errors
    /// A size over 1 GiB.
    pub fn new(label: EvidenceLabel, sha256: Digest, size: u64) -> Result<Self, ReferenceError> {
        match size <= MAX_REFERENCE_SIZE {
            true => Ok(Self { label, sha256, size }),
            false => Err(ReferenceError::Size(size.to_string())),
        }
    }

    /// Path below the store's root: `<domain>/<first two hex>/<sha256>`.
    #[must_use]
    pub fn relative_path(&self) -> String {
        let sha = self.sha256.to_string();
        format!("{}/{}/{sha}", self.label.domain, &sha[..2])
    }
}

impl Canonical for EvidenceRef {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("domain", self.label.domain.as_str())
                .field("media_type", self.label.media_type.as_str())
                .field("schema", self.label.schema.as_str())
                .field("sha256", &self.sha256)
                .field("size", &self.size);
        });
    }
}

impl Decode for EvidenceRef {
    /// Reads the closed record `{domain, media_type, schema, sha256, size}`; the zero digest is admitted.
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["domain", "media_type", "schema", "sha256", "size"])?;
        let mut label = |name: &'static str| fields.take(name);
        let (domain, media_type, schema) = (label("domain")?, label("media_type")?, label("schema")?);
        let refuse = |rule: &'static str, member: &Member<'_>| {
            member.error(DecodeKind::invalid(rule, member.as_str().unwrap_or_default()))
        };
        let label = EvidenceLabel {
            domain: EvidenceDomain::parse(domain.as_str()?)
                .map_err(|_| refuse("an evidence domain", &domain))?,
            media_type: MediaType::parse(media_type.as_str()?)
                .map_err(|_| refuse("a media type", &media_type))?,
            schema: EvidenceSchema::parse(schema.as_str()?)
                .map_err(|_| refuse("an evidence schema", &schema))?,
        };
        let sha256 = fields.take("sha256")?.digest_or_zero()?;
        let size = fields.take("size")?.u64_in(0, MAX_REFERENCE_SIZE)?;
        Ok(Self { label, sha256, size })
    }
}

impl fmt::Display for EvidenceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} bytes, {}, {})",
            self.relative_path(),
            self.size,
            self.label.media_type,
            self.label.schema
        )
    }
}
