//! The packager: the content-hash file set as a deterministic archive, checked before it is written and read back after.

use super::header::{split, write};
use super::{
    BLOCK, MAX_COMPRESSED, MAX_EXTENSIONS, MAX_EXTRACTED, MAX_FILE, MAX_HEADERS, MAX_INSPECTABLE,
    MAX_INSPECTABLE_FILE, MAX_MEMBERS, name, pax, preflight, refused, refused_member,
};
use crate::finding::{BundleError, Finding, Place};
use crate::hash::ContentHasher;
use crate::path::{ignored_component, ignored_file_name};
use crate::rule::Rule;
use crate::tree::Limits;
use crate::walk::{NodeKind, Root, Visitor, infrastructure, unstable, utf8};
use cacheon_identity::Digest;
use flate2::{Compression, GzBuilder, write::GzEncoder};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// An archive that was written and read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packaged {
    /// Where it lies.
    pub archive: PathBuf,
    /// Its bytes.
    pub size: u64,
    /// The bundle's content hash, computed from the archive.
    pub content_hash: Digest,
    /// Member names, in order.
    pub members: Vec<String>,
}

/// Writes the bundle at `root` as a gzip tar to `out` (by default `<directory name>.tar.gz` in the working directory).
/// An existing file there is replaced, once the new archive is whole and reads back to the same content hash.
///
/// # Errors
/// A bundle that intake would refuse, or that changes meanwhile; or the machine's failure to read or write.
pub fn package(root: &Path, out: Option<&Path>) -> Result<Packaged, BundleError> {
    let wrapper = directory_name(root)?;
    let out = out.map_or_else(|| PathBuf::from(format!("{wrapper}.tar.gz")), Path::to_owned);
    outside(root, &out)?;
    let opened = Root::open(root)?;
    let mut plan =
        Plan { wrapper: &wrapper, files: Vec::new(), total: 0, inspectable: 0, headers: 0, extensions: 0 };
    opened.walk(&mut plan)?;
    if plan.files.is_empty() {
        return Err(
            Finding::new(Rule::Empty, Place::bundle(), "no file counts towards the content hash").into()
        );
    }
    let partial = Partial::create(&out)?;
    let (content_hash, size) = partial.fill(&opened, &plan)?;
    let read_back = partial.open()?;
    let inventory = preflight(read_back)?;
    if inventory.content_hash != Some(content_hash) || crate::hash::content_hash(root)? != content_hash {
        return Err(Finding::new(
            Rule::Unstable,
            Place::bundle(),
            "the bundle changed while it was packaged",
        )
        .into());
    }
    partial.publish(&out)?;
    let members = plan.files.into_iter().map(|(path, _)| format!("{wrapper}/{path}")).collect();
    Ok(Packaged { archive: out, size, content_hash, members })
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> BundleError {
    BundleError::Infrastructure { doing, path: path.to_owned(), source }
}

fn directory_name(root: &Path) -> Result<String, BundleError> {
    let named = match root.file_name() {
        Some(name) => Some(name.to_owned()),
        None => std::fs::canonicalize(root)
            .map_err(|error| failed("find", root, error))?
            .file_name()
            .map(ToOwned::to_owned),
    };
    let name = named.and_then(|name| name.into_string().ok());
    name.ok_or_else(|| refused("the bundle's directory has no name of UTF-8 text: rename it"))
}

/// An archive inside the bundle would change what the next reader hashes.
fn outside(root: &Path, out: &Path) -> Result<(), BundleError> {
    let parent = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent = std::fs::canonicalize(parent).map_err(|error| failed("find", parent, error))?;
    match std::fs::canonicalize(root) {
        Ok(root) if parent.starts_with(&root) => {
            Err(refused(format!("{} lies inside the bundle: write the archive elsewhere", out.display())))
        }
        // A root that is no directory is reported where it is opened.
        _ => Ok(()),
    }
}

/// What will be written, judged by intake's limits before a byte is.
struct Plan<'a> {
    wrapper: &'a str,
    files: Vec<(String, u64)>,
    total: u64,
    inspectable: u64,
    headers: usize,
    extensions: u64,
}

fn last(path: &[u8]) -> String {
    String::from_utf8_lossy(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)).into_owned()
}

impl Visitor for Plan<'_> {
    fn enter(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        Ok(!ignored_component(&last(path)))
    }

    fn wants(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        Ok(!ignored_file_name(&last(path)))
    }

    fn file(&mut self, path: &[u8], _: File, size: u64) -> Result<(), BundleError> {
        let path = utf8(path)?;
        let member = format!("{}/{path}", self.wrapper);
        name::checked(member.as_bytes())?;
        let over = |what: &str, most: u64| {
            Err(refused_member(path, format!("{what}: intake accepts at most {most} bytes")))
        };
        self.total += size;
        if size > MAX_FILE {
            return over("the file is too large", MAX_FILE);
        }
        if self.total > MAX_EXTRACTED {
            return over("the bundle is too large", MAX_EXTRACTED);
        }
        if Limits::inspectable(path) {
            self.inspectable += size;
            if size > MAX_INSPECTABLE_FILE {
                return over("the source or data file is too large", MAX_INSPECTABLE_FILE);
            }
            if self.inspectable > MAX_INSPECTABLE {
                return over("source and data files are too large", MAX_INSPECTABLE);
            }
        }
        self.headers += 1;
        if split(&member).is_none() {
            self.headers += 1;
            self.extensions += pax::record("path", &member).len() as u64;
        }
        if self.files.len() == MAX_MEMBERS || self.headers > MAX_HEADERS {
            return Err(refused(format!("the bundle has more than {MAX_MEMBERS} files")));
        }
        if self.extensions > MAX_EXTENSIONS {
            return Err(refused(
                "long or non-ASCII paths take more than the archive format may spend on them",
            ));
        }
        self.files.push((path.to_owned(), size));
        Ok(())
    }

    fn other(&mut self, _: &[u8], _: NodeKind, _: &OwnedFd, _: &[u8]) -> Result<(), BundleError> {
        Ok(())
    }
}

