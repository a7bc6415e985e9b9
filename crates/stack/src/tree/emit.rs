//! Collecting what contributions emit, and closing the tree.

use super::order::disagreement;
use super::record::{ContributionRow, TreeFile, TreeRecord, tree_digest};
use super::reopen::parse_manifest;
use super::{BUNDLE_ID, EmittedFile, EngineTree, FILE_MODE, MaterializeError, RECORD_PATH, RUNTIME_MANIFEST};
use crate::ids::StackDigest;
use cacheon_bundle::path::stem;
use cacheon_bundle::pretty::pretty;
use cacheon_bundle::{Abi, Manifest};
use cacheon_identity::{Json, sha256};
use std::collections::{BTreeMap, BTreeSet};

/// One `[[ops]]` block: its lines, then its tables, in order.
#[derive(Debug, Default)]
pub(super) struct OpBlock(Vec<String>);

impl OpBlock {
    /// `key = "text"`.
    pub(super) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.0.push(format!("{key} = {}", quoted(value)));
        self
    }

    /// `key = "text"` when there is a value.
    pub(super) fn optional(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.text(key, value);
        }
        self
    }

    /// `key = ["a", "b"]` when there is an element.
    pub(super) fn list<S: AsRef<str>>(&mut self, key: &str, values: &[S]) -> &mut Self {
        if !values.is_empty() {
            let items: Vec<_> = values.iter().map(|value| quoted(value.as_ref())).collect();
            self.0.push(format!("{key} = [{}]", items.join(", ")));
        }
        self
    }

    /// Tables of the op, each with its lines.
    pub(super) fn tables(&mut self, tables: Vec<(&'static str, Vec<String>)>) -> &mut Self {
        for (name, lines) in tables {
            self.0.push(format!("[[{name}]]"));
            self.0.extend(lines);
        }
        self
    }
}

/// The registered patchers, in the order they run.
const PATCHERS: [&str; 3] = [
    "cacheon/patchers/apply_dep_patch.py",
    "cacheon/patchers/build_cuda_ext.py",
    "cacheon/patchers/build_cute_cubin.py",
];
const REBUILD_PLAN: &str = "rebuild.json";

/// A string as JSON writes it, non-ASCII as it is.
pub(super) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&Json::from(text).to_canonical()).into_owned()
}

/// A generated name: namespace, slug of the stem, and ten digits that keep different paths apart.
pub(super) fn generated(namespace: &str, path: &str, suffix: &str) -> String {
    let mut slug = String::new();
    let mut gap = false;
    for c in stem(path).chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            if std::mem::take(&mut gap) {
                slug.push('_');
            }
            slug.push(c);
        } else {
            gap = true;
        }
    }
    if gap {
        slug.push('_');
    }
    let slug = match slug.trim_matches('_') {
        "" => "module",
        trimmed => trimmed,
    };
    let hash = sha256(path.as_bytes()).to_string();
    format!("{namespace}__{slug}_{}{suffix}", hash.get(..10).unwrap_or_default())
}

/// Everything emitted so far.
#[derive(Debug)]
pub(super) struct Emission {
    abi: &'static str,
    files: BTreeMap<String, Vec<u8>>,
    rows: Vec<ContributionRow>,
    ops: Vec<OpBlock>,
    patches: BTreeSet<(String, String)>,
    patched: BTreeSet<(String, String)>,
    steps: BTreeMap<String, String>,
}

impl Emission {
    pub(super) fn new(abi: Abi) -> Self {
        // The legacy spelling is read and kept in payloads, but never written.
        let abi = if abi == Abi::C { Abi::C } else { Abi::Python };
        Self {
            abi: abi.as_str(),
            files: BTreeMap::new(),
            rows: Vec::new(),
            ops: Vec::new(),
            patches: BTreeSet::new(),
            patched: BTreeSet::new(),
            steps: BTreeMap::new(),
        }
    }

