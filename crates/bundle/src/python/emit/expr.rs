//! Expressions and patterns.

use super::{Emitted, Emitter, Level};
use crate::python::ast::{
    BinOp, BoolOp, CmpOp, Constant, Expr, ExprKind, Generator, Keyword, Parameter, Parameters, Pattern,
    UnaryOp,
};

pub(super) fn binary(op: BinOp) -> (&'static str, Level) {
    match op {
        BinOp::Add => ("+", Level::Arith),
        BinOp::Sub => ("-", Level::Arith),
        BinOp::Mult => ("*", Level::Term),
        BinOp::MatMult => ("@", Level::Term),
        BinOp::Div => ("/", Level::Term),
        BinOp::Mod => ("%", Level::Term),
        BinOp::FloorDiv => ("//", Level::Term),
        BinOp::Pow => ("**", Level::Power),
        BinOp::LShift => ("<<", Level::Shift),
        BinOp::RShift => (">>", Level::Shift),
        BinOp::BitOr => ("|", Level::BitOr),
        BinOp::BitXor => ("^", Level::BitXor),
        BinOp::BitAnd => ("&", Level::BitAnd),
    }
}

fn comparison(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "==",
        CmpOp::NotEq => "!=",
        CmpOp::Lt => "<",
        CmpOp::LtE => "<=",
        CmpOp::Gt => ">",
        CmpOp::GtE => ">=",
        CmpOp::Is => "is",
        CmpOp::IsNot => "is not",
        CmpOp::In => "in",
        CmpOp::NotIn => "not in",
    }
}

impl Emitter {
    pub(super) fn test(&mut self, expr: &Expr) -> Emitted {
        self.expression(expr, Level::Test)
    }

