//! Artifact resources: buffers that outlive a launch, with shapes the referee can bound.

use super::abi::{CallAbi, ResourceKind};
use super::plain::{Plain, Row};
use super::{ArtifactError, Class};
use cacheon_identity::{Canonical, Digest, Json};

const MAX_RESOURCES: usize = 32;
const MAX_RANK: usize = 16;
const MAX_FACTORS: usize = 8;
const MAX_FACTOR: i128 = i32::MAX as i128;
const MAX_EXTENT: i128 = i32::MAX as i128;
const MAX_PRODUCT: i128 = i64::MAX as i128;
const MAX_ELEMENTS: i128 = 1 << 36;
const MAX_BYTES: i128 = 64 << 30;
const MAX_TOTAL_BYTES: i128 = 128 << 30;
pub(super) const MAX_ALIGNMENT: i128 = 1 << 20;

/// Element types with their width in bytes.
const DTYPES: [(&str, i128); 17] = [
    ("bool", 1),
    ("i8", 1),
    ("u8", 1),
    ("f8e4m3fn", 1),
    ("f8e4m3fnuz", 1),
    ("f8e5m2", 1),
    ("f8e5m2fnuz", 1),
    ("i16", 2),
    ("u16", 2),
    ("f16", 2),
    ("bf16", 2),
    ("i32", 4),
    ("u32", 4),
    ("f32", 4),
    ("i64", 8),
    ("u64", 8),
    ("f64", 8),
];

/// How long a buffer lives; its name says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifetime {
    /// One call.
    Call,
    /// From prepare to destroy.
    Prepared,
    /// As long as the engine.
    Engine,
}

impl Lifetime {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Prepared => "prepared",
            Self::Engine => "engine",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        match name.split('.').next()? {
            "workspace" => Some(Self::Call),
            "prepared" => Some(Self::Prepared),
            "state" => Some(Self::Engine),
            _ => None,
        }
    }
}

/// One buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Its name, for example `workspace.partial`.
    pub name: String,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Whether peers may map it.
    pub group_ipc: bool,
    dtype: &'static str,
    alignment: i128,
    shape: Plain,
}

/// `(workspace|prepared|state)(.[a-z][a-z0-9_]{0,63}){1,3}`.
fn is_name(text: &str) -> bool {
    let mut parts = text.split('.');
    let known = matches!(parts.next(), Some("workspace" | "prepared" | "state"));
    let parts: Vec<_> = parts.collect();
    let segment = |part: &&str| {
        part.len() <= 64
            && part.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    known && (1..=3).contains(&parts.len()) && parts.iter().all(segment)
}

impl Resource {
    /// The members of the canonical row, in the order a manifest writes them.
    pub(super) fn members(&self) -> Vec<(&'static str, Plain)> {
        let mut members = vec![
            ("name", self.name.as_str().into()),
            ("dtype", self.dtype.into()),
            ("alignment", Plain::Int(self.alignment)),
            ("lifetime", self.lifetime.as_str().into()),
            ("shape", self.shape.clone()),
        ];
        if self.group_ipc {
            members.push(("scope", "group_ipc".into()));
        }
        members
    }
}

/// Reads the resources of a row, sorted by name.
pub(super) fn read(value: &Plain, path: &str, abi: &CallAbi) -> Result<Vec<Resource>, ArtifactError> {
    let refuse = |problem: String| Err(ArtifactError::new(Class::Resources, path, problem));
    let Plain::Array(items) = value else {
        return refuse(format!("expected an array of tables, found {}", value.kind()));
    };
    if items.len() > MAX_RESOURCES {
        return refuse(format!("{} resources, where at most {MAX_RESOURCES} are allowed", items.len()));
    }
    let mut resources: Vec<Resource> = Vec::new();
    let mut total = 0i128;
    for (index, item) in items.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let (resource, bytes) = one(item, &at, abi)?;
        let taken = resources.iter().any(|other| other.name == resource.name)
            || abi.resource(&resource.name).is_some();
        if taken {
            let problem = format!("`{}` is declared twice", resource.name);
            return Err(ArtifactError::new(Class::Resources, at, problem));
        }
        total += bytes;
        if total > MAX_TOTAL_BYTES {
            return refuse(format!(
                "the resources may need {total} bytes, at most {MAX_TOTAL_BYTES} are allowed"
            ));
        }
        resources.push(resource);
    }
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(resources)
}

