//! Walking a tree.

use super::ast::{
    Case, ClassDef, Expr, ExprKind, FunctionDef, Generator, Keyword, Parameters, Part, Pattern, Stmt,
    StmtKind, TypeParam,
};

/// What wants to see a tree. Every method goes on below by default.
pub trait Visitor {
    /// A statement.
    fn statement(&mut self, stmt: &Stmt) {
        statement(self, stmt);
    }

    /// An expression.
    fn expression(&mut self, expr: &Expr) {
        expression(self, expr);
    }

    /// A pattern.
    fn pattern(&mut self, node: &Pattern) {
        pattern(self, node);
    }

    /// A parameter list.
    fn parameters(&mut self, all: &Parameters) {
        parameters(self, all);
    }

    /// Type parameters.
    fn type_params(&mut self, all: &[TypeParam]) {
        for param in all {
            for expr in param.bound.iter().chain(&param.default) {
                self.expression(expr);
            }
        }
    }
}

/// Visits statements in order.
pub fn statements<V: Visitor + ?Sized>(visitor: &mut V, body: &[Stmt]) {
    for stmt in body {
        visitor.statement(stmt);
    }
}

fn expressions<'e, V: Visitor + ?Sized>(visitor: &mut V, all: impl IntoIterator<Item = &'e Expr>) {
    for expr in all {
        visitor.expression(expr);
    }
}

fn keywords<V: Visitor + ?Sized>(visitor: &mut V, all: &[Keyword]) {
    expressions(visitor, all.iter().map(|keyword| &keyword.value));
}

/// Visits what is directly below a parameter list.
pub fn parameters<V: Visitor + ?Sized>(visitor: &mut V, all: &Parameters) {
    expressions(
        visitor,
        all.all().flat_map(|parameter| parameter.annotation.iter().chain(&parameter.default)),
    );
}

fn function<V: Visitor + ?Sized>(visitor: &mut V, def: &FunctionDef) {
    expressions(visitor, &def.decorators);
    visitor.type_params(&def.type_params);
    visitor.parameters(&def.parameters);
    expressions(visitor, &def.returns);
    statements(visitor, &def.body);
}

fn class<V: Visitor + ?Sized>(visitor: &mut V, def: &ClassDef) {
    expressions(visitor, &def.decorators);
    visitor.type_params(&def.type_params);
    expressions(visitor, &def.bases);
    keywords(visitor, &def.keywords);
    statements(visitor, &def.body);
}

fn case<V: Visitor + ?Sized>(visitor: &mut V, case: &Case) {
    visitor.pattern(&case.pattern);
    expressions(visitor, &case.guard);
    statements(visitor, &case.body);
}

/// Visits what is directly below a statement.
pub fn statement<V: Visitor + ?Sized>(visitor: &mut V, stmt: &Stmt) {
    match &stmt.kind {
        StmtKind::Function(def) => function(visitor, def),
        StmtKind::Class(def) => class(visitor, def),
        StmtKind::Return(value) => expressions(visitor, value),
        StmtKind::Delete(targets) => expressions(visitor, targets),
        StmtKind::Assign(targets, value) => expressions(visitor, targets.iter().chain([value])),
        StmtKind::TypeAlias { type_params, value, .. } => {
            visitor.type_params(type_params);
            visitor.expression(value);
        }
        StmtKind::AugAssign(target, _, value) => expressions(visitor, [target, value]),
        StmtKind::AnnAssign { target, annotation, value, .. } => {
            expressions(visitor, [target, annotation].into_iter().chain(value));
        }
        StmtKind::For { target, iter, body, orelse, .. } => {
            expressions(visitor, [target, iter]);
            statements(visitor, body);
            statements(visitor, orelse);
        }
        StmtKind::While { test, body, orelse } => {
            visitor.expression(test);
            statements(visitor, body);
            statements(visitor, orelse);
        }
        StmtKind::If { arms, orelse } => {
            for (test, body) in arms {
                visitor.expression(test);
                statements(visitor, body);
            }
            statements(visitor, orelse);
        }
        StmtKind::With { items, body, .. } => {
            expressions(visitor, items.iter().flat_map(|(value, target)| [value].into_iter().chain(target)));
            statements(visitor, body);
        }
        StmtKind::Match { subject, cases } => {
            visitor.expression(subject);
            for arm in cases {
                case(visitor, arm);
            }
        }
        StmtKind::Raise(value, cause) => expressions(visitor, value.iter().chain(cause)),
        StmtKind::Try { body, handlers, orelse, finalbody, .. } => {
            statements(visitor, body);
            for handler in handlers {
                expressions(visitor, &handler.kind);
                statements(visitor, &handler.body);
            }
            statements(visitor, orelse);
            statements(visitor, finalbody);
        }
        StmtKind::Assert(test, message) => expressions(visitor, [test].into_iter().chain(message)),
        StmtKind::Expr(value) => visitor.expression(value),
        StmtKind::Import(_)
        | StmtKind::ImportFrom { .. }
        | StmtKind::Global(_)
        | StmtKind::Nonlocal(_)
        | StmtKind::Pass
        | StmtKind::Break
        | StmtKind::Continue => {}
    }
}

