//! What a contribution in Python emits (spec 20 §5.4).

mod artifact;
mod names;
mod rewrite;

use super::emit::{Emission, OpBlock, generated};
use super::{MaterializeError, namespace};
use crate::contribution::ContributionRef;
use crate::ids::TargetId;
use cacheon_bundle::inspect::Inspection;
use cacheon_bundle::path::{name, parent, stem, suffix};
use cacheon_bundle::python::ParseError;
use cacheon_bundle::{Bundle, Finding, Place, Rule};
use cacheon_identity::Json;
use names::Names;
use std::collections::{BTreeMap, BTreeSet};

/// Emits one contribution: its files under their namespace, one entry module per source, its metadata, patches, rebuild
/// steps and ops. Everything comes from the selected payload: sorted, canonical.
pub(super) fn emit(
    emission: &mut Emission,
    entry: &ContributionRef,
    bundle: &Bundle,
    inspection: &Inspection,
) -> Result<(), MaterializeError> {
    let namespace = namespace(&entry.selected_delta());
    let sources = inspection.cuda_files.iter().filter(|path| suffix(path) == ".cu");
    let contribution = Contribution {
        native: sources.map(|path| (stem(path).to_owned(), generated(&namespace, path, ""))).collect(),
        target: entry.target(),
        bundle,
        inspection,
        namespace: &namespace,
        ops: rows(&inspection.selected_payload, "ops"),
    };
    contribution.native_files(emission)?;
    contribution.python_files(emission)?;
    contribution.entries(emission)?;
    for (path, text) in &inspection.metadata {
        emission.file(contribution.metadata_path(path), text.clone().into_bytes())?;
    }
    contribution.patches(emission)?;
    contribution.rebuild(emission)?;
    contribution.ops(emission);
    Ok(())
}

fn rows<'a>(json: &'a Json, name: &str) -> &'a [Json] {
    json.get(name).and_then(Json::as_array).unwrap_or(&[])
}

fn text<'a>(row: &'a Json, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Json::as_str)
}

fn texts(row: &Json, name: &str) -> Vec<String> {
    rows(row, name).iter().filter_map(Json::as_str).map(str::to_owned).collect()
}

struct Contribution<'a> {
    target: &'a TargetId,
    bundle: &'a Bundle,
    inspection: &'a Inspection,
    namespace: &'a str,
    ops: &'a [Json],
    native: BTreeMap<String, String>,
}

