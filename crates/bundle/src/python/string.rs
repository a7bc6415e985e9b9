//! String values: any sequence of code points, lone surrogates included.

use std::fmt;

/// Text in generalised UTF-8: like UTF-8, with surrogates as three-byte sequences.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PyString(Vec<u8>);

impl PyString {
    /// Empty text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds scalar text.
    pub fn push_str(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Adds a code point up to U+10FFFF.
    pub fn push(&mut self, code: u32) {
        match char::from_u32(code) {
            Some(symbol) => self.push_str(symbol.encode_utf8(&mut [0; 4])),
            // A surrogate: three bytes, as for any other code point of that range.
            None => self.0.extend([
                0xe0 | (code >> 12) as u8,
                0x80 | (code >> 6 & 0x3f) as u8,
                0x80 | (code & 0x3f) as u8,
            ]),
        }
    }

    /// Adds another string.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, unless a surrogate is in it.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text, unless a surrogate is in it.
    #[must_use]
    pub fn into_string(self) -> Option<String> {
        String::from_utf8(self.0).ok()
    }

    /// The code points.
    pub fn codes(&self) -> impl Iterator<Item = u32> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (first, tail) = rest.split_first()?;
            let (length, start) = match *first {
                byte if byte < 0x80 => (0, u32::from(byte)),
                byte if byte < 0xe0 => (1, u32::from(byte & 0x1f)),
                byte if byte < 0xf0 => (2, u32::from(byte & 0x0f)),
                byte => (3, u32::from(byte & 0x07)),
            };
            let (following, next) = tail.split_at_checked(length)?;
            rest = next;
            Some(following.iter().fold(start, |code, byte| code << 6 | u32::from(byte & 0x3f)))
        })
    }
}

impl From<&str> for PyString {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl PartialEq<str> for PyString {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for PyString {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_survive() {
        let mut text = PyString::from("aé😀");
        text.push(0xd800);
        text.push(0xdc00);
        assert_eq!(text.codes().collect::<Vec<_>>(), [0x61, 0xe9, 0x1f600, 0xd800, 0xdc00]);
        assert_eq!(text.as_str(), None);
    }
}
