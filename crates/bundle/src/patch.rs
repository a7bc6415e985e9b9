//! Dependency patches: plain unified diffs, applied byte for byte (`spec/10-contribution.md` §6.2).

use crate::text::strip;
use cacheon_identity::Int;

/// One file's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file, relative to the dependency's root.
    pub path: String,
    /// Whether the patch makes the file.
    pub new_file: bool,
    /// In the order of the text.
    pub hunks: Vec<Hunk>,
}

/// A hunk: numbers of its header and its body lines, each with its sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// First line of the old part, from 1.
    pub old_start: Int,
    /// Lines of the old part.
    pub old_count: u64,
    /// First line of the new part.
    pub new_start: Int,
    /// Lines of the new part.
    pub new_count: u64,
    /// Body lines, each starting with ` `, `+` or `-`.
    pub lines: Vec<String>,
}

/// Why a text is no admissible patch, or does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (line {line})")]
pub struct PatchError {
    /// What is wrong.
    pub problem: String,
    /// Line of the patch, from 1; 0 when no line is to blame.
    pub line: usize,
}

fn fail<T>(line: usize, problem: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError { problem: problem.into(), line: line + 1 })
}

/// Reads a patch. Only LF ends a line; see [`universal_newlines`] for the form that a bundle's files are read in.
///
/// # Errors
/// Anything but sections of exact hunks over distinct, canonical paths.
pub fn parse(text: &str) -> Result<Vec<FilePatch>, PatchError> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut files: Vec<FilePatch> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with("--- ") {
            let (next, file) = section(&lines, at)?;
            if files.iter().any(|other| other.path == file.path) {
                return fail(at, format!("{} is patched twice", file.path));
            }
            files.push(file);
            at = next;
        } else if line.is_empty()
            || ["diff ", "index ", "new file mode", "old mode ", "new mode "]
                .iter()
                .any(|prefix| line.starts_with(prefix))
        {
            at += 1;
        } else {
            return fail(at, "only diff headers and blank lines may stand outside a file's section");
        }
    }
    if files.is_empty() {
        return fail(0, "the patch changes no file");
    }
    Ok(files)
}

/// The text with CRLF and lone CR as LF, as the deployed implementation reads text files.
#[must_use]
pub fn universal_newlines(text: &str) -> String {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.to_owned() }
}

fn file_name(header: &str, prefix: &str, at: usize) -> Result<String, PatchError> {
    let name = strip(header.split('\t').next().unwrap_or(header));
    let Some(path) = name.strip_prefix(prefix) else {
        return fail(at, format!("the file name must start with {prefix}"));
    };
    if path.starts_with('/') || !crate::path::canonical(path) {
        return fail(at, "the file name must be a plain relative path");
    }
    Ok(path.to_owned())
}

fn section(lines: &[&str], start: usize) -> Result<(usize, FilePatch), PatchError> {
    let old_header = &lines[start][4..];
    let Some(new_header) = lines.get(start + 1).and_then(|line| line.strip_prefix("+++ ")) else {
        return fail(start, "`--- ` must be followed by `+++ `");
    };
    let path = file_name(new_header, "b/", start + 1)?;
    let new_file = strip(old_header.split('\t').next().unwrap_or(old_header)) == "/dev/null";
    if !new_file && file_name(old_header, "a/", start)? != path {
        return fail(start, "a patch may not rename or copy a file");
    }
    let mut at = start + 2;
    let mut hunks = Vec::new();
    while at < lines.len() && lines[at].starts_with("@@") {
        let (next, hunk) = hunk(lines, at)?;
        hunks.push(hunk);
        at = next;
    }
    if hunks.is_empty() {
        return fail(start, "the section has no hunk");
    }
    if new_file && (hunks.len() != 1 || hunks[0].old_start != Int::from(0) || hunks[0].old_count != 0) {
        return fail(start, "a new file has one hunk whose old part is 0,0");
    }
    Ok((at, FilePatch { path, new_file, hunks }))
}

/// The value of a run of Unicode decimal digits at the start of `text`, and the rest.
fn number(text: &str) -> Option<(Int, &str)> {
    let digits: String = text
        .chars()
        .map_while(|symbol| {
            crate::unicode::decimal_digit(symbol).and_then(|value| char::from_digit(value, 10))
        })
        .collect();
    let end: usize = text.chars().take(digits.len()).map(char::len_utf8).sum();
    let significant = if digits.is_empty() { "" } else { digits.trim_start_matches('0') };
    let value = match (digits.is_empty(), significant.is_empty()) {
        (true, _) => return None,
        (_, true) => Int::from(0),
        _ if digits.len() > crate::text::MAX_DIGITS => return None,
        _ => Int::parse(significant)?.ok()?,
    };
    Some((value, &text[end..]))
}

