//! The fingerprint of a contribution (`spec/10-contribution.md` §10.2).

use super::normal::{self, Normal};
use super::{SUBSTANTIAL, definitions};
use crate::bundle::Bundle;
use crate::finding::{Place, Ruled, refuse};
use crate::inspect::Inspection;
use crate::manifest::Op;
use crate::patch::universal_newlines;
use crate::path::parent;
use crate::python::Dialect;
use crate::python::ast::{Stmt, StmtKind};
use crate::python::visit::{self, Visitor};
use crate::rule::Rule;
use crate::tree::Tree;
use cacheon_identity::{Digest, Domain, Json, sha256};
use std::collections::{BTreeMap, BTreeSet};

const RECORD: Domain = Domain::new("cacheon.copy.submitted-delta");
const SEPARATOR: &str = "\u{1e}";

/// What a contribution is recognised by. Fingerprints of two dialects are never compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// The dialect in which Python was normalised.
    pub dialect: Dialect,
    /// The member slots.
    pub members: BTreeSet<String>,
    /// The target.
    pub target_id: String,
    /// The digest of its specification; `None` in retired records that have none.
    pub target_spec_digest: Option<Digest>,
    /// `component`, or the retired `discovery`.
    pub product_kind: String,
    /// Identity of the payload, byte for byte.
    pub exact_payload_digest: Digest,
    /// Identity of payload and target; `None` in retired records that have none.
    pub selected_delta_digest: Option<Digest>,
    /// Identity of the normal forms of the Python closure; `None` where a record has none.
    pub normalized_delta_digest: Option<Digest>,
    /// Fragments: files, definitions, CUDA files, patches.
    pub containment: BTreeSet<Digest>,
    /// Shapes (advisory).
    pub advisory: BTreeSet<Digest>,
}

fn texts(set: &BTreeSet<Digest>) -> Json {
    Json::Array(set.iter().map(|digest| Json::Str(digest.to_string())).collect())
}

impl Fingerprint {
    /// The record as it is stored.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let optional = |digest: Option<Digest>| Json::Str(digest.map_or_else(String::new, |d| d.to_string()));
        Json::object([
            ("advisory_fingerprints", texts(&self.advisory)),
            ("containment_fingerprints", texts(&self.containment)),
            ("exact_payload_digest", Json::Str(self.exact_payload_digest.to_string())),
            ("members", Json::Array(self.members.iter().cloned().map(Json::Str).collect())),
            ("normalized_delta_digest", optional(self.normalized_delta_digest)),
            ("product_kind", Json::Str(self.product_kind.clone())),
            ("selected_delta_digest", optional(self.selected_delta_digest)),
            ("target_id", Json::Str(self.target_id.clone())),
            ("target_spec_digest", optional(self.target_spec_digest)),
        ])
    }

    /// The digest of the record.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RECORD.digest(&self.to_json())
    }

    /// Reads a stored record that was made in `dialect`.
    ///
    /// # Errors
    /// The member that is missing or malformed; lists must be sorted and unique.
    pub fn from_json(json: &Json, dialect: Dialect) -> Result<Self, String> {
        let text = |key: &str| {
            json.get(key).and_then(Json::as_str).ok_or_else(|| format!("`{key}` is missing or no string"))
        };
        let digest = |key: &str| Digest::parse(text(key)?).map_err(|error| format!("`{key}`: {error}"));
        let optional = |key: &str| if text(key)?.is_empty() { Ok(None) } else { digest(key).map(Some) };
        let set = |key: &str| -> Result<BTreeSet<Digest>, String> {
            let items: Vec<Digest> = strings(json, key)?
                .into_iter()
                .map(|text| Digest::parse(text).map_err(|error| format!("`{key}`: {error}")))
                .collect::<Result<_, _>>()?;
            ascending(key, &items)?;
            Ok(items.into_iter().collect())
        };
        if json.as_object().is_none_or(|members| members.len() != 9) {
            return Err("a fingerprint record has exactly nine members".to_owned());
        }
        let members = strings(json, "members")?;
        ascending("members", &members)?;
        let product_kind = text("product_kind")?;
        if !matches!(product_kind, "component" | "discovery") {
            return Err(format!("`{product_kind}` is no product kind"));
        }
        Ok(Self {
            dialect,
            members: members.into_iter().map(str::to_owned).collect(),
            target_id: text("target_id")?.to_owned(),
            target_spec_digest: optional("target_spec_digest")?,
            product_kind: product_kind.to_owned(),
            exact_payload_digest: digest("exact_payload_digest")?,
            selected_delta_digest: optional("selected_delta_digest")?,
            normalized_delta_digest: optional("normalized_delta_digest")?,
            containment: set("containment_fingerprints")?,
            advisory: set("advisory_fingerprints")?,
        })
    }
}

