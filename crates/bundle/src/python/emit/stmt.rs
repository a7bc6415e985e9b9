//! Statements.

use super::expr::binary;
use super::{Emitted, Emitter, Level};
use crate::python::ast::{
    Alias, ClassDef, Constant, Expr, ExprKind, FunctionDef, Handler, Stmt, StmtKind, TypeParam, TypeParamKind,
};

impl Emitter {
    /// Statements of a module, class or function (`documented`: a string that stands first has a form of its own) or of
    /// any other block.
    pub(super) fn body(&mut self, body: &[&Stmt], documented: bool) -> Emitted {
        let mut rest = body;
        if documented
            && let Some((first, after)) = body.split_first()
            && let StmtKind::Expr(Expr { kind: ExprKind::Constant(Constant::Str { value, unicode }), .. }) =
                &first.kind
        {
            self.docstring(value, *unicode);
            rest = after;
        }
        rest.iter().try_for_each(|stmt| self.statement(stmt))
    }

    /// `:` and an indented block.
    fn block(&mut self, body: &[Stmt], documented: bool) -> Emitted {
        self.write(":");
        self.indent += 1;
        self.body(&body.iter().collect::<Vec<_>>(), documented)?;
        self.indent -= 1;
        Ok(())
    }

    fn headed(&mut self, head: &str, body: &[Stmt]) -> Emitted {
        if body.is_empty() {
            return Ok(());
        }
        self.line(head);
        self.block(body, false)
    }

    /// The blank line before a definition.
    fn gap(&mut self) {
        if !self.out.is_empty() {
            self.write("\n");
        }
    }

    fn names(&mut self, head: &str, names: &[String]) -> Emitted {
        self.line(head);
        self.join(", ", names, |out, name| {
            out.write(name);
            Ok(())
        })
    }

    fn aliases(&mut self, names: &[Alias]) -> Emitted {
        self.join(", ", names, |out, alias| {
            out.write(&alias.name);
            if let Some(name) = &alias.asname {
                out.write(" as ");
                out.write(name);
            }
            Ok(())
        })
    }

    fn optional(&mut self, before: &str, value: Option<&Expr>) -> Emitted {
        match value {
            Some(value) => {
                self.write(before);
                self.test(value)
            }
            None => Ok(()),
        }
    }

    pub(super) fn statement(&mut self, stmt: &Stmt) -> Emitted {
        match &stmt.kind {
            StmtKind::Return(value) => {
                self.line("return");
                self.optional(" ", value.as_ref())?;
            }
            StmtKind::Delete(targets) => {
                self.line("del ");
                self.join(", ", targets, Self::test)?;
            }
            StmtKind::Assign(targets, value) => {
                self.line("");
                for target in targets {
                    self.expression(target, Level::Tuple)?;
                    self.write(" = ");
                }
                self.test(value)?;
            }
            StmtKind::TypeAlias { name, type_params, value } => {
                self.line("type ");
                self.write(name);
                self.type_params(type_params)?;
                self.write(" = ");
                self.test(value)?;
            }
            StmtKind::AugAssign(target, op, value) => {
                self.line("");
                self.test(target)?;
                self.write(" ");
                self.write(binary(*op).0);
                self.write("= ");
                self.test(value)?;
            }
            StmtKind::AnnAssign { target, annotation, value, simple } => {
                self.line("");
                self.parenthesised(!simple && target.name().is_some(), |out| out.test(target))?;
                self.write(": ");
                self.test(annotation)?;
                self.optional(" = ", value.as_ref())?;
            }
            StmtKind::Raise(value, cause) => {
                self.line("raise");
                self.optional(" ", value.as_ref())?;
                self.optional(" from ", cause.as_ref())?;
            }
            StmtKind::Assert(test, message) => {
                self.line("assert ");
                self.test(test)?;
                self.optional(", ", message.as_ref())?;
            }
            StmtKind::Expr(value) => {
                self.line("");
                self.expression(value, Level::Yield)?;
            }
            StmtKind::Global(names) => self.names("global ", names)?,
            StmtKind::Nonlocal(names) => self.names("nonlocal ", names)?,
            StmtKind::Pass => self.line("pass"),
            StmtKind::Break => self.line("break"),
            StmtKind::Continue => self.line("continue"),
            _ => self.compound(stmt)?,
        }
        Ok(())
    }

