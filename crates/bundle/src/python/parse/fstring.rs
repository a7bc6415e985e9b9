//! String atoms: adjacent literals joined, f-strings taken apart.

use super::literal::{self, Literal};
use super::token::{self, Kind};
use super::{ParseError, Parsed, Parser};
use crate::python::Dialect;
use crate::python::ast::{Constant, Expr, ExprKind, Part};
use crate::python::string::PyString;

/// The parts of f-strings may nest this deep in 3.11: a field, and one in its specification.
const MAX_LEVEL_311: usize = 2;

enum Piece {
    Text(PyString),
    Bytes(Vec<u8>),
    Parts(Vec<Part>),
}

/// Joins literal text and drops what is empty.
fn folded(parts: Vec<Part>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    for part in parts {
        match (out.last_mut(), part) {
            (_, Part::Text(text)) if text.is_empty() => {}
            (Some(Part::Text(before)), Part::Text(text)) => before.extend(&text),
            (_, part) => out.push(part),
        }
    }
    out
}

fn depth(parts: &[Part]) -> u16 {
    let part = |part: &Part| match part {
        Part::Text(_) => 0,
        Part::Field { value, spec, .. } => value.depth.max(spec.as_deref().map_or(0, depth)) + 1,
    };
    parts.iter().map(part).max().unwrap_or(0)
}

impl<'a> Parser<'a> {
    /// One or more adjacent literals.
    pub(super) fn strings(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut pieces = Vec::new();
        let mut unicode = None;
        loop {
            let token = self.token();
            match token.kind {
                Kind::Str => {
                    self.pos += 1;
                    let literal = literal::split(self.slice(token), token.start);
                    unicode.get_or_insert(literal.unicode);
                    pieces.push(self.piece(&literal)?);
                }
                Kind::FieldStart => {
                    unicode.get_or_insert(false);
                    pieces.push(Piece::Parts(self.fields()?));
                }
                _ => break,
            }
        }
        let bytes = pieces.iter().filter(|piece| matches!(piece, Piece::Bytes(_))).count();
        if bytes != 0 && bytes != pieces.len() {
            return Err(ParseError::new(start, "text and bytes literals cannot be joined"));
        }
        if bytes != 0 {
            let all = pieces.into_iter().flat_map(|piece| match piece {
                Piece::Bytes(bytes) => bytes,
                _ => Vec::new(),
            });
            return self.node(start, 0, ExprKind::Constant(Constant::Bytes(all.collect())));
        }
        if pieces.iter().any(|piece| matches!(piece, Piece::Parts(_))) {
            let parts = pieces.into_iter().flat_map(|piece| match piece {
                Piece::Parts(parts) => parts,
                Piece::Text(text) => vec![Part::Text(text)],
                Piece::Bytes(_) => Vec::new(),
            });
            let parts = folded(parts.collect());
            return self.node(start, depth(&parts), ExprKind::Joined(parts));
        }
        let mut value = PyString::new();
        for piece in pieces {
            if let Piece::Text(text) = piece {
                value.extend(&text);
            }
        }
        let unicode = unicode.unwrap_or(false);
        self.node(start, 0, ExprKind::Constant(Constant::Str { value, unicode }))
    }

    fn piece(&mut self, literal: &Literal<'a>) -> Parsed<Piece> {
        if literal.bytes {
            return literal::bytes(literal).map(Piece::Bytes);
        }
        if literal.formatted {
            let mut reader = Fields311 { parser: self, literal: *literal, pos: 0 };
            let parts = reader.parts(0)?;
            return Ok(Piece::Parts(parts));
        }
        literal::text(literal.body, literal.raw, literal.at, self.options.dialect).map(Piece::Text)
    }

    /// An f-string of 3.12 on.
    fn fields(&mut self) -> Parsed<Vec<Part>> {
        let start = self.token();
        let raw = self.slice(start).contains(['r', 'R']);
        self.pos += 1;
        let mut parts = Vec::new();
        while !self.eat_kind(Kind::FieldEnd) {
            if self.at_kind(Kind::FieldText) {
                parts.push(self.field_text(raw)?);
            } else {
                parts.extend(self.nested(|parser| parser.field(raw, true))?);
            }
        }
        Ok(parts)
    }

    fn field_text(&mut self, raw: bool) -> Parsed<Part> {
        let token = self.token();
        self.pos += 1;
        literal::text(self.slice(token), raw, token.start, self.options.dialect).map(Part::Text)
    }

