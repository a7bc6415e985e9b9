//! From a bundle's C sources to a sealed publication: compiled in a container of its own, read as data before anything
//! loads it, published once for each build identity.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cacheon_bundle::Bundle;
use cacheon_bundle::inspect::VariantDomain;
use cacheon_identity::{Digest, sha256};
use cacheon_model::abi::{
    COMPILE_FLAGS, HEADER, HEADER_NAME, KernelIndex, KernelOp, LINK_FLAGS, LINK_LIBRARIES, Slot, target_flags,
};
use cacheon_sandbox::elf::{ElfError, ElfPolicy, inspect};
use cacheon_sandbox::{BuildLimits, BuildRefusal, BuildRequest, Sandbox, SandboxError, Toolchain};
use cacheon_stack::native::{CpuBuildSpec, NativePublication, PublishError, publish_files, reopen};

use crate::environment::Kernels;

/// Name of the shared object in a publication.
const OBJECT: &str = "kernels.so";
/// Name of the index beside it.
const INDEX: &str = "index.json";

/// Why there is no publication.
#[derive(Debug, thiserror::Error)]
pub enum PrebuildError {
    /// The sources are to blame: a typed, attributable refusal.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Publishing.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// This machine cannot build kernels.
    #[error("kernels are built for x86-64; this machine runs everything else of Cacheon, but no candidates")]
    Architecture,
    /// A publication of ours is not one of kernels.
    #[error("{0}")]
    Publication(String),
}

/// What about the sources was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The compiler, a bound, or the object's size.
    #[error("{refusal}{}", shown(diagnostics))]
    Build {
        /// The refusal.
        refusal: BuildRefusal,
        /// What the compiler said.
        diagnostics: String,
    },
    /// The object.
    #[error("{0}")]
    Object(#[from] ElfError),
    /// The ops cannot be an index.
    #[error("{0}")]
    Ops(String),
}

fn shown(diagnostics: &str) -> String {
    let first: Vec<&str> = diagnostics.lines().take(12).collect();
    if first.is_empty() { String::new() } else { format!(":\n{}", first.join("\n")) }
}

/// Builds publications.
#[derive(Debug)]
pub struct Prebuild {
    toolchain: Toolchain,
    worker: Digest,
}

impl Prebuild {
    /// With the compiler that this machine has.
    ///
    /// # Errors
    /// No compiler, or one that cannot be inventoried.
    pub fn new(worker: Digest) -> Result<Self, SandboxError> {
        Ok(Self { toolchain: Toolchain::discover()?, worker })
    }

    /// What the compiler calls itself.
    #[must_use]
    pub fn compiler(&self) -> &str {
        &self.toolchain.version
    }