/// Visits what is directly below an expression.
pub fn expression<V: Visitor + ?Sized>(visitor: &mut V, expr: &Expr) {
    if let ExprKind::Lambda(parameters, body) = &expr.kind {
        visitor.parameters(parameters);
        visitor.expression(body);
        return;
    }
    children(expr, &mut |child| visitor.expression(child));
}

fn parts<'e>(all: &'e [Part], see: &mut impl FnMut(&'e Expr)) {
    for part in all {
        if let Part::Field { value, spec, .. } = part {
            see(value);
            parts(spec.as_deref().unwrap_or_default(), see);
        }
    }
}

fn comprehension<'e>(heads: &[&'e Expr], generators: &'e [Generator], see: &mut impl FnMut(&'e Expr)) {
    heads.iter().for_each(|head| see(head));
    for generator in generators {
        see(&generator.target);
        see(&generator.iter);
        generator.ifs.iter().for_each(&mut *see);
    }
}

/// Every expression directly below another, in the order of the text.
pub fn children<'e>(expr: &'e Expr, see: &mut impl FnMut(&'e Expr)) {
    match &expr.kind {
        ExprKind::BoolOp(_, items)
        | ExprKind::Set(items)
        | ExprKind::List(items)
        | ExprKind::Tuple(items) => {
            items.iter().for_each(see);
        }
        ExprKind::Named(left, right) | ExprKind::BinOp(left, _, right) | ExprKind::Subscript(left, right) => {
            see(left);
            see(right);
        }
        ExprKind::UnaryOp(_, value)
        | ExprKind::Await(value)
        | ExprKind::YieldFrom(value)
        | ExprKind::Attribute(value, _)
        | ExprKind::Starred(value) => see(value),
        ExprKind::Lambda(parameters, body) => {
            for parameter in parameters.all() {
                parameter.annotation.iter().chain(&parameter.default).for_each(&mut *see);
            }
            see(body);
        }
        ExprKind::If { test, body, other } => {
            see(body);
            see(test);
            see(other);
        }
        ExprKind::Dict(items) => {
            for (key, value) in items {
                key.iter().for_each(&mut *see);
                see(value);
            }
        }
        ExprKind::ListComp(head, generators)
        | ExprKind::SetComp(head, generators)
        | ExprKind::GeneratorExp(head, generators) => comprehension(&[head], generators, see),
        ExprKind::DictComp(key, value, generators) => comprehension(&[key, value], generators, see),
        ExprKind::Yield(value) => value.iter().for_each(|value| see(value)),
        ExprKind::Compare(first, rest) => {
            see(first);
            rest.iter().for_each(|(_, operand)| see(operand));
        }
        ExprKind::Call { func, args, keywords } => {
            see(func);
            args.iter().for_each(&mut *see);
            keywords.iter().for_each(|keyword| see(&keyword.value));
        }
        ExprKind::Joined(all) => parts(all, see),
        ExprKind::Slice(lower, upper, step) => {
            [lower, upper, step].into_iter().flatten().for_each(|part| see(part));
        }
        ExprKind::Constant(_) | ExprKind::Name(_) => {}
    }
}

/// Visits what is directly below a pattern.
pub fn pattern<V: Visitor + ?Sized>(visitor: &mut V, node: &Pattern) {
    match node {
        Pattern::Value(value) => visitor.expression(value),
        Pattern::Sequence(items) | Pattern::Or(items) => items.iter().for_each(|item| visitor.pattern(item)),
        Pattern::Mapping { items, .. } => {
            for (key, item) in items {
                visitor.expression(key);
                visitor.pattern(item);
            }
        }
        Pattern::Class { class, positional, keywords } => {
            visitor.expression(class);
            positional
                .iter()
                .chain(keywords.iter().map(|(_, item)| item))
                .for_each(|item| visitor.pattern(item));
        }
        Pattern::As(inner, _) => inner.iter().for_each(|inner| visitor.pattern(inner)),
        Pattern::Singleton(_) | Pattern::Star(_) => {}
    }
}
