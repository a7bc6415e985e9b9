//! The value model of spec 20 §1.1 and its strict reader.

use crate::int::Int;
use crate::{Canonical, CanonicalWriter, Dialect};
use std::collections::BTreeMap;

/// How deep arrays and objects may nest. Deployed readers accept at least 200; 5000 must refuse.
pub const MAX_DEPTH: usize = 512;

/// An object's members, sorted by Unicode code point (the order of UTF-8 bytes).
pub type Object = BTreeMap<String, Json>;

/// A canonical JSON value: no floats, exact integers, scalar strings, string keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`; never an integer.
    Bool(bool),
    /// An exact integer.
    Int(Int),
    /// A Unicode scalar sequence, never normalised.
    Str(String),
    /// An ordered array.
    Array(Vec<Json>),
    /// Members by code-point order.
    Object(Object),
}

/// Why JSON text was refused. `offset` is the byte position in the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("not JSON at byte {offset}: {what}")]
    Syntax {
        /// Byte position.
        offset: usize,
        /// What was found or expected.
        what: &'static str,
    },
    /// The text is not UTF-8.
    #[error("not UTF-8 at byte {offset}")]
    Utf8 {
        /// Byte position of the first wrong byte.
        offset: usize,
    },
    /// A number with a fraction or exponent, `NaN` or an infinity.
    #[error("a float at byte {offset}; identities carry integers or number text")]
    Float {
        /// Byte position.
        offset: usize,
    },
    /// A `\ud800`-style escape without its partner.
    #[error("a lone surrogate at byte {offset}")]
    LoneSurrogate {
        /// Byte position.
        offset: usize,
    },
    /// An integer of more than 4300 digits.
    #[error("an integer of {digits} digits at byte {offset}; at most {} are read", crate::int::MAX_DIGITS)]
    IntegerDigits {
        /// Byte position.
        offset: usize,
        /// Its digits.
        digits: usize,
    },
    /// Deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} at byte {offset}")]
    Nesting {
        /// Byte position.
        offset: usize,
    },
    /// The same key twice in one object.
    #[error("key `{key}` appears twice in one object, at byte {offset}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Byte position of the second one.
        offset: usize,
    },
}

impl Json {
    /// Reads strict JSON text (UTF-8, optional JSON white space around tokens).
    ///
    /// # Errors
    /// [`JsonError`]. When the text is JSON but holds several forbidden values, the first one is named.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        crate::parse::parse(bytes)
    }

    /// Reads text that must already be canonical, byte for byte.
    ///
    /// # Errors
    /// [`JsonError`]; text that parses but is spelled differently is [`JsonError::Syntax`].
    pub fn parse_canonical(bytes: &[u8]) -> Result<Self, JsonError> {
        let value = Self::parse(bytes)?;
        let again = value.to_canonical();
        if again == bytes {
            return Ok(value);
        }
        let offset = again.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        Err(JsonError::Syntax { offset, what: "JSON in its canonical spelling" })
    }

    /// The compact ASCII spelling used in database rows (spec 20 §1.5): sorted keys, every character outside printable
    /// ASCII escaped. Reopen by parsing; never hash this text.
    #[must_use]
    pub fn to_ascii(&self) -> String {
        Canonical::to_ascii(self)
    }

    /// The UTF-8 canonical spelling (spec 20 §1.2).
    #[must_use]
    pub fn to_canonical(&self) -> Vec<u8> {
        Canonical::to_canonical(self)
    }

    /// The string, if this is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }

    /// The boolean, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The integer, if this is one (booleans are not).
    #[must_use]
    pub fn as_int(&self) -> Option<&Int> {
        if let Self::Int(value) = self { Some(value) } else { None }
    }

    /// The integer as `u64`, if this is one and it fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_int().and_then(Int::to_u64)
    }

    /// The integer as `i64`, if this is one and it fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_int().and_then(Int::to_i64)
    }

    /// The elements, if this is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Json]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    /// The members, if this is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    /// A member of an object, or `None`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.as_object().and_then(|members| members.get(key))
    }

    /// The kind in words, for messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Str(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// Builds an object from pairs; a later pair replaces an earlier one of the same key.
    #[must_use]
    pub fn object<K: Into<String>>(members: impl IntoIterator<Item = (K, Json)>) -> Self {
        Self::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

impl Canonical for Json {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self {
            Self::Null => w.null(),
            Self::Bool(value) => w.bool(*value),
            Self::Int(value) => value.write(w),
            Self::Str(text) => w.str(text),
            Self::Array(items) => items.write(w),
            Self::Object(members) => members.write(w),
        }
    }
}

impl std::fmt::Display for Json {
    /// The ASCII spelling.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bytes = Vec::new();
        CanonicalWriter::write_into(&mut bytes, Dialect::Ascii, self);
        f.write_str(&String::from_utf8_lossy(&bytes))
    }
}

macro_rules! json_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Json { fn from(value: $from) -> Self { Self::$variant(value.into()) } })*
    };
}
json_from!(bool => Bool, i32 => Int, i64 => Int, u8 => Int, u16 => Int, u32 => Int, u64 => Int, usize => Int,
    i128 => Int, u128 => Int, Int => Int, &str => Str, String => Str, Vec<Json> => Array, Object => Object);
