//! The prebuild container: hostile sources in, one shared object out, nothing else in between.
//!
//! Sources and headers are bound read-only, the output folder and the temporary folder are bounded tmpfs, there is no
//! network, and the compiler is the inventoried one. What comes out is bytes: they are read by [`crate::elf::inspect`]
//! before anything loads them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::container::{ExitStatus, TeardownProof};
use crate::error::SandboxError;
use crate::host::Sandbox;
use crate::inventory::check_path;
use crate::spec::{Bind, BindSource, ContainerSpec, CpuSet, Limits, Scratch, User};
use crate::toolchain::Toolchain;

const SOURCE: &str = "/src";
const HEADERS: &str = "/include";
const OUTPUT: &str = "/out";
const OBJECT: &str = "kernel.so";
/// The user that compiles.
const BUILDER: u32 = 1000;

/// Bounds of one build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildLimits {
    /// Wall time.
    pub deadline: Duration,
    /// Memory, bytes; temporary files count.
    pub memory_bytes: u64,
    /// Size of the shared object, bytes.
    pub object_bytes: u64,
    /// Size of temporary files together, bytes.
    pub temporary_bytes: u64,
    /// Diagnostics kept, bytes.
    pub diagnostics_bytes: u64,
}

impl Default for BuildLimits {
    fn default() -> Self {
        BuildLimits {
            deadline: Duration::from_secs(60),
            memory_bytes: 1 << 30,
            object_bytes: 16 << 20,
            temporary_bytes: 128 << 20,
            diagnostics_bytes: 64 << 10,
        }
    }
}

/// One build.
#[derive(Debug, Clone)]
pub struct BuildRequest<'a> {
    /// Label of the container.
    pub label: &'a str,
    /// The bundle's files by relative path.
    pub files: &'a BTreeMap<String, Vec<u8>>,
    /// Files that the build provides on the include path, by name.
    pub headers: &'a BTreeMap<String, Vec<u8>>,
    /// Flags before the sources.
    pub flags: &'a [&'a str],
    /// Sources to compile, by relative path, in order.
    pub sources: &'a [&'a str],
    /// Flags after the sources (libraries).
    pub libraries: &'a [&'a str],
    /// Bounds.
    pub limits: BuildLimits,
    /// CPUs; `None` leaves the whole machine.
    pub cpuset: Option<CpuSet>,
}

/// Why there is no object. Each of these is a fact about the sources.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildRefusal {
    /// The compiler refused.
    #[error("the compiler refused the sources ({status:?})")]
    Compiler {
        /// How it ended.
        status: ExitStatus,
    },
    /// The build took too long.
    #[error("the build took longer than {} s", .0.as_secs())]
    Deadline(Duration),
    /// The build needed too much memory.
    #[error("the build needed more than {0} bytes of memory")]
    Memory(u64),
    /// The object is missing, too large or not a regular file.
    #[error("the build left no acceptable object: {0}")]
    Object(String),
}

/// What a build came to.
#[derive(Debug, Clone)]
pub struct BuildReport {
    /// The shared object, or why there is none.
    pub object: Result<Vec<u8>, BuildRefusal>,
    /// The compiler's diagnostics, bounded, unprintable characters replaced. For people, never evidence.
    pub diagnostics: String,
    /// The arguments the compiler was run with, for the build's identity.
    pub arguments: Vec<String>,
    /// Wall time.
    pub wall: Duration,
    /// Proof that nothing of the build is left.
    pub teardown: TeardownProof,
}

