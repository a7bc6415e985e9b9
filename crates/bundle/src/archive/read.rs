//! The strict reader: every header and name judged before a sink sees the member.

use super::gunzip::Gunzip;
use super::header::{Header, Kind, until_nul};
use super::inventory::{Entry, Inventory, settle};
use super::pax::{Overrides, records};
use super::{
    BLOCK, MAX_EXTENSION, MAX_EXTENSIONS, MAX_EXTRACTED, MAX_FILE, MAX_HEADERS, MAX_INSPECTABLE,
    MAX_INSPECTABLE_FILE, MAX_MEMBERS, inspectable, name, refused, refused_member,
};
use crate::finding::BundleError;
use crate::hash::ContentHasher;
use crate::path::component_order;
use crate::tree::{Node, Tree};
use std::io::Read;

/// Takes members as they come. Paths still have their wrapper: whether there is one shows only at the end, so a reader
/// that creates files runs [`preflight`] first.
pub trait Sink {
    /// A directory member. Directories may also be implied by the paths of files.
    ///
    /// # Errors
    /// Whatever stops the sink.
    fn directory(&mut self, _path: &str) -> Result<(), BundleError> {
        Ok(())
    }

    /// A file starts; exactly `size` bytes follow through [`Self::content`].
    ///
    /// # Errors
    /// Whatever stops the sink.
    fn file(&mut self, path: &str, size: u64) -> Result<(), BundleError>;

    /// Bytes of the file started last.
    ///
    /// # Errors
    /// Whatever stops the sink.
    fn content(&mut self, bytes: &[u8]) -> Result<(), BundleError>;
}

/// Reads a whole archive through `sink`.
///
/// # Errors
/// An archive that breaks a rule, the sink's own errors, or the machine's failure to read.
pub fn read(archive: impl Read, sink: &mut impl Sink) -> Result<Inventory, BundleError> {
    let mut walk = Walk {
        stream: Gunzip::new(archive),
        headers: 0,
        extensions: 0,
        extracted: 0,
        inspected: 0,
        entries: Vec::new(),
        buffer: vec![0; 64 * 1024],
    };
    walk.members(sink)?;
    walk.zeros()?;
    settle(walk.entries)
}

/// Checks a whole archive, and hashes it where its members come in component order.
///
/// # Errors
/// As [`read`].
pub fn preflight(archive: impl Read) -> Result<Inventory, BundleError> {
    // Whether there is a wrapper shows only at the end, so both hashes run.
    let mut hash = Hash::default();
    let mut inventory = read(archive, &mut hash)?;
    if hash.ordered {
        let hasher = if inventory.wrapper.is_some() { hash.stripped } else { hash.whole };
        inventory.content_hash = hasher.finish();
    }
    Ok(inventory)
}

/// An archive's files in memory, the wrapper stripped: at most [`MAX_EXTRACTED`] bytes of content.
///
/// # Errors
/// As [`read`].
pub fn unpack(archive: impl Read) -> Result<(Inventory, Tree), BundleError> {
    let mut memory = Memory { files: Vec::new() };
    let mut inventory = read(archive, &mut memory)?;
    let nodes = memory.files.into_iter().map(|(path, bytes)| {
        let stripped = inventory.strip(&path).to_owned();
        (stripped, Node::File(bytes.into()))
    });
    let tree = Tree::from_nodes(nodes.collect::<Vec<_>>())?;
    inventory.content_hash = tree.content_hash();
    Ok((inventory, tree))
}

struct Memory {
    files: Vec<(String, Vec<u8>)>,
}

