//! Direct artifacts as a materialised manifest writes them (spec 20 §5.5).

use cacheon_bundle::artifact::DirectArtifacts;
use cacheon_bundle::text::float_repr;
use cacheon_identity::{Json, hexfloat};

const RESOURCE: [&str; 6] = ["name", "dtype", "alignment", "lifetime", "shape", "scope"];
const EXPORT: [&str; 13] = [
    "provider",
    "name",
    "factory",
    "profile_inputs",
    "role",
    "plan",
    "step",
    "specializes",
    "prelaunch",
    "bindings",
    "provider_capability_requirements",
    "specialization_capability_requirements",
    "device_plan",
];

/// Tables of resources, then of exports, each with its `key = value` lines; members that are absent have none.
pub(super) fn tables(artifacts: &DirectArtifacts) -> Vec<(&'static str, Vec<String>)> {
    let table = |name, keys: &[&str], row: &Json| {
        let lines = keys.iter().filter_map(|key| Some(format!("{key} = {}", inline(row.get(key)?))));
        (name, lines.collect())
    };
    let plan = artifacts.resource_plan();
    let resources = plan.get("resources").and_then(Json::as_array).unwrap_or(&[]);
    let exports = artifacts.exports_identity();
    let exports = exports.as_array().unwrap_or(&[]);
    let resources = resources.iter().map(|row| table("ops.artifact_resources", &RESOURCE, row));
    resources.chain(exports.iter().map(|row| table("ops.aot_exports", &EXPORT, row))).collect()
}

/// A float of the identity form, `{"hex": …, "type": "float"}`.
fn float(json: &Json) -> Option<f64> {
    let members = json.as_object().filter(|members| members.len() == 2)?;
    let is_float = members.get("type")?.as_str() == Some("float");
    is_float.then(|| hexfloat::parse(members.get("hex")?.as_str()?).ok()).flatten()
}

/// A value of an inline table: strings as JSON writes them, `[a, b]`, `{ "k" = v }` without null members, floats as
/// Python writes them.
fn inline(json: &Json) -> String {
    match json {
        Json::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Json::Object(members) => match float(json) {
            Some(value) => float_repr(value),
            None => {
                let present = members.iter().filter(|(_, value)| **value != Json::Null);
                let pair = |(key, value): (&String, &Json)| {
                    format!("{} = {}", inline(&Json::from(key.as_str())), inline(value))
                };
                format!("{{ {} }}", present.map(pair).collect::<Vec<_>>().join(", "))
            }
        },
        scalar => String::from_utf8_lossy(&scalar.to_canonical()).into_owned(),
    }
}
