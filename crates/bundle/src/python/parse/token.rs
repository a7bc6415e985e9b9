//! Tokens: lines, indentation, brackets, literals.

use super::field::FieldMode;
use super::{ParseError, ParseOptions, Parsed};
use crate::python::Dialect;
use crate::python::name::is_identifier;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Number,
    /// A whole string literal, prefix and quotes included; in 3.11 f-strings too.
    Str,
    /// Prefix and opening quote of an f-string (3.12 on).
    FieldStart,
    /// Literal text of an f-string.
    FieldText,
    /// The closing quote of an f-string.
    FieldEnd,
    Op,
    Newline,
    Indent,
    Dedent,
    TypeComment,
    End,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

const TAB: usize = 8;
const MAX_INDENT: usize = 100;
const MAX_BRACKETS: usize = 200;
/// Tokens of one source: far above any kernel, far below what memory holds.
const MAX_TOKENS: usize = 1 << 22;

pub(super) struct Tokenizer<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) pos: usize,
    pub(super) options: ParseOptions,
    tokens: Vec<Token>,
    indents: Vec<(usize, usize)>,
    pub(super) brackets: Vec<u8>,
    pub(super) modes: Vec<FieldMode>,
}

pub(super) fn tokenize(text: &str, options: ParseOptions) -> Parsed<Vec<Token>> {
    let mut tokenizer = Tokenizer {
        text,
        bytes: text.as_bytes(),
        pos: 0,
        options,
        tokens: Vec::with_capacity(text.len() / 4),
        indents: vec![(0, 0)],
        brackets: Vec::new(),
        modes: Vec::new(),
    };
    tokenizer.run()?;
    Ok(tokenizer.tokens)
}

