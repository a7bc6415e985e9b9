//! Literals: numbers, strings, bytes, f-strings.

use super::{EmitError, Emitted, Emitter, Level};
use crate::python::Dialect;
use crate::python::ast::{Constant, Part};
use crate::python::string::PyString;

const TRIPLE: [&str; 2] = ["\"\"\"", "'''"];
const ALL: [&str; 4] = ["'", "\"", "\"\"\"", "'''"];

fn escaped(code: u32, out: &mut String) {
    match code {
        0x5c => out.push_str("\\\\"),
        0x0a => out.push_str("\\n"),
        0x0d => out.push_str("\\r"),
        0x09 => out.push_str("\\t"),
        0..=0xff => out.push_str(&format!("\\x{code:02x}")),
        0x100..=0xffff => out.push_str(&format!("\\u{code:04x}")),
        _ => out.push_str(&format!("\\U{code:08x}")),
    }
}

/// The text of a string literal, quotes included, as `repr` writes it.
fn repr(text: &PyString, dialect: Dialect) -> String {
    let has = |mark: char| text.codes().any(|code| code == u32::from(mark));
    let quote = if has('\'') && !has('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for code in text.codes() {
        if code == u32::from(quote) {
            out.push('\\');
            out.push(quote);
        } else if code != 0x5c && crate::unicode::is_printable(code, dialect.unicode()) {
            out.extend(char::from_u32(code));
        } else {
            escaped(code, &mut out);
        }
    }
    out.push(quote);
    out
}

