//! Publications as they are mounted, looked at once before anything is loaded.

use super::Declared;
use crate::words::{INDEX_MAX, Object};
use cacheon_identity::digest::Hasher;
use cacheon_model::abi::{IndexError, KernelIndex};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A publication that is what the controller says.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) index: KernelIndex,
    pub(crate) object: Object,
}

/// A publication that is not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublicationError {
    #[error("publication {id}: {path}: {source}")]
    Io { id: u16, path: String, source: io::Error },
    #[error("publication {id}: {source}")]
    Index { id: u16, source: IndexError },
    #[error("publication {id}: its object hashes to {found}, not to what was declared")]
    Digest { id: u16, found: cacheon_identity::Digest },
    #[error("publication {id}: index.json is larger than {INDEX_MAX} bytes")]
    Large { id: u16 },
}

fn open(folder: &Path, id: u16, expected: &[u8; 32]) -> Result<Opened, PublicationError> {
    let folder = folder.join(id.to_string());
    let failed =
        |path: PathBuf| move |source| PublicationError::Io { id, path: path.display().to_string(), source };
    let path = folder.join("index.json");
    let mut index = Vec::new();
    std::fs::File::open(&path)
        .and_then(|file| file.take(u64::from(INDEX_MAX) + 1).read_to_end(&mut index))
        .map_err(failed(path))?;
    if index.len() > INDEX_MAX as usize {
        return Err(PublicationError::Large { id });
    }
    let parsed = KernelIndex::parse(&index).map_err(|source| PublicationError::Index { id, source })?;
    let path = folder.join(parsed.library());
    let mut hasher = Hasher::new();
    let hashed = std::fs::File::open(&path).and_then(|mut file| {
        let mut chunk = vec![0u8; 256 << 10];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(()),
                n => hasher.update(&chunk[..n]),
            }
        }
    });
    hashed.map_err(failed(path.clone()))?;
    let found = hasher.finish();
    if found.as_bytes() != expected {
        return Err(PublicationError::Digest { id, found });
    }
    let object = Object { path: path.to_string_lossy().into_owned(), index };
    Ok(Opened { index: parsed, object })
}

/// Opens and re-hashes every declared publication.
pub(crate) fn open_all(
    folder: &Path,
    declared: &Declared,
) -> Result<BTreeMap<u16, Opened>, PublicationError> {
    declared
        .iter()
        .map(|publication| Ok((publication.id, open(folder, publication.id, &publication.object_sha256)?)))
        .collect()
}
