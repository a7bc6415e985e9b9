//! `match` statements.

use super::token::Kind;
use super::{ParseError, Parsed, Parser};
use crate::python::ast::{BinOp, Case, Constant, Expr, ExprKind, Pattern, Span, StmtKind, UnaryOp};

impl Parser<'_> {
    /// A `match` statement, or `None` (nothing taken) when the word is an ordinary name here.
    pub(super) fn match_statement(&mut self) -> Parsed<Option<StmtKind>> {
        let from = self.pos;
        self.pos += 1;
        let Ok(subject) = self.subject() else {
            // A subject that is too deep is so in any reading.
            if self.overflowed {
                return self.too_deep();
            }
            self.pos = from;
            return Ok(None);
        };
        let block =
            self.eat(":") && self.eat_kind(Kind::Newline) && self.eat_kind(Kind::Indent) && self.at("case");
        if !block {
            self.pos = from;
            return Ok(None);
        }
        let mut cases = Vec::new();
        while !self.eat_kind(Kind::Dedent) {
            self.expect("case", "expected `case`")?;
            let pattern = self.patterns()?;
            let guard = if self.eat("if") { Some(self.named_expression()?) } else { None };
            self.expect(":", "expected `:` after the pattern")?;
            cases.push(Case { pattern, guard, body: self.block()? });
        }
        Ok(Some(StmtKind::Match { subject, cases }))
    }

    fn subject(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let first = self.star_named_expression()?;
        if !self.at(",") {
            return if matches!(first.kind, ExprKind::Starred(_)) {
                self.error("expected a comma")
            } else {
                Ok(first)
            };
        }
        let mut items = vec![first];
        while self.eat(",") {
            if self.at(":") {
                break;
            }
            items.push(self.star_named_expression()?);
        }
        self.node(start, super::deepest(&items), ExprKind::Tuple(items))
    }

    /// The pattern of a `case`: one, or a sequence without brackets.
    fn patterns(&mut self) -> Parsed<Pattern> {
        let first = self.star_pattern()?;
        if !self.at(",") {
            return if matches!(first, Pattern::Star(_)) {
                self.error("a star pattern needs a sequence")
            } else {
                Ok(first)
            };
        }
        let mut items = vec![first];
        while self.eat(",") {
            if self.at(":") || self.at("if") {
                break;
            }
            items.push(self.star_pattern()?);
        }
        Ok(Pattern::Sequence(items))
    }

    fn star_pattern(&mut self) -> Parsed<Pattern> {
        if !self.eat("*") {
            return self.pattern();
        }
        if self.eat("_") {
            return Ok(Pattern::Star(None));
        }
        self.capture().map(|name| Pattern::Star(Some(name)))
    }

    fn capture(&mut self) -> Parsed<String> {
        if self.at("_") {
            return self.error("`_` captures nothing");
        }
        let name = self.name()?;
        if self.at(".") || self.at("(") || self.at("=") {
            return self.error("only a plain name captures");
        }
        Ok(name)
    }

    fn pattern(&mut self) -> Parsed<Pattern> {
        self.nested(|parser| {
            let first = parser.closed()?;
            let mut pattern = first;
            if parser.at("|") {
                let mut all = vec![pattern];
                while parser.eat("|") {
                    all.push(parser.closed()?);
                }
                pattern = Pattern::Or(all);
            }
            if parser.eat("as") {
                return Ok(Pattern::As(Some(Box::new(pattern)), Some(parser.capture()?)));
            }
            Ok(pattern)
        })
    }

    fn closed(&mut self) -> Parsed<Pattern> {
        let token = self.token();
        match token.kind {
            Kind::Number => self.number_value().map(Pattern::Value),
            Kind::Str | Kind::FieldStart => self.strings().map(Pattern::Value),
            Kind::Name => match self.slice(token) {
                "None" => self.singleton(Constant::None),
                "True" => self.singleton(Constant::Bool(true)),
                "False" => self.singleton(Constant::Bool(false)),
                _ => self.named_pattern(),
            },
            Kind::Op => match self.slice(token) {
                "-" => self.number_value().map(Pattern::Value),
                "(" => self.group_pattern(),
                "[" => {
                    self.pos += 1;
                    self.sequence("]").map(Pattern::Sequence)
                }
                "{" => self.mapping(),
                _ => self.error("expected a pattern"),
            },
            _ => self.error("expected a pattern"),
        }
    }

    fn singleton(&mut self, value: Constant) -> Parsed<Pattern> {
        self.pos += 1;
        Ok(Pattern::Singleton(value))
    }

    fn signed(&mut self) -> Parsed<(Expr, bool)> {
        let start = self.start();
        let minus = self.eat("-");
        if !self.at_kind(Kind::Number) {
            return self.error("expected a number");
        }
        let number = self.primary_number()?;
        let imaginary = matches!(number.kind, ExprKind::Constant(Constant::Complex(_)));
        let value = if minus {
            self.node(start, 1, ExprKind::UnaryOp(UnaryOp::Minus, Box::new(number)))?
        } else {
            number
        };
        Ok((value, imaginary))
    }

    fn primary_number(&mut self) -> Parsed<Expr> {
        let token = self.token();
        let value = super::literal::number(self.slice(token), token.start)?;
        self.pos += 1;
        self.node(token.start, 0, ExprKind::Constant(value))
    }

    /// `1`, `-1`, `1 + 2j`, `-1 - 2j`.
    fn number_value(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let (real, imaginary) = self.signed()?;
        let op = if self.at("+") {
            BinOp::Add
        } else if self.at("-") {
            BinOp::Sub
        } else {
            return Ok(real);
        };
        if imaginary {
            return self.error("the real part of a complex pattern comes first");
        }
        self.pos += 1;
        if !self.at_kind(Kind::Number) {
            return self.error("expected an imaginary number");
        }
        let right = self.primary_number()?;
        if !matches!(right.kind, ExprKind::Constant(Constant::Complex(_))) {
            return self.error("expected an imaginary number");
        }
        let depth = real.depth.max(right.depth);
        self.node(start, depth, ExprKind::BinOp(Box::new(real), op, Box::new(right)))
    }

    /// A capture, `_`, a dotted value or a class pattern.
    fn named_pattern(&mut self) -> Parsed<Pattern> {
        let start = self.start();
        if self.eat("_") {
            return Ok(Pattern::As(None, None));
        }
        let path = self.path()?;
        if self.eat("(") {
            return self.class_pattern(path);
        }
        if self.at("=") {
            return self.error("expected a pattern");
        }
        match path.kind {
            ExprKind::Name(name) => Ok(Pattern::As(None, Some(name))),
            _ => Ok(Pattern::Value(Expr { span: Span { start, ..path.span }, ..path })),
        }
    }

    /// `a` or `a.b.c`.
    fn path(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let name = self.name()?;
        let mut value = self.node(start, 0, ExprKind::Name(name))?;
        while self.eat(".") {
            let attribute = self.name()?;
            let depth = value.depth;
            value = self.node(start, depth, ExprKind::Attribute(Box::new(value), attribute))?;
        }
        Ok(value)
    }

    fn class_pattern(&mut self, class: Expr) -> Parsed<Pattern> {
        let mut positional = Vec::new();
        let mut keywords = Vec::new();
        while !self.at(")") {
            if self.at_name() && self.is(self.ahead(1), "=") {
                let name = self.name()?;
                self.pos += 1;
                keywords.push((name, self.pattern()?));
            } else if keywords.is_empty() {
                positional.push(self.pattern()?);
            } else {
                return self.error("a positional pattern follows a keyword one");
            }
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")", "expected `,` or `)` in the pattern")?;
        Ok(Pattern::Class { class, positional, keywords })
    }

    fn group_pattern(&mut self) -> Parsed<Pattern> {
        self.pos += 1;
        if self.eat(")") {
            return Ok(Pattern::Sequence(Vec::new()));
        }
        let first = self.star_pattern()?;
        if self.at(",") {
            return self.sequence_after(first, ")").map(Pattern::Sequence);
        }
        if matches!(first, Pattern::Star(_)) {
            return self.error("a star pattern needs a sequence");
        }
        self.expect(")", "expected `,` or `)` in the pattern")?;
        Ok(first)
    }

    fn sequence(&mut self, close: &'static str) -> Parsed<Vec<Pattern>> {
        if self.eat(close) {
            return Ok(Vec::new());
        }
        let first = self.star_pattern()?;
        self.sequence_after(first, close)
    }

    fn sequence_after(&mut self, first: Pattern, close: &'static str) -> Parsed<Vec<Pattern>> {
        let mut items = vec![first];
        while self.eat(",") {
            if self.at(close) {
                break;
            }
            items.push(self.star_pattern()?);
        }
        self.expect(close, "expected `,` or the closing bracket")?;
        Ok(items)
    }

    fn mapping(&mut self) -> Parsed<Pattern> {
        self.pos += 1;
        let mut items = Vec::new();
        let mut rest = None;
        while !self.at("}") {
            if self.eat("**") {
                rest = Some(self.capture()?);
                self.eat(",");
                break;
            }
            let key = self.mapping_key()?;
            self.expect(":", "expected `:` after the key")?;
            items.push((key, self.pattern()?));
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}", "expected `,` or `}` in the pattern")?;
        Ok(Pattern::Mapping { items, rest })
    }

    fn mapping_key(&mut self) -> Parsed<Expr> {
        let token = self.token();
        let constant = match (token.kind, self.slice(token)) {
            (Kind::Number, _) | (Kind::Op, "-") => return self.number_value(),
            (Kind::Str | Kind::FieldStart, _) => return self.strings(),
            (_, "None") => Constant::None,
            (_, "True") => Constant::Bool(true),
            (_, "False") => Constant::Bool(false),
            _ => {
                let path = self.path()?;
                return match path.kind {
                    ExprKind::Attribute(..) => Ok(path),
                    _ => Err(ParseError::new(token.start, "a key is a literal or a dotted name")),
                };
            }
        };
        self.pos += 1;
        self.node(token.start, 0, ExprKind::Constant(constant))
    }
}