/// Writes text for one of `quotes`, which it narrows to those that fit; `blanks` escapes line feeds and tabs too.
fn fitted(
    text: &PyString,
    quotes: &[&'static str],
    blanks: bool,
    dialect: Dialect,
) -> (String, Vec<&'static str>) {
    let mut out = String::new();
    for code in text.codes() {
        let kept = !blanks && matches!(code, 0x0a | 0x09);
        if kept || code != 0x5c && crate::unicode::is_printable(code, dialect.unicode()) {
            out.extend(char::from_u32(code));
        } else {
            escaped(code, &mut out);
        }
    }
    let lines = out.contains('\n');
    let mut fits: Vec<&'static str> = quotes
        .iter()
        .copied()
        .filter(|quote| !out.contains(quote))
        .filter(|quote| !lines || TRIPLE.contains(quote))
        .collect();
    if fits.is_empty() {
        let literal = repr(text, dialect);
        let mark = &literal[..1];
        let own = if mark == "'" { "'" } else { "\"" };
        let quote = quotes.iter().copied().find(|quote| quote.contains(mark)).unwrap_or(own);
        return (literal[1..literal.len() - 1].to_owned(), vec![quote]);
    }
    if let Some(last) = out.chars().last() {
        fits.sort_by_key(|quote| quote.starts_with(last));
        if fits[0].starts_with(last) {
            out.pop();
            out.push('\\');
            out.push(last);
        }
    }
    (out, fits)
}

fn float(value: f64) -> String {
    if value.is_infinite() { "1e309".to_owned() } else { crate::text::float_repr(value) }
}

impl Emitter {
    pub(super) fn constant(&mut self, value: &Constant) -> Emitted {
        match value {
            Constant::None => self.write("None"),
            Constant::Bool(true) => self.write("True"),
            Constant::Bool(false) => self.write("False"),
            Constant::Ellipsis => self.write("..."),
            Constant::Int(value) => {
                let text = crate::text::decimal(&value.clone().into()).ok_or(EmitError::LongInteger)?;
                self.write(&text);
            }
            Constant::Float(value) => self.write(&float(*value)),
            Constant::Complex(value) => {
                let text = float(*value);
                self.write(text.strip_suffix(".0").unwrap_or(&text));
                self.write("j");
            }
            Constant::Str { value, unicode } => {
                if *unicode {
                    self.write("u");
                }
                if self.plain {
                    self.without_backslashes(value, &ALL);
                } else {
                    self.write(&repr(value, self.dialect));
                }
            }
            Constant::Bytes(value) => self.bytes(value),
        }
        Ok(())
    }

    fn bytes(&mut self, value: &[u8]) {
        let quote = if value.contains(&b'\'') && !value.contains(&b'"') { b'"' } else { b'\'' };
        let mut out = format!("b{}", char::from(quote));
        for byte in value {
            match byte {
                b'\\' => out.push_str("\\\\"),
                b'\t' => out.push_str("\\t"),
                b'\n' => out.push_str("\\n"),
                b'\r' => out.push_str("\\r"),
                byte if *byte == quote => {
                    out.push('\\');
                    out.push(char::from(quote));
                }
                0x20..=0x7e => out.push(char::from(*byte)),
                other => out.push_str(&format!("\\x{other:02x}")),
            }
        }
        out.push(char::from(quote));
        self.write(&out);
    }

    fn without_backslashes(&mut self, value: &PyString, quotes: &[&'static str]) {
        let (text, fits) = fitted(value, quotes, false, self.dialect);
        self.write(fits[0]);
        self.write(&text);
        self.write(fits[0]);
    }

    /// A string that stands first in a body.
    pub(super) fn docstring(&mut self, value: &PyString, unicode: bool) {
        self.line(if unicode { "u" } else { "" });
        self.without_backslashes(value, &TRIPLE);
    }

    pub(super) fn joined(&mut self, parts: &[Part]) -> Emitted {
        self.write("f");
        let mut pieces = Vec::new();
        for part in parts {
            let mut inner = Emitter::new(self.dialect, self.plain);
            inner.part(part, false)?;
            pieces.push((inner.out, matches!(part, Part::Text(_))));
        }
        let old = self.dialect == Dialect::V311;
        if old && self.plain {
            let mut whole = PyString::new();
            pieces.iter().for_each(|(text, _)| whole.extend(text));
            self.without_backslashes(&whole, &ALL);
            return Ok(());
        }
        let (written, quotes) = match self.narrowed(&pieces) {
            Some(found) => found,
            None => (self.fallback(&pieces), vec!["'''"]),
        };
        let quote = quotes.first().copied().ok_or(EmitError::Quotes)?;
        self.write(quote);
        written.iter().for_each(|text| self.out.extend(text));
        self.write(quote);
        Ok(())
    }

    /// The pieces as they stand between quotes that fit all of them; `None` when some literal text fits none.
    fn narrowed(&self, pieces: &[(PyString, bool)]) -> Option<(Vec<PyString>, Vec<&'static str>)> {
        let mut quotes: Vec<&'static str> = ALL.to_vec();
        let mut written = Vec::new();
        for (text, constant) in pieces {
            if *constant || self.dialect == Dialect::V311 {
                let (value, fits) = fitted(text, &quotes, *constant, self.dialect);
                if !fits.iter().any(|quote| quotes.contains(quote)) {
                    return None;
                }
                quotes = fits;
                written.push(PyString::from(value.as_str()));
            } else {
                if text.codes().any(|code| code == 0x0a) {
                    quotes.retain(|quote| TRIPLE.contains(quote));
                }
                written.push(text.clone());
            }
        }
        Some((written, quotes))
    }

    fn fallback(&self, pieces: &[(PyString, bool)]) -> Vec<PyString> {
        let piece = |(text, constant): &(PyString, bool)| {
            if !constant && self.dialect != Dialect::V311 {
                return text.clone();
            }
            let mut quoted = PyString::from("\"");
            quoted.extend(text);
            let literal = repr(&quoted, self.dialect);
            PyString::from(&literal[2..literal.len() - 1])
        };
        pieces.iter().map(piece).collect()
    }

    fn part(&mut self, part: &Part, spec: bool) -> Emitted {
        let (value, conversion, spec) = match part {
            Part::Text(text) => {
                self.part_text(text, spec);
                return Ok(());
            }
            Part::Field { value, conversion, spec } => (value, conversion, spec),
        };
        let mut inner = Emitter::new(self.dialect, self.dialect == Dialect::V311);
        inner.expression(value, Level::Or)?;
        if inner.plain && inner.out.codes().any(|code| code == 0x5c) {
            return Err(EmitError::FieldBackslash);
        }
        self.write("{");
        if inner.out.codes().next() == Some(u32::from('{')) {
            self.write(" ");
        }
        self.out.extend(&inner.out);
        if let Some(conversion) = conversion {
            self.write("!");
            self.write(conversion.encode_utf8(&mut [0; 4]));
        }
        if let Some(spec) = spec {
            self.write(":");
            for part in spec {
                self.part(part, true)?;
            }
        }
        self.write("}");
        Ok(())
    }

    fn part_text(&mut self, text: &PyString, spec: bool) {
        let newest = spec && self.dialect == Dialect::V313;
        for code in text.codes() {
            match char::from_u32(code) {
                Some('{') => self.write("{{"),
                Some('}') => self.write("}}"),
                Some('\n') if spec && self.dialect != Dialect::V311 => self.write("\\n"),
                Some('\\') if newest => self.write("\\\\"),
                Some('\'') if newest => self.write("\\'"),
                Some('"') if newest => self.write("\\\""),
                _ => self.out.push(code),
            }
        }
    }
}
