//! Identifier grammars shared by records, as types that cannot hold anything else.

/// Declares a string newtype that keeps one grammar: constructor `parse`, `as_str`, `Display`, canonical JSON both ways.
///
/// ```
/// cacheon_records::text_type! {
///     /// One lowercase word.
///     pub struct Word: "a word is one or more of [a-z]",
///         |text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase());
/// }
/// assert!(Word::parse("abc").is_ok() && Word::parse("Abc").is_err());
/// ```
#[macro_export]
macro_rules! text_type {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident: $rule:literal, $keeps:expr;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(String);

        impl $name {
            /// Reads text that keeps the grammar.
            ///
            /// # Errors
            /// The rule, with the text that breaks it.
            pub fn parse(text: &str) -> ::std::result::Result<Self, $crate::text::TextError> {
                let keeps: fn(&str) -> bool = $keeps;
                if keeps(text) {
                    ::std::result::Result::Ok(Self(text.to_owned()))
                } else {
                    ::std::result::Result::Err($crate::text::TextError {
                        rule: $rule,
                        text: text.chars().take(160).collect(),
                    })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl ::std::convert::AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::text::TextError;

            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::text::TextError> {
                Self::parse(text)
            }
        }

        impl ::cacheon_identity::Canonical for $name {
            fn write(&self, w: &mut ::cacheon_identity::CanonicalWriter<'_>) {
                w.str(&self.0);
            }
        }

        impl ::cacheon_identity::Decode for $name {
            fn decode(
                json: &::cacheon_identity::Json,
            ) -> ::std::result::Result<Self, ::cacheon_identity::DecodeError> {
                let text = <::std::string::String as ::cacheon_identity::Decode>::decode(json)?;
                Self::parse(&text).map_err(|error| {
                    ::cacheon_identity::DecodeError::invalid(error.rule, &error.text)
                })
            }
        }
    )+};
}

/// Text that breaks its grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: `{text}`")]
pub struct TextError {
    /// The grammar in words.
    pub rule: &'static str,
    /// The text, shortened to 160 characters.
    pub text: String,
}

text_type! {
    /// A slot or engine word: `[A-Za-z0-9_.:+/@-]{1,256}` (spec 50, `engine_token`).
    pub struct EngineToken: "an engine token is 1..=256 of [A-Za-z0-9_.:+/@-]",
        |text| (1..=256).contains(&text.len()) && text.bytes().all(|b| alphanumeric_or(b, b"_.:+/@-"));
    /// A wire identifier: `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`.
    pub struct WireIdentifier: "a wire identifier is a letter or digit, then at most 127 of [A-Za-z0-9._:-]",
        |text| text.len() <= 128 && starts_alphanumeric(text, b"._:-");
    /// A settlement identifier (hotkey, target, member, reason): `[A-Za-z0-9][A-Za-z0-9._:-]{0,255}` (spec 20 §9).
    pub struct SettlementIdentifier: "an identifier is a letter or digit, then at most 255 of [A-Za-z0-9._:-]",
        |text| text.len() <= 256 && starts_alphanumeric(text, b"._:-");
    /// A device architecture: `sm[0-9]{2,3}[a-z]?`.
    pub struct Architecture: "an architecture is sm, two or three digits, at most one letter", is_architecture;
    /// A topology class: `[a-z0-9][a-z0-9._-]*`.
    pub struct TopologyClass: "a topology class is [a-z0-9][a-z0-9._-]*", |text| is_lower_id(text, usize::MAX);
}

/// ASCII letter or digit, or one of `more`.
pub(crate) fn alphanumeric_or(byte: u8, more: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || more.contains(&byte)
}

/// Non-empty, first a letter or digit, then letters, digits or `more`.
pub(crate) fn starts_alphanumeric(text: &str, more: &[u8]) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(|b| alphanumeric_or(b, more))
}

/// `[a-z0-9][a-z0-9._-]*`, at most `longest` bytes.
pub(crate) fn is_lower_id(text: &str, longest: usize) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= longest
        && text.bytes().next().is_some_and(lower)
        && text.bytes().all(|b| lower(b) || b"._-".contains(&b))
}

fn is_architecture(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("sm") else { return false };
    let digits = rest.trim_end_matches(|c: char| c.is_ascii_lowercase());
    (2..=3).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && rest.len() - digits.len() <= 1
}
