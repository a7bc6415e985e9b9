//! Statements, keys and values.

use super::keys::{Namespaces, nest};
use super::scan::{bare_key, blank, blank_or_newline, comment, date, key_part, local_time, number, skip};
use super::scan::{special_float, starts, string};
use super::{Document, Item, MAX_DEPTH, SyntaxError, Table, Value};

/// A failure and its byte offset.
#[derive(Debug)]
pub(super) struct Failure {
    at: usize,
    problem: String,
}

impl Failure {
    pub(super) fn new(at: usize, problem: String) -> Self {
        Self { at, problem }
    }
}

fn fail<T>(at: usize, problem: &str) -> Result<T, Failure> {
    Err(Failure::new(at, problem.to_owned()))
}

/// Parses a UTF-8 TOML 1.0 document.
///
/// # Errors
/// The first place where the text is not TOML (a byte-order mark, a duplicate key and nesting beyond [`MAX_DEPTH`]
/// included).
pub fn parse(bytes: &[u8]) -> Result<Document, SyntaxError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
        let (line, column) = crate::text::position(&valid, valid.len());
        SyntaxError { problem: "the file is not UTF-8".to_owned(), line, column }
    })?;
    let text = if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text.to_owned() };
    match document(&text) {
        Ok(root) => Ok(Document { text, root }),
        Err(failure) => {
            let (line, column) = crate::text::position(&text, failure.at);
            Err(SyntaxError { problem: failure.problem, line, column })
        }
    }
}

fn document(src: &str) -> Result<Table, Failure> {
    let bytes = src.as_bytes();
    let mut root = Table::new();
    let mut names = Namespaces::default();
    let mut header: Vec<String> = Vec::new();
    let mut pos = 0;
    loop {
        pos = skip(bytes, pos, blank);
        match bytes.get(pos) {
            None => return Ok(root),
            Some(b'\n') => {
                pos += 1;
                continue;
            }
            Some(b'[') => {
                names.settle();
                let (after, key) = if starts(src, pos, "[[") {
                    array_header(src, pos, &mut root, &mut names)?
                } else {
                    table_header(src, pos, &mut root, &mut names)?
                };
                header = key;
                pos = skip(bytes, after, blank);
            }
            Some(byte) if bare_key(*byte) || matches!(byte, b'"' | b'\'') => {
                pos = statement(src, pos, &mut root, &mut names, &header)?;
                pos = skip(bytes, pos, blank);
            }
            Some(b'#') => {}
            Some(_) => return fail(pos, "a line is a key, a `[table]` or a comment"),
        }
        pos = comment(src, pos)?;
        match bytes.get(pos) {
            None => return Ok(root),
            Some(b'\n') => pos += 1,
            Some(_) => return fail(pos, "expected the end of the line"),
        }
    }
}

fn table_header(
    src: &str,
    start: usize,
    root: &mut Table,
    names: &mut Namespaces,
) -> Result<(usize, Vec<String>), Failure> {
    let (pos, name) = key(src, skip(src.as_bytes(), start + 1, blank))?;
    if names.explicit(&name) || names.frozen(&name) {
        return Err(Failure::new(start, format!("table `{}` is declared twice", name.join("."))));
    }
    names.open(&name);
    if nest(root, &name, start, true).is_none() {
        return fail(start, "the name already holds a value");
    }
    if !starts(src, pos, "]") {
        return fail(pos, "expected `]` at the end of the table name");
    }
    Ok((pos + 1, name))
}

fn array_header(
    src: &str,
    start: usize,
    root: &mut Table,
    names: &mut Namespaces,
) -> Result<(usize, Vec<String>), Failure> {
    let (pos, name) = key(src, skip(src.as_bytes(), start + 2, blank))?;
    if names.frozen(&name) {
        return fail(start, "an inline array cannot be extended");
    }
    names.forget(&name);
    names.open(&name);
    let element = Item { value: Value::Table(Table::new()), at: start };
    let appended = name.split_last().and_then(|(last, parents)| {
        let table = nest(root, parents, start, true)?;
        let slot =
            table.entry(last.clone()).or_insert_with(|| Item { value: Value::Array(Vec::new()), at: start });
        match &mut slot.value {
            Value::Array(items) => {
                items.push(element);
                Some(())
            }
            _ => None,
        }
    });
    if appended.is_none() {
        return fail(start, "the name already holds a value");
    }
    if !starts(src, pos, "]]") {
        return fail(pos, "expected `]]` at the end of the array name");
    }
    Ok((pos + 2, name))
}

