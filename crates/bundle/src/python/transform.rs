//! The two reductions of a tree that fingerprints are made of (`spec/10-contribution.md` §10.1).

use super::ast::{
    Constant, Expr, ExprKind, Generator, Keyword, Module, Parameter, Part, Pattern, Span, Stmt, StmtKind,
    TypeParam,
};
use super::string::PyString;

/// Drops the leading string of every module, class and function body; a body left empty becomes `pass`.
pub fn drop_docstrings(module: &mut Module) {
    undocumented(&mut module.body);
    blocks(&mut module.body, &mut |body, documented| {
        if documented {
            undocumented(body);
        }
    });
}

fn undocumented(body: &mut Vec<Stmt>) {
    let text = |stmt: &Stmt| {
        matches!(&stmt.kind, StmtKind::Expr(Expr { kind: ExprKind::Constant(Constant::Str { .. }), .. }))
    };
    if body.first().is_some_and(text) {
        body.remove(0);
        if body.is_empty() {
            body.push(Stmt { span: Span::default(), kind: StmtKind::Pass });
        }
    }
}

/// Visits every block below some statements, outermost first; the flag tells bodies of functions and classes.
fn blocks(body: &mut [Stmt], see: &mut impl FnMut(&mut Vec<Stmt>, bool)) {
    for stmt in body {
        let mut each = |block: &mut Vec<Stmt>, documented: bool| {
            see(block, documented);
            blocks(block, see);
        };
        match &mut stmt.kind {
            StmtKind::Function(def) => each(&mut def.body, true),
            StmtKind::Class(def) => each(&mut def.body, true),
            StmtKind::For { body, orelse, .. } | StmtKind::While { body, orelse, .. } => {
                each(body, false);
                each(orelse, false);
            }
            StmtKind::If { arms, orelse } => {
                arms.iter_mut().for_each(|(_, body)| each(body, false));
                each(orelse, false);
            }
            StmtKind::With { body, .. } => each(body, false),
            StmtKind::Match { cases, .. } => cases.iter_mut().for_each(|case| each(&mut case.body, false)),
            StmtKind::Try { body, handlers, orelse, finalbody, .. } => {
                each(body, false);
                handlers.iter_mut().for_each(|handler| each(&mut handler.body, false));
                each(orelse, false);
                each(finalbody, false);
            }
            _ => {}
        }
    }
}

/// Turns names, parameters and constants into placeholders; what is left is the shape of the program.
pub fn skeleton(module: &mut Module) {
    module.body.iter_mut().for_each(statement);
}

fn typed(value: &Constant) -> Constant {
    let name = match value {
        Constant::None => "NoneType",
        Constant::Bool(_) => "bool",
        Constant::Ellipsis => "ellipsis",
        Constant::Int(_) => "int",
        Constant::Float(_) => "float",
        Constant::Complex(_) => "complex",
        Constant::Str { .. } => "str",
        Constant::Bytes(_) => "bytes",
    };
    Constant::Str { value: PyString::from(name), unicode: false }
}

fn parts(all: &mut [Part]) {
    for part in all {
        match part {
            Part::Text(text) => *text = PyString::from("str"),
            Part::Field { value, spec, .. } => {
                expression(value);
                parts(spec.as_deref_mut().unwrap_or_default());
            }
        }
    }
}

fn parameters<'p>(all: impl IntoIterator<Item = &'p mut Parameter>) {
    for parameter in all {
        "_a".clone_into(&mut parameter.name);
        parameter.annotation = None;
        parameter.default.iter_mut().for_each(expression);
    }
}

fn all_parameters(all: &mut super::ast::Parameters) {
    parameters(&mut all.positional_only);
    parameters(&mut all.positional);
    parameters(&mut all.vararg);
    parameters(&mut all.keyword_only);
    parameters(&mut all.kwarg);
}

fn generators(all: &mut [Generator]) {
    for generator in all {
        expression(&mut generator.target);
        expression(&mut generator.iter);
        generator.ifs.iter_mut().for_each(expression);
    }
}

fn keywords(all: &mut [Keyword]) {
    all.iter_mut().for_each(|keyword| expression(&mut keyword.value));
}