    fn compound(&mut self, stmt: &Stmt) -> Emitted {
        match &stmt.kind {
            StmtKind::Function(def) => self.function(def),
            StmtKind::Class(def) => self.class(def),
            StmtKind::Import(names) => {
                self.line("import ");
                self.aliases(names)
            }
            StmtKind::ImportFrom { module, names, level } => {
                self.line("from ");
                for _ in 0..*level {
                    self.write(".");
                }
                self.write(module.as_deref().unwrap_or_default());
                self.write(" import ");
                self.aliases(names)
            }
            StmtKind::For { target, iter, body, orelse, is_async } => {
                self.line(if *is_async { "async for " } else { "for " });
                self.expression(target, Level::Tuple)?;
                self.write(" in ");
                self.test(iter)?;
                self.block(body, false)?;
                self.headed("else", orelse)
            }
            StmtKind::While { test, body, orelse } => {
                self.line("while ");
                self.test(test)?;
                self.block(body, false)?;
                self.headed("else", orelse)
            }
            StmtKind::If { arms, orelse } => {
                for (index, (test, body)) in arms.iter().enumerate() {
                    self.line(if index == 0 { "if " } else { "elif " });
                    self.test(test)?;
                    self.block(body, false)?;
                }
                self.headed("else", orelse)
            }
            StmtKind::With { items, body, is_async } => {
                self.line(if *is_async { "async with " } else { "with " });
                self.join(", ", items, |out, (value, target)| {
                    out.test(value)?;
                    out.optional(" as ", target.as_ref())
                })?;
                self.block(body, false)
            }
            StmtKind::Match { subject, cases } => {
                self.line("match ");
                self.test(subject)?;
                self.write(":");
                self.indent += 1;
                for case in cases {
                    self.line("case ");
                    self.pattern(&case.pattern, Level::Test)?;
                    self.optional(" if ", case.guard.as_ref())?;
                    self.block(&case.body, false)?;
                }
                self.indent -= 1;
                Ok(())
            }
            StmtKind::Try { body, handlers, orelse, finalbody, star } => {
                self.headed("try", body)?;
                handlers.iter().try_for_each(|handler| self.handler(handler, *star))?;
                self.headed("else", orelse)?;
                self.headed("finally", finalbody)
            }
            _ => Ok(()),
        }
    }

    fn handler(&mut self, handler: &Handler, star: bool) -> Emitted {
        self.line(if star { "except*" } else { "except" });
        self.optional(" ", handler.kind.as_ref())?;
        if let Some(name) = &handler.name {
            self.write(" as ");
            self.write(name);
        }
        self.block(&handler.body, false)
    }

    fn decorators(&mut self, decorators: &[Expr]) -> Emitted {
        self.gap();
        decorators.iter().try_for_each(|decorator| {
            self.line("@");
            self.test(decorator)
        })
    }

    fn function(&mut self, def: &FunctionDef) -> Emitted {
        self.decorators(&def.decorators)?;
        self.line(if def.is_async { "async def " } else { "def " });
        self.write(&def.name);
        self.type_params(&def.type_params)?;
        self.write("(");
        self.parameters(&def.parameters)?;
        self.write(")");
        self.optional(" -> ", def.returns.as_ref())?;
        self.block(&def.body, true)
    }

    fn class(&mut self, def: &ClassDef) -> Emitted {
        self.decorators(&def.decorators)?;
        self.line("class ");
        self.write(&def.name);
        self.type_params(&def.type_params)?;
        if !def.bases.is_empty() || !def.keywords.is_empty() {
            self.write("(");
            self.arguments(&def.bases, &def.keywords)?;
            self.write(")");
        }
        self.block(&def.body, true)
    }

    fn type_params(&mut self, all: &[TypeParam]) -> Emitted {
        if all.is_empty() {
            return Ok(());
        }
        self.write("[");
        self.join(", ", all, |out, param| {
            out.write(match param.kind {
                TypeParamKind::Var => "",
                TypeParamKind::Tuple => "*",
                TypeParamKind::Spec => "**",
            });
            out.write(&param.name);
            out.optional(": ", param.bound.as_ref())?;
            out.optional(" = ", param.default.as_ref())
        })?;
        self.write("]");
        Ok(())
    }
}
