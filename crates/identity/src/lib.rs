//! Identity: what a byte string means to every operator, process and version.
//!
//! Everything durable in Cacheon is named by a SHA-256 of canonical JSON. This crate holds the one value model, the one
//! strict reader and the two writers of that JSON, the typed digests and domain envelopes built on it, and the text
//! forms of the numbers that JSON integers cannot carry (spec 20 §1).
//!
//! | Module | Holds |
//! |---|---|
//! | [`json`] | the value model and the strict, bounded reader |
//! | [`canonical`] | the streaming writer, in both dialects, straight into a buffer or a hasher |
//! | [`digest`] | SHA-256 digests and [`typed_digest!`](crate::typed_digest) |
//! | [`domain`] | the `{domain, payload, schema_version}` envelope |
//! | [`decode`] | closed-object decoding with located errors, and [`record!`](crate::record) |
//! | [`float17`], [`hexfloat`], [`decimal`] | number text |
//! | [`int`] | exact integers of any size up to 4300 digits |

pub mod canonical;
pub mod decimal;
pub mod decode;
pub mod digest;
pub mod domain;
pub mod float17;
pub mod hexfloat;
pub mod int;
pub mod json;
mod parse;
mod record;

pub use canonical::{Canonical, CanonicalWriter, Dialect};
pub use decode::{Decode, DecodeError, DecodeKind, Fields, OrEmpty};
pub use digest::{Digest, DigestError, Hasher, sha256};
pub use domain::{Domain, DomainError};
pub use int::Int;
pub use json::{Json, JsonError};