fn one(item: &Plain, path: &str, abi: &CallAbi) -> Result<(Resource, i128), ArtifactError> {
    let known = ["name", "dtype", "alignment", "lifetime", "shape", "scope"];
    let row = Row::open(item, path, Class::Resources, &known)?;
    let name = row.text("name")?;
    if !is_name(name) {
        return row
            .refuse("name", "a resource is workspace, prepared or state and 1 to 3 lowercase segments");
    }
    let Some(lifetime) = Lifetime::of_name(name) else { return row.refuse("name", "no such lifetime") };
    if row.text("lifetime")? != lifetime.as_str() {
        return row.refuse("lifetime", format!("`{name}` has the lifetime `{}`", lifetime.as_str()));
    }
    let dtype = row.text("dtype")?;
    let Some((dtype, width)) = DTYPES.iter().find(|(known, _)| *known == dtype) else {
        return row.refuse("dtype", "no such element type");
    };
    let alignment = row.int("alignment", *width, MAX_ALIGNMENT)?;
    if alignment.count_ones() != 1 {
        return row.refuse("alignment", format!("{alignment} is not a power of two"));
    }
    let group_ipc = match row.optional_text("scope")? {
        None | Some("rank_local") => false,
        Some("group_ipc") if lifetime != Lifetime::Call => true,
        Some("group_ipc") => return row.refuse("scope", "a workspace is not shared with peers"),
        Some(_) => return row.refuse("scope", "a scope is rank_local or group_ipc"),
    };
    let mut elements = 1i128;
    let mut shape = Vec::new();
    for (index, value) in row.array("shape", 1, MAX_RANK)?.iter().enumerate() {
        let at = format!("{}[{index}]", row.at("shape"));
        let (extent, bound) = extent(value, &at, lifetime, abi)?;
        elements = elements.saturating_mul(bound);
        if elements > MAX_ELEMENTS {
            return row.refuse("shape", format!("more than {MAX_ELEMENTS} elements"));
        }
        shape.push(extent);
    }
    let bytes = elements * width;
    if bytes > MAX_BYTES {
        let problem = format!("the buffer may need {bytes} bytes, at most {MAX_BYTES} are allowed");
        return row.refuse("shape", problem);
    }
    let (name, shape) = (name.to_owned(), Plain::Array(shape));
    Ok((Resource { name, lifetime, group_ipc, dtype, alignment, shape }, bytes))
}

/// An extent and its greatest value.
fn extent(
    value: &Plain,
    path: &str,
    lifetime: Lifetime,
    abi: &CallAbi,
) -> Result<(Plain, i128), ArtifactError> {
    let row = Row::open(value, path, Class::Resources, &["factors", "divisor"])?;
    let divisor = row.optional_int("divisor", 1, MAX_FACTOR)?.unwrap_or(1);
    let mut product = 1i128;
    let mut factors = Vec::new();
    for (index, value) in row.array("factors", 1, MAX_FACTORS)?.iter().enumerate() {
        let at = format!("{}[{index}]", row.at("factors"));
        let (factor, bound) = factor(value, &at, lifetime, abi)?;
        product *= bound;
        if product > MAX_PRODUCT {
            return row.refuse("factors", format!("the product may exceed {MAX_PRODUCT}"));
        }
        factors.push(factor);
    }
    let bound = (product + divisor - 1) / divisor;
    if bound > MAX_EXTENT {
        let problem = format!("the extent may reach {bound}, at most {MAX_EXTENT} is allowed");
        return row.refuse("factors", problem);
    }
    let mut members = vec![("factors".to_owned(), Plain::Array(factors))];
    if divisor != 1 {
        members.push(("divisor".to_owned(), Plain::Int(divisor)));
    }
    Ok((Plain::Table(members.into_iter().collect()), bound))
}

fn factor(
    value: &Plain,
    path: &str,
    lifetime: Lifetime,
    abi: &CallAbi,
) -> Result<(Plain, i128), ArtifactError> {
    let known = ["static", "source", "projection", "axis", "upper_bound"];
    let row = Row::open(value, path, Class::Resources, &known)?;
    if row.get("static").is_some() {
        row.only(&["static"])?;
        let bound = row.int("static", 1, MAX_FACTOR)?;
        return Ok((value.clone(), bound));
    }
    let source = row.text("source")?;
    let Some(resource) = abi.resource(source) else {
        return row.refuse("source", "a shape names resources of the slot only");
    };
    if lifetime == Lifetime::Prepared {
        // Without a prepare step's result there is only the call to take shapes from.
        let boundary = if abi.prepare_result.is_some() { &abi.prepare_args } else { &abi.call_args };
        if !boundary.iter().any(|name| name == source) {
            return row.refuse("source", format!("a prepared shape may not depend on `{source}`"));
        }
    }
    let projection = row.text("projection")?;
    let integer = resource.scalar_type.as_deref().is_some_and(super::is_integer_type);
    let fits = match (resource.kind, projection) {
        (ResourceKind::Tensor, "shape") => {
            row.int("axis", 0, 15)?;
            true
        }
        (ResourceKind::Tensor, "numel" | "rank") | (ResourceKind::Group, "size") => row.get("axis").is_none(),
        (ResourceKind::Scalar, "value") => integer && row.get("axis").is_none(),
        _ => false,
    };
    if !fits {
        return row.refuse("projection", format!("`{source}` gives no such factor"));
    }
    Ok((value.clone(), row.int("upper_bound", 1, MAX_FACTOR)?))
}

/// The resource plan: what buffers a row needs, and the digest that is not in an envelope.
pub(super) fn plan(slot: &str, resources: &[Resource]) -> (Json, Digest) {
    let rows = resources.iter().map(|resource| {
        Json::object(resource.members().into_iter().map(|(key, value)| (key, value.to_json())))
    });
    let plan = Json::object([("resources", Json::Array(rows.collect())), ("slot", Json::from(slot))]);
    let schema = Json::from("cacheon.artifact-resource-plan.v1");
    let digest = Json::object([("plan", plan.clone()), ("schema", schema)]).canonical_sha256();
    (plan, digest)
}
