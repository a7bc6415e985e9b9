//! Builds bundles the way the prebuild does, for tests and benches of the engine alone.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

use cacheon_identity::Json;
use cacheon_model::abi::{
    self, Domain, HEADER, HEADER_NAME, KernelIndex, KernelOp, NumericField, NumericSet, Slot, TextField,
};
use cacheon_worker::engine::KernelSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The folder of example bundles.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn numeric_set(predicate: &Json) -> NumericSet {
    let bound = |name| predicate.get(name).and_then(Json::as_u64);
    match predicate {
        Json::Int(_) => NumericSet::OneOf(vec![predicate.as_u64().unwrap()]),
        Json::Array(values) => NumericSet::OneOf(values.iter().map(|v| v.as_u64().unwrap()).collect()),
        _ => NumericSet::Range { min: bound("min"), max: bound("max") },
    }
}

fn domain(metadata: &Json) -> Domain {
    let mut domain = Domain::default();
    let texts = |json: &Json| match json {
        Json::Str(text) => vec![text.clone()],
        other => other.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect(),
    };
    if let Some(quant) = metadata.get("quant") {
        domain.text.insert(TextField::Quant, texts(quant));
    }
    let bound = |name| metadata.get(name).and_then(Json::as_u64);
    let (min, max) = (bound("min_num_tokens"), bound("max_num_tokens"));
    if min.is_some() || max.is_some() {
        domain.numeric.insert(NumericField::NumTokens, NumericSet::Range { min, max });
    }
    for (name, predicate) in metadata.get("capabilities").and_then(Json::as_object).into_iter().flatten() {
        if let Some(field) = TextField::parse(name) {
            domain.text.insert(field, texts(predicate));
        } else {
            domain.numeric.insert(NumericField::parse(name).unwrap(), numeric_set(predicate));
        }
    }
    domain
}

/// The ops and C sources of a bundle, from its manifest.
pub fn read(bundle: &Path) -> (KernelIndex, Vec<String>) {
    let manifest = std::fs::read_to_string(bundle.join("manifest.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    assert_eq!(manifest["abi_version"].as_str(), Some(abi::ABI_VERSION));
    let (mut ops, mut sources) = (Vec::new(), Vec::new());
    for op in manifest["ops"].as_array().unwrap() {
        let text = |name: &str| op.get(name).and_then(|v| v.as_str()).map(str::to_owned);
        let metadata = text("metadata")
            .map(|path| Json::parse(&std::fs::read(bundle.join(path)).unwrap()).unwrap())
            .unwrap_or(Json::Null);
        ops.push(KernelOp {
            slot: Slot::parse(&text("slot").unwrap()).unwrap(),
            variant: text("variant").unwrap_or_else(|| "default".to_owned()),
            entry: text("entry").unwrap(),
            domain: domain(&metadata),
        });
        for source in op["c_sources"].as_array().unwrap() {
            let source = source.as_str().unwrap().to_owned();
            assert!(bundle.join(&source).is_file(), "{source}");
            if source.ends_with(".c") && !sources.contains(&source) {
                sources.push(source);
            }
        }
    }
    (KernelIndex::new("kernels.so", ops).unwrap(), sources)
}

/// Compiles a bundle with the pinned flags (`target` in place of the machine's) into `out/kernels.so`.
pub fn build_for(bundle: &Path, target: &[&str], out: &Path) -> KernelIndex {
    let (index, sources) = read(bundle);
    std::fs::write(out.join(HEADER_NAME), HEADER).unwrap();
    let result = Command::new("cc")
        .current_dir(bundle)
        .args(abi::COMPILE_FLAGS)
        .args(target)
        .arg("-Werror")
        .arg("-I")
        .arg(out)
        .arg("-I")
        .arg(bundle)
        .args(abi::LINK_FLAGS)
        .args(&sources)
        .args(abi::LINK_LIBRARIES)
        .arg("-o")
        .arg(out.join(index.library()))
        .output()
        .expect("a C compiler named cc");
    assert!(result.status.success(), "{}: {}", bundle.display(), String::from_utf8_lossy(&result.stderr));
    index
}

/// A built and loaded bundle. The object's folder lives as long as the value.
pub struct Built {
    pub kernels: Arc<KernelSet>,
    pub index: KernelIndex,
    pub folder: tempfile::TempDir,
}

impl Built {
    pub fn object(&self) -> PathBuf {
        self.folder.path().join(self.index.library())
    }
}

/// Builds and loads a bundle for this machine.
pub fn build(bundle: &Path) -> Built {
    build_with(bundle, abi::target_flags().expect("x86-64"))
}

/// Builds and loads a bundle with given target flags.
pub fn build_with(bundle: &Path, target: &[&str]) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let index = build_for(bundle, target, folder.path());
    // SAFETY: our own example sources, in a test process.
    let kernels = unsafe { KernelSet::load(&folder.path().join(index.library()), &index) };
    assert_eq!(kernels.failures().count(), 0, "{:?}", kernels.failures().collect::<Vec<_>>());
    Built { kernels: Arc::new(kernels), index, folder }
}

/// Bytes at a multiple of 64, as a mapped file would be.
pub struct Aligned {
    raw: Vec<u8>,
    at: usize,
    len: usize,
}

impl Aligned {
    pub fn new(bytes: &[u8]) -> Self {
        let mut raw = vec![0u8; bytes.len() + 64];
        let at = raw.as_ptr().align_offset(64);
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        Self { raw, at, len: bytes.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.raw[self.at..self.at + self.len]
    }
}
