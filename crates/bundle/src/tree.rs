//! A whole bundle in memory: read once without following links, then judged from these bytes only.

use crate::finding::{BundleError, Finding, Place};
use crate::hash::ContentHasher;
use crate::path::{NATIVE_RECEIPT, component_order, excluded};
use crate::rule::Rule;
use crate::walk::{NodeKind, Root, Visitor, infrastructure, unstable, utf8};
use cacheon_identity::Digest;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a tree may hold (`spec/10-contribution.md` §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files and other non-directory nodes.
    pub members: usize,
    /// Directories.
    pub directories: usize,
    /// Bytes of one file.
    pub file: u64,
    /// Bytes of one file whose text is inspected.
    pub inspectable_file: u64,
    /// Bytes of all files whose text is inspected.
    pub inspectable_total: u64,
    /// Bytes of all files.
    pub total: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            members: 4096,
            directories: 8192,
            file: 16 * MIB,
            inspectable_file: 8 * MIB,
            inspectable_total: 32 * MIB,
            total: 256 * MIB,
        }
    }
}

impl Limits {
    /// Whether the limits for inspected text apply to this path.
    #[must_use]
    pub fn inspectable(path: &str) -> bool {
        matches!(
            crate::path::suffix(path),
            ".py" | ".cu" | ".cuh" | ".patch" | ".diff" | ".toml" | ".json" | ".c" | ".h"
        )
    }
}

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file's bytes.
    File(Arc<[u8]>),
    /// A directory.
    Directory,
    /// A link and its raw target.
    Link(Vec<u8>),
    /// A FIFO, socket or device.
    Special,
}

/// A bundle's nodes in component order. Paths are relative, canonical and UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    nodes: Vec<(String, Node)>,
    root: Option<PathBuf>,
}

/// What a path resolves to when links inside the tree are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved<'a> {
    /// A regular file, at this canonical path.
    File(&'a str, &'a Arc<[u8]>),
    /// A directory, at this canonical path (empty for the root).
    Directory(String),
    /// Nothing, or neither file nor directory.
    Nothing,
    /// The path or a link on it leaves the tree.
    Outside,
}

impl Tree {
    /// Reads a directory twice and refuses it when the two readings differ.
    ///
    /// # Errors
    /// A root that is no directory, a name that is not UTF-8, a limit, a change between the readings; or the machine's
    /// failure to read (an unreadable directory included).
    pub fn read(root: &Path, limits: &Limits) -> Result<Self, BundleError> {
        Self::read_with(root, limits, || {})
    }

