//! What the vector tests share: reading records out of a case and comparing with what it expects.
#![allow(dead_code, missing_docs)]

use cacheon_identity::{Canonical, Decode, Digest, Json};
use serde_json::Value;

/// A JSON value of a case as strict JSON (floats and duplicate keys refuse).
pub(crate) fn json(value: &Value) -> Result<Json, String> {
    Json::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// Decodes a record out of a case.
pub(crate) fn decode<T: Decode>(value: &Value) -> Result<T, String> {
    T::decode(&json(value)?).map_err(|error| error.to_string())
}

/// The case's `expect`.
pub(crate) fn expect(case: &Value) -> Result<&Value, String> {
    case.get("expect").ok_or_else(|| "case has no `expect`".to_owned())
}

/// Whether the case expects acceptance; `ok` absent means that it does.
pub(crate) fn expects_ok(case: &Value) -> bool {
    case.get("expect").and_then(|expect| expect.get("ok")).and_then(Value::as_bool).unwrap_or(true)
}

/// Compares a text with a member of `expect`.
pub(crate) fn same_text(expect: &Value, member: &str, found: &str) -> Result<(), String> {
    match expect.get(member) {
        Some(Value::String(text)) if text == found => Ok(()),
        other => Err(format!("`{member}`: expected {}, found \"{found}\"", other.unwrap_or(&Value::Null))),
    }
}

/// Compares a digest with a member of `expect`.
pub(crate) fn same_digest(expect: &Value, member: &str, found: Digest) -> Result<(), String> {
    same_text(expect, member, &found.to_string())
}

/// Compares a JSON value with a member of `expect`.
pub(crate) fn same_value(expect: &Value, member: &str, found: &Value) -> Result<(), String> {
    match expect.get(member) {
        Some(value) if value == found => Ok(()),
        other => Err(format!("`{member}`: expected {}, found {found}", other.unwrap_or(&Value::Null))),
    }
}

/// Compares a record's canonical form with a member of `expect`.
pub(crate) fn same_record(expect: &Value, member: &str, found: &impl Canonical) -> Result<(), String> {
    let bytes = found.to_canonical();
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    same_value(expect, member, &value)
}

/// Fails when `expect` has a member outside `read`.
pub(crate) fn only(expect: &Value, read: &[&str]) -> Result<(), String> {
    let members = expect.as_object().ok_or("`expect` is not an object")?;
    match members.keys().find(|key| !read.contains(&key.as_str())) {
        Some(member) => Err(format!("`expect.{member}` is not read by this test")),
        None => Ok(()),
    }
}

/// A result against `expect.ok`: the accepted value, or nothing when refusal was expected and happened.
pub(crate) fn outcome<T, E: std::fmt::Display>(
    case: &Value,
    result: Result<T, E>,
) -> Result<Option<T>, String> {
    match (expects_ok(case), result) {
        (true, Ok(value)) => Ok(Some(value)),
        (false, Err(_)) => {
            only(expect(case)?, &["ok", "error_class"])?;
            Ok(None)
        }
        (true, Err(error)) => Err(format!("refused: {error}")),
        (false, Ok(_)) => Err("accepted what must be refused".to_owned()),
    }
}

/// Reads float text as the deployed constructors do: any spelling, infinities and NaN included.
pub(crate) fn float(value: &Value) -> Result<f64, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not float text"))?;
    text.parse().map_err(|_| format!("`{text}` is no float"))
}

/// A member as float.
pub(crate) fn float_at(value: &Value, member: &str) -> Result<f64, String> {
    float(value.get(member).ok_or_else(|| format!("no `{member}`"))?)
}

/// A list of floats.
pub(crate) fn floats(value: &Value) -> Result<Vec<f64>, String> {
    value.as_array().ok_or("not a list of floats")?.iter().map(float).collect()
}

/// `%.17g`.
pub(crate) fn text17(value: f64) -> String {
    cacheon_identity::float17::format(value)
}

/// A member that must be there.
pub(crate) fn at<'a>(value: &'a Value, member: &str) -> Result<&'a Value, String> {
    value.get(member).ok_or_else(|| format!("no `{member}`"))
}

/// A member as text.
pub(crate) fn text_at<'a>(value: &'a Value, member: &str) -> Result<&'a str, String> {
    at(value, member)?.as_str().ok_or_else(|| format!("`{member}` is not text"))
}

/// A member as an unsigned integer.
pub(crate) fn u64_at(value: &Value, member: &str) -> Result<u64, String> {
    at(value, member)?.as_u64().ok_or_else(|| format!("`{member}` is not an unsigned integer"))
}

/// A member as a digest.
pub(crate) fn digest_at(value: &Value, member: &str) -> Result<Digest, String> {
    Digest::parse(text_at(value, member)?).map_err(|error| error.to_string())
}

/// A member as a list.
pub(crate) fn list_at<'a>(value: &'a Value, member: &str) -> Result<&'a [Value], String> {
    at(value, member)?.as_array().map(Vec::as_slice).ok_or_else(|| format!("`{member}` is not a list"))
}