impl Contribution<'_> {
    fn refuse(&self, path: &str, problem: impl Into<String>) -> MaterializeError {
        let finding = Finding::new(Rule::Path, Place::file(path), problem);
        MaterializeError::Inspection { target: self.target.clone(), finding: Box::new(finding) }
    }

    fn unparsed(&self, path: &str, error: &ParseError) -> MaterializeError {
        MaterializeError::Unparsable {
            target: self.target.clone(),
            path: path.to_owned(),
            problem: error.to_string(),
        }
    }

    fn bytes(&self, path: &str) -> Result<&[u8], MaterializeError> {
        match self.bundle.tree().file(path) {
            Some(bytes) => Ok(bytes),
            None => Err(self.refuse(path, "the file is not in the bundle")),
        }
    }

    fn metadata_path(&self, path: &str) -> String {
        format!("metadata/{}", generated(self.namespace, path, ".json"))
    }

    fn entry_path(&self, source: &str) -> String {
        format!("entries/{}", generated(self.namespace, source, ".py"))
    }

    fn patch_path(&self, path: &str) -> String {
        format!("patches/{}", generated(self.namespace, path, suffix(path)))
    }

    /// Headers keep their names, so that quoted includes resolve; sources get names of their own.
    fn native_path(&self, path: &str) -> String {
        let file = match suffix(path) {
            ".cu" => generated(self.namespace, path, ".cu"),
            _ => name(path).to_owned(),
        };
        let parts = ["cuda", self.namespace, parent(path), &file];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }

    fn native_files(&self, emission: &mut Emission) -> Result<(), MaterializeError> {
        for path in &self.inspection.cuda_files {
            emission.file(self.native_path(path), self.bytes(path)?.to_vec())?;
        }
        Ok(())
    }

    fn names(&self) -> Names<'_> {
        Names::new(self.bundle.tree(), self.namespace, &self.native)
    }

    fn python_files(&self, emission: &mut Emission) -> Result<(), MaterializeError> {
        let names = self.names();
        for path in &self.inspection.python_files {
            let bytes = self.bytes(path)?;
            let text =
                std::str::from_utf8(bytes).map_err(|_| self.refuse(path, "the source is not UTF-8"))?;
            let text = rewrite::rewrite(text, path, &names, self.bundle.dialect())
                .map_err(|error| self.unparsed(path, &error))?;
            emission.file(format!("{}/{path}", self.namespace), text.into_bytes())?;
        }
        // The root is no package, unless its own file is a source.
        if !self.inspection.python_files.iter().any(|path| path == "__init__.py") {
            emission.file(format!("{}/__init__.py", self.namespace), Vec::new())?;
        }
        Ok(())
    }

    /// One module per source that imports what its rows need, by name.
    fn entries(&self, emission: &mut Emission) -> Result<(), MaterializeError> {
        let names = self.names();
        let mut sources: BTreeMap<&str, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
        for op in self.ops {
            let (required, optional) = sources.entry(text(op, "source").unwrap_or_default()).or_default();
            let entry = text(op, "entry").unwrap_or_default();
            let exports = rows(op, "aot_exports");
            if !exports.is_empty() {
                required
                    .extend(exports.iter().filter_map(|export| text(export, "factory")).map(str::to_owned));
            } else if text(op, "override_point").is_some() {
                required.insert(format!("{entry}_ref"));
                optional.insert(entry.to_owned());
            } else {
                required.insert(entry.to_owned());
            }
            required.extend(["prepare", "setup"].iter().filter_map(|key| text(op, key)).map(str::to_owned));
        }
        for (source, (required, optional)) in sources {
            let module = names.of_file(source);
            let mut out = String::new();
            for it in &required {
                out.push_str(&format!("from {module} import {it} as {it}\n"));
            }
            for it in optional.difference(&required) {
                out.push_str(&format!(
                    "try:\n    from {module} import {it} as {it}\nexcept ImportError:\n    pass\n"
                ));
            }
            rewrite::check(&out, self.bundle.dialect()).map_err(|error| self.unparsed(source, &error))?;
            emission.file(self.entry_path(source), out.into_bytes())?;
        }
        Ok(())
    }

    fn patches(&self, emission: &mut Emission) -> Result<(), MaterializeError> {
        for row in rows(&self.inspection.selected_payload, "patches") {
            let (target, path) =
                (text(row, "target").unwrap_or_default(), text(row, "path").unwrap_or_default());
            let bytes = self.bytes(path)?;
            let patch =
                std::str::from_utf8(bytes).map_err(|_| self.refuse(path, "the patch is not UTF-8"))?;
            let patch = cacheon_bundle::patch::universal_newlines(patch);
            let files =
                cacheon_bundle::patch::parse(&patch).map_err(|error| self.refuse(path, error.to_string()))?;
            for file in files {
                emission.patched(target, &file.path)?;
            }
            let emitted = self.patch_path(path);
            emission.patch(target, &emitted);
            // One patch file may be declared for several targets; it is emitted once.
            if !emission.has(&emitted) {
                emission.file(emitted, bytes.to_vec())?;
            }
        }
        Ok(())
    }

    fn rebuild(&self, emission: &mut Emission) -> Result<(), MaterializeError> {
        let plan = self.inspection.selected_payload.get("rebuild");
        for step in plan.map(|plan| rows(plan, "steps")).unwrap_or_default() {
            let (Some(path), Some(kind)) = (text(step, "path"), text(step, "type")) else { continue };
            emission.step(path, kind)?;
        }
        Ok(())
    }

    fn ops(&self, emission: &mut Emission) {
        for op in self.ops {
            let cuda: Vec<_> = texts(op, "cuda_sources").iter().map(|path| self.native_path(path)).collect();
            let mut block = OpBlock::default();
            block
                .text("slot", text(op, "slot").unwrap_or_default())
                .text("variant", text(op, "variant").unwrap_or_default())
                .text("source", &self.entry_path(text(op, "source").unwrap_or_default()))
                .text("entry", text(op, "entry").unwrap_or_default());
            for key in ["prepare", "setup", "base_kernel", "override_point"] {
                block.optional(key, text(op, key));
            }
            block
                .optional("metadata", text(op, "metadata").map(|path| self.metadata_path(path)).as_deref())
                .list("dtypes", &texts(op, "dtypes"))
                .list("architectures", &texts(op, "architectures"))
                .list("cuda_sources", &cuda);
            let (slot, variant) = (text(op, "slot"), text(op, "variant"));
            let mut rows = self.bundle.manifest().ops.iter();
            let row = rows.find(|it| Some(it.slot.as_str()) == slot && Some(it.variant.as_str()) == variant);
            if let Some(artifacts) = row.and_then(|row| row.artifacts.as_ref()) {
                block.tables(artifact::tables(artifacts));
            }
            emission.op(block);
        }
    }
}
