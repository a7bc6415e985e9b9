//! The reader behind [`Json::parse`]: one pass, no recursion, nesting bounded by [`MAX_DEPTH`].

use crate::int::{Int, MAX_DIGITS};
use crate::json::{Json, JsonError, MAX_DEPTH, Object};
use std::collections::btree_map::Entry;

pub(crate) fn parse(bytes: &[u8]) -> Result<Json, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|e| JsonError::Utf8 { offset: e.valid_up_to() })?;
    let mut reader = Reader { text, bytes, at: 0, refused: None };
    reader.space();
    let value = reader.value()?;
    reader.space();
    if reader.at < bytes.len() {
        return Err(reader.syntax("text after the value"));
    }
    match reader.refused {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// An array or object whose end has not come yet; an object waits for the value of one key.
enum Open {
    Array(Vec<Json>),
    Object(Object, String, usize),
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The first forbidden value in text that is JSON so far. Broken JSON later in the text outranks it.
    refused: Option<JsonError>,
}

impl Reader<'_> {
    fn syntax(&self, what: &'static str) -> JsonError {
        JsonError::Syntax { offset: self.at, what }
    }

    fn refuse(&mut self, error: JsonError) {
        self.refused.get_or_insert(error);
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &'static str) -> bool {
        let found = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes()));
        if found {
            self.at += word.len();
        }
        found
    }

    /// Reads one value. Open arrays and objects wait on a list of their own, so that nesting costs no call stack.
    fn value(&mut self) -> Result<Json, JsonError> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let mut value = match self.peek() {
                Some(b'[' | b'{') if open.len() >= MAX_DEPTH => {
                    return Err(JsonError::Nesting { offset: self.at });
                }
                Some(b'[') => {
                    self.at += 1;
                    self.space();
                    if self.peek() != Some(b']') {
                        open.push(Open::Array(Vec::new()));
                        continue;
                    }
                    self.at += 1;
                    Json::Array(Vec::new())
                }
                Some(b'{') => {
                    self.at += 1;
                    self.space();
                    if self.peek() != Some(b'}') {
                        let (key, offset) = self.key()?;
                        open.push(Open::Object(Object::new(), key, offset));
                        continue;
                    }
                    self.at += 1;
                    Json::Object(Object::new())
                }
                _ => self.leaf()?,
            };
            // The value is complete: put it into what is open around it, and close what ends here.
            loop {
                let Some(around) = open.last_mut() else { return Ok(value) };
                self.space();
                let next = self.peek();
                match around {
                    Open::Array(items) => {
                        items.push(value);
                        if next == Some(b',') {
                            self.at += 1;
                            self.space();
                            break;
                        }
                        if next != Some(b']') {
                            return Err(self.syntax("expected `,` or `]`"));
                        }
                        value = Json::Array(std::mem::take(items));
                    }
                    Open::Object(members, key, offset) => {
                        match members.entry(std::mem::take(key)) {
                            Entry::Occupied(twin) => {
                                let error =
                                    JsonError::DuplicateKey { key: twin.key().clone(), offset: *offset };
                                self.refused.get_or_insert(error);
                            }
                            Entry::Vacant(place) => {
                                place.insert(value);
                            }
                        }
                        if next == Some(b',') {
                            self.at += 1;
                            self.space();
                            (*key, *offset) = self.key()?;
                            break;
                        }
                        if next != Some(b'}') {
                            return Err(self.syntax("expected `,` or `}`"));
                        }
                        value = Json::Object(std::mem::take(members));
                    }
                }
                self.at += 1;
                open.pop();
            }
        }
    }

    /// Reads a key with its colon, up to the value.
    fn key(&mut self) -> Result<(String, usize), JsonError> {
        let offset = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.syntax("expected a key in quotes"));
        }
        let key = self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.syntax("expected `:`"));
        }
        self.at += 1;
        self.space();
        Ok((key, offset))
    }

    fn leaf(&mut self) -> Result<Json, JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(Json::Str),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') if self.word("true") => Ok(Json::Bool(true)),
            Some(b'f') if self.word("false") => Ok(Json::Bool(false)),
            Some(b'n') if self.word("null") => Ok(Json::Null),
            Some(b'N' | b'I') => self.named_float(self.at),
            Some(_) => Err(self.syntax("expected a value")),
            None => Err(self.syntax("the text ends where a value is expected")),
        }
    }

    fn named_float(&mut self, start: usize) -> Result<Json, JsonError> {
        if self.word("NaN") || self.word("Infinity") {
            self.refuse(JsonError::Float { offset: start });
            return Ok(Json::Null);
        }
        Err(self.syntax("expected a value"))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                return self.named_float(start);
            }
        }
        let first = self.at;
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else if self.digits() == 0 {
            return Err(self.syntax("expected a digit"));
        }
        let whole = self.at;
        // A fraction or exponent only counts when complete; otherwise its text is left over and is a syntax error.
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.syntax("expected a digit after the point"));
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.syntax("expected a digit in the exponent"));
            }
        }
        if self.at > whole {
            self.refuse(JsonError::Float { offset: start });
            return Ok(Json::Null);
        }
        let digits = whole - first;
        let text = self.text.get(start..whole).unwrap_or("");
        debug_assert!(digits > 0 && digits <= self.bytes.len());
        if digits > MAX_DIGITS {
            return Err(JsonError::IntegerDigits { offset: start, digits });
        }
        Int::from_checked_digits(text, digits)
            .map(Json::Int)
            .map_err(|_| JsonError::IntegerDigits { offset: start, digits })
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            // Scanning stops before ASCII bytes, at the end, or at a bound; only the bound can split a character, and there
            // the next round goes on without copying.
            loop {
                let run = crate::canonical::clean_prefix(self.bytes.get(self.at..).unwrap_or(&[]));
                self.at += run;
                match self.peek() {
                    Some(byte) if run > 0 && byte >= 0x20 && byte != b'"' && byte != b'\\' => {}
                    _ => break,
                }
            }
            let run = self.text.get(start..self.at).unwrap_or("");
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    if out.is_empty() {
                        return Ok(run.to_owned());
                    }
                    out.push_str(run);
                    return Ok(out);
                }
                Some(b'\\') => {
                    out.push_str(run);
                    self.escape(&mut out)?;
                }
                Some(_) => return Err(self.syntax("a control character inside a string")),
                None => return Err(self.syntax("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), JsonError> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode(start, out);
            }
            _ => return Err(self.syntax("an unknown escape")),
        };
        self.at += 1;
        out.push(plain);
        Ok(())
    }

    fn unicode(&mut self, start: usize, out: &mut String) -> Result<(), JsonError> {
        let first = self.hex4()?;
        let scalar = match first {
            0xD800..=0xDBFF => {
                let mark = self.at;
                if self.word("\\u") {
                    let second = self.hex4()?;
                    if let 0xDC00..=0xDFFF = second {
                        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
                    } else {
                        self.at = mark;
                        None
                    }
                } else {
                    None
                }
            }
            _ => char::from_u32(first),
        };
        if scalar.is_none() {
            self.refuse(JsonError::LoneSurrogate { offset: start });
        }
        out.push(scalar.unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = match self.peek() {
                Some(b @ b'0'..=b'9') => b - b'0',
                Some(b @ b'a'..=b'f') => b - b'a' + 10,
                Some(b @ b'A'..=b'F') => b - b'A' + 10,
                _ => return Err(self.syntax("expected four hexadecimal digits")),
            };
            value = value * 16 + u32::from(digit);
            self.at += 1;
        }
        Ok(value)
    }
}