    /// A replacement field; with `=` its text comes first.
    fn field(&mut self, raw: bool, outermost: bool) -> Parsed<Vec<Part>> {
        self.expect("{", "expected literal text or a field")?;
        let text_start = self.last_end();
        let value = if self.at("yield") { self.yield_expr()? } else { self.star_expressions()? };
        let debug = self.eat("=");
        let mut text_end = self.start();
        let mut conversion = None;
        if self.eat("!") {
            let adjacent = self.last_end();
            let token = self.token();
            let name = self.slice(token);
            if token.kind != Kind::Name || token.start != adjacent || !matches!(name, "s" | "r" | "a") {
                return self.error("a conversion is !s, !r or !a");
            }
            conversion = name.chars().next();
            self.pos += 1;
        }
        let mut spec = None;
        if self.eat(":") {
            spec = Some(self.spec(raw)?);
        }
        if !self.at("}") {
            return self.error("expected `}` at the end of the field");
        }
        text_end = text_end.min(self.start());
        self.pos += 1;
        let mut parts = Vec::new();
        if debug {
            if !outermost && self.options.dialect == Dialect::V312 {
                return self.error("this dialect cannot read `=` in a field of a format specification");
            }
            parts.push(Part::Text(debug_text(&self.text[text_start..text_end])));
            if spec.is_none() {
                conversion = conversion.or(Some('r'));
            }
        }
        parts.push(Part::Field { value: Box::new(value), conversion, spec });
        Ok(parts)
    }

    fn spec(&mut self, raw: bool) -> Parsed<Vec<Part>> {
        let mut parts = Vec::new();
        loop {
            if self.at_kind(Kind::FieldText) {
                parts.push(self.field_text(raw)?);
            } else if self.at("{") {
                parts.extend(self.nested(|parser| parser.field(raw, false))?);
            } else {
                break;
            }
        }
        if self.options.dialect != Dialect::V312 {
            return Ok(folded(parts));
        }
        // This dialect keeps empty texts beside a field.
        match parts.as_slice() {
            [Part::Text(text)] if text.is_empty() => Ok(Vec::new()),
            _ => Ok(parts),
        }
    }
}

/// The text of a field with `=`: comments go, up to the end of their line. Quotes do not protect a `#` here.
fn debug_text(text: &str) -> PyString {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        match line.split_once('#') {
            Some((before, _)) => {
                out.push_str(before);
                if line.ends_with('\n') {
                    out.push('\n');
                }
            }
            None => out.push_str(line),
        }
    }
    PyString::from(out.as_str())
}

/// An f-string of 3.11: one token, whose fields are cut out and parsed by themselves.
struct Fields311<'p, 'a> {
    parser: &'p mut Parser<'a>,
    literal: Literal<'a>,
    pos: usize,
}

