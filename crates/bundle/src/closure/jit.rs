//! The one admitted compile call: `cute.compile(obj, ...)` on a name that can only be the DSL.

use super::Modules;
use crate::python::ast::{
    Constant, Expr, ExprKind, Keyword, Module, Parameters, Pattern, Stmt, StmtKind, TypeParam,
};
use crate::python::visit::{self, Visitor};
use std::collections::BTreeMap;

/// What a file says about its names, as far as the exception needs it.
#[derive(Debug, Default)]
pub(super) struct Jit {
    /// How often each name is bound, anywhere in the file.
    bound: BTreeMap<String, usize>,
    /// Names bound by an admitted import.
    imported: Vec<String>,
    /// Names that `import sys` binds.
    sys: Vec<String>,
    /// Names whose `.modules` is taken.
    modules_of: Vec<String>,
    /// Whether something in the file could rebind a name unseen.
    reflective: bool,
    /// Whether the bundle itself holds `cutlass` or `cutlass.cute`.
    shadowed: bool,
}

impl Jit {
    pub(super) fn of(module: &Module, modules: &Modules<'_>) -> Self {
        let shadowed = modules.is_local(&["cutlass"]) || modules.is_local(&["cutlass", "cute"]);
        let mut jit = Self { shadowed, ..Self::default() };
        visit::statements(&mut jit, &module.body);
        jit
    }

    /// Whether `receiver.compile(args, keywords)` is the admitted call.
    pub(super) fn admits(&self, receiver: &Expr, args: &[Expr], keywords: &[Keyword]) -> bool {
        let Some(name) = receiver.name() else { return false };
        let literal =
            |expr: &Expr| matches!(expr.kind, ExprKind::Constant(Constant::Str { .. } | Constant::Bytes(_)));
        let object =
            args.first().is_some_and(|first| !matches!(first.kind, ExprKind::Starred(_)) && !literal(first));
        object
            && !keywords.iter().any(|keyword| literal(&keyword.value))
            && self.bound.get(name) == Some(&1)
            && self.imported.iter().any(|imported| imported == name)
            && !self.shadowed
            && !self.reflective
            && !self.modules_of.iter().any(|name| self.sys.contains(name))
    }

    fn bind(&mut self, name: &str) {
        *self.bound.entry(name.to_owned()).or_default() += 1;
    }

    fn bind_all<'n>(&mut self, names: impl IntoIterator<Item = &'n String>) {
        names.into_iter().for_each(|name| self.bind(name));
    }

    /// Binds the plain names of a target.
    fn target(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Name(name) => self.bind(name),
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().for_each(|item| self.target(item)),
            ExprKind::Starred(inner) => self.target(inner),
            _ => {}
        }
    }

    fn import(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Import(names) => {
                for alias in names {
                    let first = alias.name.split('.').next().unwrap_or_default();
                    let name = alias.asname.as_deref().unwrap_or(first);
                    self.bind(name);
                    if alias.name == "cutlass.cute" && alias.asname.is_some() {
                        self.imported.push(name.to_owned());
                    }
                    if alias.name == "sys" {
                        self.sys.push(name.to_owned());
                    }
                }
            }
            StmtKind::ImportFrom { module, names, level } => {
                for alias in names {
                    if alias.name == "*" {
                        self.reflective = true;
                        continue;
                    }
                    let name = alias.asname.as_deref().unwrap_or(&alias.name);
                    self.bind(name);
                    if *level == 0 && module.as_deref() == Some("cutlass") && alias.name == "cute" {
                        self.imported.push(name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
}

impl Visitor for Jit {
    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Import(_) | StmtKind::ImportFrom { .. } => self.import(stmt),
            StmtKind::Function(def) => self.bind(&def.name),
            StmtKind::Class(def) => self.bind(&def.name),
            StmtKind::Delete(targets) | StmtKind::Assign(targets, _) => {
                targets.iter().for_each(|target| self.target(target));
            }
            StmtKind::AugAssign(target, ..)
            | StmtKind::AnnAssign { target, .. }
            | StmtKind::For { target, .. } => self.target(target),
            StmtKind::With { items, .. } => {
                items.iter().filter_map(|(_, target)| target.as_ref()).for_each(|target| self.target(target));
            }
            StmtKind::TypeAlias { name, .. } => self.bind(name),
            StmtKind::Try { handlers, .. } => {
                self.bind_all(handlers.iter().filter_map(|handler| handler.name.as_ref()));
            }
            StmtKind::Global(names) | StmtKind::Nonlocal(names) => self.bind_all(names),
            _ => {}
        }
        visit::statement(self, stmt);
    }

    fn expression(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Named(target, _) => self.target(target),
            ExprKind::ListComp(_, generators)
            | ExprKind::SetComp(_, generators)
            | ExprKind::GeneratorExp(_, generators)
            | ExprKind::DictComp(_, _, generators) => {
                generators.iter().for_each(|generator| self.target(&generator.target));
            }
            ExprKind::Call { func, .. } => {
                let name = func.name().unwrap_or_default();
                self.reflective |= matches!(name, "setattr" | "delattr" | "globals" | "vars" | "locals");
            }
            ExprKind::Attribute(value, attribute) => {
                self.reflective |= matches!(
                    attribute.as_str(),
                    "__setattr__" | "__delattr__" | "__dict__" | "__globals__" | "__builtins__"
                );
                if attribute == "modules" {
                    self.modules_of.extend(value.name().map(str::to_owned));
                }
            }
            _ => {}
        }
        visit::expression(self, expr);
    }

    fn pattern(&mut self, node: &Pattern) {
        match node {
            Pattern::As(_, Some(name)) | Pattern::Star(Some(name)) => self.bind(name),
            Pattern::Mapping { rest: Some(rest), .. } => self.bind(rest),
            _ => {}
        }
        visit::pattern(self, node);
    }

    fn parameters(&mut self, all: &Parameters) {
        self.bind_all(all.all().map(|parameter| &parameter.name));
        visit::parameters(self, all);
    }

    fn type_params(&mut self, all: &[TypeParam]) {
        self.bind_all(all.iter().map(|param| &param.name));
        for param in all {
            for expr in param.bound.iter().chain(&param.default) {
                self.expression(expr);
            }
        }
    }
}
