//! The inventory of a publication and the manifest file that states it.

use super::path::{NativePathError, check_path};
use super::{BuildDigest, PublicationDigest, limits};
use crate::text::object;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json, JsonError,
};
use std::collections::BTreeSet;

const PUBLICATION: Domain = Domain::with_members(
    "cacheon.native-artifact-publication",
    &["build_spec_digest", "directories", "files"],
);
const SCHEMA: &str = "cacheon.native-artifact-publication.v1";

/// The manifest file at a publication's root.
pub const MANIFEST: &str = ".cacheon-native-artifact.json";

cacheon_identity::record! {
    /// One emitted file.
    pub struct NativeFile {
        /// Relative path.
        pub path: String,
        /// SHA-256 of its bytes; the digest of nothing is one like any other.
        pub sha256: Digest,
        /// Bytes.
        pub size: u64,
    }
}

/// Why an inventory is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// The manifest is no strict JSON.
    #[error("publication manifest: {0}")]
    Json(#[from] JsonError),
    /// The manifest parses but is not its canonical bytes with one newline.
    #[error("the publication manifest is not canonical JSON with one newline")]
    NonCanonical,
    /// Larger than 16 MiB.
    #[error("the publication manifest has {0} bytes; at most 16 MiB are read")]
    TooLarge(usize),
    /// A member is missing, extra or wrong.
    #[error("publication manifest: {0}")]
    Members(DecodeError),
    /// Another schema.
    #[error("publication manifest: {0}")]
    Schema(DecodeError),
    /// No file.
    #[error("a publication holds at least one file")]
    Empty,
    /// A name outside the grammar.
    #[error(transparent)]
    Path(#[from] NativePathError),
    /// Files or directories out of order, or twice.
    #[error("`{0}` stands out of order or twice")]
    Order(String),
    /// The directories are not exactly the ancestors of the files.
    #[error("the directories are not exactly the ancestors of the files, first at `{0}`")]
    Directories(String),
    /// A count or size limit.
    #[error("a publication may hold at most {limit} {what}")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The stated digest is not that of the inventory.
    #[error("the manifest states publication {stated}; its inventory gives {computed}")]
    Digest {
        /// The one stated.
        stated: PublicationDigest,
        /// The one computed.
        computed: PublicationDigest,
    },
}

/// Where a build's publication lies below the root: `<first two hex>/<build digest>`.
#[must_use]
pub fn relative_path(build: &BuildDigest) -> String {
    let hex = build.to_string();
    format!("{}/{hex}", hex.get(..2).unwrap_or_default())
}

/// What a build emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeInventory {
    build: BuildDigest,
    directories: Vec<String>,
    files: Vec<NativeFile>,
}

