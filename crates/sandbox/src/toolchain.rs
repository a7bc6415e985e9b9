//! The compiler of the prebuild container: which one it is, and the closed list of host files it consists of.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain};

use crate::error::SandboxError;
use crate::inventory::{RootInventory, find_library};

/// Digest domain of a compiler's identity.
pub const TOOLCHAIN_DOMAIN: Domain =
    Domain::with_members("cacheon.sandbox.c-toolchain.v1", &["driver", "root", "schema", "version"]);

/// Headers of the compiler and the C library that sources may include, with whatever these include themselves. Where one
/// does not exist on a machine it is left out. Declaring a function is not being allowed to call it.
const HEADERS: &[&str] = &[
    "alloca.h",
    "arpa/inet.h",
    "arm_neon.h",
    "assert.h",
    "complex.h",
    "cpuid.h",
    "ctype.h",
    "dlfcn.h",
    "errno.h",
    "fcntl.h",
    "fenv.h",
    "float.h",
    "immintrin.h",
    "inttypes.h",
    "iso646.h",
    "limits.h",
    "linux/seccomp.h",
    "linux/filter.h",
    "linux/userfaultfd.h",
    "locale.h",
    "malloc.h",
    "math.h",
    "memory.h",
    "netinet/in.h",
    "poll.h",
    "pthread.h",
    "sched.h",
    "semaphore.h",
    "setjmp.h",
    "signal.h",
    "stdalign.h",
    "stdarg.h",
    "stdatomic.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "stdnoreturn.h",
    "string.h",
    "strings.h",
    "sys/file.h",
    "sys/ioctl.h",
    "sys/mman.h",
    "sys/prctl.h",
    "sys/ptrace.h",
    "sys/resource.h",
    "sys/socket.h",
    "sys/stat.h",
    "sys/syscall.h",
    "sys/time.h",
    "sys/types.h",
    "sys/uio.h",
    "sys/un.h",
    "sys/wait.h",
    "tgmath.h",
    "threads.h",
    "time.h",
    "uchar.h",
    "ucontext.h",
    "unistd.h",
    "wchar.h",
    "x86intrin.h",
];

/// Programs the driver runs.
const PROGRAMS: &[&str] = &["cc1", "collect2", "as", "ld"];
/// Files the driver hands to the linker or that linker scripts name; not every machine has all of them.
const LIBRARIES: &[&str] =
    &["libgcc.a", "libgcc_s.so", "libgcc_s.so.1", "libc.so", "libc_nonshared.a", "libm.so"];
/// Without these nothing can be linked.
const NEEDED: &[&str] = &["libgcc.a", "libc.so", "libm.so"];

/// A compiler that can be put into a container.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// Absolute path of the driver, in the container and on the host.
    pub driver: String,
    /// First line of its version text.
    pub version: String,
    /// Everything it consists of.
    pub root: RootInventory,
}

impl Canonical for Toolchain {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("driver", self.driver.as_str())
                .field("root", &self.root.digest())
                .field("schema", "cacheon.sandbox.c-toolchain.v1")
                .field("version", self.version.as_str());
        });
    }
}

impl Toolchain {
    /// The compiler's identity: driver path, version text and the digest of every file it consists of.
    pub fn digest(&self) -> Digest {
        TOOLCHAIN_DOMAIN.digest(self)
    }

    /// Finds GCC through `$CC`, else `gcc`, else `cc` on the search path, and inventories it.
    pub fn discover() -> Result<Toolchain, SandboxError> {
        let wanted = std::env::var("CC").ok().filter(|name| !name.trim().is_empty());
        let names = wanted.as_deref().map_or_else(|| vec!["gcc", "cc"], |name| vec![name]);
        let found = names.iter().find_map(|name| on_path(name));
        let found = found.ok_or_else(|| {
            fail(format!("none of {names:?} is on the search path; install gcc, or set CC"))
        })?;
        Self::of(&found)
    }

