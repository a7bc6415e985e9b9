//! Static rules for C kernels (`cacheon-c-abi-v1`): a closed set of includes and constructs, checked on tokens.
//!
//! The scan is a filter with good messages, not a sandbox: the build runs without a network and the kernel behind
//! system-call filters, whatever the scan says. What the scan refuses is what would make the build depend on anything
//! but the declared files, or run code before the engine asks for it.

mod include;
mod lex;
mod scan;
mod words;

pub use lex::{LexError, Token, TokenKind, tokens};
pub use scan::{names, scan};
pub use words::{HEADER, SYSTEM_HEADERS, is_keyword};