fn strings<'j>(json: &'j Json, key: &str) -> Result<Vec<&'j str>, String> {
    let items =
        json.get(key).and_then(Json::as_array).ok_or_else(|| format!("`{key}` is missing or no array"))?;
    items
        .iter()
        .map(|item| item.as_str().ok_or_else(|| format!("`{key}` holds something that is no string")))
        .collect()
}

fn ascending<T: Ord>(key: &str, items: &[T]) -> Result<(), String> {
    if items.windows(2).all(|pair| pair[0] < pair[1]) {
        Ok(())
    } else {
        Err(format!("`{key}` is not sorted and unique"))
    }
}

/// A Python file as fingerprints see it.
struct File {
    normal: Normal,
    imports: Vec<String>,
}

/// The files of a bundle, each read once.
struct Files<'a> {
    tree: &'a Tree,
    dialect: Dialect,
    read: BTreeMap<String, Option<File>>,
}

impl Files<'_> {
    /// Reads a file; `None` when it does not parse and is no entry.
    fn file(&mut self, path: &str, entry: bool) -> Ruled<Option<&File>> {
        if !self.read.contains_key(path) {
            let Some(bytes) = self.tree.file(path) else {
                return refuse(Rule::Path, Place::file(path), "the file is not in the bundle");
            };
            let text = crate::scan::readable(path, bytes)?;
            let file = match normal::python(path, text, self.dialect) {
                Ok(normal) => {
                    let imports = reached(self.tree, path, &normal.module.body);
                    Some(File { normal, imports })
                }
                Err(finding) if entry || finding.rule == Rule::Identity => return Err(finding),
                Err(_) => None,
            };
            self.read.insert(path.to_owned(), file);
        }
        Ok(self.read.get(path).and_then(Option::as_ref))
    }

    /// Every file that imports reach from an entry, itself included, by path.
    fn closure(&mut self, entry: &str) -> Ruled<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![entry.to_owned()];
        while let Some(path) = waiting.pop() {
            if found.contains(&path) {
                continue;
            }
            if let Some(file) = self.file(&path, path == entry)? {
                waiting.extend(file.imports.iter().cloned());
                found.insert(path);
            }
        }
        Ok(found)
    }

    fn joined(&self, paths: &BTreeSet<String>, text: impl Fn(&Normal) -> &str) -> String {
        let row = |path: &String| {
            let file = self.read.get(path).and_then(Option::as_ref)?;
            Some(format!("{path}\0{}", text(&file.normal)))
        };
        paths.iter().filter_map(row).collect::<Vec<_>>().join(SEPARATOR)
    }
}

/// The bundle files that the imports of a file may mean: both a module and a package of one name count.
fn reached(tree: &Tree, path: &str, body: &[Stmt]) -> Vec<String> {
    let mut imports = Imports { tree, path, found: Vec::new() };
    visit::statements(&mut imports, body);
    imports.found
}

struct Imports<'a> {
    tree: &'a Tree,
    path: &'a str,
    found: Vec<String>,
}

impl Imports<'_> {
    fn module(&mut self, parts: &[&str]) {
        let path = parts.join("/");
        if path.is_empty() {
            return;
        }
        for candidate in [format!("{path}.py"), format!("{path}/__init__.py")] {
            if self.tree.file(&candidate).is_some() {
                self.found.push(candidate);
            }
        }
    }
}

impl Visitor for Imports<'_> {
    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Import(names) => {
                for alias in names {
                    self.module(&alias.name.split('.').collect::<Vec<_>>());
                }
            }
            StmtKind::ImportFrom { module, names, level } => {
                let mut base: Vec<&str> = Vec::new();
                if *level > 0 {
                    let path: &str = self.path;
                    base.extend(parent(path).split('/').filter(|part| !part.is_empty()));
                    if base.len() < level - 1 {
                        return;
                    }
                    base.truncate(base.len() + 1 - level);
                }
                base.extend(module.iter().flat_map(|module| module.split('.')));
                self.module(&base);
                for alias in names {
                    let mut whole = base.clone();
                    whole.push(&alias.name);
                    self.module(&whole);
                }
            }
            _ => visit::statement(self, stmt),
        }
    }

    fn expression(&mut self, _: &crate::python::Expr) {}
}

