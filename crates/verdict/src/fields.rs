//! Member types that several qualification records share, and the macros that declare records with rules
//! (40-qualification §0).

use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, DigestError, Json,
};
use std::fmt;

/// Reads one JSON string.
pub(crate) fn text<'a>(json: &'a Json, expected: &'static str) -> Result<&'a str, DecodeError> {
    json.as_str().ok_or_else(|| DecodeKind::Type { expected, found: json.kind() }.into())
}

/// Refuses unless `holds`.
pub(crate) fn require(
    holds: bool,
    member: &'static str,
    rule: &'static str,
    value: &(impl fmt::Display + ?Sized),
) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::invalid(rule, value).within(member)) }
}

/// Refuses an integer outside inclusive bounds.
pub(crate) fn within(member: &'static str, value: u64, low: u64, high: u64) -> Result<(), DecodeError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let kind = DecodeKind::Range { value: value.to_string(), bounds: format!("{low}..={high}") };
    Err(DecodeError::from(kind).within(member))
}

/// Whether a list is strictly ascending (sorted, without repeats).
pub(crate) fn ascending<T: Ord>(items: &[T]) -> bool {
    items.iter().zip(items.iter().skip(1)).all(|(a, b)| a < b)
}

/// Whether no item repeats.
pub(crate) fn distinct<T: Ord>(items: &[T]) -> bool {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort();
    ascending(&sorted)
}

/// A digest that may be zero: speed, audit-witness, report, attempt and evidence-reference members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnyDigest(pub Digest);

impl AnyDigest {
    /// Reads 64 lowercase hexadecimal digits.
    ///
    /// # Errors
    /// The text is no digest.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        Digest::parse(text).map(Self)
    }
}

impl From<Digest> for AnyDigest {
    fn from(digest: Digest) -> Self {
        Self(digest)
    }
}

impl PartialEq<Digest> for AnyDigest {
    fn eq(&self, other: &Digest) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for AnyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for AnyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Canonical for AnyDigest {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for AnyDigest {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Ok(Self::parse(text(json, "a digest")?)?)
    }
}

/// Exactly `N` elements, as an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed<T, const N: usize>(pub [T; N]);

impl<T: Canonical, const N: usize> Canonical for Fixed<T, N> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl<T: Decode, const N: usize> Decode for Fixed<T, N> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let items = Vec::<T>::decode(json)?;
        let found = items.len();
        items
            .try_into()
            .map(Self)
            .map_err(|_| DecodeError::invalid("the list has another number of elements", &found))
    }
}

/// Thirty-two lowercase hexadecimal digits, not all zero: session ids, nonces, seeds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex128(String);

impl Hex128 {
    /// Reads the text; `None` when it is something else or zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits =
            text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (digits && text.bytes().any(|b| b != b'0')).then(|| Self(text.to_owned()))
    }

    /// The text of sixteen bytes; `None` when they are all zero.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        Self::parse(&format!("{:032x}", u128::from_be_bytes(bytes)))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hex128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Hex128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Canonical for Hex128 {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(&self.0);
    }
}

impl Decode for Hex128 {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = text(json, "32 hexadecimal digits")?;
        Self::parse(text)
            .ok_or_else(|| DecodeError::invalid("not 32 lowercase hexadecimal digits above zero", text))
    }
}