impl Tokenizer<'_> {
    pub(super) fn peek(&self, ahead: usize) -> u8 {
        // A text without a final line feed reads as if it had one.
        match self.bytes.get(self.pos + ahead) {
            Some(byte) => *byte,
            None if self.pos + ahead == self.bytes.len()
                && self.bytes.last().is_some_and(|last| *last != b'\n') =>
            {
                b'\n'
            }
            None => 0,
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.pos >= self.bytes.len() && self.peek(0) == 0
    }

    pub(super) fn fail<T>(&self, problem: &'static str) -> Parsed<T> {
        Err(ParseError::new(self.pos.min(self.bytes.len()), problem))
    }

    pub(super) fn push(&mut self, kind: Kind, start: usize) -> Parsed<()> {
        if self.tokens.len() >= MAX_TOKENS {
            return Err(ParseError::budget(start, "the source has too many tokens"));
        }
        let end = self.pos.min(self.bytes.len());
        self.tokens.push(Token { kind, start: start.min(end), end });
        Ok(())
    }

    fn run(&mut self) -> Parsed<()> {
        let mut line_start = true;
        // A line without any token yet: neither its comment nor its end is one.
        let mut blank = false;
        loop {
            if self.modes.last().is_some_and(|mode| mode.in_text) {
                self.field_text()?;
                continue;
            }
            if line_start {
                line_start = false;
                blank = self.indentation()?;
            }
            while matches!(self.peek(0), b' ' | b'\t' | b'\x0c') {
                self.pos += 1;
            }
            let start = self.pos;
            match self.peek(0) {
                b'#' => {
                    // The end of a line that holds only a type comment is a token again.
                    blank &= !self.comment()?;
                }
                b'\n' => {
                    self.pos += 1;
                    line_start = true;
                    if !blank && self.brackets.is_empty() {
                        self.push(Kind::Newline, start)?;
                    }
                }
                b'\\' => self.continuation()?,
                0 if self.at_end() => {
                    if !self.brackets.is_empty() || !self.modes.is_empty() {
                        return self.fail("a bracket is not closed");
                    }
                    return self.push(Kind::End, start);
                }
                _ => self.token(start)?,
            }
        }
    }

    fn continuation(&mut self) -> Parsed<()> {
        if self.peek(1) != b'\n' {
            return self.fail("a backslash must end its line");
        }
        self.pos += 2;
        if self.at_end() { self.fail("the source ends after a backslash") } else { Ok(()) }
    }

    /// Measures a line's indentation; true when the line holds nothing but a comment.
    fn indentation(&mut self) -> Parsed<bool> {
        let (mut column, mut alternative, mut continued) = (0usize, 0usize, 0usize);
        loop {
            match self.peek(0) {
                b' ' => {
                    column += 1;
                    alternative += 1;
                }
                b'\t' => {
                    column = (column / TAB + 1) * TAB;
                    alternative += 1;
                }
                b'\x0c' => {
                    column = 0;
                    alternative = 0;
                }
                b'\\' => {
                    if continued == 0 {
                        continued = column;
                    }
                    self.continuation()?;
                    continue;
                }
                _ => break,
            }
            self.pos += 1;
        }
        if matches!(self.peek(0), b'#' | b'\n') {
            return Ok(true);
        }
        if !self.brackets.is_empty() {
            return Ok(false);
        }
        if continued > 0 {
            column = continued;
            alternative = continued;
        }
        self.indent_to(column, alternative)?;
        Ok(false)
    }

    fn indent_to(&mut self, column: usize, alternative: usize) -> Parsed<()> {
        const TABS: &str = "tabs and spaces are mixed inconsistently";
        let start = self.pos;
        let current = |indents: &[(usize, usize)]| indents.last().copied().unwrap_or((0, 0));
        let (top, top_alternative) = current(&self.indents);
        if column > top {
            if self.indents.len() >= MAX_INDENT {
                return Err(ParseError::budget(start, "there are more than 99 levels of indentation"));
            }
            if alternative <= top_alternative {
                return self.fail(TABS);
            }
            self.indents.push((column, alternative));
            return self.push(Kind::Indent, start);
        }
        while column < current(&self.indents).0 {
            self.indents.pop();
            self.push(Kind::Dedent, start)?;
        }
        match current(&self.indents) {
            (top, _) if top != column => self.fail("the indentation matches no outer level"),
            (_, top) if top != alternative => self.fail(TABS),
            _ => Ok(()),
        }
    }

    /// Skips a comment; true when it became a token.
    fn comment(&mut self) -> Parsed<bool> {
        let start = self.pos;
        let end = self.text[start..].find('\n').map_or(self.bytes.len(), |found| start + found);
        let body = &self.text[start..end];
        self.pos = end;
        if !self.options.type_comments {
            return Ok(false);
        }
        let blank = [' ', '\t'];
        let Some(kind) = body[1..].trim_start_matches(blank).strip_prefix("type:") else { return Ok(false) };
        let ignored = kind.trim_start_matches(blank).strip_prefix("ignore").is_some_and(|rest| {
            rest.bytes().next().is_none_or(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric())
        });
        if ignored {
            return Ok(false);
        }
        self.push(Kind::TypeComment, start)?;
        Ok(true)
    }

    fn token(&mut self, start: usize) -> Parsed<()> {
        let byte = self.peek(0);
        match byte {
            b'0'..=b'9' => self.number(start),
            b'.' if self.peek(1).is_ascii_digit() => self.number(start),
            b'"' | b'\'' => self.string(start, false, false),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word(start),
            _ => self.operator(start),
        }
    }

    fn word(&mut self, start: usize) -> Parsed<()> {
        let (mut bytes, mut unicode, mut raw, mut formatted) = (false, false, false, false);
        for ahead in 0.. {
            let byte = self.peek(ahead);
            if matches!(byte, b'"' | b'\'') && ahead > 0 {
                self.pos += ahead;
                return self.string(start, raw, formatted);
            }
            match byte {
                b'b' | b'B' if !(bytes || unicode || formatted) => bytes = true,
                b'u' | b'U' if !(bytes || unicode || raw || formatted) => unicode = true,
                b'r' | b'R' if !(raw || unicode) => raw = true,
                b'f' | b'F' if !(formatted || bytes || unicode) => formatted = true,
                _ => break,
            }
        }
        while self.peek(0) == b'_' || self.peek(0).is_ascii_alphanumeric() || self.peek(0) >= 0x80 {
            self.pos += 1;
        }
        let word = &self.text[start..self.pos];
        if !word.is_ascii() && !is_identifier(word, self.options.dialect) {
            self.pos = start;
            return self.fail("the name holds a character that names may not hold");
        }
        self.push(Kind::Name, start)
    }

    /// A string literal whose prefix ends here.
    fn string(&mut self, start: usize, raw: bool, formatted: bool) -> Parsed<()> {
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        if formatted && self.options.dialect != Dialect::V311 {
            return self.field_start(start, quote, if triple { 3 } else { 1 }, raw);
        }
        self.pos += if triple { 3 } else { 1 };
        loop {
            let byte = self.peek(0);
            if self.at_end() || byte == b'\n' && !triple {
                self.pos = start;
                return self.fail("the string is not closed");
            }
            if byte == b'\\' {
                self.pos += 2;
            } else if byte == quote && !triple {
                self.pos += 1;
                break;
            } else if byte == quote && self.peek(1) == quote && self.peek(2) == quote {
                self.pos += 3;
                break;
            } else {
                self.pos += 1;
            }
        }
        if self.pos > self.bytes.len() {
            self.pos = start;
            return self.fail("the string is not closed");
        }
        self.push(Kind::Str, start)
    }

    fn operator(&mut self, start: usize) -> Parsed<()> {
        let byte = self.peek(0);
        if self.field_colon(byte) {
            self.pos += 1;
            return self.push(Kind::Op, start);
        }
        let rest = &self.bytes[self.pos.min(self.bytes.len())..];
        for operator in [
            "**=", "...", "//=", "<<=", ">>=", "!=", "%=", "&=", "**", "*=", "+=", "-=", "->", "//", "/=",
            ":=", "<<", "<=", "==", ">=", ">>", "@=", "^=", "|=",
        ] {
            if rest.starts_with(operator.as_bytes()) {
                self.pos += operator.len();
                return self.push(Kind::Op, start);
            }
        }
        match byte {
            b'(' | b'[' | b'{' => {
                if self.brackets.len() >= MAX_BRACKETS {
                    return Err(ParseError::budget(start, "more than 200 brackets are open"));
                }
                self.brackets.push(byte);
                self.field_bracket_opens();
            }
            b')' | b']' | b'}' => {
                let opening = match byte {
                    b')' => b'(',
                    b']' => b'[',
                    _ => b'{',
                };
                if self.brackets.pop() != Some(opening) {
                    return self.fail("the bracket closes nothing");
                }
                if !self.field_bracket_closes(byte) {
                    return self.fail("the brace closes nothing");
                }
            }
            b'%' | b'&' | b'*' | b'+' | b',' | b'-' | b'.' | b'/' | b':' | b';' | b'<' | b'=' | b'>'
            | b'@' | b'^' | b'|' | b'~' => {}
            b'!' if !self.modes.is_empty() => {}
            _ => return self.fail("the character has no meaning here"),
        }
        self.pos += 1;
        self.push(Kind::Op, start)
    }

    /// Digits with single inner underscores; the position is at the first digit.
    fn digits(&mut self, radix: u32) -> Parsed<()> {
        loop {
            while char::from(self.peek(0)).is_digit(radix) {
                self.pos += 1;
            }
            if self.peek(0) != b'_' {
                return Ok(());
            }
            if !char::from(self.peek(1)).is_digit(radix) {
                return self.fail("the number is malformed");
            }
            self.pos += 1;
        }
    }

    fn number(&mut self, start: usize) -> Parsed<()> {
        const BAD: &str = "the number is malformed";
        if self.peek(0) == b'0' {
            let radix = match self.peek(1) {
                b'x' | b'X' => 16,
                b'o' | b'O' => 8,
                b'b' | b'B' => 2,
                _ => 0,
            };
            if radix != 0 {
                self.pos += 2;
                if self.peek(0) == b'_' {
                    self.pos += 1;
                }
                if !char::from(self.peek(0)).is_digit(radix) {
                    return self.fail(BAD);
                }
                self.digits(radix)?;
                if self.peek(0).is_ascii_digit() {
                    return self.fail(BAD);
                }
                return self.number_end(start);
            }
        }
        let leading_zero = self.peek(0) == b'0';
        if self.peek(0) != b'.' {
            self.digits(10)?;
        }
        let whole = self.pos;
        let mut integer = true;
        if self.peek(0) == b'.' {
            integer = false;
            self.pos += 1;
            if self.peek(0).is_ascii_digit() {
                self.digits(10)?;
            }
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                integer = false;
                self.pos += 1 + sign;
                self.digits(10)?;
            } else if sign == 1 {
                return self.fail(BAD);
            }
        }
        if matches!(self.peek(0), b'j' | b'J') {
            integer = false;
            self.pos += 1;
        }
        let nonzero = self.bytes[start..whole].iter().any(|byte| !matches!(byte, b'0' | b'_'));
        if integer && leading_zero && nonzero {
            self.pos = start;
            return self.fail("a decimal number may not start with a zero");
        }
        self.number_end(start)
    }

    /// A number may touch a keyword, but no other word.
    fn number_end(&mut self, start: usize) -> Parsed<()> {
        let rest = &self.bytes[self.pos.min(self.bytes.len())..];
        let keyword = ["and", "else", "for", "if", "in", "is", "or", "not"];
        let touches = self.peek(0) == b'_' || self.peek(0).is_ascii_alphanumeric();
        if touches && !keyword.iter().any(|word| rest.starts_with(word.as_bytes())) {
            return self.fail("the number is malformed");
        }
        self.push(Kind::Number, start)
    }
}
