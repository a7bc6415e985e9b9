//! Indented JSON as the deployed implementation writes it: two spaces, sorted keys, non-ASCII as it is.

use cacheon_identity::Json;

/// The text, without a final newline.
#[must_use]
pub fn pretty(value: &Json) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out
}

fn write(value: &Json, indent: usize, out: &mut String) {
    match value {
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                line(index, indent + 1, out);
                write(item, indent + 1, out);
            }
            close(indent, ']', out);
        }
        Json::Object(members) if !members.is_empty() => {
            out.push('{');
            for (index, (key, item)) in members.iter().enumerate() {
                line(index, indent + 1, out);
                flat(&Json::Str(key.clone()), out);
                out.push_str(": ");
                write(item, indent + 1, out);
            }
            close(indent, '}', out);
        }
        scalar => flat(scalar, out),
    }
}

fn line(index: usize, indent: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", indent));
}

fn close(indent: usize, bracket: char, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", indent));
    out.push(bracket);
}

fn flat(value: &Json, out: &mut String) {
    out.push_str(&String::from_utf8_lossy(&value.to_canonical()));
}
