//! Where two values differ, member by member.

use cacheon_identity::Json;

/// One place at which two values differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Members and positions from the root; `.` for the root itself.
    pub(crate) path: String,
    /// The first value there, if it has one.
    pub(crate) left: Option<Json>,
    /// The second value there, if it has one.
    pub(crate) right: Option<Json>,
}

/// Every difference, in the order of the canonical form.
pub(crate) fn differences(left: &Json, right: &Json) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(&mut Vec::new(), Some(left), Some(right), &mut found);
    found
}

fn compare(path: &mut Vec<String>, left: Option<&Json>, right: Option<&Json>, found: &mut Vec<Difference>) {
    match (left, right) {
        (a, b) if a == b => {}
        (Some(Json::Object(a)), Some(Json::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                path.push(key.clone());
                compare(path, a.get(key), b.get(key), found);
                path.pop();
            }
        }
        (Some(Json::Array(a)), Some(Json::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                path.push(format!("[{at}]"));
                compare(path, a.get(at), b.get(at), found);
                path.pop();
            }
        }
        (left, right) => {
            let path = if path.is_empty() { ".".to_owned() } else { path.join(".") };
            found.push(Difference { path, left: left.cloned(), right: right.cloned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(left: &str, right: &str) -> Vec<String> {
        let parse = |text: &str| Json::parse(text.as_bytes()).unwrap();
        differences(&parse(left), &parse(right)).into_iter().map(|it| it.path).collect()
    }

    #[test]
    fn every_difference_has_its_path() {
        assert!(paths(r#"{"a":1,"b":[1,{"c":2}]}"#, r#"{"b":[1,{"c":2}],"a":1}"#).is_empty());
        assert_eq!(
            paths(r#"{"a":1,"b":[1,{"c":2}],"d":0}"#, r#"{"a":2,"b":[1,{"c":3},4]}"#),
            ["a", "b.[1].c", "b.[2]", "d"]
        );
        assert_eq!(paths("1", "\"1\""), ["."]);
        assert_eq!(paths("[]", "{}"), ["."]);
    }
}
