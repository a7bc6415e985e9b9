//! Identifiers: NFKC, and the words that are none.

use super::Dialect;
use crate::unicode::{is_xid_continue, is_xid_start};
use unicode_normalization::UnicodeNormalization;

/// Whether the raw text is an identifier of the dialect.
pub(super) fn is_identifier(text: &str, dialect: Dialect) -> bool {
    let version = dialect.unicode();
    let mut symbols = text.chars();
    symbols.next().is_some_and(|first| is_xid_start(first, version))
        && symbols.all(|symbol| is_xid_continue(symbol, version))
}

/// The normal form in which names are compared and written.
pub(super) fn normal(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfkc().collect() }
}
