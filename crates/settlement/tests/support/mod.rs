//! What both vector files of this area need: catalog placeholders, reject slugs, output comparison.
#![allow(dead_code, clippy::unwrap_used)]

use cacheon_identity::{DecodeError, DecodeKind, Json};
use cacheon_vectors::Case;
use serde_json::Value;

/// The value as our own JSON.
pub(crate) fn json(value: &Value) -> Json {
    Json::parse(value.to_string().as_bytes()).unwrap()
}

/// Puts the file's catalogs where a case names them by `{"$catalog": name}`.
pub(crate) fn resolve(case: &Case<'_>, value: &Value) -> Value {
    match value {
        Value::Object(members) => match members.get("$catalog").and_then(Value::as_str) {
            Some(name) => case.file["catalogs"][name].clone(),
            None => members.iter().map(|(k, v)| (k.clone(), resolve(case, v))).collect(),
        },
        Value::Array(items) => items.iter().map(|item| resolve(case, item)).collect(),
        other => other.clone(),
    }
}

/// Compares an outcome with `reject` or with the outputs; every member of the case must be an input or an output.
pub(crate) fn judge(
    case: &Case<'_>,
    inputs: &[&str],
    outcome: Result<Vec<(&'static str, Value)>, Vec<&'static str>>,
) -> Result<(), String> {
    let rejected = case.value.get("reject").and_then(Value::as_str);
    match (outcome, rejected) {
        (Err(slugs), Some(want)) if slugs.contains(&want) => Ok(()),
        (Err(slugs), want) => Err(format!("refused as {slugs:?}, expected {want:?}")),
        (Ok(_), Some(want)) => Err(format!("accepted, expected refusal {want}")),
        (Ok(outputs), None) => {
            for (name, got) in &outputs {
                let want = case.value.get(*name).ok_or_else(|| format!("case has no output `{name}`"))?;
                if want != got {
                    return Err(format!("{name}: got {got}, expected {want}"));
                }
            }
            let known = |key: &&String| {
                ["id", "op", "note"].contains(&key.as_str())
                    || inputs.contains(&key.as_str())
                    || outputs.iter().any(|(name, _)| name == key)
            };
            match case.value.as_object().into_iter().flat_map(|o| o.keys()).find(|key| !known(key)) {
                Some(key) => Err(format!("member `{key}` is not read")),
                None => Ok(()),
            }
        }
    }
}

/// The slug that every area uses for a decoding error of this kind.
pub(crate) fn generic(error: &DecodeError) -> Vec<&'static str> {
    match &error.kind {
        DecodeKind::Missing(_) | DecodeKind::Extra(_) => vec!["fields"],
        DecodeKind::Digest(_) => vec!["digest"],
        DecodeKind::Type { expected, .. } if expected.contains("digest") => vec!["digest"],
        DecodeKind::Type { expected, .. } if expected.contains("integer") => vec!["integer"],
        DecodeKind::Range { .. } => vec!["integer"],
        _ => vec![],
    }
}
