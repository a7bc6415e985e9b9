//! Tokens of f-strings from 3.12 on: literal text and replacement fields alternate, each with its own rules.

use super::token::{Kind, Tokenizer};
use super::{ParseError, Parsed};

/// An f-string that is being read.
#[derive(Debug)]
pub(super) struct FieldMode {
    quote: u8,
    size: usize,
    raw: bool,
    /// Brackets open since the f-string started.
    depth: isize,
    /// The depth at which the innermost field started; -1 outside any.
    field: isize,
    /// Whether literal text is being read, a format specification included.
    pub(super) in_text: bool,
}

const MAX_NESTED: usize = 150;
const MAX_FIELDS: isize = 3;

impl Tokenizer<'_> {
    pub(super) fn field_start(&mut self, start: usize, quote: u8, size: usize, raw: bool) -> Parsed<()> {
        if self.modes.len() + 1 >= MAX_NESTED {
            return Err(ParseError::budget(start, "f-strings are nested too deeply"));
        }
        self.pos += size;
        self.modes.push(FieldMode { quote, size, raw, depth: 0, field: -1, in_text: true });
        self.push(Kind::FieldStart, start)
    }

    /// Whether this colon starts a format specification.
    pub(super) fn field_colon(&mut self, byte: u8) -> bool {
        match self.modes.last_mut() {
            Some(mode) if byte == b':' && mode.field >= 0 && mode.depth - 1 == mode.field => {
                mode.in_text = true;
                true
            }
            _ => false,
        }
    }

    pub(super) fn field_bracket_opens(&mut self) {
        if let Some(mode) = self.modes.last_mut() {
            mode.depth += 1;
        }
    }

    /// Counts a closing bracket; false when it closes a field that is not open.
    pub(super) fn field_bracket_closes(&mut self, byte: u8) -> bool {
        let Some(mode) = self.modes.last_mut() else { return true };
        if mode.depth == 0 {
            return false;
        }
        mode.depth -= 1;
        if byte == b'}' && mode.depth == mode.field {
            mode.field -= 1;
            mode.in_text = true;
        }
        true
    }

    fn enter_field(&mut self, at: usize) -> Parsed<()> {
        if let Some(mode) = self.modes.last_mut() {
            mode.field += 1;
            if mode.field >= MAX_FIELDS {
                return Err(ParseError::new(at, "the f-string's fields are nested too deeply"));
            }
            mode.in_text = false;
        }
        Ok(())
    }

    fn leave_text(&mut self) {
        if let Some(mode) = self.modes.last_mut() {
            mode.in_text = false;
        }
    }

    /// The next piece of literal text, the end of the f-string, or the change to a field.
    pub(super) fn field_text(&mut self) -> Parsed<()> {
        let Some(mode) = self.modes.last() else { return Ok(()) };
        let (quote, size, raw, in_spec) = (mode.quote, mode.size, mode.raw, mode.field >= 0);
        let start = self.pos;
        if self.peek(0) == b'{' && self.peek(1) != b'{' {
            return self.enter_field(start);
        }
        if (0..size).all(|ahead| self.peek(ahead) == quote) {
            self.pos += size;
            self.modes.pop();
            return self.push(Kind::FieldEnd, start);
        }
        let mut quotes = 0;
        let mut named = false;
        while quotes < size {
            let byte = self.peek(0);
            let at = self.pos;
            if self.at_end() || size == 1 && byte == b'\n' {
                if in_spec && byte == b'\n' && !self.at_end() {
                    self.leave_text();
                    return self.push(Kind::FieldText, start);
                }
                self.pos = start;
                return self.fail("the f-string is not closed");
            }
            self.pos += 1;
            if byte == quote {
                quotes += 1;
                continue;
            }
            quotes = 0;
            match byte {
                b'{' if self.peek(0) != b'{' || in_spec => {
                    self.pos = at;
                    self.enter_field(at)?;
                    return self.push(Kind::FieldText, start);
                }
                // The first of two braces ends the piece, the second is skipped.
                b'{' => return self.doubled(start),
                b'}' if named => return self.push(Kind::FieldText, start),
                b'}' if self.peek(0) == b'}' && !in_spec => return self.doubled(start),
                b'}' => {
                    self.pos = at;
                    self.leave_text();
                    return self.push(Kind::FieldText, start);
                }
                b'\\' => match self.peek(0) {
                    b'{' | b'}' => {}
                    b'N' if !raw => {
                        self.pos += 1;
                        if self.peek(0) == b'{' {
                            self.pos += 1;
                            named = true;
                        }
                    }
                    _ => self.pos += 1,
                },
                _ => {}
            }
        }
        self.pos -= size;
        self.push(Kind::FieldText, start)
    }

    fn doubled(&mut self, start: usize) -> Parsed<()> {
        self.push(Kind::FieldText, start)?;
        self.pos += 1;
        Ok(())
    }
}
