//! Tree to text, as the pinned interpreters write it (`spec/10-contribution.md` §10.1).

mod expr;
mod literal;
mod stmt;

use super::Dialect;
use super::ast::{Module, Stmt};
use super::stack::with_large_stack;
use super::string::PyString;

/// Why a tree has no text in its dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// An integer of more than 4300 decimal digits.
    #[error("an integer has more than 4300 decimal digits")]
    LongInteger,
    /// 3.11: a backslash would have to stand in a field of an f-string.
    #[error("a field of an f-string cannot be written without a backslash")]
    FieldBackslash,
    /// No quotes fit every part of an f-string.
    #[error("no quotes fit every part of an f-string")]
    Quotes,
    /// A lone surrogate would have to stand in the text as it is.
    #[error("a format specification holds a lone surrogate")]
    Surrogate,
    /// No stack could be had for a tree this deep.
    #[error("no stack for a tree this deep")]
    Stack,
}

/// Nesting that an ordinary stack carries even in unoptimised builds.
const SHALLOW: u16 = 24;

/// The text of a module.
///
/// # Errors
/// The few trees that the dialect cannot write.
pub fn emit(module: &Module, dialect: Dialect) -> Result<String, EmitError> {
    emit_statements(&module.body.iter().collect::<Vec<_>>(), module.depth, dialect)
}

/// The text of some statements as if they were a module; `depth` bounds their nesting.
///
/// # Errors
/// As [`emit`].
pub fn emit_statements(body: &[&Stmt], depth: u16, dialect: Dialect) -> Result<String, EmitError> {
    let run = || {
        let mut emitter = Emitter::new(dialect, false);
        emitter.body(body, true)?;
        emitter.finish()
    };
    if depth <= SHALLOW { run() } else { with_large_stack(run).unwrap_or(Err(EmitError::Stack)) }
}

type Emitted = Result<(), EmitError>;

/// How tightly an operand must bind to stand without parentheses, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Named,
    Tuple,
    Yield,
    Test,
    Or,
    And,
    Not,
    Cmp,
    BitOr,
    BitXor,
    BitAnd,
    Shift,
    Arith,
    Term,
    Factor,
    Power,
    Await,
    Atom,
}

impl Level {
    const ALL: [Self; 18] = [
        Self::Named,
        Self::Tuple,
        Self::Yield,
        Self::Test,
        Self::Or,
        Self::And,
        Self::Not,
        Self::Cmp,
        Self::BitOr,
        Self::BitXor,
        Self::BitAnd,
        Self::Shift,
        Self::Arith,
        Self::Term,
        Self::Factor,
        Self::Power,
        Self::Await,
        Self::Atom,
    ];

    /// One level tighter; the tightest stays.
    fn next(self) -> Self {
        Self::ALL.get(self as usize + 1).copied().unwrap_or(Self::Atom)
    }
}

struct Emitter {
    out: PyString,
    indent: usize,
    dialect: Dialect,
    /// 3.11, inside a field: strings are written without backslashes where possible.
    plain: bool,
}

impl Emitter {
    fn new(dialect: Dialect, plain: bool) -> Self {
        Self { out: PyString::new(), indent: 0, dialect, plain }
    }

    fn finish(self) -> Result<String, EmitError> {
        self.out.into_string().ok_or(EmitError::Surrogate)
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Starts a line.
    fn line(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.write("\n");
        }
        for _ in 0..self.indent {
            self.write("    ");
        }
        self.write(text);
    }

    /// Writes items with a separator between.
    fn join<T>(
        &mut self,
        separator: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T) -> Emitted,
    ) -> Emitted {
        for (index, each) in items.into_iter().enumerate() {
            if index > 0 {
                self.write(separator);
            }
            item(self, each)?;
        }
        Ok(())
    }

    fn parenthesised(&mut self, condition: bool, inner: impl FnOnce(&mut Self) -> Emitted) -> Emitted {
        if condition {
            self.write("(");
        }
        inner(self)?;
        if condition {
            self.write(")");
        }
        Ok(())
    }
}