impl Sandbox {
    /// Compiles sources in a container of their own. An `Err` is never the sources' fault.
    pub fn build(
        &self,
        toolchain: &Toolchain,
        request: &BuildRequest<'_>,
    ) -> Result<BuildReport, SandboxError> {
        let stage = Stage::make(&self.stages(), request)?;
        let mut argv = vec![format!("{{root}}{}", toolchain.driver)];
        argv.extend(request.flags.iter().map(|flag| (*flag).to_owned()));
        let include = [HEADERS, SOURCE].map(|folder| ["-I".to_owned(), format!("{{root}}{folder}")]);
        argv.extend(include.into_iter().flatten());
        argv.extend(request.sources.iter().map(|source| format!("./{source}")));
        argv.extend(["-o".to_owned(), format!("{{root}}{OUTPUT}/{OBJECT}")]);
        argv.extend(request.libraries.iter().map(|library| (*library).to_owned()));
        let bind = |folder: &Path, target: &str| Bind {
            source: BindSource::Path(folder.to_path_buf()),
            target: target.to_owned(),
            executable: false,
        };
        let limits = request.limits;
        let spec = ContainerSpec {
            label: request.label.to_owned(),
            root: toolchain.root.clone(),
            binds: vec![bind(&stage.files, SOURCE), bind(&stage.headers, HEADERS)],
            scratch: vec![Scratch { target: "/tmp".into(), bytes: limits.temporary_bytes, inodes: 256 }],
            output: Some(Scratch { target: OUTPUT.into(), bytes: limits.object_bytes, inodes: 8 }),
            limits: Limits {
                memory_bytes: limits.memory_bytes,
                pids: 16,
                nofile: 1024,
                output_bytes: limits.diagnostics_bytes,
            },
            cpuset: request.cpuset.clone(),
            argv,
            // The same everywhere: no locale, no date.
            env: [("LC_ALL", "C"), ("SOURCE_DATE_EPOCH", "0"), ("TMPDIR", "/tmp")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .to_vec(),
            cwd: SOURCE.into(),
            user: User::Plain(BUILDER),
            socket: false,
        };
        let begun = Instant::now();
        let mut container = self.start(&spec)?;
        let status = container.wait(limits.deadline);
        let wall = begun.elapsed();
        let killed_for_memory = container.oom_kills().unwrap_or(0) > 0;
        let object = match status {
            Err(SandboxError::Deadline { .. }) => Err(BuildRefusal::Deadline(limits.deadline)),
            Err(other) => return Err(other),
            Ok(_) if killed_for_memory => Err(BuildRefusal::Memory(limits.memory_bytes)),
            Ok(ExitStatus::Code(0)) => container
                .read_output(OBJECT, limits.object_bytes)
                .map_err(|e| BuildRefusal::Object(e.to_string())),
            Ok(status) => Err(BuildRefusal::Compiler { status }),
        };
        let (said, teardown) = container.finish()?;
        Ok(BuildReport { object, diagnostics: said.text(), arguments: spec.argv, wall, teardown })
    }
}

/// A folder that holds one build's inputs, removed when it goes out of scope or by the next sweep.
struct Stage {
    dir: PathBuf,
    files: PathBuf,
    headers: PathBuf,
}

impl Stage {
    fn make(folder: &Path, request: &BuildRequest<'_>) -> Result<Stage, SandboxError> {
        let dir = folder.join(crate::host::fresh_id()?);
        let stage = Stage { files: dir.join("src"), headers: dir.join("include"), dir };
        for (folder, files) in [(&stage.files, request.files), (&stage.headers, request.headers)] {
            make_folder(folder)?;
            for (name, bytes) in files {
                write_input(folder, name, bytes)?;
            }
        }
        if let Some(odd) = request.sources.iter().find(|source| !request.files.contains_key(**source)) {
            return Err(SandboxError::Spec(format!("{odd} is not among the files")));
        }
        Ok(stage)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn make_folder(folder: &Path) -> Result<(), SandboxError> {
    fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(0o755)))
        .map_err(|e| SandboxError::file("making", folder, e))
}

fn write_input(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), SandboxError> {
    check_path(&format!("/{name}"))?;
    let path = folder.join(name);
    let mut parent = folder.to_path_buf();
    for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        make_folder(&parent)?;
    }
    fs::write(&path, bytes)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o444)))
        .map_err(|e| SandboxError::file("writing", path, e))
}