    /// As [`Self::read`]; `between` runs between the two readings.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_with(root: &Path, limits: &Limits, between: impl FnOnce()) -> Result<Self, BundleError> {
        let opened = Root::open(root)?;
        let first = Self::once(&opened, limits)?;
        between();
        let mut compare = Compare { root: &opened, expected: &first.nodes, next: 0, buffer: Vec::new() };
        opened.walk(&mut compare)?;
        if compare.next != first.nodes.len() {
            return Err(compare.differs());
        }
        Ok(Self { root: std::fs::canonicalize(root).ok(), ..first })
    }

    fn once(root: &Root, limits: &Limits) -> Result<Self, BundleError> {
        let mut reader =
            Reader { root, limits, nodes: Vec::new(), members: 0, directories: 0, total: 0, inspectable: 0 };
        root.walk(&mut reader)?;
        Ok(Self { nodes: reader.nodes, root: None })
    }

    /// A tree from nodes already in memory (an archive's members, a test's). Missing parent directories are added.
    ///
    /// # Errors
    /// A path that is not canonical, or two nodes at one path.
    pub fn from_nodes(nodes: impl IntoIterator<Item = (String, Node)>) -> Result<Self, BundleError> {
        let mut all: std::collections::BTreeMap<String, Node> = std::collections::BTreeMap::new();
        for (path, node) in nodes {
            let refuse = |problem: &str| Finding::new(Rule::Name, Place::file(path.clone()), problem);
            if !crate::path::canonical(&path) {
                return Err(refuse("the path is not canonical").into());
            }
            let mut parent = crate::path::parent(&path);
            while !parent.is_empty() {
                match all.entry(parent.to_owned()).or_insert(Node::Directory) {
                    Node::Directory => {}
                    _ => return Err(refuse("a parent of the path is not a directory").into()),
                }
                parent = crate::path::parent(parent);
            }
            match (all.get(&path), &node) {
                (None, _) => {
                    all.insert(path, node);
                }
                (Some(Node::Directory), Node::Directory) => {}
                (Some(_), _) => return Err(refuse("two nodes have this path").into()),
            }
        }
        let mut nodes: Vec<_> = all.into_iter().collect();
        nodes.sort_by(|left, right| component_order(&left.0, &right.0));
        Ok(Self { nodes, root: None })
    }

    /// Every node, in component order.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Every regular file, in component order.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Arc<[u8]>)> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::File(bytes) => Some((path.as_str(), bytes)),
            _ => None,
        })
    }

    /// The node at exactly this path.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.find(path).map(|index| &self.nodes[index].1)
    }

    fn find(&self, path: &str) -> Option<usize> {
        self.nodes.binary_search_by(|(other, _)| component_order(other, path)).ok()
    }

    /// The bytes of the regular file at exactly this path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&Arc<[u8]>> {
        match self.node(path) {
            Some(Node::File(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether a directory is at exactly this path (the root counts).
    #[must_use]
    pub fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.node(path), Some(Node::Directory))
    }

    /// Follows a path from the root as the system would, links included, without leaving the tree.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Resolved<'_> {
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut at = String::new();
        let mut links = 0;
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." if at.is_empty() => return Resolved::Outside,
                ".." => {
                    at.truncate(crate::path::parent(&at).len());
                    continue;
                }
                _ => {}
            }
            let next = if at.is_empty() { part } else { format!("{at}/{part}") };
            match self.node(&next) {
                Some(Node::Link(target)) => {
                    links += 1;
                    if links > 40 {
                        return Resolved::Nothing;
                    }
                    let Some(target) = self.link_target(target, &mut at) else { return Resolved::Outside };
                    left.extend(target.split('/').rev().map(str::to_owned));
                }
                // As the deployed resolver does, `..` after a file or a gap is taken by the text.
                _ => at = next,
            }
        }
        match self.find(&at).map(|index| &self.nodes[index]) {
            Some((path, Node::File(bytes))) => Resolved::File(path, bytes),
            Some((_, Node::Directory)) => Resolved::Directory(at),
            None if at.is_empty() => Resolved::Directory(at),
            _ => Resolved::Nothing,
        }
    }

    /// A link's target as a path to walk from `at`, which becomes the root for a target that names the tree's own root.
    fn link_target(&self, target: &[u8], at: &mut String) -> Option<String> {
        let target = std::str::from_utf8(target).ok()?;
        if !target.starts_with('/') {
            return Some(target.to_owned());
        }
        let inside = Path::new(target).strip_prefix(self.root.as_ref()?).ok()?.to_str()?.to_owned();
        at.clear();
        Some(inside)
    }

    /// The content hash of these bytes (`spec/10-contribution.md` §2.1); `None` when no file counts.
    #[must_use]
    pub fn content_hash(&self) -> Option<Digest> {
        self.hash(false)
    }

    /// The content hash without the referee's own receipt at the root; `None` when no file counts.
    #[must_use]
    pub fn committed_content_hash(&self) -> Option<Digest> {
        self.hash(true)
    }

    fn hash(&self, committed: bool) -> Option<Digest> {
        let mut hasher = ContentHasher::new();
        for (path, bytes) in self.files() {
            let receipt = committed && path == NATIVE_RECEIPT;
            if !receipt && !excluded(path) {
                hasher.file(path, bytes.len() as u64);
                hasher.content(bytes);
            }
        }
        hasher.finish()
    }
}

struct Reader<'a> {
    root: &'a Root,
    limits: &'a Limits,
    nodes: Vec<(String, Node)>,
    members: usize,
    directories: usize,
    total: u64,
    inspectable: u64,
}

fn limit(path: &str, problem: String) -> BundleError {
    Finding::new(Rule::Limit, Place::file(path), problem).into()
}

impl Reader<'_> {
    fn member(&mut self, path: &str) -> Result<(), BundleError> {
        self.members += 1;
        if self.members > self.limits.members {
            return Err(limit(path, format!("the bundle holds more than {} files", self.limits.members)));
        }
        Ok(())
    }
}