impl Fields311<'_, '_> {
    fn byte(&self, at: usize) -> u8 {
        self.literal.body.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn done(&self) -> bool {
        self.pos >= self.literal.body.len()
    }

    fn fail<T>(&self, problem: &'static str) -> Parsed<T> {
        Err(ParseError::new(self.literal.at + self.pos, problem))
    }

    /// Text and fields up to the end, or (in a specification) up to the closing brace.
    fn parts(&mut self, level: usize) -> Parsed<Vec<Part>> {
        let mut parts = Vec::new();
        while !self.done() && (level == 0 || self.byte(self.pos) != b'}') {
            let (text, doubled) = self.text(level)?;
            parts.push(Part::Text(text));
            // After a doubled brace the next character starts literal text again.
            if !doubled && !self.done() && self.byte(self.pos) == b'{' {
                parts.extend(self.field(level)?);
            }
        }
        Ok(folded(parts))
    }

    /// Literal text, and whether a doubled brace ended it.
    fn text(&mut self, level: usize) -> Parsed<(PyString, bool)> {
        let start = self.pos;
        let mut end = None;
        while !self.done() {
            let byte = self.byte(self.pos);
            if byte == b'\\' && !self.literal.raw && self.pos + 1 < self.literal.body.len() {
                match self.byte(self.pos + 1) {
                    b'N' => {
                        self.pos += 2;
                        if self.byte(self.pos) == b'{' {
                            let rest = &self.literal.body[self.pos..];
                            self.pos += rest.find('}').map_or(rest.len(), |found| found + 1);
                        }
                        continue;
                    }
                    // The brace is looked at again: it starts a field.
                    b'{' | b'}' => self.pos += 1,
                    _ => {
                        self.pos += 2;
                        continue;
                    }
                }
            }
            let byte = if byte == b'\\' { self.byte(self.pos) } else { byte };
            if matches!(byte, b'{' | b'}') {
                if level == 0 && self.byte(self.pos + 1) == byte {
                    end = Some(self.pos + 1);
                    self.pos += 2;
                    break;
                }
                if level == 0 && byte == b'}' {
                    return self.fail("a single `}` closes nothing");
                }
                break;
            }
            self.pos += 1;
        }
        let doubled = end.is_some();
        let end = end.unwrap_or(self.pos).min(self.literal.body.len());
        let body = self.literal.body.get(start..end).unwrap_or_default();
        let text = literal::text(body, self.literal.raw, self.literal.at + start, Dialect::V311)?;
        Ok((text, doubled))
    }

    fn field(&mut self, level: usize) -> Parsed<Vec<Part>> {
        const UNCLOSED: &str = "expected `}` at the end of the field";
        if level >= MAX_LEVEL_311 {
            return self.fail("the f-string's fields are nested too deeply");
        }
        self.pos += 1;
        let start = self.pos;
        self.expression_end()?;
        let value = self.expression(start)?;
        let mut debug = None;
        if self.byte(self.pos) == b'=' {
            self.pos += 1;
            while matches!(self.byte(self.pos), b' ' | b'\t'..=b'\r') && !self.done() {
                self.pos += 1;
            }
            debug = Some(PyString::from(&self.literal.body[start..self.pos]));
        }
        let mut conversion = None;
        if self.byte(self.pos) == b'!' {
            let from = self.pos + 1;
            self.pos =
                from + self.literal.body[from..].find([':', '}']).unwrap_or(self.literal.body.len() - from);
            conversion = match &self.literal.body[from..self.pos] {
                "s" => Some('s'),
                "r" => Some('r'),
                "a" => Some('a'),
                _ => return self.fail("a conversion is !s, !r or !a"),
            };
        }
        let mut spec = None;
        if self.byte(self.pos) == b':' && !self.done() {
            self.pos += 1;
            if self.done() {
                return self.fail(UNCLOSED);
            }
            spec = Some(self.parts(level + 1)?);
        }
        if self.done() || self.byte(self.pos) != b'}' {
            return self.fail(UNCLOSED);
        }
        self.pos += 1;
        if debug.is_some() && spec.is_none() {
            conversion = conversion.or(Some('r'));
        }
        let field = Part::Field { value: Box::new(value), conversion, spec };
        Ok(debug.map(Part::Text).into_iter().chain([field]).collect())
    }

    /// Moves to the character that ends the field's expression.
    fn expression_end(&mut self) -> Parsed<()> {
        let mut quote: Option<(u8, usize)> = None;
        let mut open = Vec::new();
        while !self.done() {
            let byte = self.byte(self.pos);
            let triple = self.byte(self.pos + 1) == byte && self.byte(self.pos + 2) == byte;
            match (byte, quote) {
                (b'\\', _) => return self.fail("a field's expression may not hold a backslash"),
                (_, Some((mark, size))) if byte == mark && (size == 1 || triple) => {
                    self.pos += size - 1;
                    quote = None;
                }
                (_, Some(_)) => {}
                (b'\'' | b'"', None) => {
                    let size = if triple { 3 } else { 1 };
                    self.pos += size - 1;
                    quote = Some((byte, size));
                }
                (b'(' | b'[' | b'{', None) => {
                    if open.len() >= 200 {
                        return self.fail("more than 200 brackets are open");
                    }
                    open.push(byte);
                }
                (b'#', None) => return self.fail("a field's expression may not hold a comment"),
                (b'!' | b':' | b'}' | b'=' | b'<' | b'>', None) if open.is_empty() => {
                    if self.byte(self.pos + 1) == b'=' && matches!(byte, b'!' | b'=' | b'<' | b'>') {
                        self.pos += 2;
                        continue;
                    }
                    if !matches!(byte, b'<' | b'>') {
                        return Ok(());
                    }
                }
                (b')' | b']' | b'}', None) => {
                    let opening = match byte {
                        b')' => b'(',
                        b']' => b'[',
                        _ => b'{',
                    };
                    if open.pop() != Some(opening) {
                        return self.fail("the bracket closes nothing");
                    }
                }
                _ => {}
            }
            self.pos += 1;
        }
        self.fail("expected `}` at the end of the field")
    }

    /// Parses the expression between `start` and the current position as if in parentheses.
    fn expression(&mut self, start: usize) -> Parsed<Expr> {
        let body = &self.literal.body[start..self.pos];
        let at = self.literal.at + start;
        if body.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r')) {
            return Err(ParseError::new(at, "the field is empty"));
        }
        let moved = |error: ParseError| ParseError { at, ..error };
        let text = format!("({body})");
        let options = super::ParseOptions { type_comments: false, ..self.parser.options };
        let tokens = token::tokenize(&text, options).map_err(moved)?;
        let mut inner = Parser::new(&text, &tokens, options, self.parser.limit);
        inner.depth = self.parser.depth + 1;
        inner.fixed = Some(at);
        let outcome = inner.star_expressions();
        self.parser.overflowed |= inner.overflowed;
        let expr = outcome.map_err(moved)?;
        if !inner.at_kind(Kind::Newline) {
            return Err(ParseError::new(at, "the field holds more than an expression"));
        }
        Ok(expr)
    }
}