    /// The publication of a bundle, built now unless one with the same build identity is sealed already.
    ///
    /// # Errors
    /// [`PrebuildError`].
    pub fn kernels(
        &self,
        sandbox: &Sandbox,
        root: &Path,
        bundle: &Bundle,
        variants: &[VariantDomain],
    ) -> Result<Kernels, PrebuildError> {
        let target = target_flags().ok_or(PrebuildError::Architecture)?;
        let mut flags: Vec<&str> = COMPILE_FLAGS.to_vec();
        flags.extend_from_slice(target);
        flags.extend_from_slice(LINK_FLAGS);
        let sources: Vec<&str> = sources(bundle);
        let spec = CpuBuildSpec {
            bundle: bundle.content_hash(),
            compiler: self.toolchain.digest(),
            compiler_flags: flags.iter().chain(LINK_LIBRARIES).map(|flag| (*flag).to_owned()).collect(),
            header: sha256(HEADER.as_bytes()),
            image: self.toolchain.root.digest(),
            target_architecture: target_name(target),
            worker_distribution: self.worker,
        };
        match reopen(root, spec.digest()) {
            Ok(publication) => return mounted(&publication),
            Err(PublishError::Absent(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let index = index(variants)?;
        let object = self.compile(sandbox, bundle, &flags, &sources)?;
        let (required, optional) = symbols(&index);
        let policy =
            ElfPolicy { required: &required, optional: &optional, libraries: &["libc.so.6", "libm.so.6"] };
        inspect(&object, &policy).map_err(|error| PrebuildError::Refused(Box::new(error.into())))?;
        let bytes = index.to_bytes();
        let files = [(INDEX, bytes.as_slice()), (OBJECT, object.as_slice())];
        mounted(&publish_files(root, spec.digest(), files)?.into_publication())
    }

    fn compile(
        &self,
        sandbox: &Sandbox,
        bundle: &Bundle,
        flags: &[&str],
        sources: &[&str],
    ) -> Result<Vec<u8>, PrebuildError> {
        let declared = bundle.c_files();
        let files: BTreeMap<String, Vec<u8>> = bundle
            .tree()
            .files()
            .filter(|(path, _)| declared.contains(*path))
            .map(|(path, bytes)| (path.to_owned(), bytes.to_vec()))
            .collect();
        let headers = BTreeMap::from([(HEADER_NAME.to_owned(), HEADER.as_bytes().to_vec())]);
        let report = sandbox.build(
            &self.toolchain,
            &BuildRequest {
                label: "prebuild",
                files: &files,
                headers: &headers,
                flags,
                sources,
                libraries: LINK_LIBRARIES,
                limits: BuildLimits::default(),
                cpuset: None,
            },
        )?;
        let diagnostics = report.diagnostics;
        report
            .object
            .map_err(|refusal| PrebuildError::Refused(Box::new(Refusal::Build { refusal, diagnostics })))
    }
}

fn target_name(flags: &[&str]) -> String {
    let avx2 = flags.iter().any(|flag| flag.contains("x86-64-v3"));
    if avx2 { "x86_64-avx2" } else { "x86_64" }.to_owned()
}

/// The C files that are compiled, in manifest order, each once.
fn sources(bundle: &Bundle) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    bundle
        .manifest()
        .ops
        .iter()
        .flat_map(|op| &op.c_sources)
        .map(String::as_str)
        .filter(|path| path.ends_with(".c") && seen.insert(*path))
        .collect()
}

/// What the publication offers, in manifest order.
fn index(variants: &[VariantDomain]) -> Result<KernelIndex, PrebuildError> {
    let refuse = |why: String| PrebuildError::Refused(Box::new(Refusal::Ops(why)));
    let ops = variants
        .iter()
        .map(|variant| {
            let slot = Slot::parse(&variant.slot)
                .ok_or_else(|| refuse(format!("{} is not a slot of the CPU engine", variant.slot)))?;
            let domain = crate::domain::call_domain(&variant.domain)
                .map_err(|why| refuse(format!("{} {}: {why}", variant.slot, variant.variant)))?;
            Ok(KernelOp { slot, variant: variant.variant.clone(), entry: variant.entry.clone(), domain })
        })
        .collect::<Result<Vec<KernelOp>, PrebuildError>>()?;
    KernelIndex::new(OBJECT, ops).map_err(|error| refuse(error.to_string()))
}

/// The symbols that must, and those that may, be exported.
fn symbols(index: &KernelIndex) -> (BTreeSet<String>, BTreeSet<String>) {
    let required = index.ops().iter().map(KernelOp::run_symbol).collect();
    let optional = index.ops().iter().flat_map(|op| [op.prepare_symbol(), op.destroy_symbol()]).collect();
    (required, optional)
}

/// A sealed publication, ready to be mounted.
fn mounted(publication: &NativePublication) -> Result<Kernels, PrebuildError> {
    let broken = |why: &str| PrebuildError::Publication(format!("{}: {why}", publication.path.display()));
    let object = publication.inventory.file(OBJECT).ok_or_else(|| broken("no shared object"))?;
    let bytes = std::fs::read(publication.path.join(INDEX)).map_err(|error| broken(&error.to_string()))?;
    let index = KernelIndex::parse(&bytes).map_err(|error| broken(&error.to_string()))?;
    Ok(Kernels {
        path: publication.path.clone(),
        publication_digest: publication.inventory.digest().digest(),
        object_sha256: object.sha256,
        index,
    })
}
