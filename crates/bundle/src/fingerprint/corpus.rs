//! Published fingerprints that nobody may resubmit: bundles of the validators, and the public kernel library.

use super::{Fingerprint, compare};
use crate::python::Dialect;
use cacheon_identity::{Digest, Json};
use std::collections::BTreeMap;

/// A published corpus, for one dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    references: Vec<(String, Fingerprint)>,
    library: BTreeMap<Digest, String>,
}

/// The most characters of a marker.
const MARKER: usize = 80;

fn is_name(text: &str) -> bool {
    (1..=MARKER).contains(&text.len()) && crate::text::is_simple_id(text)
}

impl Corpus {
    /// Reads a corpus file.
    ///
    /// # Errors
    /// What is malformed.
    pub fn read(bytes: &[u8], dialect: Dialect) -> Result<Self, String> {
        let json = Json::parse(bytes).map_err(|error| error.to_string())?;
        let rows = json.get("references").and_then(Json::as_array).ok_or("`references` is no array")?;
        let mut references = Vec::new();
        for row in rows {
            let name = row.get("name").and_then(Json::as_str).filter(|name| is_name(name));
            let name = name.ok_or("a reference has no simple name")?;
            let record = row.get("fingerprint").ok_or("a reference has no fingerprint")?;
            references.push((name.to_owned(), Fingerprint::from_json(record, dialect)?));
        }
        let key = if dialect == Dialect::V311 { "3.11" } else { "3.12+" };
        let library = json.get("library_fingerprints").and_then(|maps| maps.get(key));
        let library = library.and_then(Json::as_object).ok_or("no library map for this dialect")?;
        let library = library
            .iter()
            .map(|(digest, path)| {
                let digest = Digest::parse(digest).map_err(|error| error.to_string())?;
                Ok((digest, path.as_str().ok_or("a library path is no string")?.to_owned()))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self { references, library })
    }

    /// The corpus that comes with this crate.
    ///
    /// # Errors
    /// As [`Self::read`]; a test rules it out.
    pub fn published(dialect: Dialect) -> Result<Self, String> {
        Self::read(crate::catalog::REFERENCE_CORPUS_JSON.as_bytes(), dialect)
    }

    /// What a contribution copies: `validator_reference:<name>`, or `None`.
    #[must_use]
    pub fn copied(&self, submitted: &Fingerprint) -> Option<String> {
        let reference = self.references.iter().find(|(_, reference)| {
            compare(reference, submitted).is_ok_and(|decision| decision.reason.is_copy())
        });
        let name = match reference {
            Some((name, _)) => name.clone(),
            None => {
                let path = submitted.containment.iter().find_map(|digest| self.library.get(digest))?;
                let marker = format!("library-{}", path.replace('/', "-"));
                marker.chars().take(MARKER).collect()
            }
        };
        Some(format!("validator_reference:{name}"))
    }
}