impl Sink for Memory {
    fn file(&mut self, path: &str, size: u64) -> Result<(), BundleError> {
        self.files.push((path.to_owned(), Vec::with_capacity(usize::try_from(size).unwrap_or_default())));
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        if let Some((_, held)) = self.files.last_mut() {
            held.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// Both hashes of a stream of members: of the paths as they are, and of the paths without their top directory.
struct Hash {
    last: Option<String>,
    ordered: bool,
    whole: ContentHasher,
    stripped: ContentHasher,
}

impl Default for Hash {
    fn default() -> Self {
        let (whole, stripped) = (ContentHasher::new(), ContentHasher::new());
        Self { last: None, ordered: true, whole, stripped }
    }
}

impl Sink for Hash {
    fn file(&mut self, path: &str, size: u64) -> Result<(), BundleError> {
        self.ordered &= self.last.as_deref().is_none_or(|last| component_order(last, path).is_lt());
        self.last = Some(path.to_owned());
        self.whole.file(path, size);
        self.stripped.file(path.split_once('/').map_or(path, |(_, rest)| rest), size);
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.whole.content(bytes);
        self.stripped.content(bytes);
        Ok(())
    }
}

struct Walk<R> {
    stream: Gunzip<R>,
    headers: usize,
    extensions: u64,
    extracted: u64,
    inspected: u64,
    entries: Vec<Entry>,
    buffer: Vec<u8>,
}

impl<R: Read> Walk<R> {
    /// Members up to the two zero blocks.
    fn members(&mut self, sink: &mut impl Sink) -> Result<(), BundleError> {
        let mut globals = Overrides::default();
        let mut pending: Option<Overrides> = None;
        let mut ending = false;
        loop {
            let mut block = [0; BLOCK];
            self.exact(&mut block)?;
            if block.iter().all(|byte| *byte == 0) {
                if pending.is_some() {
                    return Err(refused("an extension header announces no member"));
                }
                if ending {
                    return Ok(());
                }
                ending = true;
                continue;
            }
            if ending {
                return Err(refused("the end of the tar stream is marked by one zero block only"));
            }
            self.headers += 1;
            if self.headers > MAX_HEADERS {
                return Err(refused(format!("the archive has more than {MAX_HEADERS} tar headers")));
            }
            let header = Header::parse(&block)?;
            match header.kind {
                Kind::File | Kind::Directory => {
                    let overrides = pending.take().unwrap_or_default().or(&globals);
                    self.member(header, overrides, sink)?;
                }
                Kind::Pax => {
                    let found = records(&self.extension(header.size)?)?;
                    pending = Some(pending.unwrap_or_default().or(&found));
                }
                Kind::Global => {
                    let found = records(&self.extension(header.size)?)?;
                    globals = found.or(&globals);
                }
                Kind::LongName => {
                    let body = self.extension(header.size)?;
                    let path = Some(until_nul(&body).to_vec());
                    pending = Some(pending.unwrap_or_default().or(&Overrides { path, size: None }));
                }
                Kind::LongLink => {
                    self.extension(header.size)?;
                    pending = Some(pending.unwrap_or_default());
                }
            }
        }
    }

    fn member(
        &mut self,
        header: Header,
        overrides: Overrides,
        sink: &mut impl Sink,
    ) -> Result<(), BundleError> {
        if overrides.size.is_some_and(|size| size != header.size) {
            return Err(refused("a PAX size differs from the size in the member's own header"));
        }
        let mut raw = overrides.path.unwrap_or(header.name);
        let kept = raw.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        raw.truncate(kept);
        let path = name::checked(&raw)?;
        if self.entries.len() == MAX_MEMBERS {
            return Err(refused(format!("the archive has more than {MAX_MEMBERS} members")));
        }
        let (path, size) = (path.to_owned(), header.size);
        if header.kind == Kind::Directory {
            if size != 0 {
                return Err(refused_member(&path, "a directory states a size"));
            }
            sink.directory(&path)?;
            self.entries.push(Entry { path, size: None });
            return Ok(());
        }
        self.charge(&path, size)?;
        sink.file(&path, size)?;
        self.entries.push(Entry { path, size: Some(size) });
        let mut left = size;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let read = self.stream.read(&mut self.buffer[..want])?;
            if read == 0 {
                return Err(truncated());
            }
            sink.content(&self.buffer[..read])?;
            left -= read as u64;
        }
        self.pad(size)
    }

    fn charge(&mut self, path: &str, size: u64) -> Result<(), BundleError> {
        let over = |what: &str, most: u64| {
            Err(refused_member(path, format!("{what} than {most} bytes are allowed")))
        };
        if size > MAX_FILE {
            return over("the file has more", MAX_FILE);
        }
        self.extracted += size;
        if self.extracted > MAX_EXTRACTED {
            return over("the files so far have more", MAX_EXTRACTED);
        }
        if inspectable(path) {
            self.inspected += size;
            if size > MAX_INSPECTABLE_FILE {
                return over("the source or data file has more", MAX_INSPECTABLE_FILE);
            }
            if self.inspected > MAX_INSPECTABLE {
                return over("source and data files so far have more", MAX_INSPECTABLE);
            }
        }
        Ok(())
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, BundleError> {
        self.extensions = self.extensions.saturating_add(size);
        if size > MAX_EXTENSION || self.extensions > MAX_EXTENSIONS {
            return Err(refused(format!(
                "extension headers may have {MAX_EXTENSION} bytes each and {MAX_EXTENSIONS} together"
            )));
        }
        let mut body = vec![0; usize::try_from(size).unwrap_or_default()];
        self.exact(&mut body)?;
        self.pad(size)?;
        Ok(body)
    }

    /// The rest of the last block of a body.
    fn pad(&mut self, size: u64) -> Result<(), BundleError> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or_default();
        let mut rest = [0; BLOCK];
        if over == 0 { Ok(()) } else { self.exact(&mut rest[over..]) }
    }

    fn exact(&mut self, out: &mut [u8]) -> Result<(), BundleError> {
        let mut at = 0;
        while at < out.len() {
            match self.stream.read(&mut out[at..])? {
                0 => return Err(truncated()),
                read => at += read,
            }
        }
        Ok(())
    }

    /// Only zeros follow the end.
    fn zeros(&mut self) -> Result<(), BundleError> {
        loop {
            let read = self.stream.read(&mut self.buffer)?;
            if read == 0 {
                return Ok(());
            }
            if self.buffer[..read].iter().any(|byte| *byte != 0) {
                return Err(refused("bytes follow the end of the tar stream"));
            }
        }
    }
}

fn truncated() -> BundleError {
    refused("the tar stream ends too early")
}
