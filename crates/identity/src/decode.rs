//! Closed-object decoding with located errors (spec 20 §1.6).

use crate::digest::DigestError;
use crate::int::Int;
use crate::json::{Json, JsonError, Object};
use crate::{Canonical, CanonicalWriter, Digest};
use std::collections::BTreeMap;
use std::fmt;

/// A value that can be read from JSON. Reading checks everything the type promises.
pub trait Decode: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// [`DecodeError`], with the path to the offending member.
    fn decode(json: &Json) -> Result<Self, DecodeError>;

    /// Reads JSON text and decodes it.
    ///
    /// # Errors
    /// [`DecodeError`]; text that is no JSON is [`DecodeKind::Json`].
    fn decode_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(&Json::parse(bytes).map_err(DecodeKind::Json)?)
    }
}

/// Where and why decoding refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Member names and `[index]` parts from the root, outermost first. Empty at the root.
    pub path: Vec<String>,
    /// What was wrong there.
    pub kind: DecodeKind,
}

/// What was wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeKind {
    /// The text is not strict JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Another JSON type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The type the member must have.
        expected: &'static str,
        /// The type it has.
        found: &'static str,
    },
    /// A member that must be there is not.
    #[error("member `{0}` is missing")]
    Missing(String),
    /// A member outside the closed set.
    #[error("member `{0}` is not known here")]
    Extra(String),
    /// Not a digest, or zero.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// A version or type tag with another value or JSON type.
    #[error("expected {expected}, found {found}")]
    Version {
        /// The one accepted.
        expected: String,
        /// The one found.
        found: String,
    },
    /// An integer outside its bounds.
    #[error("{value} is outside {bounds}")]
    Range {
        /// The integer.
        value: String,
        /// The bounds in words.
        bounds: String,
    },
    /// A string, list or combination that breaks a rule of its record.
    #[error("{rule}: `{value}`")]
    Invalid {
        /// The rule.
        rule: &'static str,
        /// The offending value, shortened.
        value: String,
    },
}

impl DecodeKind {
    /// A broken rule with its value, shortened to 160 characters.
    #[must_use]
    pub fn invalid(rule: &'static str, value: &(impl fmt::Display + ?Sized)) -> Self {
        let text = value.to_string();
        Self::Invalid { rule, value: text.chars().take(160).collect() }
    }
}

impl DecodeError {
    /// The same error, seen from one level further out.
    #[must_use]
    pub fn within(mut self, part: impl Into<String>) -> Self {
        self.path.insert(0, part.into());
        self
    }

    /// A broken rule at the root.
    #[must_use]
    pub fn invalid(rule: &'static str, value: &(impl fmt::Display + ?Sized)) -> Self {
        DecodeKind::invalid(rule, value).into()
    }
}

impl<T: Into<DecodeKind>> From<T> for DecodeError {
    fn from(kind: T) -> Self {
        Self { path: Vec::new(), kind: kind.into() }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.path.iter().enumerate() {
            if index > 0 && !part.starts_with('[') {
                f.write_str(".")?;
            }
            f.write_str(part)?;
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        fmt::Display::fmt(&self.kind, f)
    }
}

impl std::error::Error for DecodeError {}

/// The members of one object, taken by name.
#[derive(Debug)]
pub struct Fields<'a> {
    members: &'a Object,
    taken: Vec<&'a str>,
}

impl<'a> Fields<'a> {
    /// Opens an object whose members are exactly `names`.
    ///
    /// # Errors
    /// Not an object, a missing or an extra member.
    pub fn closed(json: &'a Json, names: &[&str]) -> Result<Self, DecodeError> {
        Self::closed_with(json, names, &[])
    }

    /// Opens an object that has every one of `required` and nothing besides those and `optional`.
    ///
    /// # Errors
    /// Not an object, a missing or an extra member.
    pub fn closed_with(json: &'a Json, required: &[&str], optional: &[&str]) -> Result<Self, DecodeError> {
        let fields = Self::open(json)?;
        if let Some(name) = required.iter().find(|name| !fields.members.contains_key(**name)) {
            return Err(DecodeKind::Missing((*name).to_owned()).into());
        }
        let known = |key: &&String| required.contains(&key.as_str()) || optional.contains(&key.as_str());
        match fields.members.keys().find(|key| !known(key)) {
            Some(extra) => Err(DecodeKind::Extra(extra.clone()).into()),
            None => Ok(fields),
        }
    }