    /// Inventories the GCC whose driver is at `driver`.
    pub fn of(driver: &Path) -> Result<Toolchain, SandboxError> {
        let driver = fs::canonicalize(driver).map_err(|e| SandboxError::file("finding", driver, e))?;
        let text = run(&driver, &["--version"], "")?;
        let version = text.lines().next().unwrap_or_default().trim().to_owned();
        if !text.contains("Free Software Foundation")
            || run(&driver, &["-print-prog-name=cc1"], "")?.trim() == "cc1"
        {
            return Err(fail(format!("{} is not GCC ({version}); set CC to a gcc", driver.display())));
        }
        let mut root = RootInventory::new();
        add_program(&mut root, &driver)?;
        for name in PROGRAMS {
            let said = run(&driver, &[&format!("-print-prog-name={name}")], "")?;
            let said = said.trim();
            let path = if said.contains('/') { Some(PathBuf::from(said)) } else { on_path(said) };
            let path = path.ok_or_else(|| fail(format!("{} has no {name}", driver.display())))?;
            add_program(&mut root, &plain(&path)?)?;
        }
        for name in ["liblto_plugin.so", "lto-wrapper"] {
            if let Some(path) = file_of(&driver, name)? {
                add_program(&mut root, &path)?;
            }
        }
        add_link_inputs(&mut root, &driver)?;
        for header in headers(&driver)? {
            root.add(&header.to_string_lossy(), &header, false)?;
        }
        Ok(Toolchain { driver: driver.to_string_lossy().into_owned(), version, root })
    }
}

fn fail(detail: String) -> SandboxError {
    SandboxError::Toolchain(detail)
}

fn on_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| PathBuf::from(name));
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn run(driver: &Path, args: &[&str], input: &str) -> Result<String, SandboxError> {
    let run = || {
        let mut child = Command::new(driver)
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            std::io::Write::write_all(&mut stdin, input.as_bytes())?;
        }
        child.wait_with_output()
    };
    let output = run().map_err(|e| SandboxError::file("running", driver, e))?;
    if !output.status.success() {
        let said: String = String::from_utf8_lossy(&output.stderr).chars().take(400).collect();
        return Err(fail(format!("{} {}: {}", driver.display(), args.join(" "), said.trim())));
    }
    String::from_utf8(output.stdout).map_err(|_| fail(format!("{} speaks no UTF-8", driver.display())))
}

/// A path without `.` and `..`, its last component not resolved: names matter to a compiler.
fn plain(path: &Path) -> Result<PathBuf, SandboxError> {
    let path = if path.components().any(|c| matches!(c, Component::ParentDir | Component::CurDir)) {
        let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        fs::canonicalize(folder).map_err(|e| SandboxError::file("finding", folder, e))?.join(name)
    } else {
        path.to_path_buf()
    };
    if path.is_absolute() { Ok(path) } else { Err(fail(format!("{} is not absolute", path.display()))) }
}

fn add_program(root: &mut RootInventory, path: &Path) -> Result<(), SandboxError> {
    root.add_program(&path.to_string_lossy(), path)
}

/// Where the driver finds a file of its own or of the C library.
fn file_of(driver: &Path, name: &str) -> Result<Option<PathBuf>, SandboxError> {
    let said = run(driver, &[&format!("-print-file-name={name}")], "")?;
    let path = Path::new(said.trim());
    if path.is_absolute() && path.is_file() { plain(path).map(Some) } else { Ok(None) }
}

fn add_link_inputs(root: &mut RootInventory, driver: &Path) -> Result<(), SandboxError> {
    for name in LIBRARIES {
        let Some(path) = file_of(driver, name)? else {
            if NEEDED.contains(name) {
                return Err(fail(format!("{name} is missing; install the C library's development files")));
            }
            continue;
        };
        root.add(&path.to_string_lossy(), &path, false)?;
        let text = fs::read(&path).map_err(|e| SandboxError::file("reading", &path, e))?;
        if text.starts_with(b"/* GNU ld script")
            || (text.len() < 4096 && text.windows(5).any(|w| w == b"GROUP"))
        {
            add_script_inputs(root, &String::from_utf8_lossy(&text))?;
        }
    }
    Ok(())
}

