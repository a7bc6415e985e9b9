//! Expressions.

use super::literal;
use super::token::{Kind, Token};
use super::{Parsed, Parser, deepest};
use crate::python::ast::{BinOp, BoolOp, CmpOp, Constant, Expr, ExprKind, Generator, Keyword, UnaryOp};

/// Positional arguments, then keyword arguments.
type Arguments = (Vec<Expr>, Vec<Keyword>);

/// Binary operators by binding strength, weakest first.
fn binary(text: &str) -> Option<(u8, BinOp)> {
    Some(match text {
        "|" => (0, BinOp::BitOr),
        "^" => (1, BinOp::BitXor),
        "&" => (2, BinOp::BitAnd),
        "<<" => (3, BinOp::LShift),
        ">>" => (3, BinOp::RShift),
        "+" => (4, BinOp::Add),
        "-" => (4, BinOp::Sub),
        "*" => (5, BinOp::Mult),
        "/" => (5, BinOp::Div),
        "//" => (5, BinOp::FloorDiv),
        "%" => (5, BinOp::Mod),
        "@" => (5, BinOp::MatMult),
        _ => return None,
    })
}

impl Parser<'_> {
    /// A list with an optional final comma: one item alone, or a tuple.
    fn listed(&mut self, item: impl Fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let start = self.start();
        let first = item(self)?;
        if !self.at(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat(",") {
            if !self.expression_follows() {
                break;
            }
            items.push(item(self)?);
        }
        self.node(start, deepest(&items), ExprKind::Tuple(items))
    }

    /// Whether the next token can start an expression or a starred one.
    fn expression_follows(&self) -> bool {
        let token = self.token();
        match token.kind {
            Kind::Number | Kind::Str | Kind::FieldStart => true,
            Kind::Name => {
                self.is_name(token)
                    || matches!(self.slice(token), "None" | "True" | "False" | "not" | "lambda" | "await")
            }
            Kind::Op => matches!(self.slice(token), "(" | "[" | "{" | "-" | "+" | "~" | "..." | "*"),
            _ => false,
        }
    }

    pub(super) fn star_expressions(&mut self) -> Parsed<Expr> {
        self.listed(Self::star_expression)
    }

    pub(super) fn star_expression(&mut self) -> Parsed<Expr> {
        if self.at("*") { self.starred(|parser| parser.binary(0)) } else { self.expression() }
    }

    pub(super) fn star_named_expression(&mut self) -> Parsed<Expr> {
        if self.at("*") { self.starred(|parser| parser.binary(0)) } else { self.named_expression() }
    }

    fn starred(&mut self, value: impl Fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let start = self.start();
        self.pos += 1;
        let value = value(self)?;
        let depth = value.depth;
        self.node(start, depth, ExprKind::Starred(Box::new(value)))
    }

    pub(super) fn yield_expr(&mut self) -> Parsed<Expr> {
        let start = self.start();
        self.pos += 1;
        if self.eat("from") {
            let value = self.expression()?;
            let depth = value.depth;
            return self.node(start, depth, ExprKind::YieldFrom(Box::new(value)));
        }
        if !self.expression_follows() {
            return self.node(start, 0, ExprKind::Yield(None));
        }
        let value = self.star_expressions()?;
        let depth = value.depth;
        self.node(start, depth, ExprKind::Yield(Some(Box::new(value))))
    }

    pub(super) fn named_expression(&mut self) -> Parsed<Expr> {
        let start = self.start();
        if self.at_name() && self.is(self.ahead(1), ":=") {
            let name = self.name()?;
            let target = self.node(start, 0, ExprKind::Name(name))?;
            self.pos += 1;
            let value = self.expression()?;
            let depth = value.depth.max(1);
            return self.node(start, depth, ExprKind::Named(Box::new(target), Box::new(value)));
        }
        let value = self.expression()?;
        if self.at(":=") { self.error("only a plain name can stand before `:=`") } else { Ok(value) }
    }

    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let start = parser.start();
            if parser.at("lambda") {
                return parser.lambda();
            }
            let body = parser.disjunction()?;
            if !parser.eat("if") {
                return Ok(body);
            }
            let test = parser.disjunction()?;
            parser.expect("else", "a conditional expression needs `else`")?;
            let other = parser.expression()?;
            let depth = body.depth.max(test.depth).max(other.depth);
            let (test, body, other) = (Box::new(test), Box::new(body), Box::new(other));
            parser.node(start, depth, ExprKind::If { test, body, other })
        })
    }

    fn lambda(&mut self) -> Parsed<Expr> {
        let start = self.start();
        self.pos += 1;
        let parameters = self.parameters(":")?;
        self.expect(":", "expected `:` after the lambda's parameters")?;
        let body = self.expression()?;
        let depth =
            deepest(parameters.all().filter_map(|parameter| parameter.default.as_ref())).max(body.depth);
        self.node(start, depth, ExprKind::Lambda(Box::new(parameters), Box::new(body)))
    }

    pub(super) fn disjunction(&mut self) -> Parsed<Expr> {
        self.flat("or", BoolOp::Or, |parser| parser.flat("and", BoolOp::And, Self::inversion))
    }

    fn flat(&mut self, word: &str, op: BoolOp, operand: impl Fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let start = self.start();
        let first = operand(self)?;
        if !self.at(word) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.eat(word) {
            operands.push(operand(self)?);
        }
        self.node(start, deepest(&operands), ExprKind::BoolOp(op, operands))
    }

    fn inversion(&mut self) -> Parsed<Expr> {
        if !self.at("not") {
            return self.comparison();
        }
        self.nested(|parser| {
            let start = parser.start();
            parser.pos += 1;
            let operand = parser.inversion()?;
            let depth = operand.depth;
            parser.node(start, depth, ExprKind::UnaryOp(UnaryOp::Not, Box::new(operand)))
        })
    }

    fn comparison_operator(&mut self) -> Option<CmpOp> {
        let token = self.token();
        if !matches!(token.kind, Kind::Op | Kind::Name) {
            return None;
        }
        let (op, length) = match self.slice(token) {
            "==" => (CmpOp::Eq, 1),
            "!=" => (CmpOp::NotEq, 1),
            "<" => (CmpOp::Lt, 1),
            "<=" => (CmpOp::LtE, 1),
            ">" => (CmpOp::Gt, 1),
            ">=" => (CmpOp::GtE, 1),
            "in" => (CmpOp::In, 1),
            "not" if self.is(self.ahead(1), "in") => (CmpOp::NotIn, 2),
            "is" if self.is(self.ahead(1), "not") => (CmpOp::IsNot, 2),
            "is" => (CmpOp::Is, 1),
            _ => return None,
        };
        self.pos += length;
        Some(op)
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let first = self.binary(0)?;
        let mut rest = Vec::new();
        while let Some(op) = self.comparison_operator() {
            rest.push((op, self.binary(0)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let depth = deepest(rest.iter().map(|(_, operand)| operand)).max(first.depth);
        self.node(start, depth, ExprKind::Compare(Box::new(first), rest))
    }

    pub(super) fn binary(&mut self, weakest: u8) -> Parsed<Expr> {
        let start = self.start();
        let mut left = self.factor()?;
        loop {
            let token = self.token();
            let found = if token.kind == Kind::Op { binary(self.slice(token)) } else { None };
            let Some((strength, op)) = found.filter(|(strength, _)| *strength >= weakest) else {
                return Ok(left);
            };
            self.pos += 1;
            let right = self.binary(strength + 1)?;
            let depth = left.depth.max(right.depth);
            left = self.node(start, depth, ExprKind::BinOp(Box::new(left), op, Box::new(right)))?;
        }
    }

    fn factor(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let op = match self.token().kind {
            Kind::Op => match self.slice(self.token()) {
                "+" => Some(UnaryOp::Plus),
                "-" => Some(UnaryOp::Minus),
                "~" => Some(UnaryOp::Invert),
                _ => None,
            },
            _ => None,
        };
        if let Some(op) = op {
            self.pos += 1;
            let operand = self.nested(Self::factor)?;
            let depth = operand.depth;
            return self.node(start, depth, ExprKind::UnaryOp(op, Box::new(operand)));
        }
        let base = if self.eat("await") {
            let value = self.primary()?;
            let depth = value.depth;
            self.node(start, depth, ExprKind::Await(Box::new(value)))?
        } else {
            self.primary()?
        };
        if !self.eat("**") {
            return Ok(base);
        }
        let exponent = self.nested(Self::factor)?;
        let depth = base.depth.max(exponent.depth);
        self.node(start, depth, ExprKind::BinOp(Box::new(base), BinOp::Pow, Box::new(exponent)))
    }

    pub(super) fn primary(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut value = self.atom()?;
        loop {
            let depth = value.depth;
            if self.eat(".") {
                let attribute = self.name()?;
                value = self.node(start, depth, ExprKind::Attribute(Box::new(value), attribute))?;
            } else if self.eat("(") {
                let (args, keywords) = self.nested(|parser| parser.arguments(true))?;
                self.expect(")", "expected `,` or `)` in the call")?;
                let below =
                    deepest(&args).max(deepest(keywords.iter().map(|keyword| &keyword.value))).max(depth);
                value = self.node(start, below, ExprKind::Call { func: Box::new(value), args, keywords })?;
            } else if self.eat("[") {
                let index = self.nested(Self::slices)?;
                self.expect("]", "expected `,` or `]` in the subscript")?;
                let below = depth.max(index.depth);
                value = self.node(start, below, ExprKind::Subscript(Box::new(value), Box::new(index)))?;
            } else {
                return Ok(value);
            }
        }
    }

    fn slices(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let first = self.slice_item()?;
        if !self.at(",") && !matches!(first.kind, ExprKind::Starred(_)) {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat(",") {
            if self.at("]") {
                break;
            }
            items.push(self.slice_item()?);
        }
        self.node(start, deepest(&items), ExprKind::Tuple(items))
    }

    fn slice_item(&mut self) -> Parsed<Expr> {
        let start = self.start();
        if self.at("*") {
            return self.starred(Self::expression);
        }
        let named = self.is(self.ahead(1), ":=");
        let lower = if self.at(":") { None } else { Some(self.named_expression()?) };
        if named || !self.at(":") {
            return match lower {
                Some(value) => Ok(value),
                None => self.error("expected an expression"),
            };
        }
        self.pos += 1;
        let part = |parser: &mut Self| {
            if parser.at(":") || parser.at(",") || parser.at("]") {
                Ok(None)
            } else {
                parser.expression().map(Some)
            }
        };
        let upper = part(self)?;
        let step = if self.eat(":") { part(self)? } else { None };
        let depth = deepest([&lower, &upper, &step].into_iter().flatten());
        let boxed = |part: Option<Expr>| part.map(Box::new);
        self.node(start, depth, ExprKind::Slice(boxed(lower), boxed(upper), boxed(step)))
    }

    /// Arguments up to (not including) the closing bracket; a lone generator only in calls.
    pub(super) fn arguments(&mut self, generator: bool) -> Parsed<Arguments> {
        let mut args = Vec::new();
        let mut keywords: Vec<Keyword> = Vec::new();
        let mut unpacked = false;
        while !self.at(")") {
            let start = self.start();
            if self.eat("**") {
                unpacked = true;
                keywords.push(Keyword { arg: None, value: self.expression()? });
            } else if self.at("*") {
                if unpacked {
                    return self.error("`*` arguments stand before `**` ones");
                }
                args.push(self.starred(Self::expression)?);
            } else if self.at_name() && self.is(self.ahead(1), "=") {
                let arg = Some(self.name()?);
                self.pos += 1;
                keywords.push(Keyword { arg, value: self.expression()? });
            } else {
                let value = self.named_expression()?;
                if self.at("for") || self.at("async") {
                    if !generator || !args.is_empty() || !keywords.is_empty() {
                        return self.error("a generator beside other arguments needs parentheses");
                    }
                    let generators = self.generators()?;
                    if !self.at(")") {
                        return self.error("a generator beside other arguments needs parentheses");
                    }
                    // As the interpreters do, the generator's place is that of the call's parentheses.
                    let expr =
                        self.comprehension(start - 1, vec![value], generators, |mut parts, generators| {
                            parts.pop().map(|elt| ExprKind::GeneratorExp(Box::new(elt), generators))
                        })?;
                    return Ok((vec![expr], keywords));
                }
                if !keywords.is_empty() {
                    return self.error("a positional argument follows a keyword one");
                }
                args.push(value);
            }
            if !self.eat(",") {
                break;
            }
        }
        Ok((args, keywords))
    }

    fn comprehension(
        &mut self,
        start: usize,
        parts: Vec<Expr>,
        generators: Vec<Generator>,
        build: impl FnOnce(Vec<Expr>, Vec<Generator>) -> Option<ExprKind>,
    ) -> Parsed<Expr> {
        let inside = generators
            .iter()
            .map(|generator| deepest(&generator.ifs).max(generator.target.depth).max(generator.iter.depth));
        let depth = deepest(&parts).max(inside.max().unwrap_or(0));
        match build(parts, generators) {
            Some(kind) => self.node(start, depth, kind),
            None => self.error("expected an expression"),
        }
    }

    fn generators(&mut self) -> Parsed<Vec<Generator>> {
        let mut all = Vec::new();
        while self.at("for") || self.at("async") {
            let is_async = self.eat("async");
            self.expect("for", "expected `for` after `async`")?;
            let target = self.star_targets()?;
            self.expect("in", "expected `in` after the targets")?;
            let iter = self.disjunction()?;
            let mut ifs = Vec::new();
            while self.eat("if") {
                ifs.push(self.disjunction()?);
            }
            all.push(Generator { target, iter, ifs, is_async });
        }
        Ok(all)
    }

    fn atom(&mut self) -> Parsed<Expr> {
        let token = self.token();
        let start = token.start;
        match token.kind {
            Kind::Name => {
                let constant = match self.slice(token) {
                    "None" => Constant::None,
                    "True" => Constant::Bool(true),
                    "False" => Constant::Bool(false),
                    _ => {
                        let name = self.name()?;
                        return self.node(start, 0, ExprKind::Name(name));
                    }
                };
                self.pos += 1;
                self.node(start, 0, ExprKind::Constant(constant))
            }
            Kind::Number => self.number(token),
            Kind::Str | Kind::FieldStart => self.strings(),
            Kind::Op => match self.slice(token) {
                "(" => self.nested(Self::group),
                "[" => self.nested(Self::list),
                "{" => self.nested(Self::braces),
                "..." => {
                    self.pos += 1;
                    self.node(start, 0, ExprKind::Constant(Constant::Ellipsis))
                }
                _ => self.error("expected an expression"),
            },
            _ => self.error("expected an expression"),
        }
    }

    fn number(&mut self, token: Token) -> Parsed<Expr> {
        let value = literal::number(self.slice(token), token.start)?;
        self.pos += 1;
        self.node(token.start, 0, ExprKind::Constant(value))
    }

    fn group(&mut self) -> Parsed<Expr> {
        let start = self.start();
        self.pos += 1;
        if self.eat(")") {
            return self.node(start, 0, ExprKind::Tuple(Vec::new()));
        }
        if self.at("yield") {
            let value = self.yield_expr()?;
            self.expect(")", "expected `)`")?;
            return Ok(value);
        }
        let first = self.star_named_expression()?;
        let starred = matches!(first.kind, ExprKind::Starred(_));
        if (self.at("for") || self.at("async")) && !starred {
            let generators = self.generators()?;
            self.expect(")", "expected `)` after the generator")?;
            return self.comprehension(start, vec![first], generators, |mut parts, generators| {
                parts.pop().map(|elt| ExprKind::GeneratorExp(Box::new(elt), generators))
            });
        }
        if !self.at(",") {
            if starred {
                return self.error("a starred expression needs a comma after it");
            }
            self.expect(")", "expected `,` or `)`")?;
            return Ok(first);
        }
        let items = self.rest(first, ")")?;
        self.node(start, deepest(&items), ExprKind::Tuple(items))
    }

    /// The further items of a display, its closing bracket included.
    fn rest(&mut self, first: Expr, close: &'static str) -> Parsed<Vec<Expr>> {
        let mut items = vec![first];
        while self.eat(",") {
            if self.at(close) {
                break;
            }
            items.push(self.star_named_expression()?);
        }
        self.expect(close, "expected `,` or the closing bracket")?;
        Ok(items)
    }

    fn list(&mut self) -> Parsed<Expr> {
        let start = self.start();
        self.pos += 1;
        if self.eat("]") {
            return self.node(start, 0, ExprKind::List(Vec::new()));
        }
        let first = self.star_named_expression()?;
        if (self.at("for") || self.at("async")) && !matches!(first.kind, ExprKind::Starred(_)) {
            let generators = self.generators()?;
            self.expect("]", "expected `]` after the comprehension")?;
            return self.comprehension(start, vec![first], generators, |mut parts, generators| {
                parts.pop().map(|elt| ExprKind::ListComp(Box::new(elt), generators))
            });
        }
        let items = self.rest(first, "]")?;
        self.node(start, deepest(&items), ExprKind::List(items))
    }

    fn braces(&mut self) -> Parsed<Expr> {
        let start = self.start();
        self.pos += 1;
        if self.eat("}") {
            return self.node(start, 0, ExprKind::Dict(Vec::new()));
        }
        if self.at("**") {
            return self.dict(start, Vec::new());
        }
        let walrus = self.is(self.ahead(1), ":=");
        let first = self.star_named_expression()?;
        let starred = matches!(first.kind, ExprKind::Starred(_));
        if !walrus && !starred && self.eat(":") {
            let value = self.expression()?;
            if self.at("for") || self.at("async") {
                let generators = self.generators()?;
                self.expect("}", "expected `}` after the comprehension")?;
                return self.comprehension(start, vec![first, value], generators, |mut parts, generators| {
                    let value = parts.pop()?;
                    let key = parts.pop()?;
                    Some(ExprKind::DictComp(Box::new(key), Box::new(value), generators))
                });
            }
            if !self.at("}") {
                self.expect(",", "expected `,` or `}` in the dictionary")?;
            }
            return self.dict(start, vec![(Some(first), value)]);
        }
        if (self.at("for") || self.at("async")) && !starred {
            let generators = self.generators()?;
            self.expect("}", "expected `}` after the comprehension")?;
            return self.comprehension(start, vec![first], generators, |mut parts, generators| {
                parts.pop().map(|elt| ExprKind::SetComp(Box::new(elt), generators))
            });
        }
        let items = self.rest(first, "}")?;
        self.node(start, deepest(&items), ExprKind::Set(items))
    }

    fn dict(&mut self, start: usize, mut items: Vec<(Option<Expr>, Expr)>) -> Parsed<Expr> {
        while !self.eat("}") {
            if self.eat("**") {
                items.push((None, self.binary(0)?));
            } else {
                let key = self.expression()?;
                self.expect(":", "expected `:` after the key")?;
                items.push((Some(key), self.expression()?));
            }
            if !self.at("}") {
                self.expect(",", "expected `,` or `}` in the dictionary")?;
            }
        }
        let depth = deepest(items.iter().flat_map(|(key, value)| key.iter().chain([value])));
        self.node(start, depth, ExprKind::Dict(items))
    }
}