    /// Opens an object; close it with [`Fields::finish`].
    ///
    /// # Errors
    /// Not an object.
    pub fn open(json: &'a Json) -> Result<Self, DecodeError> {
        match json {
            Json::Object(members) => Ok(Self { members, taken: Vec::new() }),
            other => Err(DecodeKind::Type { expected: "an object", found: other.kind() }.into()),
        }
    }

    /// Takes a member that must be there.
    ///
    /// # Errors
    /// [`DecodeKind::Missing`].
    pub fn take(&mut self, name: &str) -> Result<Member<'a>, DecodeError> {
        self.optional(name).ok_or_else(|| DecodeKind::Missing(name.to_owned()).into())
    }

    /// Takes a member that may be absent.
    pub fn optional(&mut self, name: &str) -> Option<Member<'a>> {
        let (name, json) = self.members.get_key_value(name)?;
        if !self.taken.contains(&name.as_str()) {
            self.taken.push(name);
        }
        Some(Member { name, json })
    }

    /// Takes and decodes a member that must be there.
    ///
    /// # Errors
    /// Missing, or its own decoding error under its name.
    pub fn decode<T: Decode>(&mut self, name: &str) -> Result<T, DecodeError> {
        self.take(name)?.decode()
    }

    /// Takes and decodes a member that may be absent. A `null` is a value, not an absence.
    ///
    /// # Errors
    /// Its own decoding error under its name.
    pub fn decode_optional<T: Decode>(&mut self, name: &str) -> Result<Option<T>, DecodeError> {
        self.optional(name).map(|member| member.decode()).transpose()
    }

    /// Refuses members that were never taken.
    ///
    /// # Errors
    /// [`DecodeKind::Extra`].
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.taken.len() == self.members.len() {
            return Ok(());
        }
        match self.members.keys().find(|key| !self.taken.contains(&key.as_str())) {
            Some(extra) => Err(DecodeKind::Extra(extra.clone()).into()),
            None => Ok(()),
        }
    }
}

/// One member, with its name for messages.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    name: &'a str,
    json: &'a Json,
}

impl<'a> Member<'a> {
    /// The value.
    #[must_use]
    pub fn json(&self) -> &'a Json {
        self.json
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// An error of this member.
    pub fn error(&self, kind: impl Into<DecodeKind>) -> DecodeError {
        DecodeError { path: vec![self.name.to_owned()], kind: kind.into() }
    }

    fn wrong(&self, expected: &'static str) -> DecodeError {
        self.error(DecodeKind::Type { expected, found: self.json.kind() })
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// Its decoding error under its name.
    pub fn decode<T: Decode>(&self) -> Result<T, DecodeError> {
        T::decode(self.json).map_err(|error| error.within(self.name))
    }

    /// A string.
    ///
    /// # Errors
    /// Another type.
    pub fn as_str(&self) -> Result<&'a str, DecodeError> {
        self.json.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// A string that keeps `rule`.
    ///
    /// # Errors
    /// Another type, or a string that breaks the rule.
    pub fn str_where(
        &self,
        rule: &'static str,
        keeps: impl FnOnce(&str) -> bool,
    ) -> Result<&'a str, DecodeError> {
        let text = self.as_str()?;
        if keeps(text) { Ok(text) } else { Err(self.error(DecodeKind::invalid(rule, text))) }
    }

    /// A boolean.
    ///
    /// # Errors
    /// Another type.
    pub fn as_bool(&self) -> Result<bool, DecodeError> {
        self.json.as_bool().ok_or_else(|| self.wrong("a boolean"))
    }

