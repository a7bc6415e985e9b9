//! What the vector tests of this crate share.
#![allow(dead_code)]

pub(crate) mod bundles;

use cacheon_identity::Json;
use cacheon_vectors::Case;
use serde_json::Value;
use std::fmt::{Debug, Display};

/// A vector's JSON as a canonical value. Vector inputs hold no floats.
pub(crate) fn to_json(value: &Value) -> Json {
    Json::parse(value.to_string().as_bytes()).expect("a vector value is strict JSON")
}

/// A member of the case with its `{"$catalog": name}` placeholders replaced.
pub(crate) fn input_json(case: &Case<'_>, member: &str) -> Result<Json, String> {
    let mut value = case.get(member)?.clone();
    expand(&mut value, &case.file["catalogs"]);
    Ok(to_json(&value))
}

/// Replaces `{"$catalog": name}` anywhere inside `value`.
pub(crate) fn expand(value: &mut Value, catalogs: &Value) {
    if let Some(name) = value.get("$catalog").and_then(Value::as_str) {
        *value = catalogs[name].clone();
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, catalogs)),
        Value::Object(members) => members.values_mut().for_each(|item| expand(item, catalogs)),
        _ => {}
    }
}

pub(crate) fn expect_eq<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

pub(crate) fn expect_text(
    case: &Case<'_>,
    member: &str,
    found: &(impl Display + ?Sized),
) -> Result<(), String> {
    let found = found.to_string();
    let expected = case.text(member)?;
    if found == expected { Ok(()) } else { Err(format!("{member}: found {found}, expected {expected}")) }
}

/// `None` when the case expects a refusal and got it under its slug; the value when it expects one and got it.
pub(crate) fn expect_reject<T, E>(
    case: &Case<'_>,
    outcome: Result<T, E>,
    slug: impl Fn(&E) -> &'static str,
) -> Result<Option<T>, String> {
    match (outcome, case.value.get("reject").and_then(Value::as_str)) {
        (Ok(value), None) => Ok(Some(value)),
        (Ok(_), Some(expected)) => Err(format!("accepted, should reject as {expected}")),
        (Err(error), Some(expected)) => {
            let found = slug(&error);
            if found == expected {
                Ok(None)
            } else {
                Err(format!("rejected as {found}, expected {expected}"))
            }
        }
        (Err(error), None) => Err(format!("refused as {}", slug(&error))),
    }
}
