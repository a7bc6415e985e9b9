//! Buffers that an artifact asks for.

use super::abi::{CallAbi, ResourceKind, is_integer};
use super::value::{Checked, Members, Node, int, text};
use cacheon_identity::Json;

const DTYPES: [(&str, i64); 17] = [
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
const MAX_EXTENT: i128 = (1 << 31) - 1;
const MAX_PRODUCT: i128 = (1 << 63) - 1;
const MAX_ELEMENTS: i128 = 1 << 36;
const MAX_BYTES: i128 = 64 << 30;
const MAX_TOTAL: i128 = 128 << 30;

/// A declared buffer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) lifetime: &'static str,
    pub(super) scope: &'static str,
    bytes: i128,
    row: Json,
}

impl Resource {
    pub(super) fn identity(&self) -> Json {
        self.row.clone()
    }

    /// Whether the peers of a group see the buffer.
    pub(super) fn shared(&self) -> bool {
        self.scope == "group_ipc"
    }
}

fn lifetime(name: &str) -> Option<&'static str> {
    let (prefix, rest) = name.split_once('.')?;
    let lifetime = match prefix {
        "workspace" => "call",
        "prepared" => "prepared",
        "state" => "engine",
        _ => return None,
    };
    let segment = |text: &str| {
        let mut bytes = text.bytes();
        text.len() <= 64
            && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
            && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let parts: Vec<&str> = rest.split('.').collect();
    (parts.len() <= 3 && parts.into_iter().all(segment)).then_some(lifetime)
}

/// Reads all buffers of a row, sorted by name.
pub(super) fn read_all(node: &Node<'_>, abi: &CallAbi) -> Checked<Vec<Resource>> {
    let mut all: Vec<Resource> = Vec::new();
    for item in node.items(0, 32)? {
        let resource = read(&item, abi)?;
        if all.iter().any(|other| other.name == resource.name) {
            return item.fail(format!("`{}` is declared twice", resource.name));
        }
        if abi.resource(&resource.name).is_some() {
            return item.fail(format!("`{}` is a resource of the slot", resource.name));
        }
        all.push(resource);
    }
    if all.iter().map(|resource| resource.bytes).sum::<i128>() > MAX_TOTAL {
        return node.fail("the buffers together exceed 128 GiB");
    }
    all.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(all)
}

fn read(node: &Node<'_>, abi: &CallAbi) -> Checked<Resource> {
    let members = node.table()?;
    members.only(&["name", "dtype", "alignment", "lifetime", "shape"], &["scope"])?;
    let name = members.need("name")?;
    let Some(lifetime) = lifetime(name.text()?) else {
        return name.fail("a buffer is named workspace, prepared or state, then 1 to 3 lowercase segments");
    };
    members.need("lifetime")?.one_of(&[lifetime])?;
    let dtype = members.need("dtype")?;
    let Some((dtype, width)) = DTYPES.iter().find(|(name, _)| Some(*name) == dtype.text().ok()) else {
        return dtype.fail("no such element type");
    };
    let alignment = members.need("alignment")?.power_of_two(*width)?;
    let scope = match members.get("scope") {
        Some(scope) => scope.one_of(&["rank_local", "group_ipc"])?,
        None => "rank_local",
    };
    if scope == "group_ipc" && lifetime == "call" {
        return members.fail("a workspace is local to its rank");
    }
    let mut elements: i128 = 1;
    let mut shape = Vec::new();
    for extent in members.need("shape")?.items(1, 16)? {
        let (row, most) = self::extent(&extent.table()?, abi, lifetime)?;
        shape.push(row);
        elements = elements.saturating_mul(most);
    }
    let bytes = elements.saturating_mul(i128::from(*width));
    if elements > MAX_ELEMENTS || bytes > MAX_BYTES {
        return members.fail("the buffer exceeds 2^36 elements or 64 GiB");
    }
    let mut row = vec![
        ("alignment", int(alignment)),
        ("dtype", text(dtype)),
        ("lifetime", text(lifetime)),
        ("name", text(name.text()?)),
        ("shape", Json::Array(shape)),
    ];
    if scope != "rank_local" {
        row.push(("scope", text(scope)));
    }
    Ok(Resource { name: name.text()?.to_owned(), lifetime, scope, bytes, row: Json::object(row) })
}

/// An extent as identity holds it, and the most it can be.
fn extent(members: &Members<'_>, abi: &CallAbi, lifetime: &str) -> Checked<(Json, i128)> {
    members.only(&["factors"], &["divisor"])?;
    let mut product: i128 = 1;
    let mut rows = Vec::new();
    for node in members.need("factors")?.items(1, 8)? {
        let (row, most) = factor(&node.table()?, abi, lifetime)?;
        rows.push(row);
        product = product.saturating_mul(most);
    }
    let divisor = match members.get("divisor") {
        Some(node) => node.integer(1, (1 << 31) - 1)?,
        None => 1,
    };
    let most = (product + i128::from(divisor) - 1) / i128::from(divisor);
    if product > MAX_PRODUCT || most > MAX_EXTENT {
        return members.fail("the extent's factors multiply beyond what fits");
    }
    let mut row = vec![("factors", Json::Array(rows))];
    if divisor != 1 {
        row.push(("divisor", int(divisor)));
    }
    Ok((Json::object(row), most))
}

fn factor(members: &Members<'_>, abi: &CallAbi, lifetime: &str) -> Checked<(Json, i128)> {
    let most = i64::from(i32::MAX);
    if let Some(fixed) = members.get("static") {
        members.only(&["static"], &[])?;
        let value = fixed.integer(1, most)?;
        return Ok((Json::object([("static", int(value))]), i128::from(value)));
    }
    let source = members.need("source")?;
    let Some(resource) = abi.resource(source.text()?) else {
        return source.fail("a shape may name resources of the slot only");
    };
    let boundary = if abi.prepare_result.is_some() { &abi.prepare_args } else { &abi.call_args };
    if lifetime == "prepared" && !boundary.contains(&resource.name) {
        return source.fail("a prepared shape may name only what preparing sees");
    }
    let projection = members.need("projection")?;
    let axial = resource.kind == ResourceKind::Tensor && projection.text()? == "shape";
    let fits = match resource.kind {
        ResourceKind::Tensor => matches!(projection.text()?, "shape" | "numel" | "rank"),
        ResourceKind::Scalar => {
            projection.text()? == "value" && resource.scalar_type.as_deref().is_some_and(is_integer)
        }
        ResourceKind::Group => projection.text()? == "size",
        ResourceKind::Stream | ResourceKind::Opaque => false,
    };
    if !fits {
        return projection.fail("the resource has no such size");
    }
    let required: &[&str] = if axial {
        &["source", "projection", "upper_bound", "axis"]
    } else {
        &["source", "projection", "upper_bound"]
    };
    members.only(required, &[])?;
    let bound = members.need("upper_bound")?.integer(1, most)?;
    let mut row = vec![
        ("projection", text(projection.text()?)),
        ("source", text(&resource.name)),
        ("upper_bound", int(bound)),
    ];
    if axial {
        row.push(("axis", int(members.need("axis")?.integer(0, 15)?)));
    }
    Ok((Json::object(row), i128::from(bound)))
}