    fn tests<'e>(&mut self, all: impl IntoIterator<Item = &'e Expr>) -> Emitted {
        self.join(", ", all, Self::test)
    }

    /// Items of a tuple: a single one keeps its comma.
    fn items(&mut self, items: &[Expr]) -> Emitted {
        self.tests(items)?;
        if items.len() == 1 {
            self.write(",");
        }
        Ok(())
    }

    pub(super) fn expression(&mut self, expr: &Expr, context: Level) -> Emitted {
        match &expr.kind {
            ExprKind::Named(target, value) => self.parenthesised(context > Level::Named, |out| {
                out.expression(target, Level::Atom)?;
                out.write(" := ");
                out.expression(value, Level::Atom)
            }),
            ExprKind::Tuple(items) => {
                self.parenthesised(items.is_empty() || context > Level::Tuple, |out| out.items(items))
            }
            ExprKind::Yield(value) => self.parenthesised(context > Level::Yield, |out| {
                out.write("yield");
                value.iter().try_for_each(|value| {
                    out.write(" ");
                    out.expression(value, Level::Atom)
                })
            }),
            ExprKind::YieldFrom(value) => self.parenthesised(context > Level::Yield, |out| {
                out.write("yield from ");
                out.expression(value, Level::Atom)
            }),
            ExprKind::If { test, body, other } => self.parenthesised(context > Level::Test, |out| {
                out.expression(body, Level::Or)?;
                out.write(" if ");
                out.expression(test, Level::Or)?;
                out.write(" else ");
                out.test(other)
            }),
            ExprKind::Lambda(parameters, body) => self.parenthesised(context > Level::Test, |out| {
                out.write("lambda");
                if parameters.all().next().is_some() {
                    out.write(" ");
                    out.parameters(parameters)?;
                }
                out.write(": ");
                out.test(body)
            }),
            _ => self.operation(expr, context),
        }
    }

    fn operation(&mut self, expr: &Expr, context: Level) -> Emitted {
        match &expr.kind {
            ExprKind::BoolOp(op, operands) => self.bool_op(*op, operands, context),
            ExprKind::Compare(first, rest) => self.parenthesised(context > Level::Cmp, |out| {
                out.expression(first, Level::BitOr)?;
                rest.iter().try_for_each(|(op, operand)| {
                    out.write(" ");
                    out.write(comparison(*op));
                    out.write(" ");
                    out.expression(operand, Level::BitOr)
                })
            }),
            ExprKind::BinOp(left, op, right) => {
                let (text, own) = binary(*op);
                let power = *op == BinOp::Pow;
                self.parenthesised(context > own, |out| {
                    out.expression(left, if power { own.next() } else { own })?;
                    out.write(" ");
                    out.write(text);
                    out.write(" ");
                    out.expression(right, if power { own } else { own.next() })
                })
            }
            ExprKind::UnaryOp(op, operand) => {
                let (text, own) = match op {
                    UnaryOp::Not => ("not ", Level::Not),
                    UnaryOp::Plus => ("+", Level::Factor),
                    UnaryOp::Minus => ("-", Level::Factor),
                    UnaryOp::Invert => ("~", Level::Factor),
                };
                self.parenthesised(context > own, |out| {
                    out.write(text);
                    out.expression(operand, own)
                })
            }
            ExprKind::Await(value) => self.parenthesised(context > Level::Await, |out| {
                out.write("await ");
                out.expression(value, Level::Atom)
            }),
            _ => self.atom(expr),
        }
    }

    fn bool_op(&mut self, op: BoolOp, operands: &[Expr], context: Level) -> Emitted {
        let (text, own) = match op {
            BoolOp::And => (" and ", Level::And),
            BoolOp::Or => (" or ", Level::Or),
        };
        self.parenthesised(context > own, |out| {
            // Each operand must bind one level tighter than the one before.
            let mut level = own;
            out.join(text, operands, |out, operand| {
                level = level.next();
                out.expression(operand, level)
            })
        })
    }

    /// Kinds that never get parentheses.
    fn atom(&mut self, expr: &Expr) -> Emitted {
        match &expr.kind {
            ExprKind::Constant(value) => self.constant(value)?,
            ExprKind::Name(name) => self.write(name),
            ExprKind::Attribute(value, attribute) => {
                self.expression(value, Level::Atom)?;
                if matches!(value.kind, ExprKind::Constant(Constant::Int(_) | Constant::Bool(_))) {
                    self.write(" ");
                }
                self.write(".");
                self.write(attribute);
            }
            ExprKind::Call { func, args, keywords } => {
                self.expression(func, Level::Atom)?;
                self.bracketed("(", ")", |out| out.arguments(args, keywords))?;
            }
            ExprKind::Subscript(value, index) => {
                self.expression(value, Level::Atom)?;
                self.bracketed("[", "]", |out| match &index.kind {
                    ExprKind::Tuple(items) if !items.is_empty() => out.items(items),
                    _ => out.test(index),
                })?;
            }
            ExprKind::Starred(value) => {
                self.write("*");
                self.expression(value, Level::BitOr)?;
            }
            ExprKind::Slice(lower, upper, step) => {
                lower.iter().try_for_each(|part| self.test(part))?;
                self.write(":");
                upper.iter().try_for_each(|part| self.test(part))?;
                if let Some(step) = step {
                    self.write(":");
                    self.test(step)?;
                }
            }
            ExprKind::Joined(parts) => self.joined(parts)?,
            _ => self.display(expr)?,
        }
        Ok(())
    }

    /// Lists, sets, dictionaries and comprehensions.
    fn display(&mut self, expr: &Expr) -> Emitted {
        match &expr.kind {
            ExprKind::List(items) => self.bracketed("[", "]", |out| out.tests(items)),
            ExprKind::Set(items) => self.bracketed("{", "}", |out| out.tests(items)),
            ExprKind::Dict(items) => self.bracketed("{", "}", |out| {
                out.join(", ", items, |out, (key, value)| match key {
                    Some(key) => {
                        out.test(key)?;
                        out.write(": ");
                        out.test(value)
                    }
                    None => {
                        out.write("**");
                        out.expression(value, Level::BitOr)
                    }
                })
            }),
            ExprKind::ListComp(head, generators) => {
                self.bracketed("[", "]", |out| out.comprehension(head, None, generators))
            }
            ExprKind::SetComp(head, generators) => {
                self.bracketed("{", "}", |out| out.comprehension(head, None, generators))
            }
            ExprKind::GeneratorExp(head, generators) => {
                self.bracketed("(", ")", |out| out.comprehension(head, None, generators))
            }
            ExprKind::DictComp(key, value, generators) => {
                self.bracketed("{", "}", |out| out.comprehension(key, Some(value), generators))
            }
            _ => Ok(()),
        }
    }

    fn bracketed(&mut self, open: &str, close: &str, inner: impl FnOnce(&mut Self) -> Emitted) -> Emitted {
        self.write(open);
        inner(self)?;
        self.write(close);
        Ok(())
    }

    fn comprehension(&mut self, head: &Expr, value: Option<&Expr>, generators: &[Generator]) -> Emitted {
        self.test(head)?;
        if let Some(value) = value {
            self.write(": ");
            self.test(value)?;
        }
        for generator in generators {
            self.write(if generator.is_async { " async for " } else { " for " });
            self.expression(&generator.target, Level::Tuple)?;
            self.write(" in ");
            self.expression(&generator.iter, Level::Or)?;
            for condition in &generator.ifs {
                self.write(" if ");
                self.expression(condition, Level::Or)?;
            }
        }
        Ok(())
    }

    pub(super) fn arguments(&mut self, args: &[Expr], keywords: &[Keyword]) -> Emitted {
        self.tests(args)?;
        if !args.is_empty() && !keywords.is_empty() {
            self.write(", ");
        }
        self.join(", ", keywords, |out, keyword| {
            match &keyword.arg {
                Some(name) => {
                    out.write(name);
                    out.write("=");
                }
                None => out.write("**"),
            }
            out.test(&keyword.value)
        })
    }

    pub(super) fn parameters(&mut self, all: &Parameters) -> Emitted {
        let mut first = true;
        let mut separate = |out: &mut Self| {
            if !std::mem::take(&mut first) {
                out.write(", ");
            }
        };
        for (index, parameter) in all.positional_only.iter().chain(&all.positional).enumerate() {
            separate(self);
            self.parameter("", parameter)?;
            if index + 1 == all.positional_only.len() {
                self.write(", /");
            }
        }
        if let Some(parameter) = &all.vararg {
            separate(self);
            self.parameter("*", parameter)?;
        } else if !all.keyword_only.is_empty() {
            separate(self);
            self.write("*");
        }
        for parameter in &all.keyword_only {
            separate(self);
            self.parameter("", parameter)?;
        }
        if let Some(parameter) = &all.kwarg {
            separate(self);
            self.parameter("**", parameter)?;
        }
        Ok(())
    }

    fn parameter(&mut self, stars: &str, parameter: &Parameter) -> Emitted {
        self.write(stars);
        self.write(&parameter.name);
        if let Some(annotation) = &parameter.annotation {
            self.write(": ");
            self.test(annotation)?;
        }
        if let Some(default) = &parameter.default {
            self.write("=");
            self.test(default)?;
        }
        Ok(())
    }

    pub(super) fn pattern(&mut self, pattern: &Pattern, context: Level) -> Emitted {
        match pattern {
            Pattern::Value(value) => self.test(value),
            Pattern::Singleton(value) => self.constant(value),
            Pattern::Sequence(items) => self
                .bracketed("[", "]", |out| out.join(", ", items, |out, item| out.pattern(item, Level::Test))),
            Pattern::Mapping { items, rest } => self.bracketed("{", "}", |out| {
                out.join(", ", items, |out, (key, item)| {
                    out.test(key)?;
                    out.write(": ");
                    out.pattern(item, Level::Test)
                })?;
                if let Some(rest) = rest {
                    out.write(if items.is_empty() { "**" } else { ", **" });
                    out.write(rest);
                }
                Ok(())
            }),
            Pattern::Class { class, positional, keywords } => {
                self.expression(class, Level::Atom)?;
                self.bracketed("(", ")", |out| {
                    out.join(", ", positional, |out, item| out.pattern(item, Level::Test))?;
                    if !positional.is_empty() && !keywords.is_empty() {
                        out.write(", ");
                    }
                    out.join(", ", keywords, |out, (name, item)| {
                        out.write(name);
                        out.write("=");
                        out.pattern(item, Level::Test)
                    })
                })
            }
            Pattern::Star(name) => {
                self.write("*");
                self.write(name.as_deref().unwrap_or("_"));
                Ok(())
            }
            Pattern::As(None, name) => {
                self.write(name.as_deref().unwrap_or("_"));
                Ok(())
            }
            Pattern::As(Some(inner), name) => self.parenthesised(context > Level::Test, |out| {
                out.pattern(inner, Level::BitOr)?;
                out.write(" as ");
                out.write(name.as_deref().unwrap_or("_"));
                Ok(())
            }),
            Pattern::Or(items) => self.parenthesised(context > Level::BitOr, |out| {
                out.join(" | ", items, |out, item| out.pattern(item, Level::BitXor))
            }),
        }
    }
}
