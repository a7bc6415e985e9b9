//! Statements.

use super::target::{assignable, single};
use super::token::Kind;
use super::{ParseError, Parsed, Parser};
use crate::python::Dialect;
use crate::python::ast::{Alias, BinOp, ClassDef, Expr, FunctionDef, Handler, Module, Stmt, StmtKind};

/// Contexts and targets of a `with`.
type Items = Vec<(Expr, Option<Expr>)>;

fn augmented(text: &str) -> Option<BinOp> {
    Some(match text {
        "+=" => BinOp::Add,
        "-=" => BinOp::Sub,
        "*=" => BinOp::Mult,
        "@=" => BinOp::MatMult,
        "/=" => BinOp::Div,
        "%=" => BinOp::Mod,
        "&=" => BinOp::BitAnd,
        "|=" => BinOp::BitOr,
        "^=" => BinOp::BitXor,
        "<<=" => BinOp::LShift,
        ">>=" => BinOp::RShift,
        "**=" => BinOp::Pow,
        "//=" => BinOp::FloorDiv,
        _ => return None,
    })
}

impl Parser<'_> {
    pub(super) fn file(&mut self) -> Parsed<Module> {
        let mut body = Vec::new();
        while !self.at_kind(Kind::End) {
            self.statement(&mut body)?;
        }
        Ok(Module { body, depth: u16::try_from(self.deepest).unwrap_or(u16::MAX) })
    }

    /// A statement, or several on one line.
    fn statement(&mut self, into: &mut Vec<Stmt>) -> Parsed<()> {
        let start = self.start();
        let token = self.token();
        let word = if token.kind == Kind::Name { self.slice(token) } else { "" };
        let kind = match word {
            "if" => Some(self.nested(Self::if_statement)?),
            "while" => Some(self.nested(Self::while_statement)?),
            "for" => Some(self.nested(|parser| parser.for_statement(false))?),
            "try" => Some(self.nested(Self::try_statement)?),
            "with" => Some(self.nested(|parser| parser.with_statement(false))?),
            "def" => Some(self.nested(|parser| parser.function(Vec::new(), false))?),
            "class" => Some(self.nested(|parser| parser.class(Vec::new()))?),
            "async" => Some(self.nested(Self::async_statement)?),
            "match" => self.nested(Self::match_statement)?,
            _ if self.at("@") => {
                let stmt = self.nested(Self::decorated)?;
                into.push(stmt);
                return Ok(());
            }
            _ => None,
        };
        match kind {
            Some(kind) => {
                into.push(Stmt { span: self.span(start), kind });
                Ok(())
            }
            None => self.simple_statements(into),
        }
    }

    fn simple_statements(&mut self, into: &mut Vec<Stmt>) -> Parsed<()> {
        loop {
            let start = self.start();
            let kind = self.simple_statement()?;
            into.push(Stmt { span: self.span(start), kind });
            let more = self.eat(";");
            if self.eat_kind(Kind::Newline) {
                return Ok(());
            }
            if !more {
                return self.error("expected the end of the statement");
            }
        }
    }

    fn simple_statement(&mut self) -> Parsed<StmtKind> {
        let token = self.token();
        let word = if token.kind == Kind::Name { self.slice(token) } else { "" };
        let plain = match word {
            "pass" => Some(StmtKind::Pass),
            "break" => Some(StmtKind::Break),
            "continue" => Some(StmtKind::Continue),
            _ => None,
        };
        if let Some(kind) = plain {
            self.pos += 1;
            return Ok(kind);
        }
        let after = self.ahead(1);
        match word {
            "return" => {
                self.pos += 1;
                let value = if self.statement_ends() { None } else { Some(self.star_expressions()?) };
                Ok(StmtKind::Return(value))
            }
            "raise" => self.raise(),
            "del" => {
                self.pos += 1;
                self.del_targets().map(StmtKind::Delete)
            }
            "assert" => {
                self.pos += 1;
                let test = self.expression()?;
                let message = if self.eat(",") { Some(self.expression()?) } else { None };
                Ok(StmtKind::Assert(test, message))
            }
            "global" | "nonlocal" => {
                self.pos += 1;
                let mut names = vec![self.name()?];
                while self.eat(",") {
                    names.push(self.name()?);
                }
                Ok(if word == "global" { StmtKind::Global(names) } else { StmtKind::Nonlocal(names) })
            }
            "import" => self.import(),
            "from" => self.import_from(),
            "type" if self.options.dialect != Dialect::V311 && self.is_name(after) => self.type_alias(),
            _ => self.expression_statement(),
        }
    }

    fn statement_ends(&self) -> bool {
        self.at_kind(Kind::Newline) || self.at(";")
    }

    fn raise(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        if self.statement_ends() {
            return Ok(StmtKind::Raise(None, None));
        }
        let value = self.expression()?;
        let cause = if self.eat("from") { Some(self.expression()?) } else { None };
        Ok(StmtKind::Raise(Some(value), cause))
    }

    fn type_alias(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        let name = self.name()?;
        let type_params = self.type_params()?;
        self.expect("=", "expected `=` in the type alias")?;
        Ok(StmtKind::TypeAlias { name, type_params, value: self.expression()? })
    }

    /// An expression, an assignment of any kind, or an annotation.
    fn expression_statement(&mut self) -> Parsed<StmtKind> {
        let parenthesised = self.at("(");
        let first = self.value()?;
        if self.at(":") {
            single(&first)?;
            self.pos += 1;
            let annotation = self.expression()?;
            let value = if self.eat("=") { Some(self.value()?) } else { None };
            let simple = !parenthesised && first.name().is_some();
            return Ok(StmtKind::AnnAssign { target: first, annotation, value, simple });
        }
        let token = self.token();
        if token.kind == Kind::Op
            && let Some(op) = augmented(self.slice(token))
        {
            single(&first)?;
            self.pos += 1;
            return Ok(StmtKind::AugAssign(first, op, self.value()?));
        }
        if !self.at("=") {
            return Ok(StmtKind::Expr(first));
        }
        let mut targets = Vec::new();
        let mut value = first;
        while self.eat("=") {
            assignable(&value)?;
            targets.push(value);
            value = self.value()?;
        }
        self.type_comment();
        Ok(StmtKind::Assign(targets, value))
    }

    fn value(&mut self) -> Parsed<Expr> {
        if self.at("yield") { self.yield_expr() } else { self.star_expressions() }
    }

    fn dotted(&mut self) -> Parsed<String> {
        let mut name = self.name()?;
        while self.eat(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name)
    }

    fn alias(&mut self, dotted: bool) -> Parsed<Alias> {
        let start = self.start();
        let name = if dotted { self.dotted()? } else { self.name()? };
        let asname = if self.eat("as") { Some(self.name()?) } else { None };
        Ok(Alias { span: self.span(start), name, asname })
    }

    fn import(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        let mut names = vec![self.alias(true)?];
        while self.eat(",") {
            names.push(self.alias(true)?);
        }
        Ok(StmtKind::Import(names))
    }

    fn import_from(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        let mut level = 0;
        loop {
            if self.eat(".") {
                level += 1;
            } else if self.eat("...") {
                level += 3;
            } else {
                break;
            }
        }
        let module = if level > 0 && self.at("import") { None } else { Some(self.dotted()?) };
        self.expect("import", "expected `import`")?;
        let star = self.start();
        if self.eat("*") {
            let names = vec![Alias { span: self.span(star), name: "*".to_owned(), asname: None }];
            return Ok(StmtKind::ImportFrom { module, names, level });
        }
        let parenthesised = self.eat("(");
        let mut names = vec![self.alias(false)?];
        while self.eat(",") {
            if parenthesised && self.at(")") {
                break;
            }
            names.push(self.alias(false)?);
        }
        if parenthesised {
            self.expect(")", "expected `,` or `)` in the import")?;
        }
        Ok(StmtKind::ImportFrom { module, names, level })
    }

    /// The block after a colon that is already taken.
    pub(super) fn block(&mut self) -> Parsed<Vec<Stmt>> {
        let mut body = Vec::new();
        if !self.eat_kind(Kind::Newline) {
            self.simple_statements(&mut body)?;
            return Ok(body);
        }
        if !self.eat_kind(Kind::Indent) {
            return self.error("expected an indented block");
        }
        while !self.eat_kind(Kind::Dedent) {
            if self.at_kind(Kind::End) {
                break;
            }
            self.statement(&mut body)?;
        }
        Ok(body)
    }

    fn colon_block(&mut self) -> Parsed<Vec<Stmt>> {
        self.expect(":", "expected `:`")?;
        self.block()
    }

    fn else_block(&mut self) -> Parsed<Vec<Stmt>> {
        if self.eat("else") { self.colon_block() } else { Ok(Vec::new()) }
    }

    fn if_statement(&mut self) -> Parsed<StmtKind> {
        let mut arms = Vec::new();
        self.pos += 1;
        loop {
            let test = self.named_expression()?;
            arms.push((test, self.colon_block()?));
            if !self.eat("elif") {
                break;
            }
        }
        let mut orelse = self.else_block()?;
        // `else` with nothing but an `if` is the same tree as `elif`.
        while orelse.len() == 1
            && let Some(Stmt { kind: StmtKind::If { .. }, .. }) = orelse.first()
        {
            if let Some(Stmt { kind: StmtKind::If { arms: more, orelse: rest }, .. }) = orelse.pop() {
                arms.extend(more);
                orelse = rest;
            }
        }
        Ok(StmtKind::If { arms, orelse })
    }

    fn while_statement(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        let test = self.named_expression()?;
        let body = self.colon_block()?;
        Ok(StmtKind::While { test, body, orelse: self.else_block()? })
    }

    fn for_statement(&mut self, is_async: bool) -> Parsed<StmtKind> {
        self.pos += 1;
        let target = self.star_targets()?;
        self.expect("in", "expected `in` after the targets")?;
        let iter = self.star_expressions()?;
        self.expect(":", "expected `:`")?;
        self.type_comment();
        let body = self.block()?;
        Ok(StmtKind::For { target, iter, body, orelse: self.else_block()?, is_async })
    }

    fn with_item(&mut self) -> Parsed<(Expr, Option<Expr>)> {
        let value = self.expression()?;
        let target = if self.eat("as") { Some(self.star_target()?) } else { None };
        Ok((value, target))
    }

    fn with_statement(&mut self, is_async: bool) -> Parsed<StmtKind> {
        self.pos += 1;
        let from = self.pos;
        if self.at("(") {
            match self.parenthesised_items() {
                // Before 3.13 a type comment here is only taken after the other reading of the parentheses.
                Ok(Some(items))
                    if self.options.dialect == Dialect::V313 || !self.at_kind(Kind::TypeComment) =>
                {
                    self.type_comment();
                    return Ok(StmtKind::With { items, body: self.block()?, is_async });
                }
                Err(error) if error.budget => return Err(error),
                // Not a list of items: the parenthesis starts an expression.
                _ => self.pos = from,
            }
        }
        let mut items = vec![self.with_item()?];
        while self.eat(",") {
            items.push(self.with_item()?);
        }
        self.expect(":", "expected `:`")?;
        self.type_comment();
        Ok(StmtKind::With { items, body: self.block()?, is_async })
    }

    /// `(a as b, c):` with its colon, or `None` when the closing parenthesis is not followed by one.
    fn parenthesised_items(&mut self) -> Parsed<Option<Items>> {
        self.pos += 1;
        let mut items = vec![self.with_item()?];
        while self.eat(",") {
            if self.at(")") {
                break;
            }
            items.push(self.with_item()?);
        }
        Ok((self.eat(")") && self.eat(":")).then_some(items))
    }

    fn try_statement(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        let body = self.colon_block()?;
        let mut handlers = Vec::new();
        let mut star = false;
        while self.eat("except") {
            let starred = self.eat("*");
            if handlers.is_empty() {
                star = starred;
            } else if star != starred {
                return self.error("`except` and `except*` cannot be mixed");
            }
            let mut handler = Handler { kind: None, name: None, body: Vec::new() };
            if !self.at(":") || starred {
                handler.kind = Some(self.expression()?);
                if self.eat("as") {
                    handler.name = Some(self.name()?);
                }
            }
            handler.body = self.colon_block()?;
            handlers.push(handler);
        }
        let orelse = if handlers.is_empty() { Vec::new() } else { self.else_block()? };
        let mut finalbody = Vec::new();
        if self.eat("finally") {
            finalbody = self.colon_block()?;
        } else if handlers.is_empty() {
            return self.error("expected `except` or `finally`");
        }
        Ok(StmtKind::Try { body, handlers, orelse, finalbody, star })
    }

    fn async_statement(&mut self) -> Parsed<StmtKind> {
        self.pos += 1;
        if self.at("def") {
            self.function(Vec::new(), true)
        } else if self.at("for") {
            self.for_statement(true)
        } else if self.at("with") {
            self.with_statement(true)
        } else {
            self.error("expected `def`, `for` or `with` after `async`")
        }
    }

    fn decorated(&mut self) -> Parsed<Stmt> {
        let mut decorators = Vec::new();
        while self.eat("@") {
            decorators.push(self.named_expression()?);
            if !self.eat_kind(Kind::Newline) {
                return self.error("expected the end of the decorator");
            }
        }
        let start = self.start();
        let is_async = self.at("async") && self.is(self.ahead(1), "def");
        self.pos += usize::from(is_async);
        let kind = if self.at("def") {
            self.function(decorators, is_async)?
        } else if self.at("class") {
            self.class(decorators)?
        } else {
            return self.error("expected a function or class after the decorator");
        };
        Ok(Stmt { span: self.span(start), kind })
    }

    fn function(&mut self, decorators: Vec<Expr>, is_async: bool) -> Parsed<StmtKind> {
        self.pos += 1;
        let name = self.name()?;
        let type_params = self.type_params()?;
        self.expect("(", "expected `(`")?;
        let parameters = self.parameters(")")?;
        self.expect(")", "expected `)`")?;
        let returns = if self.eat("->") { Some(self.expression()?) } else { None };
        self.expect(":", "expected `:`")?;
        self.function_type_comment()?;
        let body = self.block()?;
        let function = FunctionDef { name, type_params, parameters, returns, body, decorators, is_async };
        Ok(StmtKind::Function(Box::new(function)))
    }

    /// A type comment after the colon, or alone on the first line of the body.
    fn function_type_comment(&mut self) -> Parsed<()> {
        if self.at_kind(Kind::Newline) && self.ahead(1).kind == Kind::TypeComment {
            if self.ahead(2).kind != Kind::Newline || self.ahead(3).kind != Kind::Indent {
                return Err(ParseError::new(self.ahead(1).start, "a type comment stands where none may"));
            }
            self.pos += 2;
        } else {
            self.type_comment();
        }
        Ok(())
    }

    fn class(&mut self, decorators: Vec<Expr>) -> Parsed<StmtKind> {
        self.pos += 1;
        let name = self.name()?;
        let type_params = self.type_params()?;
        let (mut bases, mut keywords) = (Vec::new(), Vec::new());
        if self.eat("(") {
            (bases, keywords) = self.arguments(false)?;
            self.expect(")", "expected `,` or `)`")?;
        }
        let body = self.colon_block()?;
        Ok(StmtKind::Class(Box::new(ClassDef { name, type_params, bases, keywords, body, decorators })))
    }
}
