//! Import rewriting: each import of a bundle's own names is pointed into the contribution's namespace.
//!
//! Only the bytes of import statements that change are replaced; line ends, comments and everything else stay. A
//! statement that becomes several is joined by a line feed and the text that stood before it on its line, which the
//! deployed materialiser does too, even where that text is another statement (`a = 1; import b.c`).
//!
//! The parser is `cacheon_bundle::python`. Two published parsers were compared: `rustpython-parser` (0.4.0, no release
//! for the current grammar, and its spans are of the raw text only) and `ruff_python_parser` (0.0.x on the registry,
//! an internal crate whose tree changes with every release, error-tolerant where an interpreter refuses, and whose
//! current release needs a newer compiler than this workspace). The house already carries a front end that is
//! compared with real interpreters of three versions, keeps byte spans, bounds depth, and is pinned by fingerprints;
//! a second parser would only add a second opinion on the same text.

use super::names::{Found, Names};
use cacheon_bundle::path::parent;
use cacheon_bundle::python::ast::{Alias, Module, Stmt, StmtKind};
use cacheon_bundle::python::visit::{self, Visitor};
use cacheon_bundle::python::{Dialect, ParseError, ParseOptions, Source, parse};

/// A replacement of bytes of the original text.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// The text of a module with its imports pointed into the namespace.
///
/// # Errors
/// The text does not parse, before or after.
pub(super) fn rewrite(
    text: &str,
    path: &str,
    names: &Names<'_>,
    dialect: Dialect,
) -> Result<String, ParseError> {
    let source = Source::new(text);
    let module = parse(&source, options(dialect))?;
    let mut out = text.to_owned();
    let mut edits = edits(&module, &source, text, path, names);
    // From the end, so that earlier offsets stay right.
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.start));
    for edit in &edits {
        out.replace_range(edit.start..edit.end, &edit.text);
    }
    if !edits.is_empty() {
        check(&out, dialect)?;
    }
    Ok(out)
}

/// Whether a text is Python; emitted files must be, without type comments.
pub(super) fn check(text: &str, dialect: Dialect) -> Result<(), ParseError> {
    parse(&Source::new(text), options(dialect)).map(|_| ())
}

fn options(dialect: Dialect) -> ParseOptions {
    ParseOptions { dialect, type_comments: false }
}

fn edits(module: &Module, source: &Source, text: &str, path: &str, names: &Names<'_>) -> Vec<Edit> {
    let mut collector = Collector { names, directory: parent(path), found: Vec::new() };
    visit::statements(&mut collector, &module.body);
    let edit = |(start, end, lines): (usize, usize, Vec<String>)| {
        let (start, end) = (source.original(start), source.original(end));
        let line = text.get(..start).unwrap_or_default().rfind(['\n', '\r']).map_or(0, |at| at + 1);
        let before = text.get(line..start).unwrap_or_default();
        Edit { start, end, text: lines.join(&format!("\n{before}")) }
    };
    collector.found.into_iter().map(edit).collect()
}

/// Import statements that change: span in the translated text, and the statements they become.
struct Collector<'a> {
    names: &'a Names<'a>,
    directory: &'a str,
    found: Vec<(usize, usize, Vec<String>)>,
}

impl Visitor for Collector<'_> {
    fn statement(&mut self, stmt: &Stmt) {
        let lines = match &stmt.kind {
            StmtKind::Import(aliases) => self.import(aliases),
            StmtKind::ImportFrom { module, names, level } => {
                self.import_from(module.as_deref(), names, *level)
            }
            _ => None,
        };
        if let Some(lines) = lines {
            self.found.push((stmt.span.start, stmt.span.end, lines));
        }
        visit::statement(self, stmt);
    }
}

fn with_alias(alias: &Alias) -> String {
    match &alias.asname {
        Some(asname) => format!("{} as {asname}", alias.name),
        None => alias.name.clone(),
    }
}

/// `import M as x`, where `x` is the alias or the imported name itself.
fn import_as(module: &str, alias: &Alias) -> String {
    format!("import {module} as {}", alias.asname.as_ref().unwrap_or(&alias.name))
}