impl Visitor for Reader<'_> {
    fn enter(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        let path = utf8(path)?;
        self.directories += 1;
        if self.directories > self.limits.directories {
            return Err(limit(
                path,
                format!("the bundle holds more than {} directories", self.limits.directories),
            ));
        }
        self.nodes.push((path.to_owned(), Node::Directory));
        Ok(true)
    }

    fn wants(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        self.member(utf8(path)?)?;
        Ok(true)
    }

    fn file(&mut self, path: &[u8], file: File, size: u64) -> Result<(), BundleError> {
        let text = utf8(path)?;
        if size > self.limits.file {
            return Err(limit(
                text,
                format!("the file has {size} bytes; at most {} are allowed", self.limits.file),
            ));
        }
        self.total += size;
        if self.total > self.limits.total {
            return Err(limit(text, format!("the bundle has more than {} bytes", self.limits.total)));
        }
        if Limits::inspectable(text) && !excluded(text) {
            self.inspectable += size;
            if size > self.limits.inspectable_file {
                let most = self.limits.inspectable_file;
                return Err(limit(
                    text,
                    format!("the file has {size} bytes; source and data may have {most}"),
                ));
            }
            if self.inspectable > self.limits.inspectable_total {
                let most = self.limits.inspectable_total;
                return Err(limit(
                    text,
                    format!("source and data of the bundle have more than {most} bytes"),
                ));
            }
        }
        let bytes = read_exact(self.root, path, file, size, Vec::new())?;
        self.nodes.push((text.to_owned(), Node::File(bytes.into())));
        Ok(())
    }

    fn other(
        &mut self,
        path: &[u8],
        kind: NodeKind,
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(), BundleError> {
        let text = utf8(path)?;
        self.member(text)?;
        let node = special(self.root, path, kind, parent, name)?;
        self.nodes.push((text.to_owned(), node));
        Ok(())
    }
}

fn special(
    root: &Root,
    path: &[u8],
    kind: NodeKind,
    parent: &OwnedFd,
    name: &[u8],
) -> Result<Node, BundleError> {
    match kind {
        NodeKind::Special => Ok(Node::Special),
        NodeKind::Link => rustix::fs::readlinkat(parent, name, Vec::new())
            .map(|target| Node::Link(target.into_bytes()))
            .map_err(|error| infrastructure("read the link", &root.full(path), error)),
    }
}

fn read_exact(
    root: &Root,
    path: &[u8],
    file: File,
    size: u64,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, BundleError> {
    buffer.clear();
    buffer.reserve(usize::try_from(size).unwrap_or_default() + 1);
    // One byte more than stated shows a file that grew.
    if let Err(error) = file.take(size + 1).read_to_end(&mut buffer) {
        let code = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        return Err(infrastructure("read", &root.full(path), code));
    }
    if buffer.len() as u64 != size {
        return Err(unstable(path));
    }
    Ok(buffer)
}

/// Walks the tree again and compares every node with what was read.
struct Compare<'a> {
    root: &'a Root,
    expected: &'a [(String, Node)],
    next: usize,
    buffer: Vec<u8>,
}

impl Compare<'_> {
    fn expect(&mut self, path: &[u8]) -> Result<&Node, BundleError> {
        match self.expected.get(self.next) {
            Some((expected, node)) if expected.as_bytes() == path => {
                self.next += 1;
                Ok(node)
            }
            _ => Err(unstable(path)),
        }
    }

    fn differs(&self) -> BundleError {
        unstable(self.expected.get(self.next).map_or(b"", |(path, _)| path.as_bytes()))
    }
}

impl Visitor for Compare<'_> {
    fn enter(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        match self.expect(path)? {
            Node::Directory => Ok(true),
            _ => Err(unstable(path)),
        }
    }

    fn wants(&mut self, _: &[u8]) -> Result<bool, BundleError> {
        Ok(true)
    }

    fn file(&mut self, path: &[u8], file: File, size: u64) -> Result<(), BundleError> {
        let Node::File(expected) = self.expect(path)? else { return Err(unstable(path)) };
        if expected.len() as u64 != size {
            return Err(unstable(path));
        }
        let expected = Arc::clone(expected);
        let buffer = read_exact(self.root, path, file, size, std::mem::take(&mut self.buffer))?;
        let same = buffer[..] == expected[..];
        self.buffer = buffer;
        if same { Ok(()) } else { Err(unstable(path)) }
    }

    fn other(
        &mut self,
        path: &[u8],
        kind: NodeKind,
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(), BundleError> {
        let found = special(self.root, path, kind, parent, name)?;
        if *self.expect(path)? == found { Ok(()) } else { Err(unstable(path)) }
    }
}
