//! The manifest as a whole.

use super::row::Reader;
use super::{Abi, Competition, DepPatch, Manifest, Mode, Op, PATH};
use crate::artifact::value::Val;
use crate::artifact::{self, DirectArtifacts};
use crate::finding::{Finding, Place, Ruled, refuse};
use crate::rule::Rule;
use crate::text::{is_c_identifier, strip};
use crate::toml::{self, Document, Table, Value};
use crate::tree::{Resolved, Tree};
use std::collections::BTreeMap;

pub(super) fn read(tree: &Tree) -> Ruled<Manifest> {
    let Resolved::File(_, bytes) = tree.resolve(PATH) else {
        return refuse(
            Rule::ManifestMissing,
            Place::file(PATH),
            "the bundle has no regular file manifest.toml",
        );
    };
    let document = toml::parse(bytes).map_err(|error| {
        Box::new(Finding::new(
            Rule::ManifestSyntax,
            Place::at(PATH, (error.line, error.column)),
            error.problem,
        ))
    })?;
    let root = Reader { document: &document, tree, table: &document.root, label: String::new(), at: 0 };
    let bundle_id = root.required("bundle_id")?;
    let bundle_id = root.simple_id("bundle_id", bundle_id)?;
    let spelling = root.required("abi_version")?;
    let Some(abi) = Abi::parse(&spelling) else {
        let shown: String = spelling.chars().take(80).collect();
        return refuse(
            Rule::Abi,
            root.place("abi_version"),
            format!("`{shown}` is no ABI id of this reader"),
        );
    };
    let ops = ops(&root, abi)?;
    let competition = competition(&root)?;
    let dep_patches = dep_patches(&root)?;
    if abi == Abi::C && !dep_patches.is_empty() {
        return root.refuse("dep_patches", "C kernels patch no dependency");
    }
    Ok(Manifest { bundle_id, abi, ops, competition, dep_patches })
}

/// The tables of an array, each with its label.
fn rows<'a>(root: &Reader<'a>, document: &'a Document, key: &str) -> Ruled<Vec<Reader<'a>>> {
    let Some(item) = root.get(key) else { return Ok(Vec::new()) };
    let Value::Array(items) = &item.value else {
        return root.refuse(key, format!("expected an array of tables, found {}", item.value.kind()));
    };
    let row = |(index, item): (usize, &'a toml::Item)| match &item.value {
        Value::Table(table) => {
            Ok(Reader { document, tree: root.tree, table, label: format!("{key}[{index}]"), at: item.at })
        }
        other => root.refuse(key, format!("expected tables only, found {}", other.kind())),
    };
    items.iter().enumerate().map(row).collect()
}

fn only(row: &Reader<'_>, table: &Table, keys: &[&str]) -> Ruled<()> {
    for key in keys {
        if !table.contains_key(*key) {
            return row.refuse(key, "the field is missing");
        }
    }
    match table.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(extra) => row.refuse(extra, format!("only {} belong here", keys.join(" and "))),
        None => Ok(()),
    }
}

fn ops(root: &Reader<'_>, abi: Abi) -> Ruled<Vec<Op>> {
    let rows = rows(root, root.document, "ops")?;
    if rows.is_empty() {
        return root.refuse("ops", "the bundle needs at least one [[ops]] row");
    }
    let mut ops = Vec::new();
    let mut named = Vec::new();
    for row in &rows {
        let (mut op, explicit) = op(row, abi)?;
        row.remember(&mut op);
        ops.push(op);
        named.push(explicit);
    }
    let mut slots: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, op) in ops.iter().enumerate() {
        slots.entry(&op.slot).or_default().push(index);
    }
    for members in slots.values().filter(|members| members.len() > 1) {
        for (position, index) in members.iter().enumerate() {
            let variant = &ops[*index].variant;
            if !named[*index] {
                let problem = "the slot has several rows: each must state `variant`";
                return refuse(Rule::Variant, rows[*index].place("variant"), problem);
            }
            if members[..position].iter().any(|other| ops[*other].variant == *variant) {
                let problem = format!("the slot has two rows of variant `{variant}`");
                return refuse(Rule::Variant, rows[*index].place("variant"), problem);
            }
        }
    }
    Ok(ops)
}

fn op(row: &Reader<'_>, abi: Abi) -> Ruled<(Op, bool)> {
    let mut op = Op { slot: row.required("slot")?, source: row.required("source")?, ..Op::default() };
    row.path("source", &op.source)?;
    let entry = row.required("entry")?;
    op.entry = row.identifier("entry", entry)?;
    let variant = match row.get("variant").map(|item| &item.value) {
        None => None,
        Some(Value::Text(text)) => Some(row.simple_id("variant", strip(text).to_owned())?),
        Some(other) => return row.refuse("variant", format!("expected a string, found {}", other.kind())),
    };
    let explicit = variant.is_some();
    op.variant = variant.unwrap_or_else(|| "default".to_owned());
    op.dtypes = row.stripped_strings("dtypes")?;
    op.architectures = row.stripped_strings("architectures")?;
    op.metadata = row.text("metadata")?;
    if let Some(path) = &op.metadata {
        row.path("metadata", path)?;
    }
    op.prepare = row.optional_identifier("prepare")?;
    op.setup = row.optional_identifier("setup")?;
    op.base_kernel = row.optional_text("base_kernel")?;
    op.override_point = row.optional_text("override_point")?;
    if op.override_point.is_some() && op.base_kernel.is_none() {
        return row.refuse("override_point", "an override_point needs a base_kernel");
    }
    op.cuda_sources = row.strings("cuda_sources")?;
    for path in &op.cuda_sources {
        row.native_path("cuda_sources", path, &[".cu", ".cuh"])?;
    }
    if abi == Abi::C {
        c_row(row, &mut op)?;
    }
    op.artifacts = artifacts(row, &op)?;
    let known = [
        "slot",
        "source",
        "entry",
        "variant",
        "dtypes",
        "architectures",
        "metadata",
        "prepare",
        "setup",
        "base_kernel",
        "override_point",
        "cuda_sources",
        "aot_exports",
        "artifact_resources",
    ];
    op.extra = row
        .table
        .keys()
        .filter(|key| !known.contains(&key.as_str()))
        .filter(|key| abi != Abi::C || key.as_str() != "c_sources")
        .cloned()
        .collect();
    Ok((op, explicit))
}