impl Collector<'_> {
    fn import(&self, aliases: &[Alias]) -> Option<Vec<String>> {
        let mut changed = false;
        let mut lines = Vec::new();
        for alias in aliases {
            let parts: Vec<&str> = alias.name.split('.').collect();
            match self.names.find("", &parts, true) {
                Found::Module(module) if alias.asname.is_none() && parts.len() > 1 => {
                    // The bound name is the first component, so that it is imported beside.
                    let first = parts.first().copied().unwrap_or_default();
                    lines.push(format!("import {module}"));
                    lines.push(format!("import {} as {first}", self.names.dotted(&[first])));
                    changed = true;
                }
                Found::Module(module) | Found::Native(module) => {
                    lines.push(import_as(&module, alias));
                    changed = true;
                }
                Found::Directory | Found::Outside => lines.push(format!("import {}", with_alias(alias))),
            }
        }
        changed.then_some(lines)
    }

    fn import_from(&self, module: Option<&str>, names: &[Alias], level: usize) -> Option<Vec<String>> {
        let parts: Vec<&str> = module.map(|module| module.split('.').collect()).unwrap_or_default();
        let mut base = if level == 0 { "" } else { self.directory };
        for _ in 1..level {
            base = parent(base);
        }
        let listed = || names.iter().map(with_alias).collect::<Vec<_>>().join(", ");
        match self.names.find(base, &parts, level == 0) {
            Found::Module(module) | Found::Native(module) => {
                Some(vec![format!("from {module} import {}", listed())])
            }
            Found::Directory => {
                let below = |alias: &Alias| {
                    let parts: Vec<&str> = parts.iter().copied().chain([alias.name.as_str()]).collect();
                    match self.names.find(base, &parts, false) {
                        Found::Module(module) => Some(import_as(&module, alias)),
                        _ => None,
                    }
                };
                // Inspection has refused lists that mix; a list with none is somebody else's directory name.
                names.iter().map(below).collect()
            }
            Found::Outside => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cacheon_bundle::tree::{Node, Tree};
    use std::collections::BTreeMap;

    fn tree(paths: &[&str]) -> Tree {
        Tree::from_nodes(paths.iter().map(|path| ((*path).to_owned(), Node::File(b"".as_slice().into()))))
            .unwrap()
    }

    fn rewritten(text: &str, path: &str, files: &[&str]) -> String {
        let tree = tree(files);
        let native = BTreeMap::from([("gpu".to_owned(), "NS__gpu_0123456789".to_owned())]);
        rewrite(text, path, &Names::new(&tree, "NS", &native), Dialect::default()).unwrap()
    }

    #[test]
    fn only_the_bytes_of_changed_imports_change() {
        let files = ["k/a.py", "k/b.py", "p/__init__.py", "p/c.py", "top.py"];
        for (text, expected) in [
            ("import os  # x\r\nimport top\r\n", "import os  # x\r\nimport NS.top as top\r\n"),
            ("import top as t, os", "import NS.top as t\nimport os"),
            ("if 1:\n\timport k.b # c", "if 1:\n\timport NS.k.b\n\timport NS.k as k # c"),
            ("a = 1; import k.b", "a = 1; import NS.k.b\na = 1; import NS.k as k"),
            ("from k import b, a as z", "import NS.k.b as b\nimport NS.k.a as z"),
            ("from . import b", "import NS.k.b as b"),
            ("from .b import (\n  q, # y\n  r as s,\n)", "from NS.k.b import q, r as s"),
            ("from ..p import c", "from NS.p import c"),
            ("from p import *", "from NS.p import *"),
            (
                "import gpu; from gpu import f",
                "import NS__gpu_0123456789 as gpu; from NS__gpu_0123456789 import f",
            ),
            ("def f():\n  from p.c import d", "def f():\n  from NS.p.c import d"),
            ("from torch import nn\nimport gpu_extra", "from torch import nn\nimport gpu_extra"),
            (
                "\"\"\"import top\"\"\"\nx = 'from k import a'",
                "\"\"\"import top\"\"\"\nx = 'from k import a'",
            ),
            ("import top as \u{b5}", "import NS.top as \u{3bc}"),
            ("\u{e9} = 1; import top", "\u{e9} = 1; import NS.top as top"),
        ] {
            assert_eq!(rewritten(text, "k/a.py", &files), expected, "{text:?}");
        }
    }

    #[test]
    fn the_root_is_no_package() {
        let files = ["main.py", "helper.py", "__init__.py"];
        assert_eq!(rewritten("from . import helper", "main.py", &files), "import NS.helper as helper");
        let empty = tree(&files);
        let native = BTreeMap::new();
        let names = Names::new(&empty, "NS", &native);
        assert_eq!(names.of_file("__init__.py"), "NS");
        assert_eq!(names.of_file("k/__init__.py"), "NS.k");
        assert_eq!(names.of_file("k/a.py"), "NS.k.a");
    }

    #[test]
    fn what_does_not_parse_is_refused() {
        let tree = tree(&["a.py"]);
        let native = BTreeMap::new();
        let names = Names::new(&tree, "NS", &native);
        assert!(rewrite("import a as b c", "a.py", &names, Dialect::default()).is_err());
        assert!(check("from NS.a import class as class\n", Dialect::default()).is_err());
    }
}