/// The archive under a temporary name beside its destination; removed unless published.
struct Partial {
    path: PathBuf,
    published: std::cell::Cell<bool>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.published.get() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Partial {
    fn create(out: &Path) -> Result<Self, BundleError> {
        let Some(name) = out.file_name() else {
            return Err(refused(format!("{} names no file", out.display())));
        };
        let mut name = name.to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let path = out.with_file_name(name);
        File::create_new(&path).map_err(|error| failed("create", &path, error))?;
        Ok(Self { path, published: std::cell::Cell::new(false) })
    }

    fn open(&self) -> Result<File, BundleError> {
        File::open(&self.path).map_err(|error| failed("read back", &self.path, error))
    }

    fn fill(&self, root: &Root, plan: &Plan<'_>) -> Result<(Digest, u64), BundleError> {
        let file = File::options()
            .write(true)
            .open(&self.path)
            .map_err(|error| failed("write", &self.path, error))?;
        let counted = Counted { file, written: 0 };
        // No name, no time, no system: the same files give the same bytes.
        let gzip = GzBuilder::new().mtime(0).operating_system(255).write(counted, Compression::new(6));
        let mut writer = Writer {
            root,
            plan,
            next: 0,
            gzip,
            path: &self.path,
            hash: ContentHasher::new(),
            buffer: vec![0; 64 * 1024],
        };
        root.walk(&mut writer)?;
        if writer.next != plan.files.len() {
            return Err(unstable(plan.files[writer.next].0.as_bytes()));
        }
        writer.put(&[0; 2 * BLOCK])?;
        let Writer { gzip, hash, .. } = writer;
        let counted = gzip.finish().map_err(|error| self.write_failed(error))?;
        counted.file.sync_all().map_err(|error| failed("write", &self.path, error))?;
        let hash = hash.finish().ok_or_else(|| refused("the archive holds no file"))?;
        Ok((hash, counted.written))
    }

    fn write_failed(&self, error: io::Error) -> BundleError {
        write_failed(&self.path, error)
    }

    fn publish(&self, out: &Path) -> Result<(), BundleError> {
        std::fs::rename(&self.path, out).map_err(|error| failed("rename", out, error))?;
        self.published.set(true);
        Ok(())
    }
}

fn write_failed(path: &Path, error: io::Error) -> BundleError {
    if error.kind() == io::ErrorKind::FileTooLarge
        && error.get_ref().is_some_and(|inner| inner.is::<TooLarge>())
    {
        return refused(format!(
            "the archive would have more than {MAX_COMPRESSED} bytes: make the bundle smaller"
        ));
    }
    failed("write", path, error)
}

#[derive(Debug, thiserror::Error)]
#[error("the archive is too large")]
struct TooLarge;

/// Counts compressed bytes and stops before one too many is written.
struct Counted {
    file: File,
    written: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written + bytes.len() as u64 > MAX_COMPRESSED {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, TooLarge));
        }
        let wrote = self.file.write(bytes)?;
        self.written += wrote as u64;
        Ok(wrote)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

struct Writer<'a> {
    root: &'a Root,
    plan: &'a Plan<'a>,
    next: usize,
    gzip: GzEncoder<Counted>,
    path: &'a Path,
    hash: ContentHasher,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.gzip.write_all(bytes).map_err(|error| write_failed(self.path, error))
    }

    fn header(&mut self, path: &str, size: u64) -> Result<(), BundleError> {
        let member = format!("{}/{path}", self.plan.wrapper);
        if let Some((prefix, name)) = split(&member) {
            return self.put(&write(prefix, name, size, false));
        }
        let record = pax::record("path", &member);
        self.put(&write("", "././@PaxHeader", record.len() as u64, true))?;
        self.put(&record)?;
        self.pad(record.len() as u64)?;
        // Readers of the old format see a name that fits; the record above replaces it.
        let plain: String = member.chars().map(|c| if c.is_ascii() { c } else { '?' }).take(100).collect();
        self.put(&write("", plain.trim_end_matches('/'), size, false))
    }

    fn pad(&mut self, size: u64) -> Result<(), BundleError> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or_default();
        if over == 0 { Ok(()) } else { self.put(&[0; BLOCK][over..]) }
    }
}

impl Visitor for Writer<'_> {
    fn enter(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        Ok(!ignored_component(&last(path)))
    }

    fn wants(&mut self, path: &[u8]) -> Result<bool, BundleError> {
        Ok(!ignored_file_name(&last(path)))
    }

    fn file(&mut self, path: &[u8], mut file: File, size: u64) -> Result<(), BundleError> {
        let text = utf8(path)?;
        match self.plan.files.get(self.next) {
            Some((planned, bytes)) if planned == text && *bytes == size => self.next += 1,
            _ => return Err(unstable(path)),
        }
        self.header(text, size)?;
        self.hash.file(text, size);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut left = size;
        loop {
            let read = match file.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let code = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Err(infrastructure("read", &self.root.full(path), code));
                }
            };
            if read as u64 > left || (read == 0 && left > 0) {
                return Err(unstable(path));
            }
            if read == 0 {
                break;
            }
            left -= read as u64;
            self.hash.content(&buffer[..read]);
            self.put(&buffer[..read])?;
        }
        self.buffer = buffer;
        self.pad(size)
    }

    fn other(&mut self, _: &[u8], _: NodeKind, _: &OwnedFd, _: &[u8]) -> Result<(), BundleError> {
        Ok(())
    }
}