impl NativeInventory {
    /// An inventory of files in any order; the directories are their ancestors.
    ///
    /// # Errors
    /// A name, count or size that a publication may not have, a path twice, or a file where a directory must be.
    pub fn new(build: BuildDigest, mut files: Vec<NativeFile>) -> Result<Self, InventoryError> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let directories = ancestors(&files).into_iter().map(str::to_owned).collect();
        let inventory = Self { build, directories, files };
        inventory.check()?;
        Ok(inventory)
    }

    /// The build it belongs to.
    #[must_use]
    pub fn build(&self) -> BuildDigest {
        self.build
    }

    /// The directories, string-sorted.
    #[must_use]
    pub fn directories(&self) -> &[String] {
        &self.directories
    }

    /// The files, string-sorted.
    #[must_use]
    pub fn files(&self) -> &[NativeFile] {
        &self.files
    }

    /// The file at a path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&NativeFile> {
        self.files
            .binary_search_by(|file| file.path.as_str().cmp(path))
            .ok()
            .and_then(|at| self.files.get(at))
    }

    /// The publication's digest.
    #[must_use]
    pub fn digest(&self) -> PublicationDigest {
        PublicationDigest::new(PUBLICATION.digest(&object(|o| {
            o.field("build_spec_digest", &self.build)
                .field("directories", &self.directories)
                .field("files", &self.files);
        })))
    }

    /// The manifest file: canonical JSON and one newline.
    #[must_use]
    pub fn manifest(&self) -> Vec<u8> {
        let mut bytes = self.to_canonical();
        bytes.push(b'\n');
        bytes
    }

    /// Reads a manifest file.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub fn parse_manifest(bytes: &[u8]) -> Result<Self, InventoryError> {
        if bytes.len() > limits::MANIFEST_BYTES {
            return Err(InventoryError::TooLarge(bytes.len()));
        }
        let json = Json::parse(bytes)?;
        let read = || -> Result<(Self, Digest), DecodeError> {
            let names = ["build_spec_digest", "directories", "files", "publication_digest", "schema"];
            let mut fields = Fields::closed(&json, &names)?;
            let inventory = Self {
                build: fields.decode("build_spec_digest")?,
                directories: fields.decode("directories")?,
                files: fields.decode("files")?,
            };
            Ok((inventory, fields.decode("publication_digest")?))
        };
        let (inventory, stated) = read().map_err(InventoryError::Members)?;
        Fields::open(&json)
            .and_then(|mut f| f.take("schema")?.exactly(SCHEMA))
            .map_err(InventoryError::Schema)?;
        inventory.check()?;
        let (stated, computed) = (PublicationDigest::new(stated), inventory.digest());
        if stated != computed {
            return Err(InventoryError::Digest { stated, computed });
        }
        if inventory.manifest() != bytes {
            return Err(InventoryError::NonCanonical);
        }
        Ok(inventory)
    }

    fn check(&self) -> Result<(), InventoryError> {
        let over = |what, limit| Err(InventoryError::Limit { what, limit });
        if self.files.is_empty() {
            return Err(InventoryError::Empty);
        }
        if self.files.len() as u64 > limits::FILES {
            return over("files", limits::FILES);
        }
        if self.directories.len() as u64 > limits::DIRECTORIES {
            return over("directories", limits::DIRECTORIES);
        }
        let mut total = 0u64;
        for file in &self.files {
            check_path(&file.path, true)?;
            total = total.saturating_add(file.size);
            if file.size > limits::FILE_BYTES {
                return over("bytes in one file", limits::FILE_BYTES);
            }
        }
        if total > limits::TOTAL_BYTES {
            return over("bytes", limits::TOTAL_BYTES);
        }
        let unordered = |names: &mut dyn Iterator<Item = &str>| {
            let names: Vec<_> = names.collect();
            names.iter().zip(names.iter().skip(1)).find(|(a, b)| a >= b).map(|(_, late)| (*late).to_owned())
        };
        let files = unordered(&mut self.files.iter().map(|file| file.path.as_str()));
        if let Some(late) = files.or_else(|| unordered(&mut self.directories.iter().map(String::as_str))) {
            return Err(InventoryError::Order(late));
        }
        let expected = ancestors(&self.files);
        let stated: BTreeSet<&str> = self.directories.iter().map(String::as_str).collect();
        if let Some(path) = expected.symmetric_difference(&stated).next() {
            return Err(InventoryError::Directories((*path).to_owned()));
        }
        for path in &expected {
            check_path(path, false)?;
        }
        match self.files.iter().find(|file| expected.contains(file.path.as_str())) {
            Some(file) => Err(InventoryError::Directories(file.path.clone())),
            None => Ok(()),
        }
    }
}

fn ancestors(files: &[NativeFile]) -> BTreeSet<&str> {
    let parents =
        |file: &'_ NativeFile| -> Vec<usize> { file.path.match_indices('/').map(|(at, _)| at).collect() };
    files.iter().flat_map(|file| parents(file).into_iter().filter_map(|at| file.path.get(..at))).collect()
}

impl Canonical for NativeInventory {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("build_spec_digest", &self.build)
                .field("directories", &self.directories)
                .field("files", &self.files)
                .field("publication_digest", &self.digest())
                .field("schema", SCHEMA);
        });
    }
}

impl Decode for NativeInventory {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut bytes = json.to_canonical();
        bytes.push(b'\n');
        Self::parse_manifest(&bytes).map_err(|error| match error {
            InventoryError::Members(error) | InventoryError::Schema(error) => error,
            other => DecodeError::invalid("a publication manifest", &other),
        })
    }
}