/// Files that a linker script names: by absolute path, or by a bare name that the loader's folders hold.
fn add_script_inputs(root: &mut RootInventory, script: &str) -> Result<(), SandboxError> {
    let mut rest = script;
    while let Some(start) = rest.find("/*") {
        let Some(end) = rest[start..].find("*/") else { break };
        let (before, after) = (&rest[..start], &rest[start + end + 2..]);
        add_words(root, before)?;
        rest = after;
    }
    add_words(root, rest)
}

fn add_words(root: &mut RootInventory, text: &str) -> Result<(), SandboxError> {
    for word in text.split(|c: char| c.is_whitespace() || c == '(' || c == ')') {
        let path = if word.starts_with('/') {
            Some(PathBuf::from(word)).filter(|path| path.is_file())
        } else if word.contains(".so") {
            find_library(word)
        } else {
            None
        };
        if let Some(path) = path {
            root.add(&path.to_string_lossy(), &path, false)?;
            root.add_libraries(&path)?;
        }
    }
    Ok(())
}

/// Every file that including any of [`HEADERS`] can read, by the compiler's own account.
fn headers(driver: &Path) -> Result<BTreeSet<PathBuf>, SandboxError> {
    let source: String = HEADERS
        .iter()
        .map(|name| format!("#if __has_include(<{name}>)\n#include <{name}>\n#endif\n"))
        .collect();
    let march: &[&str] = if cfg!(target_arch = "x86_64") { &["-march=x86-64-v3"] } else { &[] };
    // Optimisation and what a source defines before its includes decide which helpers are read.
    let ways: &[&[&str]] = &[
        &["-O0"],
        &["-O3"],
        &["-O3", "-D_GNU_SOURCE"],
        &["-O3", "-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2"],
        &["-O3", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-ffast-math"],
        &["-O3", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-D_XOPEN_SOURCE=700"],
    ];
    let mut files = BTreeSet::new();
    for way in ways {
        let fixed = ["-std=gnu11", "-M", "-x", "c", "-"];
        let args: Vec<&str> = fixed.iter().chain(*way).chain(march).copied().collect();
        let rule = run(driver, &args, &source)?;
        let (_, prerequisites) =
            rule.split_once(':').ok_or_else(|| fail("unreadable dependency rule".into()))?;
        for word in prerequisites.split_whitespace().filter(|word| *word != "\\" && *word != "-") {
            files.insert(plain(Path::new(word))?);
        }
    }
    if files.is_empty() {
        return Err(fail("the C library's headers are missing; install its development files".into()));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_closed_and_has_what_a_build_needs() {
        let toolchain = Toolchain::discover().unwrap();
        let has = |end: &str| toolchain.root.files().any(|file| file.path.ends_with(end));
        for end in ["/cc1", "/as", "/ld", "/math.h", "/stdint.h", "/libgcc.a", "libc.so.6", "libm.so.6"] {
            assert!(has(end), "{end}");
        }
        // Nothing that is neither compiler nor C library.
        assert!(!has("/bash") && !has("/passwd") && !has("libpython3.so"));
        assert!(toolchain.root.len() < 1000, "{}", toolchain.root.len());
        assert!(toolchain.version.to_lowercase().contains("gcc") || toolchain.version.contains('.'));
        assert_eq!(toolchain.digest(), Toolchain::discover().unwrap().digest());
    }

    #[test]
    fn what_is_no_gcc_is_refused() {
        assert!(matches!(Toolchain::of(Path::new("/bin/true")), Err(SandboxError::Toolchain(_))));
        assert!(matches!(Toolchain::of(Path::new("/nonexistent/gcc")), Err(SandboxError::File { .. })));
    }
}