fn statement(
    src: &str,
    start: usize,
    root: &mut Table,
    names: &mut Namespaces,
    header: &[String],
) -> Result<usize, Failure> {
    let (pos, name, item) = pair(src, start, 0)?;
    let mut full = header.to_vec();
    full.extend(name);
    if full.len() > MAX_DEPTH {
        return fail(start, "the key is nested too deeply");
    }
    for length in header.len() + 1..full.len() {
        if names.explicit(&full[..length]) {
            return fail(start, "a dotted key reopens a table");
        }
        names.open_later(&full[..length]);
    }
    let Some((last, parents)) = full.split_last() else { return fail(start, "empty key") };
    if names.frozen(parents) {
        return fail(start, "an inline table cannot be extended");
    }
    let Some(table) = nest(root, parents, start, true) else {
        return fail(start, "the name already holds a value");
    };
    if table.contains_key(last) {
        return Err(Failure::new(start, format!("key `{last}` appears twice")));
    }
    let inline = matches!(item.value, Value::Array(_) | Value::Table(_));
    table.insert(last.clone(), item);
    if inline {
        names.freeze(&full);
    }
    Ok(pos)
}

fn pair(src: &str, start: usize, depth: usize) -> Result<(usize, Vec<String>, Item), Failure> {
    let (pos, name) = key(src, start)?;
    if !starts(src, pos, "=") {
        return fail(pos, "expected `=` after the key");
    }
    let (pos, item) = value(src, skip(src.as_bytes(), pos + 1, blank), depth + name.len())?;
    Ok((pos, name, item))
}

fn key(src: &str, start: usize) -> Result<(usize, Vec<String>), Failure> {
    let bytes = src.as_bytes();
    let (pos, part) = key_part(src, start)?;
    let mut name = vec![part];
    let mut pos = skip(bytes, pos, blank);
    while bytes.get(pos) == Some(&b'.') {
        if name.len() >= MAX_DEPTH {
            return fail(start, "the key is nested too deeply");
        }
        let (after, part) = key_part(src, skip(bytes, pos + 1, blank))?;
        name.push(part);
        pos = skip(bytes, after, blank);
    }
    Ok((pos, name))
}

fn value(src: &str, pos: usize, depth: usize) -> Result<(usize, Item), Failure> {
    if depth > MAX_DEPTH {
        return fail(pos, "values are nested too deeply");
    }
    let (end, value) = match src.as_bytes().get(pos) {
        Some(b'"' | b'\'') => {
            let (end, text) = string(src, pos)?;
            (end, Value::Text(text))
        }
        Some(b't') if starts(src, pos, "true") => (pos + 4, Value::Bool(true)),
        Some(b'f') if starts(src, pos, "false") => (pos + 5, Value::Bool(false)),
        Some(b'[') => array(src, pos, depth)?,
        Some(b'{') => inline_table(src, pos, depth)?,
        _ => {
            if let Some(found) = date(src, pos) {
                let (end, text) = found?;
                (end, Value::Moment(text))
            } else if let Some((end, text)) = local_time(src, pos) {
                (end, Value::Moment(text))
            } else if let Some(found) = number(src, pos) {
                found?
            } else if let Some((end, float)) = special_float(src, pos) {
                (end, Value::Float(float))
            } else {
                return fail(pos, "expected a value");
            }
        }
    };
    Ok((end, Item { value, at: pos }))
}

fn array_blank(src: &str, mut pos: usize) -> Result<usize, Failure> {
    loop {
        let before = pos;
        pos = comment(src, skip(src.as_bytes(), pos, blank_or_newline))?;
        if pos == before {
            return Ok(pos);
        }
    }
}

fn array(src: &str, start: usize, depth: usize) -> Result<(usize, Value), Failure> {
    let mut items = Vec::new();
    let mut pos = array_blank(src, start + 1)?;
    while !starts(src, pos, "]") {
        let (after, item) = value(src, pos, depth + 1)?;
        items.push(item);
        pos = array_blank(src, after)?;
        if starts(src, pos, "]") {
            break;
        }
        if !starts(src, pos, ",") {
            return fail(pos, "expected `,` or `]` in the array");
        }
        pos = array_blank(src, pos + 1)?;
    }
    Ok((pos + 1, Value::Array(items)))
}

fn inline_table(src: &str, start: usize, depth: usize) -> Result<(usize, Value), Failure> {
    let bytes = src.as_bytes();
    let mut table = Table::new();
    let mut names = Namespaces::default();
    let mut pos = skip(bytes, start + 1, blank);
    if starts(src, pos, "}") {
        return Ok((pos + 1, Value::Table(table)));
    }
    loop {
        let (after, name, item) = pair(src, pos, depth + 1)?;
        if names.frozen(&name) {
            return fail(pos, "an inline table cannot be extended");
        }
        let Some((last, parents)) = name.split_last() else { return fail(pos, "empty key") };
        let Some(inner) = nest(&mut table, parents, pos, false) else {
            return fail(pos, "the name already holds a value");
        };
        if inner.contains_key(last) {
            return Err(Failure::new(pos, format!("key `{last}` appears twice")));
        }
        let frozen = matches!(item.value, Value::Array(_) | Value::Table(_));
        inner.insert(last.clone(), item);
        pos = skip(bytes, after, blank);
        if starts(src, pos, "}") {
            return Ok((pos + 1, Value::Table(table)));
        }
        if !starts(src, pos, ",") {
            return fail(pos, "expected `,` or `}` in the inline table");
        }
        if frozen {
            names.freeze(&name);
        }
        pos = skip(bytes, pos + 1, blank);
    }
}
