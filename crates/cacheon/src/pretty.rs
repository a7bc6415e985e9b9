//! JSON for people: two spaces, long strings and lists shortened where they would bury the rest.

use std::fmt::Write as _;

use cacheon_identity::Json;

/// Most characters of a string that are shown.
const STRING: usize = 160;
/// Most items of a list that are shown.
const ITEMS: usize = 12;

/// The value, indented. What is left out is counted.
pub(crate) fn pretty(json: &Json) -> String {
    let mut text = String::new();
    write(json, 0, &mut text);
    text.push('\n');
    text
}

fn write(json: &Json, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth + 1);
    let close = "  ".repeat(depth);
    match json {
        Json::Object(members) if !members.is_empty() => {
            out.push_str("{\n");
            for (key, member) in members {
                let _ = write!(out, "{pad}{}: ", scalar(&Json::Str(key.clone())));
                write(member, depth + 1, out);
                out.push('\n');
            }
            let _ = write!(out, "{close}}}");
        }
        Json::Array(items) if items.iter().any(|it| matches!(it, Json::Object(_) | Json::Array(_))) => {
            out.push_str("[\n");
            for item in items.iter().take(ITEMS) {
                out.push_str(&pad);
                write(item, depth + 1, out);
                out.push('\n');
            }
            if items.len() > ITEMS {
                let _ = writeln!(out, "{pad}... {} more", items.len() - ITEMS);
            }
            let _ = write!(out, "{close}]");
        }
        Json::Array(items) => {
            let shown: Vec<String> = items.iter().take(ITEMS).map(scalar).collect();
            let more = items.len().saturating_sub(ITEMS);
            let tail = if more > 0 { format!(", ... {more} more") } else { String::new() };
            let _ = write!(out, "[{}{tail}]", shown.join(", "));
        }
        other => out.push_str(&scalar(other)),
    }
}

fn scalar(json: &Json) -> String {
    match json {
        Json::Str(text) if text.chars().count() > STRING => {
            let head: String = text.chars().take(STRING).collect();
            format!("{} ... {} characters", Json::Str(head).to_ascii(), text.chars().count())
        }
        other => other.to_ascii(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_indented_and_long_ones_cut() {
        let json = Json::parse(br#"{"a":[1,2],"b":{"c":null},"d":[{"e":true}],"f":{}}"#).unwrap();
        let expected = "{\n  \"a\": [1, 2]\n  \"b\": {\n    \"c\": null\n  }\n  \"d\": [\n    {\n      \"e\": true\n    \
                        }\n  ]\n  \"f\": {}\n}\n";
        assert_eq!(pretty(&json), expected);
        let long = pretty(&Json::Str("x".repeat(1000)));
        assert!(long.ends_with("... 1000 characters\n") && long.len() < 250, "{long}");
        let many = pretty(&Json::Array((0..100).map(|n| Json::from(n as u64)).collect()));
        assert!(many.contains("... 88 more"), "{many}");
    }

    #[test]
    fn control_characters_stay_escaped() {
        assert_eq!(pretty(&Json::Str("\u{1b}[2J".to_owned())), "\"\\u001b[2J\"\n");
    }
}