/// One digest for a slot: its only row's, or all rows' together.
fn folded(domain: &str, digests: &[Digest]) -> String {
    if let [only] = digests {
        return only.to_string();
    }
    let mut sorted: Vec<String> = digests.iter().map(Digest::to_string).collect();
    sorted.sort();
    sha256(format!("{domain}\0{}", sorted.join(SEPARATOR)).as_bytes()).to_string()
}

fn row_head(op: &Op) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let entry = op.identity_entry();
    let fields = [
        op.slot.clone(),
        entry.to_owned(),
        text(&op.prepare),
        text(&op.setup),
        text(&op.base_kernel),
        text(&op.override_point),
    ];
    let mut head = fields.join("\0");
    if let Some(identity) = op.execution_identity() {
        head.push('\0');
        head.push_str(&String::from_utf8_lossy(&identity.to_canonical()));
    }
    head
}

/// The fingerprint of an inspected bundle.
///
/// # Errors
/// A source that does not parse, or that the dialect cannot write.
pub fn fingerprint(bundle: &Bundle, inspected: &Inspection) -> Ruled<Fingerprint> {
    let dialect = bundle.dialect();
    let tree = bundle.tree();
    let mut files = Files { tree, dialect, read: BTreeMap::new() };
    let mut slots: BTreeMap<&str, (Vec<Digest>, Vec<Digest>)> = BTreeMap::new();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    for op in bundle.manifest().ops.iter().filter(|op| op.c_sources.is_empty()) {
        let closure = files.closure(&op.source)?;
        let text = files.joined(&closure, |normal| &normal.text);
        let shape = files.joined(&closure, |normal| &normal.skeleton);
        let (exact, advisory) = slots.entry(&op.slot).or_default();
        exact.push(sha256(format!("{}{SEPARATOR}{text}", row_head(op)).as_bytes()));
        advisory.push(sha256(format!("{}{SEPARATOR}{shape}", op.slot).as_bytes()));
        reached.extend(closure);
    }
    let mut containment = BTreeSet::new();
    for path in &reached {
        let Some(Some(file)) = files.read.get(path) else { continue };
        if file.normal.text.chars().count() >= SUBSTANTIAL {
            containment.insert(sha256(file.normal.text.as_bytes()));
        }
        containment.extend(definitions::fingerprints(path, &file.normal.module, dialect)?);
    }
    native(tree, inspected, &mut containment);
    let rows: Vec<String> = slots
        .iter()
        .map(|(slot, (exact, _))| format!("{slot}\0{}", folded("cacheon.slot.normalized-variants.v1", exact)))
        .collect();
    let normalized = format!("cacheon.component.normalized-delta.v1\0{}", rows.join(SEPARATOR));
    let advisory = slots
        .values()
        .filter_map(|(_, shapes)| Digest::parse(&folded("cacheon.slot.structural-variants.v1", shapes)).ok())
        .collect();
    Ok(Fingerprint {
        dialect,
        members: inspected.members.clone(),
        target_id: inspected.target_id.clone(),
        target_spec_digest: Some(inspected.target_spec_digest),
        product_kind: "component".to_owned(),
        exact_payload_digest: inspected.selected_payload_digest,
        selected_delta_digest: Some(inspected.selected_delta_digest),
        normalized_delta_digest: (!rows.is_empty()).then(|| sha256(normalized.as_bytes())),
        containment,
        advisory,
    })
}

/// CUDA files, C files and patches, raw and in normal form.
fn native(tree: &Tree, inspected: &Inspection, into: &mut BTreeSet<Digest>) {
    let mut add = |bytes: &[u8], normal: String| {
        into.insert(sha256(bytes));
        into.insert(sha256(normal.as_bytes()));
    };
    for path in inspected.cuda_files.iter().chain(&inspected.c_files) {
        if let Some(bytes) = tree.file(path) {
            add(bytes, normal::cuda(&String::from_utf8_lossy(bytes)));
        }
    }
    for path in &inspected.patch_files {
        if let Some(bytes) = tree.file(path) {
            add(bytes, normal::patch(&universal_newlines(&String::from_utf8_lossy(bytes))));
        }
    }
}