fn expression(expr: &mut Expr) {
    match &mut expr.kind {
        ExprKind::Name(name) => "_v".clone_into(name),
        ExprKind::Constant(value) => *value = typed(value),
        ExprKind::Joined(all) => parts(all),
        ExprKind::BoolOp(_, items)
        | ExprKind::Set(items)
        | ExprKind::List(items)
        | ExprKind::Tuple(items) => items.iter_mut().for_each(expression),
        ExprKind::Named(left, right) | ExprKind::BinOp(left, _, right) | ExprKind::Subscript(left, right) => {
            expression(left);
            expression(right);
        }
        ExprKind::UnaryOp(_, value)
        | ExprKind::Await(value)
        | ExprKind::YieldFrom(value)
        | ExprKind::Attribute(value, _)
        | ExprKind::Starred(value) => expression(value),
        ExprKind::Lambda(parameters, body) => {
            all_parameters(parameters);
            expression(body);
        }
        ExprKind::If { test, body, other } => {
            [test, body, other].into_iter().for_each(|part| expression(part))
        }
        ExprKind::Dict(items) => {
            for (key, value) in items {
                key.iter_mut().for_each(expression);
                expression(value);
            }
        }
        ExprKind::ListComp(head, all) | ExprKind::SetComp(head, all) | ExprKind::GeneratorExp(head, all) => {
            expression(head);
            generators(all);
        }
        ExprKind::DictComp(key, value, all) => {
            expression(key);
            expression(value);
            generators(all);
        }
        ExprKind::Yield(value) => value.iter_mut().for_each(|value| expression(value)),
        ExprKind::Compare(first, rest) => {
            expression(first);
            rest.iter_mut().for_each(|(_, operand)| expression(operand));
        }
        ExprKind::Call { func, args, keywords: named } => {
            expression(func);
            args.iter_mut().for_each(expression);
            keywords(named);
        }
        ExprKind::Slice(lower, upper, step) => {
            [lower, upper, step].into_iter().flatten().for_each(|part| expression(part));
        }
    }
}

fn type_params(all: &mut [TypeParam]) {
    for param in all {
        param.bound.iter_mut().chain(&mut param.default).for_each(expression);
    }
}

fn pattern(node: &mut Pattern) {
    match node {
        Pattern::Value(value) => expression(value),
        Pattern::Sequence(items) | Pattern::Or(items) => items.iter_mut().for_each(pattern),
        Pattern::Mapping { items, .. } => {
            for (key, item) in items {
                expression(key);
                pattern(item);
            }
        }
        Pattern::Class { class, positional, keywords } => {
            expression(class);
            positional.iter_mut().for_each(pattern);
            keywords.iter_mut().for_each(|(_, item)| pattern(item));
        }
        Pattern::As(inner, _) => inner.iter_mut().for_each(|inner| pattern(inner)),
        Pattern::Singleton(_) | Pattern::Star(_) => {}
    }
}

fn body(all: &mut [Stmt]) {
    all.iter_mut().for_each(statement);
}

fn statement(stmt: &mut Stmt) {
    match &mut stmt.kind {
        StmtKind::Function(def) => {
            def.decorators.iter_mut().chain(&mut def.returns).for_each(expression);
            type_params(&mut def.type_params);
            all_parameters(&mut def.parameters);
            body(&mut def.body);
        }
        StmtKind::Class(def) => {
            def.decorators.iter_mut().chain(&mut def.bases).for_each(expression);
            type_params(&mut def.type_params);
            keywords(&mut def.keywords);
            body(&mut def.body);
        }
        StmtKind::Return(value) => value.iter_mut().for_each(expression),
        StmtKind::Delete(targets) => targets.iter_mut().for_each(expression),
        StmtKind::Assign(targets, value) => {
            targets.iter_mut().for_each(expression);
            expression(value);
        }
        StmtKind::TypeAlias { name, type_params: params, value } => {
            // The alias is a name like any other.
            "_v".clone_into(name);
            type_params(params);
            expression(value);
        }
        StmtKind::AugAssign(target, _, value) => {
            expression(target);
            expression(value);
        }
        StmtKind::AnnAssign { target, annotation, value, .. } => {
            expression(target);
            expression(annotation);
            value.iter_mut().for_each(expression);
        }
        StmtKind::For { target, iter, body: inner, orelse, .. } => {
            expression(target);
            expression(iter);
            body(inner);
            body(orelse);
        }
        StmtKind::While { test, body: inner, orelse } => {
            expression(test);
            body(inner);
            body(orelse);
        }
        StmtKind::If { arms, orelse } => {
            for (test, inner) in arms {
                expression(test);
                body(inner);
            }
            body(orelse);
        }
        StmtKind::With { items, body: inner, .. } => {
            for (value, target) in items {
                expression(value);
                target.iter_mut().for_each(expression);
            }
            body(inner);
        }
        StmtKind::Match { subject, cases } => {
            expression(subject);
            for case in cases {
                pattern(&mut case.pattern);
                case.guard.iter_mut().for_each(expression);
                body(&mut case.body);
            }
        }
        StmtKind::Raise(value, cause) => value.iter_mut().chain(cause).for_each(expression),
        StmtKind::Try { body: inner, handlers, orelse, finalbody, .. } => {
            body(inner);
            for handler in handlers {
                handler.kind.iter_mut().for_each(expression);
                body(&mut handler.body);
            }
            body(orelse);
            body(finalbody);
        }
        StmtKind::Assert(test, message) => {
            expression(test);
            message.iter_mut().for_each(expression);
        }
        StmtKind::Expr(value) => expression(value),
        StmtKind::Import(_)
        | StmtKind::ImportFrom { .. }
        | StmtKind::Global(_)
        | StmtKind::Nonlocal(_)
        | StmtKind::Pass
        | StmtKind::Break
        | StmtKind::Continue => {}
    }
}
