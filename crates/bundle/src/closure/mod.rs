//! Which Python files belong to a contribution, and what none of them may do (`spec/10-contribution.md` §8).

mod dynamic;
mod jit;
mod modules;

pub use modules::Modules;

use crate::finding::{Finding, Place, Ruled, refuse};
use crate::manifest::{Manifest, Op};
use crate::path::{parent, stem, suffix};
use crate::python::ast::{Alias, Module, Stmt, StmtKind};
use crate::python::visit::{self, Visitor};
use crate::python::{Dialect, ParseOptions, Source, parse};
use crate::rule::Rule;
use crate::text::{is_identifier, is_keyword};
use crate::tree::Tree;
use modules::{Import, Target};
use std::collections::{BTreeMap, BTreeSet};

/// A file of the closure, parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct PythonFile {
    /// The tree (of a parse with type comments).
    pub module: Module,
}

/// The stems of the `.cu` files: names under which Python imports what they build.
#[must_use]
pub fn native_stems(manifest: &Manifest) -> BTreeSet<String> {
    let sources = manifest.ops.iter().flat_map(|op| &op.cuda_sources);
    sources.filter(|path| suffix(path) == ".cu").map(|path| stem(path).to_owned()).collect()
}

/// The closure of every row's source, by path.
///
/// # Errors
/// The first file or import that breaks a rule.
pub fn python_closure(
    tree: &Tree,
    ops: &[Op],
    stems: &BTreeSet<String>,
    dialect: Dialect,
) -> Ruled<BTreeMap<String, PythonFile>> {
    let modules = Modules::new(tree, stems);
    let mut files: BTreeMap<String, PythonFile> = BTreeMap::new();
    let mut waiting: Vec<(String, Place)> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let place = op.place(index, "source");
        if suffix(&op.source) != ".py" {
            return refuse(Rule::PythonPath, place, format!("`{}` must be a .py file", op.source));
        }
        waiting.push((op.source.clone(), place));
    }
    while let Some((path, place)) = waiting.pop() {
        if files.contains_key(&path) {
            continue;
        }
        let module_path = path.strip_suffix(".py").unwrap_or(&path);
        if let Some(part) = module_path.split('/').find(|part| !is_identifier(part) || is_keyword(part)) {
            let problem = format!("`{path}` is no module path: `{part}` is not a Python name");
            return refuse(Rule::PythonPath, place, problem);
        }
        let file = read(tree, &path, &modules, dialect)?;
        let mut directory = parent(&path);
        while !directory.is_empty() {
            let package = format!("{directory}/__init__.py");
            if tree.file(&package).is_some() {
                waiting.push((package, place.clone()));
            }
            directory = parent(directory);
        }
        for found in &file.1 {
            waiting.push((found.clone(), Place::file(&path)));
        }
        files.insert(path, file.0);
    }
    Ok(files)
}

/// Parses and checks one file; the second part is what it imports from the bundle.
fn read(
    tree: &Tree,
    path: &str,
    modules: &Modules<'_>,
    dialect: Dialect,
) -> Ruled<(PythonFile, Vec<String>)> {
    let Some(bytes) = tree.file(path) else {
        return refuse(Rule::Path, Place::file(path), "the file is not in the bundle");
    };
    let text = crate::scan::readable(path, bytes)?;
    let source = Source::new(text);
    let module = parse(&source, ParseOptions { dialect, type_comments: true }).map_err(|error| {
        let rule = if error.budget { Rule::Budget } else { Rule::Syntax };
        Box::new(Finding::new(rule, Place::at(path, source.position(error.at)), error.problem))
    })?;
    dynamic::check(path, &source, &module, modules)?;
    let mut imports = Imports { path, source: &source, modules, found: Vec::new(), refused: None };
    visit::statements(&mut imports, &module.body);
    match imports.refused {
        Some(finding) => Err(Box::new(finding)),
        None => Ok((PythonFile { module }, imports.found)),
    }
}

struct Imports<'a> {
    path: &'a str,
    source: &'a Source,
    modules: &'a Modules<'a>,
    found: Vec<String>,
    refused: Option<Finding>,
}

impl Imports<'_> {
    fn resolve(&mut self, stmt: &Stmt, import: &Import<'_>) {
        match self.modules.resolve(self.path, import) {
            Ok(Target { files }) => self.found.extend(files),
            Err(problem) => {
                let place = Place::at(self.path, self.source.position(stmt.span.start));
                self.refused.get_or_insert(Finding::new(Rule::PythonImport, place, problem));
            }
        }
    }
}

impl Visitor for Imports<'_> {
    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Import(names) => {
                for Alias { name, .. } in names {
                    self.resolve(stmt, &Import::Module(name));
                }
            }
            StmtKind::ImportFrom { module, names, level } => {
                let names = names.iter().map(|alias| alias.name.as_str()).collect();
                let base = module.as_deref().unwrap_or_default();
                self.resolve(stmt, &Import::From { base, names, level: *level });
            }
            _ => visit::statement(self, stmt),
        }
    }

    // Imports are statements: nothing below an expression matters.
    fn expression(&mut self, _: &crate::python::Expr) {}
}