    /// The ABI of the runtime manifest.
    pub(super) fn abi(&self) -> &'static str {
        self.abi
    }

    /// Whether contributions of this ABI belong here; the two spellings of the Python one do not differ.
    pub(super) fn holds(&self, abi: Abi) -> bool {
        (self.abi == Abi::C.as_str()) == (abi == Abi::C)
    }

    /// Adds a file.
    pub(super) fn file(&mut self, path: String, bytes: Vec<u8>) -> Result<(), MaterializeError> {
        if self.files.contains_key(&path) {
            return Err(MaterializeError::Collision(path));
        }
        self.files.insert(path, bytes);
        Ok(())
    }

    /// Whether a file was emitted.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Adds a dependency patch of the runtime manifest.
    pub(super) fn patch(&mut self, target: &str, path: &str) {
        self.patches.insert((target.to_owned(), path.to_owned()));
    }

    /// Claims a dependency's file; no two patches may change the same one.
    pub(super) fn patched(&mut self, target: &str, file: &str) -> Result<(), MaterializeError> {
        if self.patched.insert((target.to_owned(), file.to_owned())) {
            return Ok(());
        }
        Err(MaterializeError::PatchedTwice { target: target.to_owned(), file: file.to_owned() })
    }

    /// Adds a rebuild step; steps of several contributions merge by path and must agree.
    pub(super) fn step(&mut self, path: &str, kind: &str) -> Result<(), MaterializeError> {
        match self.steps.insert(path.to_owned(), kind.to_owned()) {
            Some(other) if other != kind => Err(MaterializeError::RebuildConflict(path.to_owned())),
            _ => Ok(()),
        }
    }

    fn rebuild_plan(&self) -> Option<Vec<u8>> {
        if self.steps.is_empty() {
            return None;
        }
        let place = |path: &str| PATCHERS.iter().position(|known| *known == path).unwrap_or(PATCHERS.len());
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|(path, _)| (place(path), *path));
        let rows = steps.into_iter().map(|(path, kind)| {
            Json::object([("path", Json::from(path.as_str())), ("type", Json::from(kind.as_str()))])
        });
        let mut text = pretty(&Json::object([("steps", Json::Array(rows.collect()))]));
        text.push('\n');
        Some(text.into_bytes())
    }

    /// Adds the contribution's row.
    pub(super) fn row(&mut self, row: ContributionRow) {
        self.rows.push(row);
    }

    /// Adds one op of the runtime manifest.
    pub(super) fn op(&mut self, block: OpBlock) {
        self.ops.push(block);
    }

    fn runtime_manifest(&self) -> Option<Vec<u8>> {
        if self.ops.is_empty() {
            return None;
        }
        let mut text = format!("bundle_id = {}\nabi_version = {}\n\n", quoted(BUNDLE_ID), quoted(self.abi));
        for (target, path) in &self.patches {
            let (target, path) = (quoted(target), quoted(path));
            text.push_str(&format!("[[dep_patches]]\ntarget = {target}\npath = {path}\n\n"));
        }
        for OpBlock(lines) in &self.ops {
            text.push_str("[[ops]]\n");
            for line in lines {
                text.push_str(line);
                text.push('\n');
            }
            text.push('\n');
        }
        text.truncate(text.trim_end_matches('\n').len());
        text.push('\n');
        Some(text.into_bytes())
    }

    /// The runtime manifest must read back: text that TOML cannot hold is only seen here.
    fn check_manifest(&self) -> Result<Manifest, MaterializeError> {
        let files = self.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
        parse_manifest(files).map_err(|error| MaterializeError::Manifest(error.to_string()))
    }

    /// Adds the manifest and the record, and digests the tree.
    pub(super) fn finish(mut self, stack: StackDigest) -> Result<EngineTree, MaterializeError> {
        let manifest = self.runtime_manifest();
        let runtime_manifest = manifest.is_some();
        if let Some(manifest) = manifest {
            self.file(RUNTIME_MANIFEST.to_owned(), manifest)?;
        }
        if let Some(plan) = self.rebuild_plan() {
            self.file(REBUILD_PLAN.to_owned(), plan)?;
        }
        let parsed = if runtime_manifest { Some(self.check_manifest()?) } else { None };
        let mut files = BTreeMap::new();
        let mut rows = Vec::with_capacity(self.files.len() + 1);
        let mut add = |path: String, bytes: Vec<u8>| {
            let sha256 = sha256(&bytes);
            rows.push(TreeFile { mode: FILE_MODE, path: path.clone(), sha256, size: bytes.len() as u64 });
            files.insert(path, EmittedFile { bytes, sha256 }).is_none()
        };
        for (path, bytes) in std::mem::take(&mut self.files) {
            add(path, bytes);
        }
        self.rows.sort_by(|a, b| a.target.cmp(&b.target));
        let record = TreeRecord { contributions: self.rows, files: rows.clone(), runtime_manifest, stack };
        let bytes = record.file();
        rows.push(TreeFile {
            mode: FILE_MODE,
            path: RECORD_PATH.to_owned(),
            sha256: sha256(&bytes),
            size: bytes.len() as u64,
        });
        let sha256 = sha256(&bytes);
        if files.insert(RECORD_PATH.to_owned(), EmittedFile { bytes, sha256 }).is_some() {
            return Err(MaterializeError::Collision(RECORD_PATH.to_owned()));
        }
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some((first, second)) = disagreement(files.keys().map(String::as_str)) {
            return Err(MaterializeError::Order { first: first.to_owned(), second: second.to_owned() });
        }
        Ok(EngineTree { record, manifest: parsed, digest: tree_digest(&rows), files })
    }
}
