//! Names and calls that load or compile code at run time.

use super::Modules;
use super::jit::Jit;
use crate::finding::{Finding, Place, Ruled};
use crate::python::Source;
use crate::python::ast::{Constant, Expr, ExprKind, Keyword, Module, Part, Span, Stmt, StmtKind};
use crate::python::visit::{self, Visitor};
use crate::rule::Rule;

/// Checks one file.
pub(super) fn check(path: &str, source: &Source, module: &Module, modules: &Modules<'_>) -> Ruled<()> {
    let jit = Jit::of(module, modules);
    let mut scan = Scan { path, source, jit, refused: None };
    visit::statements(&mut scan, &module.body);
    match scan.refused {
        Some(finding) => Err(Box::new(finding)),
        None => Ok(()),
    }
}

struct Scan<'a> {
    path: &'a str,
    source: &'a Source,
    jit: Jit,
    refused: Option<Finding>,
}

impl Scan<'_> {
    fn refuse(&mut self, span: Span, problem: String) {
        let place = Place::at(self.path, self.source.position(span.start));
        self.refused.get_or_insert(Finding::new(Rule::PythonDynamic, place, problem));
    }

    fn imported(&mut self, stmt: &Stmt, name: &str) {
        if matches!(name, "__import__" | "import_module" | "builtins") {
            self.refuse(stmt.span, format!("`{name}` may not be imported"));
        }
    }

    fn text(&mut self, span: Span, value: &crate::python::string::PyString) {
        if *value == *"__import__" || *value == *"import_module" {
            self.refuse(span, format!("the string {value:?} may not stand in a source"));
        }
    }

    fn parts(&mut self, span: Span, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Text(value) => self.text(span, value),
                Part::Field { spec, .. } => self.parts(span, spec.as_deref().unwrap_or_default()),
            }
        }
    }

    fn call(&mut self, call: &Expr, func: &Expr, args: &[Expr], keywords: &[Keyword]) {
        match &func.kind {
            ExprKind::Name(name) if name == "import_module" => {
                self.refuse(call.span, "`import_module` may not be called".to_owned());
            }
            ExprKind::Attribute(value, attribute) => {
                let refused = matches!(
                    attribute.as_str(),
                    "compile"
                        | "eval"
                        | "exec"
                        | "__import__"
                        | "import_module"
                        | "load_module"
                        | "exec_module"
                        | "spec_from_file_location"
                );
                let admitted = attribute == "compile" && self.jit.admits(value, args, keywords);
                if refused && !admitted {
                    self.refuse(call.span, format!("`.{attribute}(...)` may not be called"));
                }
            }
            _ => {}
        }
    }
}

impl Visitor for Scan<'_> {
    fn statement(&mut self, stmt: &Stmt) {
        if let StmtKind::Import(names) | StmtKind::ImportFrom { names, .. } = &stmt.kind {
            for alias in names {
                self.imported(stmt, &alias.name);
            }
        }
        visit::statement(self, stmt);
    }

    fn expression(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Name(name) if matches!(name.as_str(), "eval" | "exec" | "compile" | "__import__") => {
                self.refuse(expr.span, format!("`{name}` may not be named"));
            }
            ExprKind::Constant(Constant::Str { value, .. }) => self.text(expr.span, value),
            ExprKind::Joined(parts) => self.parts(expr.span, parts),
            ExprKind::Call { func, args, keywords } => self.call(expr, func, args, keywords),
            _ => {}
        }
        visit::expression(self, expr);
    }
}
