//! What a slot exposes to direct artifacts.

use crate::catalog::SLOTS_JSON;
use crate::pyjson::{self, Item, Value};
use cacheon_identity::{Digest, Domain, Json};
use std::sync::OnceLock;

const CALL_ABI: Domain = Domain::new("cacheon.artifact-call-abi");
const AUTHORITY: Domain = Domain::new("cacheon.artifact-target-authority");

/// Scalar types of the ABI and of casts.
pub const SCALARS: [&str; 14] =
    ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "tf32", "f64"];

/// What a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// A tensor.
    Tensor,
    /// A scalar.
    Scalar,
    /// The stream of the call.
    Stream,
    /// A process group.
    Group,
    /// A value only its owner understands.
    Opaque,
}

impl ResourceKind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "tensor" => Self::Tensor,
            "scalar" => Self::Scalar,
            "stream" => Self::Stream,
            "group" => Self::Group,
            "opaque" => Self::Opaque,
            _ => return None,
        })
    }

    /// The spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Scalar => "scalar",
            Self::Stream => "stream",
            Self::Group => "group",
            Self::Opaque => "opaque",
        }
    }
}

/// A resource of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotResource {
    /// Its name, such as `input.x`.
    pub name: String,
    /// What it is.
    pub kind: ResourceKind,
    /// Whether it may be written.
    pub writable: bool,
    /// A scalar's type.
    pub scalar_type: Option<String>,
    /// The capability field that states a scalar.
    pub capability_field: Option<String>,
    /// What a group offers to bindings.
    pub provider_capabilities: Vec<String>,
    /// The row as published.
    row: Json,
}

/// The call ABI of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAbi {
    /// The slot.
    pub slot: String,
    /// Its resources, in order.
    pub resources: Vec<SlotResource>,
    /// Names of the call's arguments.
    pub call_args: Vec<String>,
    /// Names of the prepare call's arguments.
    pub prepare_args: Vec<String>,
    /// The name of what preparing gives.
    pub prepare_result: Option<String>,
}

fn json(item: &Item) -> Option<Json> {
    Some(match &item.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::Int(value.clone()),
        Value::Text(text) => Json::Str(text.clone()),
        Value::Array(items) => Json::Array(items.iter().map(json).collect::<Option<_>>()?),
        Value::Object { members, .. } => {
            let members = members.iter().map(|(key, item)| Some((key.clone(), json(item)?)));
            Json::Object(members.collect::<Option<_>>()?)
        }
        Value::Float(_) | Value::BrokenText => return None,
    })
}

fn names(value: Option<&Json>) -> Option<Vec<String>> {
    value?.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn resource(row: &Json) -> Option<SlotResource> {
    let text = |key: &str| row.get(key).and_then(Json::as_str);
    Some(SlotResource {
        name: text("name")?.to_owned(),
        kind: ResourceKind::parse(text("kind")?)?,
        writable: matches!(text("access")?, "write" | "readwrite"),
        scalar_type: text("scalar_type").map(str::to_owned),
        capability_field: text("capability_field").map(str::to_owned),
        provider_capabilities: names(row.get("provider_capabilities")).unwrap_or_default(),
        row: row.clone(),
    })
}

fn abi(slot: &Item) -> Option<CallAbi> {
    let published = json(slot.value.get("artifact_call_abi")?)?;
    let Value::Text(name) = &slot.value.get("slot")?.value else { return None };
    Some(CallAbi {
        slot: name.clone(),
        resources: published.get("resources")?.as_array()?.iter().map(resource).collect::<Option<_>>()?,
        call_args: names(published.get("call_args"))?,
        prepare_args: names(published.get("prepare_args"))?,
        prepare_result: published.get("prepare_result")?.as_str().map(str::to_owned),
    })
}

impl CallAbi {
    /// Every slot's call ABI, in catalog order.
    #[must_use]
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<CallAbi>> = OnceLock::new();
        ALL.get_or_init(|| {
            let Ok(catalog) = pyjson::parse(SLOTS_JSON.as_bytes()) else { return Vec::new() };
            match catalog.value.get("slots").map(|item| &item.value) {
                Some(Value::Array(slots)) => slots.iter().filter_map(abi).collect(),
                _ => Vec::new(),
            }
        })
    }

    /// The call ABI of a slot.
    #[must_use]
    pub fn of(slot: &str) -> Option<&'static Self> {
        Self::all().iter().find(|abi| abi.slot == slot)
    }

    /// A resource by name.
    #[must_use]
    pub fn resource(&self, name: &str) -> Option<&SlotResource> {
        self.resources.iter().find(|resource| resource.name == name)
    }

    /// The names of the slot's outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.resources
            .iter()
            .map(|resource| resource.name.as_str())
            .filter(|name| name.starts_with("output."))
    }

    /// The ABI as identity holds it: without what other policies may allow.
    #[must_use]
    pub fn identity(&self) -> Json {
        let list = |all: &[String]| Json::Array(all.iter().cloned().map(Json::Str).collect());
        let rows = self.resources.iter().map(|resource| {
            let members = resource.row.as_object().into_iter().flatten();
            let kept = members
                .filter(|(key, _)| !matches!(key.as_str(), "provider_capabilities" | "capability_field"));
            Json::object(kept.map(|(key, value)| (key.clone(), value.clone())))
        });
        Json::object([
            ("call_args", list(&self.call_args)),
            ("prepare_args", list(&self.prepare_args)),
            ("prepare_result", self.prepare_result.clone().map_or(Json::Null, Json::Str)),
            ("resources", Json::Array(rows.collect())),
            ("slot", Json::Str(self.slot.clone())),
        ])
    }

    /// The digest of the ABI.
    #[must_use]
    pub fn digest(&self) -> Digest {
        CALL_ABI.digest(&self.identity())
    }

    /// What an artifact for this slot is bound to.
    #[must_use]
    pub fn authority(&self) -> Json {
        Json::object([
            ("call_abi", self.identity()),
            ("call_abi_sha256", Json::Str(self.digest().to_string())),
            ("dispatch_slot", Json::Str(self.slot.clone())),
            ("schema", Json::Str("cacheon.artifact-target-authority.v1".to_owned())),
            ("target_id", Json::Str(self.slot.clone())),
        ])
    }

    /// The digest of [`Self::authority`].
    #[must_use]
    pub fn authority_digest(&self) -> Digest {
        AUTHORITY.digest(&self.authority())
    }
}

/// Whether a scalar type is an integer.
#[must_use]
pub fn is_integer(scalar: &str) -> bool {
    scalar.len() > 1 && matches!(scalar.as_bytes()[0], b'i' | b'u')
}

/// Whether a scalar type is a float.
#[must_use]
pub fn is_float(scalar: &str) -> bool {
    matches!(scalar, "f16" | "bf16" | "f32" | "tf32" | "f64")
}

/// The range of an integer type, as far as 64-bit signed integers reach.
#[must_use]
pub fn range(scalar: &str) -> Option<(i128, i128)> {
    let bits: u32 = scalar.get(1..)?.parse().ok()?;
    match scalar.as_bytes()[0] {
        b'i' => Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)),
        b'u' => Some((0, (1i128 << bits) - 1)),
        _ => None,
    }
}
