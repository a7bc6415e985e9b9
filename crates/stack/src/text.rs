//! Text rules shared by the records of this crate.

use cacheon_identity::canonical::ObjectWriter;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, DecodeKind, Json};

/// Declares a checked text newtype: parse, order, display, canonical text and decoding.
macro_rules! text_type {
    ($(#[$meta:meta])* $name:ident, $rule:ident = $text:literal, $keeps:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        /// The rule, as it stands in error messages.
        pub const $rule: &str = $text;

        impl $name {
            /// Checks and wraps.
            ///
            /// # Errors
            /// The text breaks the rule.
            pub fn parse(text: &str) -> Result<Self, ::cacheon_identity::DecodeError> {
                let keeps: fn(&str) -> bool = $keeps;
                if keeps(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(::cacheon_identity::DecodeError::invalid($rule, text))
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ::cacheon_identity::DecodeError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl ::cacheon_identity::Canonical for $name {
            fn write(&self, w: &mut ::cacheon_identity::CanonicalWriter<'_>) {
                w.str(&self.0);
            }
        }

        impl ::cacheon_identity::Decode for $name {
            fn decode(json: &::cacheon_identity::Json) -> Result<Self, ::cacheon_identity::DecodeError> {
                Self::parse($crate::text::string(json, $rule)?)
            }
        }
    };
}
pub(crate) use text_type;

/// A string, or a refusal that names the rule of the type it should have been.
pub(crate) fn string<'a>(json: &'a Json, rule: &'static str) -> Result<&'a str, DecodeError> {
    json.as_str().ok_or_else(|| DecodeKind::Invalid { rule, value: json.kind().to_owned() }.into())
}

/// An object written by a closure, for payloads that have no type of their own.
pub(crate) fn object<F: Fn(&mut ObjectWriter<'_, '_>)>(members: F) -> Object<F> {
    Object(members)
}

/// See [`object`].
pub(crate) struct Object<F>(F);

impl<F: Fn(&mut ObjectWriter<'_, '_>)> Canonical for Object<F> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| (self.0)(o));
    }
}