/// The direct artifacts of a row; it may then use no other way into the engine.
fn artifacts(row: &Reader<'_>, op: &Op) -> Ruled<Option<DirectArtifacts>> {
    let value = |key: &str| row.get(key).map(|item| Val::from(&item.value));
    let (exports, resources) = (value("aot_exports"), value("artifact_resources"));
    let metadata = match &op.metadata {
        Some(path) => Some(row.path("metadata", path)?),
        None => None,
    };
    let declared = artifact::declare(&op.slot, exports.as_ref(), resources.as_ref(), metadata);
    let declared = declared.map_err(|error| {
        let key =
            if error.path.starts_with("artifact_resources") { "artifact_resources" } else { "aot_exports" };
        let place = row.place(key).field(format!("{}.{}", row.label, error.path));
        Box::new(Finding::new(Rule::Artifact, place, error.problem))
    })?;
    let other = [
        ("prepare", op.prepare.is_some()),
        ("setup", op.setup.is_some()),
        ("base_kernel", op.base_kernel.is_some()),
        ("override_point", op.override_point.is_some()),
        ("cuda_sources", !op.cuda_sources.is_empty()),
    ];
    match other.iter().find(|(_, stated)| declared.is_some() && *stated) {
        Some((key, _)) => row.refuse(key, "a row with direct artifacts may not state this"),
        None => Ok(declared),
    }
}

/// What the C ABI asks of a row: no Python or CUDA field, a C entry, and a closed list of C files that holds the source.
fn c_row(row: &Reader<'_>, op: &mut Op) -> Ruled<()> {
    let foreign = [
        "prepare",
        "setup",
        "base_kernel",
        "override_point",
        "cuda_sources",
        "aot_exports",
        "artifact_resources",
        "dtypes",
    ];
    if let Some(key) = foreign.into_iter().find(|key| row.get(key).is_some()) {
        let why = match key {
            "prepare" => "a C kernel prepares in the symbol <entry>_prepare, which needs no field",
            "dtypes" => "state `quant` in the metadata instead: C slots are told apart by quantisation",
            _ => "the field does not belong to a C kernel",
        };
        return row.refuse(key, why);
    }
    if !is_c_identifier(&op.entry) || crate::c::is_keyword(&op.entry) || op.entry.len() > 64 {
        let shown: String = op.entry.chars().take(80).collect();
        return row.refuse("entry", format!("`{shown}` is not a C identifier of at most 64 characters"));
    }
    if row.get("c_sources").is_none() {
        return row.refuse("c_sources", "list every .c and .h file of the row, its source included");
    }
    op.c_sources = row.strings("c_sources")?;
    for path in &op.c_sources {
        row.native_path("c_sources", path, &[".c", ".h"])?;
    }
    if !op.source.ends_with(".c") {
        return row.refuse("source", format!("`{}` must be a .c file", op.source));
    }
    if !op.c_sources.contains(&op.source) {
        return row.refuse("c_sources", format!("the list must hold the source `{}`", op.source));
    }
    Ok(())
}

fn competition(root: &Reader<'_>) -> Ruled<Option<Competition>> {
    let Some(item) = root.get("competition") else { return Ok(None) };
    let Value::Table(table) = &item.value else {
        return root.refuse("competition", format!("expected a table, found {}", item.value.kind()));
    };
    let row = Reader {
        document: root.document,
        tree: root.tree,
        table,
        label: "competition".to_owned(),
        at: item.at,
    };
    only(&row, table, &["target", "mode"])?;
    let text = |key: &str| match row.get(key).and_then(|item| item.value.text()) {
        Some(text) => Ok(strip(text).to_owned()),
        None => row.refuse(key, "expected a string"),
    };
    let target = row.simple_id("target", text("target")?)?;
    let mode = text("mode")?;
    match [Mode::Slot, Mode::Atomic, Mode::System].into_iter().find(|known| known.as_str() == mode) {
        Some(mode) => Ok(Some(Competition { target, mode })),
        None => row.refuse("mode", "use `slot` or `atomic`"),
    }
}

fn dep_patches(root: &Reader<'_>) -> Ruled<Vec<DepPatch>> {
    let mut patches: Vec<DepPatch> = Vec::new();
    for row in rows(root, root.document, "dep_patches")? {
        only(&row, row.table, &["target", "path"])?;
        let target = row.required("target")?;
        let patch = DepPatch { target: row.simple_id("target", target)?, path: row.required("path")? };
        if patches.contains(&patch) {
            return row.refuse("path", format!("`{}` is declared twice for {}", patch.path, patch.target));
        }
        let bytes = row.native_path("path", &patch.path, &[".patch", ".diff"])?;
        let Ok(text) = std::str::from_utf8(bytes) else {
            return refuse(Rule::Unreadable, Place::file(&patch.path), "the patch is not UTF-8");
        };
        if let Err(error) = crate::patch::parse(&crate::patch::universal_newlines(text)) {
            return refuse(Rule::DepPatch, Place::line(&patch.path, error.line.max(1)), error.problem);
        }
        patches.push(patch);
    }
    Ok(patches)
}