fn range(text: &str) -> Option<(Int, Int, &str)> {
    let (start, rest) = number(text)?;
    match rest.strip_prefix(',') {
        Some(rest) => number(rest).map(|(count, rest)| (start, count, rest)),
        None => Some((start, Int::from(1), rest)),
    }
}

fn hunk(lines: &[&str], start: usize) -> Result<(usize, Hunk), PatchError> {
    let header = lines[start].strip_prefix("@@ -").and_then(|rest| {
        let (old_start, old_count, rest) = range(rest)?;
        let (new_start, new_count, rest) = range(rest.strip_prefix(" +")?)?;
        rest.starts_with(" @@").then_some((old_start, old_count, new_start, new_count))
    });
    let Some((old_start, old_count, new_start, new_count)) = header else {
        return fail(start, "expected a hunk header `@@ -a,b +c,d @@`");
    };
    let (Some(old_count), Some(new_count)) = (old_count.to_u64(), new_count.to_u64()) else {
        return fail(start, "the hunk ends before its counts are met");
    };
    let (mut old_left, mut new_left) = (old_count, new_count);
    let mut body = Vec::new();
    let mut at = start + 1;
    while old_left > 0 || new_left > 0 {
        let Some(line) = lines.get(at).filter(|_| at + 1 < lines.len() || !lines[at].is_empty()) else {
            return fail(start, "the hunk ends before its counts are met");
        };
        let sign = line.chars().next().unwrap_or(' ');
        let (takes_old, takes_new) = match sign {
            ' ' => (1, 1),
            '-' => (1, 0),
            '+' => (0, 1),
            '\\' => return fail(at, "`\\ No newline` markers are not allowed"),
            _ => return fail(at, "a hunk line starts with a space, `+` or `-`"),
        };
        if takes_old > old_left || takes_new > new_left {
            return fail(at, "the hunk has more lines than its counts say");
        }
        old_left -= takes_old;
        new_left -= takes_new;
        body.push(if line.is_empty() { " ".to_owned() } else { (*line).to_owned() });
        at += 1;
    }
    Ok((at, Hunk { old_start, old_count, new_start, new_count, lines: body }))
}

impl FilePatch {
    /// The file after the patch. `original` is its content, `None` when it does not exist.
    ///
    /// A hunk whose old part is empty inserts before line `old_start`, as the deployed implementation does.
    ///
    /// # Errors
    /// The file's presence is not what the patch expects, it does not end with LF, or a hunk does not match exactly.
    pub fn apply(&self, original: Option<&str>) -> Result<String, PatchError> {
        let refuse = |problem: String| Err(PatchError { problem, line: 0 });
        let text = match (original, self.new_file) {
            (None, true) => "",
            (Some(text), false) => text,
            (None, false) => return refuse(format!("{} does not exist", self.path)),
            (Some(_), true) => return refuse(format!("{} exists already", self.path)),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            return refuse(format!("{} does not end with a line feed", self.path));
        }
        let old: Vec<&str> = text.strip_suffix('\n').map_or_else(Vec::new, |text| text.split('\n').collect());
        let mut new: Vec<&str> = Vec::new();
        let mut cursor = 0usize;
        for hunk in &self.hunks {
            let begin =
                hunk.old_start.to_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(usize::MAX);
            let begin = begin.saturating_sub(1);
            let refuse_hunk =
                |why: &str| refuse(format!("hunk at line {} of {}: {why}", hunk.old_start, self.path));
            if hunk.old_start == Int::from(0) && !self.new_file {
                return refuse_hunk("line 0 does not exist");
            }
            if begin < cursor {
                return refuse_hunk("it overlaps an earlier one");
            }
            let Some(kept) = old.get(cursor..begin) else { return refuse_hunk("it lies beyond the end") };
            new.extend(kept);
            cursor = begin;
            for line in &hunk.lines {
                let (sign, text) = line.split_at(1);
                if sign != "+" {
                    if old.get(cursor) != Some(&text) {
                        return refuse_hunk("it does not match");
                    }
                    cursor += 1;
                }
                if sign != "-" {
                    new.push(text);
                }
            }
        }
        new.extend(old.get(cursor..).unwrap_or_default());
        Ok(if new.is_empty() { String::new() } else { new.join("\n") + "\n" })
    }
}
