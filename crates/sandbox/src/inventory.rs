//! The closed list of files that a container's root is made of. Its digest is the image identity.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, Hasher};

use crate::elf::dependencies;
use crate::error::SandboxError;

/// Digest domain of a root inventory.
pub const INVENTORY_DOMAIN: Domain =
    Domain::with_members("cacheon.sandbox.root-inventory.v1", &["files", "schema"]);

/// Largest file of a root, bytes.
const FILE_MAX: u64 = 1 << 30;
/// Most files of a root.
const FILES_MAX: usize = 8192;

/// One file of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFile {
    /// Absolute path in the container.
    pub path: String,
    /// SHA-256 of its content.
    pub sha256: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Whether the container may execute it. All files are read-only.
    pub executable: bool,
    pub(crate) source: PathBuf,
    pub(crate) stamp: FileStamp,
}

/// What must not have changed between hashing a host file and binding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct FileStamp {
    dev: u64,
    ino: u64,
    size: u64,
    ctime: i64,
    ctime_nsec: i64,
}

impl FileStamp {
    pub(crate) fn of(meta: &std::fs::Metadata) -> Self {
        FileStamp {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            ctime: meta.ctime(),
            ctime_nsec: meta.ctime_nsec(),
        }
    }
}

impl Canonical for RootFile {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("executable", &self.executable)
                .field("path", self.path.as_str())
                .field("sha256", &self.sha256)
                .field("size", &self.size);
        });
    }
}

/// A root: files by container path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootInventory {
    files: BTreeMap<String, RootFile>,
}

struct Payload<'a>(Vec<&'a RootFile>);

impl Canonical for Payload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("files", self.0.as_slice()).field("schema", "cacheon.sandbox.root-inventory.v1");
        });
    }
}

impl RootInventory {
    /// An empty root.
    pub fn new() -> Self {
        Self::default()
    }

    /// Files in path order.
    pub fn files(&self) -> impl Iterator<Item = &RootFile> {
        self.files.values()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Sum of the sizes in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.size).sum()
    }

    /// The file at a container path.
    pub fn get(&self, path: &str) -> Option<&RootFile> {
        self.files.get(path)
    }

    /// The image identity: canonical digest over `[{executable, path, sha256, size}]` in path order.
    pub fn digest(&self) -> Digest {
        INVENTORY_DOMAIN.digest(&Payload(self.files.values().collect()))
    }

    /// Adds a host file at a container path; symbolic links on the host are followed, the content is hashed. Adding the
    /// same content at the same path again changes nothing.
    pub fn add(&mut self, path: &str, source: &Path, executable: bool) -> Result<(), SandboxError> {
        check_path(path)?;
        let (file, stamp) = open_stamped(source)?;
        if let Some(known) = self.files.get(path)
            && known.stamp == stamp
        {
            return Ok(());
        }
        if self.files.len() >= FILES_MAX {
            return Err(SandboxError::Spec(format!("more than {FILES_MAX} files in a root")));
        }
        let sha256 = hash(file, source, stamp.size)?;
        let entry = RootFile {
            path: path.to_owned(),
            sha256,
            size: stamp.size,
            executable,
            source: source.into(),
            stamp,
        };
        match self.files.get(path) {
            Some(known) if known.sha256 != sha256 => {
                Err(SandboxError::Spec(format!("two different files for {path}")))
            }
            _ => {
                self.files.insert(path.to_owned(), entry);
                Ok(())
            }
        }
    }

    /// Adds a program at a container path together with its interpreter and every shared library it needs, each at the
    /// place where the loader's default search finds it.
    pub fn add_program(&mut self, path: &str, source: &Path) -> Result<(), SandboxError> {
        self.add(path, source, true)?;
        self.add_libraries(source)
    }

    /// Adds a shared library by name, from where the loader's default search finds it, with what it needs.
    pub fn add_library(&mut self, name: &str) -> Result<(), SandboxError> {
        let found = find_library(name).ok_or_else(|| SandboxError::LibraryNotFound {
            program: PathBuf::from("a kernel"),
            library: name.to_owned(),
        })?;
        self.add(&found.to_string_lossy(), &found, true)?;
        self.add_libraries(&found)
    }

    /// Adds the interpreter and shared libraries that a program or library needs, transitively.
    pub fn add_libraries(&mut self, source: &Path) -> Result<(), SandboxError> {
        let mut todo = vec![source.to_path_buf()];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(program) = todo.pop() {
            let bytes = std::fs::read(&program).map_err(|e| SandboxError::file("reading", &program, e))?;
            let Some(needs) = dependencies(&bytes) else { continue };
            if let Some(interpreter) = needs.interpreter {
                self.add(&interpreter, Path::new(&interpreter), true)?;
            }
            for library in needs.libraries {
                if library.starts_with("ld-linux") || !seen.insert(library.clone()) {
                    continue;
                }
                let found = find_library(&library).ok_or_else(|| SandboxError::LibraryNotFound {
                    program: program.clone(),
                    library: library.clone(),
                })?;
                self.add(&found.to_string_lossy(), &found, true)?;
                todo.push(found);
            }
        }
        Ok(())
    }
}

