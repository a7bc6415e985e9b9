//! The projections of a Python file's definitions (`spec/10-contribution.md` §10.2).

use super::SUBSTANTIAL;
use super::normal::projected;
use crate::finding::Ruled;
use crate::python::Dialect;
use crate::python::ast::{Alias, Expr, ExprKind, Module, Stmt, StmtKind};
use crate::python::visit::{self, Visitor};
use cacheon_identity::{Digest, sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The fingerprints of every top-level function and class: alone, with what it needs, and with unused imports pruned.
/// Only projections of [`SUBSTANTIAL`] size count.
///
/// # Errors
/// A projection that the dialect cannot write.
pub fn fingerprints(path: &str, module: &Module, dialect: Dialect) -> Ruled<BTreeSet<Digest>> {
    let facts: Vec<Facts> = module.body.iter().map(Facts::of).collect();
    let mut bound: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, fact) in facts.iter().enumerate() {
        bound.extend(fact.binds.iter().map(|name| (name.as_str(), index)));
    }
    let mut all = BTreeSet::new();
    for (index, stmt) in module.body.iter().enumerate() {
        if !matches!(stmt.kind, StmtKind::Function(_) | StmtKind::Class(_)) {
            continue;
        }
        let chosen = needed(index, module, &facts, &bound);
        let whole: Vec<Stmt> = chosen.iter().map(|index| module.body[*index].clone()).collect();
        let loads: BTreeSet<&str> =
            chosen.iter().flat_map(|index| &facts[*index].loads).map(String::as_str).collect();
        let pruned = whole.iter().map(|stmt| prune(stmt, &loads)).collect();
        for projection in [vec![stmt.clone()], whole, pruned] {
            let text = projected(path, projection, module.depth, dialect)?;
            if text.chars().count() >= SUBSTANTIAL {
                all.insert(sha256(text.as_bytes()));
            }
        }
    }
    Ok(all)
}

fn is_future(stmt: &Stmt) -> bool {
    matches!(&stmt.kind, StmtKind::ImportFrom { module: Some(module), level: 0, .. } if module == "__future__")
}

/// The statements that a definition needs, itself and `__future__` lines included, in source order.
fn needed(start: usize, module: &Module, facts: &[Facts], bound: &BTreeMap<&str, usize>) -> BTreeSet<usize> {
    let mut chosen: BTreeSet<usize> =
        module.body.iter().enumerate().filter(|(_, stmt)| is_future(stmt)).map(|(index, _)| index).collect();
    let mut waiting = vec![start];
    while let Some(index) = waiting.pop() {
        if chosen.insert(index) {
            waiting.extend(facts[index].loads.iter().filter_map(|name| bound.get(name.as_str())));
        }
    }
    chosen
}

fn prune(stmt: &Stmt, loads: &BTreeSet<&str>) -> Stmt {
    let mut pruned = stmt.clone();
    if !is_future(stmt)
        && let StmtKind::Import(names) | StmtKind::ImportFrom { names, .. } = &mut pruned.kind
    {
        let dotted = matches!(stmt.kind, StmtKind::Import(_));
        names.retain(|alias| alias.name == "*" || loads.contains(bound_by(alias, dotted)));
    }
    pruned
}

fn bound_by(alias: &Alias, dotted: bool) -> &str {
    match &alias.asname {
        Some(name) => name,
        None if dotted => alias.name.split('.').next().unwrap_or_default(),
        None => &alias.name,
    }
}

/// Names that a top-level statement reads anywhere inside, and names it binds.
#[derive(Debug, Default)]
struct Facts {
    loads: BTreeSet<String>,
    binds: Vec<String>,
}

impl Facts {
    fn of(stmt: &Stmt) -> Self {
        let mut facts = Self::default();
        match &stmt.kind {
            StmtKind::Function(def) => facts.binds.push(def.name.clone()),
            StmtKind::Class(def) => facts.binds.push(def.name.clone()),
            StmtKind::Import(names) => {
                facts.binds.extend(names.iter().map(|alias| bound_by(alias, true).to_owned()));
            }
            StmtKind::ImportFrom { names, .. } => {
                let named = names.iter().filter(|alias| alias.name != "*");
                facts.binds.extend(named.map(|alias| bound_by(alias, false).to_owned()));
            }
            StmtKind::Assign(targets, _) => targets.iter().for_each(|target| facts.target(target)),
            StmtKind::AugAssign(target, ..) | StmtKind::AnnAssign { target, .. } => facts.target(target),
            _ => {}
        }
        facts.statement(stmt);
        facts
    }

    fn target(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Name(name) => self.binds.push(name.clone()),
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().for_each(|item| self.target(item)),
            _ => {}
        }
    }

    /// What a target reads: everything but the names it stores to.
    fn stored(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Name(_) => {}
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().for_each(|item| self.stored(item)),
            ExprKind::Starred(inner) => self.stored(inner),
            _ => self.expression(expr),
        }
    }
}

impl Visitor for Facts {
    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign(targets, value) => {
                targets.iter().for_each(|target| self.stored(target));
                self.expression(value);
            }
            StmtKind::AugAssign(target, _, value) => {
                self.stored(target);
                self.expression(value);
            }
            StmtKind::AnnAssign { target, annotation, value, .. } => {
                self.stored(target);
                self.expression(annotation);
                value.iter().for_each(|value| self.expression(value));
            }
            StmtKind::Delete(targets) => targets.iter().for_each(|target| self.stored(target)),
            StmtKind::For { target, iter, body, orelse, .. } => {
                self.stored(target);
                self.expression(iter);
                visit::statements(self, body);
                visit::statements(self, orelse);
            }
            StmtKind::With { items, body, .. } => {
                for (value, target) in items {
                    self.expression(value);
                    target.iter().for_each(|target| self.stored(target));
                }
                visit::statements(self, body);
            }
            _ => visit::statement(self, stmt),
        }
    }

    fn expression(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Name(name) => {
                self.loads.insert(name.clone());
            }
            ExprKind::Named(target, value) => {
                self.stored(target);
                self.expression(value);
            }
            ExprKind::ListComp(head, generators)
            | ExprKind::SetComp(head, generators)
            | ExprKind::GeneratorExp(head, generators) => self.comprehension(&[head], generators),
            ExprKind::DictComp(key, value, generators) => self.comprehension(&[key, value], generators),
            _ => visit::expression(self, expr),
        }
    }
}

impl Facts {
    fn comprehension(&mut self, heads: &[&Expr], generators: &[crate::python::ast::Generator]) {
        heads.iter().for_each(|head| self.expression(head));
        for generator in generators {
            self.stored(&generator.target);
            self.expression(&generator.iter);
            generator.ifs.iter().for_each(|condition| self.expression(condition));
        }
    }
}
