//! Which files a C source may include.

use super::lex::{Token, TokenKind};
use super::words::{HEADER, SYSTEM_HEADERS};
use crate::path::{name, relative_to};
use std::collections::BTreeSet;

/// Checks the tokens after `#include`.
pub(super) fn check(
    operand: &[Token],
    file: &str,
    declared: &BTreeSet<String>,
    exists: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let [target] = operand else {
        return Err(match operand {
            [] => "#include names nothing".to_owned(),
            [first, ..] if first.kind == TokenKind::Word => "#include by macro is not allowed".to_owned(),
            _ => "text follows the header name".to_owned(),
        });
    };
    match target.kind {
        TokenKind::Header => system(&target.text[1..target.text.len() - 1]),
        TokenKind::Text if target.text.starts_with('"') => {
            quoted(&target.text[1..target.text.len() - 1], file, declared, exists)
        }
        _ => Err("#include by macro is not allowed".to_owned()),
    }
}

fn system(header: &str) -> Result<(), String> {
    if header == HEADER || SYSTEM_HEADERS.contains(&header) {
        return Ok(());
    }
    Err(format!("<{header}> is not one of the allowed headers"))
}

fn quoted(
    header: &str,
    file: &str,
    declared: &BTreeSet<String>,
    exists: impl Fn(&str) -> bool,
) -> Result<(), String> {
    if header.starts_with('/') || header.contains(['\\', '\0']) {
        return Err(format!("\"{header}\" must be a plain relative path"));
    }
    let Some(path) = relative_to(file, header) else {
        return Err(format!("\"{header}\" leads outside the bundle"));
    };
    if name(header) == HEADER && header != HEADER {
        return Err(format!("{HEADER} is provided by the build: include it by that name"));
    }
    // The build looks beside the including file first, then at the bundle's root.
    let from_root = relative_to("", header).unwrap_or_default();
    for candidate in [&path, &from_root] {
        if declared.contains(candidate) {
            return if candidate.ends_with(".h") {
                Ok(())
            } else {
                Err(format!("\"{header}\" is no header"))
            };
        }
        if exists(candidate) {
            return Err(format!("\"{header}\" is in the bundle but not in c_sources"));
        }
    }
    if header == HEADER || SYSTEM_HEADERS.contains(&header) {
        return Ok(());
    }
    Err(format!("\"{header}\" is neither in the bundle nor an allowed header"))
}