    /// An integer.
    ///
    /// # Errors
    /// Another type (booleans are not integers).
    pub fn as_int(&self) -> Result<&'a Int, DecodeError> {
        self.json.as_int().ok_or_else(|| self.wrong("an integer"))
    }

    /// An integer within inclusive bounds.
    ///
    /// # Errors
    /// Another type, or out of bounds.
    pub fn u64_in(&self, low: u64, high: u64) -> Result<u64, DecodeError> {
        let value = self.as_int()?;
        match value.to_u64() {
            Some(number) if (low..=high).contains(&number) => Ok(number),
            _ => {
                let text: String = value.to_string().chars().take(80).collect();
                Err(self.error(DecodeKind::Range { value: text, bounds: format!("{low}..={high}") }))
            }
        }
    }

    /// A non-negative 64-bit integer.
    ///
    /// # Errors
    /// Another type, negative or too large.
    pub fn as_u64(&self) -> Result<u64, DecodeError> {
        self.u64_in(0, u64::MAX)
    }

    /// An array.
    ///
    /// # Errors
    /// Another type.
    pub fn as_array(&self) -> Result<&'a [Json], DecodeError> {
        self.json.as_array().ok_or_else(|| self.wrong("an array"))
    }

    /// An object's members.
    ///
    /// # Errors
    /// Another type.
    pub fn as_object(&self) -> Result<&'a Object, DecodeError> {
        self.json.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// A digest that is not zero.
    ///
    /// # Errors
    /// Another type, no digest, or zero.
    pub fn digest(&self) -> Result<Digest, DecodeError> {
        self.decode()
    }

    /// A digest; zero is admitted.
    ///
    /// # Errors
    /// Another type or no digest.
    pub fn digest_or_zero(&self) -> Result<Digest, DecodeError> {
        Digest::parse(self.as_str()?).map_err(|error| self.error(error))
    }

    /// Exactly this integer (a version); `true` is not `1`.
    ///
    /// # Errors
    /// [`DecodeKind::Version`].
    pub fn exactly_int(&self, expected: u64) -> Result<(), DecodeError> {
        if self.json.as_u64() == Some(expected) {
            return Ok(());
        }
        Err(self.version(&expected.to_string()))
    }

    /// Exactly this string (a type tag or policy version).
    ///
    /// # Errors
    /// [`DecodeKind::Version`].
    pub fn exactly(&self, expected: &str) -> Result<(), DecodeError> {
        if self.json.as_str() == Some(expected) {
            return Ok(());
        }
        Err(self.version(expected))
    }

    fn version(&self, expected: &str) -> DecodeError {
        let found: String = self.json.to_ascii().chars().take(80).collect();
        self.error(DecodeKind::Version { expected: expected.to_owned(), found })
    }
}

/// An optional value whose absence is the empty string (spec 20 §1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrEmpty<T>(pub Option<T>);

impl<T> OrEmpty<T> {
    /// Nothing: the empty string.
    pub const EMPTY: Self = Self(None);

    /// The value, if any.
    pub fn as_ref(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> From<T> for OrEmpty<T> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Canonical> Canonical for OrEmpty<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match &self.0 {
            Some(value) => value.write(w),
            None => w.str(""),
        }
    }
}

impl<T: Decode> Decode for OrEmpty<T> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        if json.as_str() == Some("") {
            Ok(Self(None))
        } else {
            T::decode(json).map(|value| Self(Some(value)))
        }
    }
}

fn wrong(expected: &'static str, json: &Json) -> DecodeError {
    DecodeKind::Type { expected, found: json.kind() }.into()
}

impl Decode for Json {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Ok(json.clone())
    }
}

impl Decode for Digest {
    /// A digest that is not zero; fields that admit zero use [`Member::digest_or_zero`].
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = json.as_str().ok_or_else(|| wrong("a digest", json))?;
        Ok(Self::parse_nonzero(text)?)
    }
}

impl Decode for String {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        json.as_str().map(str::to_owned).ok_or_else(|| wrong("a string", json))
    }
}

impl Decode for bool {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        json.as_bool().ok_or_else(|| wrong("a boolean", json))
    }
}

impl Decode for Int {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        json.as_int().cloned().ok_or_else(|| wrong("an integer", json))
    }
}

macro_rules! decode_unsigned {
    ($($number:ty => $method:ident),*) => {$(
        impl Decode for $number {
            fn decode(json: &Json) -> Result<Self, DecodeError> {
                let value = json.as_int().ok_or_else(|| wrong("an integer", json))?;
                value.$method().and_then(|value| Self::try_from(value).ok()).ok_or_else(|| {
                    let text: String = value.to_string().chars().take(80).collect();
                    DecodeKind::Range { value: text, bounds: format!("{}..={}", Self::MIN, Self::MAX) }.into()
                })
            }
        }
    )*};
}
decode_unsigned!(u8 => to_u64, u16 => to_u64, u32 => to_u64, u64 => to_u64, u128 => to_u128, i32 => to_i64, i64 => to_i64);

/// `null` is `None`.
impl<T: Decode> Decode for Option<T> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        if *json == Json::Null { Ok(None) } else { T::decode(json).map(Some) }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let items = json.as_array().ok_or_else(|| wrong("an array", json))?;
        let at = |(index, item)| T::decode(item).map_err(|error| error.within(format!("[{index}]")));
        items.iter().enumerate().map(at).collect()
    }
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let members = json.as_object().ok_or_else(|| wrong("an object", json))?;
        let at = |(key, value): (&String, &Json)| match T::decode(value) {
            Ok(value) => Ok((key.clone(), value)),
            Err(error) => Err(error.within(key.as_str())),
        };
        members.iter().map(at).collect()
    }
}