/// Whether text fully matches `[first][rest]{0,max-1}`.
fn matches(text: &str, max: usize, first: impl Fn(u8) -> bool, rest: impl Fn(u8) -> bool) -> bool {
    let mut bytes = text.bytes();
    text.len() <= max && bytes.next().is_some_and(first) && bytes.all(rest)
}

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,255}`.
#[must_use]
pub(crate) fn is_identifier(text: &str) -> bool {
    matches(text, 256, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// `[a-z][a-z0-9._-]*`.
#[must_use]
pub(crate) fn is_name(text: &str) -> bool {
    let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    matches(text, usize::MAX, |b| b.is_ascii_lowercase(), rest)
}

/// `[A-Za-z0-9_.:+/@-]{1,256}`.
#[must_use]
pub(crate) fn is_slot_token(text: &str) -> bool {
    let one = |b: u8| b.is_ascii_alphanumeric() || b"_.:+/@-".contains(&b);
    matches(text, 256, one, one)
}

macro_rules! text_types {
    ($($(#[$meta:meta])* $name:ident: $rule:path, $why:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Reads the text.
            ///
            /// # Errors
            /// The text breaks the grammar.
            pub fn parse(text: &str) -> Result<Self, DecodeError> {
                if $rule(text) { Ok(Self(text.to_owned())) } else { Err(DecodeError::invalid($why, text)) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Canonical for $name {
            fn write(&self, w: &mut CanonicalWriter<'_>) {
                w.str(&self.0);
            }
        }

        impl Decode for $name {
            fn decode(json: &Json) -> Result<Self, DecodeError> {
                Self::parse(text(json, "a string")?)
            }
        }
    )+};
}

text_types! {
    /// A target, slot, variant, profile or metric name: `[A-Za-z0-9][A-Za-z0-9._-]{0,255}`.
    Identifier: is_identifier, "not an identifier";
    /// An algorithm or measurement name: `[a-z][a-z0-9._-]*`.
    Name: is_name, "not a lower-case name";
    /// A slot in audit records: `[A-Za-z0-9_.:+/@-]{1,256}`.
    SlotToken: is_slot_token, "not a slot token";
}

/// The integer 1 in `schema_version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaOne;

impl Canonical for SchemaOne {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.u64(1);
    }
}

impl Decode for SchemaOne {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        if json.as_u64() == Some(1) {
            return Ok(Self);
        }
        Err(DecodeKind::Version {
            expected: "1".to_owned(),
            found: json.to_ascii().chars().take(80).collect(),
        }
        .into())
    }
}

/// Declares unit types that stand for one fixed text.
macro_rules! literals {
    ($($(#[$meta:meta])* $name:ident = $text:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// The text.
            pub const TEXT: &'static str = $text;
        }

        impl ::cacheon_identity::Canonical for $name {
            fn write(&self, w: &mut ::cacheon_identity::CanonicalWriter<'_>) {
                w.str(Self::TEXT);
            }
        }

        impl ::cacheon_identity::Decode for $name {
            fn decode(
                json: &::cacheon_identity::Json,
            ) -> ::std::result::Result<Self, ::cacheon_identity::DecodeError> {
                if json.as_str() == Some(Self::TEXT) {
                    return Ok(Self);
                }
                let found = json.to_ascii().chars().take(80).collect();
                Err(::cacheon_identity::DecodeKind::Version { expected: Self::TEXT.to_owned(), found }.into())
            }
        }
    )+};
}
pub(crate) use literals;

/// Declares enums of fixed texts.
macro_rules! text_enums {
    ($($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant),+
        }

        impl $name {
            /// Every value, in declared order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The text in records.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            /// Reads the text of a record.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::cacheon_identity::Canonical for $name {
            fn write(&self, w: &mut ::cacheon_identity::CanonicalWriter<'_>) {
                w.str(self.as_str());
            }
        }

        impl ::cacheon_identity::Decode for $name {
            fn decode(
                json: &::cacheon_identity::Json,
            ) -> ::std::result::Result<Self, ::cacheon_identity::DecodeError> {
                let text = $crate::fields::text(json, "a string")?;
                Self::parse(text).ok_or_else(|| {
                    ::cacheon_identity::DecodeError::invalid(concat!("not a ", stringify!($name)), text)
                })
            }
        }
    )+};
}
pub(crate) use text_enums;