/// Where a loader without a cache looks, in its order.
const LIBRARY_FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

pub(crate) fn find_library(name: &str) -> Option<PathBuf> {
    LIBRARY_FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Container paths are absolute, normal, printable and short.
pub(crate) fn check_path(path: &str) -> Result<(), SandboxError> {
    let normal = path.len() > 1
        && path.len() <= 1024
        && path.starts_with('/')
        && path[1..].split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && path.bytes().all(|b| b.is_ascii_graphic());
    if normal { Ok(()) } else { Err(SandboxError::Spec(format!("`{path}` is not a plain absolute path"))) }
}

pub(crate) fn open_stamped(source: &Path) -> Result<(File, FileStamp), SandboxError> {
    let file = File::open(source).map_err(|e| SandboxError::file("opening", source, e))?;
    let meta = file.metadata().map_err(|e| SandboxError::file("reading", source, e))?;
    if !meta.is_file() {
        return Err(SandboxError::Spec(format!("{} is not a regular file", source.display())));
    }
    if meta.mode() & 0o004 == 0 {
        return Err(SandboxError::NotReadable { path: source.into(), mode: meta.mode() & 0o7777 });
    }
    Ok((file, FileStamp::of(&meta)))
}

fn hash(file: File, source: &Path, size: u64) -> Result<Digest, SandboxError> {
    if size > FILE_MAX {
        return Err(SandboxError::Spec(format!("{} is larger than 1 GiB", source.display())));
    }
    let mut hasher = Hasher::new();
    let copied = std::io::copy(&mut file.take(FILE_MAX + 1), &mut hasher)
        .map_err(|e| SandboxError::file("hashing", source, e))?;
    if copied != size {
        return Err(SandboxError::Changed { path: source.into() });
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_names_content_and_paths_only() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
        std::fs::write(&a, "same").unwrap();
        std::fs::write(&b, "same").unwrap();
        let of = |path: &str, source: &Path| {
            let mut root = RootInventory::new();
            root.add(path, source, false).unwrap();
            root.digest()
        };
        assert_eq!(of("/x", &a), of("/x", &b));
        assert_ne!(of("/x", &a), of("/y", &a));
        std::fs::write(&b, "diff").unwrap();
        assert_ne!(of("/x", &a), of("/x", &b));
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let mut root = RootInventory::new();
        root.add_program("/bin/true", Path::new("/bin/true")).unwrap();
        assert!(root.files().any(|file| file.path.contains("libc.so.6")));
        assert!(root.files().any(|file| file.path.contains("ld-linux")));
        assert!(root.len() < 10, "{root:?}");
    }

    #[test]
    fn odd_paths_and_unreadable_files_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let mut root = RootInventory::new();
        for path in ["", "/", "x", "/a/../b", "/a//b", "/a/./b", "/a b"] {
            assert!(matches!(root.add(path, &file, false), Err(SandboxError::Spec(_))), "{path}");
        }
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert!(matches!(root.add("/x", &file, false), Err(SandboxError::NotReadable { mode: 0o600, .. })));
        assert!(matches!(root.add("/x", scratch.path(), false), Err(SandboxError::Spec(_))));
    }
}
