//! Advice on Triton sources (`spec/10-contribution.md` §9.3). It cannot tell reachable from dead kernels and decides
//! nothing.

use crate::finding::{Finding, Place};
use crate::python::Source;
use crate::python::ast::{Expr, ExprKind, FunctionDef, Module, Stmt, StmtKind};
use crate::python::visit::{self, Visitor};
use crate::rule::Rule;

/// Every call of `triton.next_power_of_2` inside a function decorated as `jit`, once per such function around it.
#[must_use]
pub fn host_helpers(path: &str, source: &Source, module: &Module) -> Vec<Finding> {
    let mut scan = Scan { path, source, inside: Vec::new(), findings: Vec::new() };
    visit::statements(&mut scan, &module.body);
    scan.findings
}

struct Scan<'a> {
    path: &'a str,
    source: &'a Source,
    inside: Vec<String>,
    findings: Vec<Finding>,
}

fn is_jit(def: &FunctionDef) -> bool {
    def.decorators.iter().any(|decorator| {
        let named = if let ExprKind::Call { func, .. } = &decorator.kind { func } else { decorator };
        match &named.kind {
            ExprKind::Name(name) | ExprKind::Attribute(_, name) => name == "jit",
            _ => false,
        }
    })
}

impl Visitor for Scan<'_> {
    fn statement(&mut self, stmt: &Stmt) {
        let entered = match &stmt.kind {
            StmtKind::Function(def) if is_jit(def) => Some(def.name.clone()),
            _ => None,
        };
        let outer = self.inside.len();
        self.inside.extend(entered);
        visit::statement(self, stmt);
        self.inside.truncate(outer);
    }

    fn expression(&mut self, expr: &Expr) {
        if let ExprKind::Call { func, .. } = &expr.kind
            && let ExprKind::Attribute(value, attribute) = &func.kind
            && attribute == "next_power_of_2"
            && value.name() == Some("triton")
        {
            for function in &self.inside {
                let place = Place::at(self.path, self.source.position(expr.span.start));
                let problem =
                    format!("triton.next_power_of_2 in the jit function `{function}` is a host helper");
                let subject = format!("next_power_of_2 {function}");
                self.findings.push(Finding::new(Rule::TritonHostHelper, place, problem).about(subject));
            }
        }
        visit::expression(self, expr);
    }
}