/// Declares a closed record with rules beyond the types of its members: `struct Name: rules { … }`, where `rules` is
/// `fn(&Name) -> Result<(), DecodeError>`. Reading applies them; a value built in code passes through `checked`.
macro_rules! ruled_record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident : $rules:path {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident $(as $key:literal)? : $type:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),+
        }

        impl $name {
            /// The member names of the object, in code-point order.
            pub const MEMBERS: &'static [&'static str] = &[$($crate::fields::ruled_record!(@key $field $($key)?)),+];

            /// The record, once every rule of its members and of itself holds.
            ///
            /// # Errors
            /// Names the member and the rule.
            pub fn checked(self) -> ::std::result::Result<Self, ::cacheon_identity::DecodeError> {
                $crate::fields::reread(&self)
            }
        }

        impl ::cacheon_identity::Canonical for $name {
            fn write(&self, w: &mut ::cacheon_identity::CanonicalWriter<'_>) {
                w.object(|o| {
                    $(o.field($crate::fields::ruled_record!(@key $field $($key)?), &self.$field);)+
                });
            }
        }

        impl ::cacheon_identity::Decode for $name {
            fn decode(
                json: &::cacheon_identity::Json,
            ) -> ::std::result::Result<Self, ::cacheon_identity::DecodeError> {
                let mut fields = ::cacheon_identity::Fields::closed(json, Self::MEMBERS)?;
                let value = Self {
                    $($field: fields.decode($crate::fields::ruled_record!(@key $field $($key)?))?),+
                };
                $rules(&value)?;
                ::std::result::Result::Ok(value)
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}
pub(crate) use ruled_record;

/// No rule beyond those of the members.
pub(crate) fn unruled<T>(_: &T) -> Result<(), DecodeError> {
    Ok(())
}

/// Writes a value and reads it back, so that everything its reader checks holds.
///
/// # Errors
/// What the reader refuses.
pub fn reread<T: Canonical + Decode>(value: &T) -> Result<T, DecodeError> {
    T::decode(&value.to_json().map_err(DecodeKind::Json)?)
}

/// Reads the canonical bytes of a closed record: strict JSON whose re-encoding is the same bytes.
///
/// # Errors
/// Not JSON, not the record, or another spelling of it.
pub fn decode_canonical<T: Canonical + Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    let value = T::decode_bytes(bytes)?;
    if value.to_canonical() == bytes {
        return Ok(value);
    }
    Err(DecodeError::invalid("the bytes are not the canonical encoding of the record", &bytes.len()))
}

/// Text that reads as a finite binary64 in any spelling at parse and is written as float17; a record that carried
/// another spelling does not re-encode to the same bytes, so reopening refuses it (§10.2).
#[derive(Clone, Copy, PartialEq)]
pub struct Instant(f64);

impl Instant {
    /// A finite number of seconds.
    #[must_use]
    pub fn new(seconds: f64) -> Option<Self> {
        seconds.is_finite().then_some(Self(seconds))
    }

    /// Seconds on the controller's monotonic clock.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Instant {}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cacheon_identity::float17::format(self.0))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cacheon_identity::float17::format(self.0))
    }
}

impl Canonical for Instant {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(&cacheon_identity::float17::format(self.0));
    }
}

impl Decode for Instant {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        // Integers are admitted here as they are wherever any spelling is.
        let value = match (json.as_str(), json.as_i64()) {
            (Some(text), _) => loose_f64(text),
            (None, Some(integer)) => Some(integer as f64),
            (None, None) => {
                return Err(DecodeKind::Type { expected: "float text", found: json.kind() }.into());
            }
        };
        value.and_then(Self::new).ok_or_else(|| DecodeError::invalid("not a finite number", &json.to_ascii()))
    }
}

/// Reads decimal float text in any plain spelling: sign, digits, point, exponent, digits grouped by `_`, white space
/// around. `None` for anything else, infinities and NaN included.
#[must_use]
pub(crate) fn loose_f64(text: &str) -> Option<f64> {
    let trimmed = text.trim_matches(crate::unicode::is_space);
    let bytes = trimmed.as_bytes();
    let grouped = |(index, byte): (usize, &u8)| {
        let neighbour = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        *byte != b'_' || (neighbour(index.checked_sub(1)) && neighbour(Some(index + 1)))
    };
    if !bytes.iter().enumerate().all(grouped) {
        return None;
    }
    let plain: String = trimmed.chars().filter(|c| *c != '_').collect();
    let shaped = plain.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let value: f64 = if shaped { plain.parse().ok()? } else { return None };
    value.is_finite().then_some(value)
}
