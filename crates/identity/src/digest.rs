//! SHA-256 digests as values, and newtypes of them that do not mix.

use crate::canonical::hex_digit;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// A SHA-256 digest. Text form: exactly 64 lowercase hexadecimal digits (spec 20 §1.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why digest text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Not exactly 64 of `[0-9a-f]`.
    #[error("`{0}` is not a digest: 64 lowercase hexadecimal digits are required")]
    Format(String),
    /// All zeros where a field demands a real digest.
    #[error("the all-zero digest names nothing")]
    Zero,
}

impl Digest {
    /// The all-zero digest, refused by most fields.
    pub const ZERO: Self = Self([0; 32]);

    /// From raw bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// True for all zeros.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 32]
    }

    /// Reads 64 lowercase hexadecimal digits; zero is admitted.
    ///
    /// # Errors
    /// [`DigestError::Format`].
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        match Self::from_hex(text) {
            Some(digest) => Ok(digest),
            None => Err(DigestError::Format(text.chars().take(80).collect())),
        }
    }

    /// Reads 64 lowercase hexadecimal digits that are not all zero: the rule for most fields.
    ///
    /// # Errors
    /// [`DigestError`].
    pub fn parse_nonzero(text: &str) -> Result<Self, DigestError> {
        let digest = Self::parse(text)?;
        if digest.is_zero() { Err(DigestError::Zero) } else { Ok(digest) }
    }

    /// Reads a digest known when the program is written.
    ///
    /// # Panics
    /// In a constant, at compile time, when the text is no digest.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        let digest = Self::from_hex(text);
        assert!(digest.is_some(), "not 64 lowercase hexadecimal digits");
        match digest {
            Some(digest) => digest,
            None => Self::ZERO,
        }
    }

    const fn from_hex(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        let mut at = 0;
        while at < 32 {
            let (Some(high), Some(low)) = (nibble(text[2 * at]), nibble(text[2 * at + 1])) else {
                return None;
            };
            bytes[at] = high << 4 | low;
            at += 1;
        }
        Some(Self(bytes))
    }

    /// The 64 hexadecimal digits, without allocation.
    #[must_use]
    pub fn to_hex(&self) -> HexText {
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 0xf)]);
        }
        HexText(text)
    }
}

/// Sixty-four hexadecimal digits on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexText([u8; 64]);

impl HexText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("")
    }
}

impl std::ops::Deref for HexText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

const fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// As [`Digest::parse`].
    fn from_str(text: &str) -> Result<Self, DigestError> {
        Self::parse(text)
    }
}

impl crate::Canonical for Digest {
    fn write(&self, w: &mut crate::CanonicalWriter<'_>) {
        w.str(&self.to_hex());
    }
}

/// SHA-256, fed in pieces.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// An empty hash.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// SHA-256 of bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Declares digest newtypes that cannot be passed for one another. Reading one refuses zero.
///
/// ```
/// cacheon_identity::typed_digest! {
///     /// Names a materialised engine tree.
///     pub struct TreeDigest;
/// }
/// let tree = TreeDigest::new(cacheon_identity::sha256(b"tree"));
/// assert_eq!(TreeDigest::parse(&tree.to_string()), Ok(tree));
/// ```
#[macro_export]
macro_rules! typed_digest {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name($crate::Digest);

        impl $name {
            /// Declares what an already computed digest names.
            #[must_use]
            pub const fn new(digest: $crate::Digest) -> Self {
                Self(digest)
            }

            /// Reads 64 lowercase hexadecimal digits that are not all zero.
            ///
            /// # Errors
            /// The text is no such digest.
            pub fn parse(text: &str) -> ::std::result::Result<Self, $crate::DigestError> {
                $crate::Digest::parse_nonzero(text).map(Self)
            }

            /// The digest without its meaning.
            #[must_use]
            pub const fn digest(&self) -> $crate::Digest {
                self.0
            }
        }

        impl ::std::convert::From<$name> for $crate::Digest {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::DigestError;

            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::DigestError> {
                Self::parse(text)
            }
        }

        impl $crate::Canonical for $name {
            fn write(&self, w: &mut $crate::CanonicalWriter<'_>) {
                $crate::Canonical::write(&self.0, w);
            }
        }

        impl $crate::Decode for $name {
            fn decode(json: &$crate::Json) -> ::std::result::Result<Self, $crate::DecodeError> {
                <$crate::Digest as $crate::Decode>::decode(json).map(Self)
            }
        }
    )+};
}
