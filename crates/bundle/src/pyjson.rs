//! JSON as the deployed reader takes it: the last of two equal keys wins, `NaN` and `Infinity` are numbers, integers have
//! any size, lone surrogates are strings (`spec/10-contribution.md` §4). Depth is bounded; positions are kept.

use crate::text::MAX_DIGITS;
use cacheon_identity::Int;

/// Nesting beyond which a text is refused.
pub const MAX_DEPTH: usize = 900;

/// A value and the byte offset of its first character.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// Byte offset in the text.
    pub at: usize,
}

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(Int),
    /// A number with a fraction or exponent, or a special.
    Float(f64),
    /// A string of Unicode scalar values.
    Text(String),
    /// A string with a lone surrogate: legal, but nothing can name or identify it.
    BrokenText,
    /// An array.
    Array(Vec<Item>),
    /// Members in order of first appearance; equal keys keep the last value. `repeated` holds the first repeated key.
    Object {
        /// The members.
        members: Vec<(String, Item)>,
        /// The first key that appeared twice.
        repeated: Option<String>,
    },
}

impl Value {
    /// What the value is called in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) | Self::BrokenText => "a string",
            Self::Array(_) => "an array",
            Self::Object { .. } => "an object",
        }
    }

    /// The member with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        match self {
            Self::Object { members, .. } => {
                members.iter().find(|(name, _)| name == key).map(|(_, item)| item)
            }
            _ => None,
        }
    }
}

/// Why a text is no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (line {line}, column {column})")]
pub struct SyntaxError {
    /// What is wrong.
    pub problem: &'static str,
    /// First line is 1.
    pub line: usize,
    /// In characters; first column is 1.
    pub column: usize,
}

/// Parses a UTF-8 text.
///
/// # Errors
/// The first place where the text is no JSON (a byte-order mark and nesting beyond [`MAX_DEPTH`] included).
pub fn parse(bytes: &[u8]) -> Result<Item, SyntaxError> {
    let text = std::str::from_utf8(bytes).map_err(|error| SyntaxError {
        problem: "the file is not UTF-8",
        line: 1,
        column: error.valid_up_to() + 1,
    })?;
    let mut parser = Parser { bytes: text.as_bytes(), text, pos: 0 };
    let outcome = parser.whole();
    outcome.map_err(|problem| {
        let (line, column) = crate::text::position(text, parser.pos);
        SyntaxError { problem, line, column }
    })
}

struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    pos: usize,
}

type Step<T> = Result<T, &'static str>;

