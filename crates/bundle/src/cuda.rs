//! The closure of CUDA sources: what they may include (`spec/10-contribution.md` §6.1).
//!
//! The rule is textual on purpose: comments and strings are not looked through, so that no compiler's reading of them
//! can differ from ours.

use crate::finding::{Place, Ruled, refuse};
use crate::manifest::{Manifest, PATH};
use crate::path::{relative_to, stem, suffix};
use crate::rule::Rule;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Checks every declared file.
///
/// # Errors
/// The first include that the closure does not allow, or two `.cu` files with one stem.
pub fn check(tree: &Tree, manifest: &Manifest) -> Ruled<()> {
    let declared: BTreeSet<&String> = manifest.ops.iter().flat_map(|op| &op.cuda_sources).collect();
    let mut stems: BTreeMap<&str, &str> = BTreeMap::new();
    for path in declared.iter().filter(|path| suffix(path) == ".cu") {
        if let Some(other) = stems.insert(stem(path), path) {
            let problem = format!("`{other}` and `{path}` would build one module");
            return refuse(Rule::CudaStem, Place::file(PATH).field("cuda_sources"), problem);
        }
    }
    for path in &declared {
        let Some(bytes) = tree.file(path) else {
            return refuse(Rule::Path, Place::file(path.as_str()), "the file is not in the bundle");
        };
        file(tree, path, bytes, &declared)?;
    }
    Ok(())
}

/// The lines of a source after line continuations are deleted, each with the number of its first physical line.
fn lines(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut all = vec![(1, Vec::new())];
    let mut number = 1;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(length) =
            [b"\\\n".as_slice(), b"\\\r\n"].iter().find(|end| rest.starts_with(end)).map(|e| e.len())
        {
            number += 1;
            at += length;
            continue;
        }
        at += 1;
        if rest[0] == b'\n' {
            number += 1;
            all.push((number, Vec::new()));
        } else if let Some((_, line)) = all.last_mut() {
            line.push(rest[0]);
        }
    }
    all
}

fn blanks(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(bytes.len());
    &bytes[end..]
}

/// The rest after `word`, if it ends there.
fn after<'b>(bytes: &'b [u8], word: &str) -> Option<&'b [u8]> {
    let rest = bytes.strip_prefix(word.as_bytes())?;
    let ends = rest.first().is_none_or(|next| *next != b'_' && !next.is_ascii_alphanumeric());
    ends.then_some(rest)
}

fn file(tree: &Tree, path: &str, bytes: &[u8], declared: &BTreeSet<&String>) -> Ruled<()> {
    for (number, line) in lines(bytes) {
        let no = |problem: String| refuse(Rule::CudaInclude, Place::line(path, number), problem);
        let line = blanks(&line);
        if let Some(rest) = line.strip_prefix(b"%:") {
            let rest = blanks(rest);
            if after(rest, "include").is_some() || after(rest, "include_next").is_some() {
                return no("an include may not be written with a digraph".to_owned());
            }
        }
        let Some(rest) = line.strip_prefix(b"#").map(blanks) else { continue };
        if after(rest, "include_next").is_some() {
            return no("include_next is not allowed".to_owned());
        }
        let Some(operand) = after(rest, "include") else { continue };
        if let Err(problem) = include(tree, path, operand, declared) {
            return no(problem);
        }
    }
    Ok(())
}

fn trim(bytes: &[u8]) -> &[u8] {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c);
    let start = bytes.iter().position(|byte| !space(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !space(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

fn include(tree: &Tree, path: &str, operand: &[u8], declared: &BTreeSet<&String>) -> Result<(), String> {
    let operand = trim(operand);
    let close = match operand.first() {
        Some(b'<') => b'>',
        Some(b'"') => b'"',
        _ => return Err("the included file must be named literally, in <> or quotes".to_owned()),
    };
    let Some(length) = operand[1..].iter().position(|byte| *byte == close) else {
        return Err("the included name is not closed".to_owned());
    };
    let rest = trim(&operand[length + 2..]);
    let comment = rest.starts_with(b"//") || rest.starts_with(b"/*") && rest.ends_with(b"*/");
    if !rest.is_empty() && !comment {
        return Err("text follows the included name".to_owned());
    }
    let Ok(header) = std::str::from_utf8(&operand[1..=length]) else {
        return Err("the included name is not UTF-8".to_owned());
    };
    let plain = |header: &str| header.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if close == b'>' {
        let fine = !header.contains('\\') && plain(header);
        return if fine { Ok(()) } else { Err(format!("<{header}> is not a plain relative name")) };
    }
    if header.is_empty() || header.starts_with('/') || header.contains(['\\', '\0']) {
        return Err(format!("\"{}\" is not a plain relative name", header.escape_debug()));
    }
    let Some(target) = relative_to(path, header) else {
        return Err(format!("\"{header}\" leads outside the bundle"));
    };
    if tree.node(&target).is_none() && !target.is_empty() {
        let fine = plain(header);
        return if fine {
            Ok(())
        } else {
            Err(format!("\"{header}\" is neither in the bundle nor a plain name"))
        };
    }
    if !declared.contains(&target) {
        return Err(format!("\"{header}\" is in the bundle but not in cuda_sources"));
    }
    if suffix(&target) == ".cu" {
        return Err(format!("\"{header}\" is a source, not a header"));
    }
    Ok(())
}
