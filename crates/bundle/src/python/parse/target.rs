//! What may stand on the left: assignment targets, loop targets, `del` targets.

use super::token::Kind;
use super::{ParseError, Parsed, Parser, deepest};
use crate::python::ast::{Expr, ExprKind};

const BAD: &str = "this cannot be assigned to";

/// Whether an expression is a target of an assignment; `star` admits `*a` here.
fn check(expr: &Expr, star: bool, del: bool) -> Parsed<()> {
    match &expr.kind {
        ExprKind::Name(_) | ExprKind::Attribute(..) | ExprKind::Subscript(..) => Ok(()),
        ExprKind::Starred(inner) if star && !matches!(inner.kind, ExprKind::Starred(_)) => {
            check(inner, false, del)
        }
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            items.iter().try_for_each(|item| check(item, !del, del))
        }
        _ => Err(ParseError::new(expr.span.start, BAD)),
    }
}

/// Whether an expression is a target of `=`.
pub(super) fn assignable(expr: &Expr) -> Parsed<()> {
    check(expr, true, false)
}

/// Whether an expression is one name, attribute or subscript.
pub(super) fn single(expr: &Expr) -> Parsed<()> {
    match &expr.kind {
        ExprKind::Name(_) | ExprKind::Attribute(..) | ExprKind::Subscript(..) => Ok(()),
        _ => Err(ParseError::new(expr.span.start, BAD)),
    }
}

impl Parser<'_> {
    /// One target of a loop or `with`.
    pub(super) fn star_target(&mut self) -> Parsed<Expr> {
        let start = self.start();
        if self.eat("*") {
            if self.at("*") {
                return self.error(BAD);
            }
            let inner = self.star_target()?;
            let depth = inner.depth;
            return self.node(start, depth, ExprKind::Starred(Box::new(inner)));
        }
        let target = self.primary()?;
        check(&target, false, false)?;
        Ok(target)
    }

    /// The targets of a loop: one, or a tuple without parentheses.
    pub(super) fn star_targets(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let first = self.star_target()?;
        if !self.at(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat(",") {
            if self.at("in") || self.at("=") {
                break;
            }
            items.push(self.star_target()?);
        }
        self.node(start, deepest(&items), ExprKind::Tuple(items))
    }

    /// The targets of `del`.
    pub(super) fn del_targets(&mut self) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        loop {
            let target = self.primary()?;
            check(&target, false, true)?;
            items.push(target);
            if !self.eat(",") || self.at(";") || self.at_kind(Kind::Newline) {
                return Ok(items);
            }
        }
    }
}