impl Parser<'_> {
    fn whole(&mut self) -> Step<Item> {
        self.blank();
        let item = self.value(0)?;
        self.blank();
        if self.pos == self.bytes.len() { Ok(item) } else { Err("text follows the value") }
    }

    fn blank(&mut self) {
        while matches!(self.bytes.get(self.pos), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.pos += 1;
        }
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.bytes[self.pos..].starts_with(word.as_bytes());
        if found {
            self.pos += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Step<Item> {
        if depth > MAX_DEPTH {
            return Err("values are nested too deeply");
        }
        let at = self.pos;
        let value = match self.bytes.get(self.pos) {
            Some(b'"') => match self.string()? {
                Ok(text) => Value::Text(text),
                Err(_) => Value::BrokenText,
            },
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ if self.eat("null") => Value::Null,
            _ if self.eat("true") => Value::Bool(true),
            _ if self.eat("false") => Value::Bool(false),
            _ if self.eat("NaN") => Value::Float(f64::NAN),
            _ if self.eat("Infinity") => Value::Float(f64::INFINITY),
            _ => return Err("expected a JSON value"),
        };
        Ok(Item { value, at })
    }

    fn object(&mut self, depth: usize) -> Step<Value> {
        self.pos += 1;
        let mut members: Vec<(String, Item)> = Vec::new();
        let mut index: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        let mut repeated = None;
        self.blank();
        if self.eat("}") {
            return Ok(Value::Object { members, repeated });
        }
        loop {
            if self.bytes.get(self.pos) != Some(&b'"') {
                return Err("expected a key in double quotes");
            }
            let key = self.string()?.unwrap_or_else(|lossy| lossy);
            self.blank();
            if !self.eat(":") {
                return Err("expected `:` after the key");
            }
            self.blank();
            let item = self.value(depth + 1)?;
            match index.get(&key) {
                Some(seen) => {
                    members[*seen].1 = item;
                    repeated.get_or_insert(key);
                }
                None => {
                    index.insert(key.clone(), members.len());
                    members.push((key, item));
                }
            }
            self.blank();
            if self.eat("}") {
                return Ok(Value::Object { members, repeated });
            }
            if !self.eat(",") {
                return Err("expected `,` or `}` in the object");
            }
            self.blank();
        }
    }

    fn array(&mut self, depth: usize) -> Step<Value> {
        self.pos += 1;
        let mut items = Vec::new();
        self.blank();
        if self.eat("]") {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blank();
            if self.eat("]") {
                return Ok(Value::Array(items));
            }
            if !self.eat(",") {
                return Err("expected `,` or `]` in the array");
            }
            self.blank();
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.pos;
        while self.bytes.get(self.pos).is_some_and(u8::is_ascii_digit) {
            self.pos += 1;
        }
        self.pos - start
    }

    fn number(&mut self) -> Step<Value> {
        let start = self.pos;
        if self.eat("-Infinity") {
            return Ok(Value::Float(f64::NEG_INFINITY));
        }
        self.eat("-");
        let first = self.pos;
        if !self.eat("0") && self.digits() == 0 {
            return Err("expected a number");
        }
        let whole = self.pos;
        if self.eat(".") && self.digits() == 0 {
            self.pos = whole;
        }
        let before = self.pos;
        if self.eat("e") || self.eat("E") {
            let _ = self.eat("+") || self.eat("-");
            if self.digits() == 0 {
                self.pos = before;
            }
        }
        let text = &self.text[start..self.pos];
        if self.pos > whole {
            return text.parse().map(Value::Float).map_err(|_| "expected a number");
        }
        if whole - first > MAX_DIGITS {
            return Err("an integer has at most 4300 digits");
        }
        match Int::parse(text) {
            Some(Ok(value)) => Ok(Value::Int(value)),
            _ => Err("expected a number"),
        }
    }

    /// The string, or (inner `Err`) its text with a lone surrogate replaced.
    fn string(&mut self) -> Step<Result<String, String>> {
        self.pos += 1;
        let mut text = String::new();
        let mut broken = false;
        loop {
            let run = self.pos;
            while self.bytes.get(self.pos).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
                self.pos += 1;
            }
            text.push_str(&self.text[run..self.pos]);
            match self.bytes.get(self.pos) {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(if broken { Err(text) } else { Ok(text) });
                }
                Some(b'\\') => {
                    let symbol = self.escape()?;
                    broken |= symbol.is_none();
                    text.push(symbol.unwrap_or('\u{fffd}'));
                }
                Some(_) => return Err("control character in a string"),
                None => return Err("the string is not closed"),
            }
        }
    }

    fn escape(&mut self) -> Step<Option<char>> {
        let symbol = match self.bytes.get(self.pos + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.unit(self.pos + 2).ok_or("expected four hexadecimal digits")?;
                self.pos += 6;
                if (0xd800..0xdc00).contains(&unit)
                    && self.bytes[self.pos..].starts_with(b"\\u")
                    && let Some(low @ 0xdc00..0xe000) = self.unit(self.pos + 2)
                {
                    self.pos += 6;
                    return Ok(char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)));
                }
                return Ok(char::from_u32(unit));
            }
            _ => return Err("unknown escape in a string"),
        };
        self.pos += 2;
        Ok(Some(symbol))
    }

    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            u32::from_str_radix(digits, 16).ok()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_flavour() {
        let item = parse(br#" {"a":1,"b":NaN,"a":-Infinity,"c":"\ud83d\ude00","d":"\ud800"} "#).unwrap();
        let Value::Object { members, repeated } = &item.value else { panic!() };
        assert_eq!(repeated.as_deref(), Some("a"));
        assert_eq!(members.len(), 4);
        assert_eq!(item.value.get("a").unwrap().value, Value::Float(f64::NEG_INFINITY));
        assert_eq!(item.value.get("c").unwrap().value, Value::Text("😀".into()));
        assert_eq!(item.value.get("d").unwrap().value, Value::BrokenText);
    }

    #[test]
    fn refuses_without_recursing_forever() {
        let deep = "[".repeat(50_000);
        assert_eq!(parse(deep.as_bytes()).unwrap_err().problem, "values are nested too deeply");
        for bad in ["", "01", "1.", "+1", "{\"a\" 1}", "[1,]", "{,}", "\"\t\"", "nul", "1 2", "\u{feff}1"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(format!("{}1", "9".repeat(4300)).as_bytes()).is_err());
        assert!(parse("9".repeat(4300).as_bytes()).is_ok());
    }
}
