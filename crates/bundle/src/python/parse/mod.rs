//! Text to tree: the grammar of the pinned interpreters, by recursive descent over a token buffer.

mod expr;
mod field;
mod fstring;
mod literal;
mod params;
mod pattern;
mod stmt;
mod target;
mod token;

use super::Dialect;
use super::ast::{Expr, ExprKind, MAX_DEPTH, Module, Span};
use super::source::Source;
use super::stack::with_large_stack;
use token::{Kind, Token};

/// How to read a source.
#[derive(Debug, Clone, Copy, Default)]
pub struct ParseOptions {
    /// The grammar.
    pub dialect: Dialect,
    /// Whether `# type:` comments are tokens, legal in few places only.
    pub type_comments: bool,
}

/// Why a source has no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ParseError {
    /// Byte offset in the translated text.
    pub at: usize,
    /// What is wrong.
    pub problem: &'static str,
    /// Whether the grammar might take it, but the depth bound does not.
    pub budget: bool,
}

impl ParseError {
    fn new(at: usize, problem: &'static str) -> Self {
        Self { at, problem, budget: false }
    }

    fn budget(at: usize, problem: &'static str) -> Self {
        Self { at, problem, budget: true }
    }
}

type Parsed<T> = Result<T, ParseError>;

/// Recursion that an ordinary stack carries even in unoptimised builds; deeper sources go to a large one.
const SHALLOW: usize = 24;
/// Recursion that no source may pass: brackets and trees are bounded, prefix operators and nested lambdas are not.
const DEEPEST: usize = 2 * MAX_DEPTH;

/// Parses a whole file.
///
/// # Errors
/// The first place that the grammar does not take, or that is nested beyond the bounds.
pub fn parse(source: &Source, options: ParseOptions) -> Result<Module, ParseError> {
    let text = source.text();
    if let Some(at) = text.find('\0') {
        return Err(ParseError::new(at, "the source holds a NUL character"));
    }
    let tokens = token::tokenize(text, options)?;
    let mut shallow = Parser::new(text, &tokens, options, SHALLOW);
    match shallow.file() {
        Err(_) if shallow.overflowed => {
            with_large_stack(|| Parser::new(text, &tokens, options, DEEPEST).file())
                .unwrap_or_else(|| Err(ParseError::budget(0, "no stack for a source nested this deeply")))
        }
        outcome => outcome,
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    options: ParseOptions,
    pos: usize,
    depth: usize,
    limit: usize,
    overflowed: bool,
    /// Where every node of a copied text stands in the source.
    fixed: Option<usize>,
    /// The deepest recursion and the deepest node so far.
    deepest: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, tokens: &'a [Token], options: ParseOptions, limit: usize) -> Self {
        Self { text, tokens, options, pos: 0, depth: 0, limit, overflowed: false, fixed: None, deepest: 0 }
    }

    fn token(&self) -> Token {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Token {
        let end = Token { kind: Kind::End, start: self.text.len(), end: self.text.len() };
        self.tokens.get(self.pos + count).or(self.tokens.last()).copied().unwrap_or(end)
    }

    fn slice(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    fn start(&self) -> usize {
        self.token().start
    }

    /// The end of the token taken last.
    fn last_end(&self) -> usize {
        self.pos.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(0, |token| token.end)
    }

    fn span(&self, start: usize) -> Span {
        match self.fixed {
            Some(at) => Span { start: at, end: at },
            None => Span { start, end: self.last_end() },
        }
    }

    fn error<T>(&self, problem: &'static str) -> Parsed<T> {
        Err(ParseError::new(self.start(), problem))
    }

    fn too_deep<T>(&self) -> Parsed<T> {
        Err(ParseError::budget(self.start(), "the source is nested too deeply"))
    }

    /// Whether the next token is this operator or keyword.
    fn at(&self, text: &str) -> bool {
        self.is(self.token(), text)
    }

    fn is(&self, token: Token, text: &str) -> bool {
        matches!(token.kind, Kind::Op | Kind::Name) && self.slice(token) == text
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.at(text);
        if found {
            self.pos += 1;
        }
        found
    }

    fn expect(&mut self, text: &str, problem: &'static str) -> Parsed<()> {
        if self.eat(text) { Ok(()) } else { self.error(problem) }
    }

    fn at_kind(&self, kind: Kind) -> bool {
        self.token().kind == kind
    }

    fn eat_kind(&mut self, kind: Kind) -> bool {
        let found = self.at_kind(kind);
        if found {
            self.pos += 1;
        }
        found
    }

    /// Whether a token is a name and no reserved word.
    fn is_name(&self, token: Token) -> bool {
        token.kind == Kind::Name && !crate::text::is_keyword(self.slice(token))
    }

    fn at_name(&self) -> bool {
        self.is_name(self.token())
    }

    fn name(&mut self) -> Parsed<String> {
        if !self.at_name() {
            return self.error("expected a name");
        }
        let name = super::name::normal(self.slice(self.token()));
        self.pos += 1;
        Ok(name)
    }

    /// Runs `rule` one level deeper.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= self.limit {
            self.overflowed = true;
            return self.too_deep();
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let outcome = rule(self);
        self.depth -= 1;
        outcome
    }

    /// A node whose deepest child has `below` levels.
    fn node(&mut self, start: usize, below: u16, kind: ExprKind) -> Parsed<Expr> {
        self.deepest = self.deepest.max(usize::from(below) + 1);
        if usize::from(below) >= MAX_DEPTH {
            return Err(ParseError::budget(start, "the expression is nested too deeply"));
        }
        Ok(Expr { span: self.span(start), depth: below + 1, kind })
    }

    fn type_comment(&mut self) -> bool {
        self.eat_kind(Kind::TypeComment)
    }
}

/// The depth of the deepest of some expressions.
fn deepest<'e>(all: impl IntoIterator<Item = &'e Expr>) -> u16 {
    all.into_iter().map(|expr| expr.depth).max().unwrap_or(0)
}
