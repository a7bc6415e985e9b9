//! The content hash: a bundle's identity on the chain (`spec/10-contribution.md` §2.1).

use crate::finding::{BundleError, Finding, Place};
use crate::path::{NATIVE_RECEIPT, ignored_component, ignored_file_name};
use crate::rule::Rule;
use crate::walk::{NodeKind, Root, Visitor, infrastructure, unstable, utf8};
use cacheon_identity::Digest;
use cacheon_identity::digest::Hasher as Sha256;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// SHA-256 over every included file, in component order: path length (4 bytes, big-endian), path, content length
/// (8 bytes), content. Reads each file once, in constant memory.
///
/// # Errors
/// A root that is no directory, no included file, a name that is not UTF-8; or the machine's failure to read.
pub fn content_hash(root: &Path) -> Result<Digest, BundleError> {
    hash(root, false)
}

/// The content hash without the referee's own receipt at the root (`.cacheon-native-artifact.json`).
///
/// # Errors
/// As [`content_hash`].
pub fn committed_content_hash(root: &Path) -> Result<Digest, BundleError> {
    hash(root, true)
}

fn hash(path: &Path, committed: bool) -> Result<Digest, BundleError> {
    let root = Root::open(path)?;
    let mut hasher =
        Hasher { root: &root, committed, sink: ContentHasher::new(), buffer: vec![0; 64 * 1024] };
    root.walk(&mut hasher)?;
    hasher.sink.finish().ok_or_else(|| {
        Finding::new(Rule::Empty, Place::bundle(), "no file counts towards the content hash").into()
    })
}

/// Feeds files, in component order, into the content hash.
#[derive(Debug, Clone)]
pub struct ContentHasher {
    state: Sha256,
    files: usize,
}

impl Default for ContentHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl ContentHasher {
    /// A hash of no file yet.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Sha256::new(), files: 0 }
    }

    /// Starts a file; `size` bytes of content must follow through [`Self::content`].
    pub fn file(&mut self, path: &str, size: u64) {
        self.files += 1;
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        self.state.update(&length.to_be_bytes());
        self.state.update(path.as_bytes());
        self.state.update(&size.to_be_bytes());
    }

    /// Content of the file started last.
    pub fn content(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    /// The digest, or `None` when no file was fed.
    #[must_use]
    pub fn finish(self) -> Option<Digest> {
        (self.files > 0).then(|| self.state.finish())
    }
}

struct Hasher<'a> {
    root: &'a Root,
    committed: bool,
    sink: ContentHasher,
    buffer: Vec<u8>,
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

impl Visitor for Hasher<'_> {
    fn enter(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        Ok(!std::str::from_utf8(name(path)).is_ok_and(ignored_component))
    }

    fn wants(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        // A name that is not UTF-8 can still be one that identity leaves out.
        let shown = String::from_utf8_lossy(name(path));
        let receipt = self.committed && path == NATIVE_RECEIPT.as_bytes();
        Ok(!receipt && !ignored_file_name(&shown))
    }

    fn file(&mut self, path: &[u8], mut file: File, size: u64) -> Result<(), BundleError> {
        self.sink.file(utf8(path)?, size);
        let mut left = size;
        loop {
            let read = match file.read(&mut self.buffer) {
                Ok(read) => read as u64,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let code = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Err(infrastructure("read", &self.root.full(path), code));
                }
            };
            if read > left || (read == 0 && left > 0) {
                return Err(unstable(path));
            }
            if read == 0 {
                return Ok(());
            }
            left -= read;
            self.sink.content(&self.buffer[..usize::try_from(read).unwrap_or_default()]);
        }
    }

    fn other(&mut self, _: &[u8], _: NodeKind, _: &OwnedFd, _: &[u8]) -> Result<(), BundleError> {
        Ok(())
    }
}
