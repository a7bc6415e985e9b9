//! Bindings: which view of which resource a device kernel's parameters may use.

use super::abi::{CallAbi, ResourceKind, SCALARS, SlotResource, is_float, is_integer, range};
use super::resource::Resource;
use super::value::{Checked, Members, Node, Val, int, text};
use cacheon_identity::{Int, Json};

const AGGREGATES: [&str; 5] = ["Shape", "Coord", "Tile", "IntTuple", "Stride"];

/// A binding, in the form that enters identity.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Binding {
    pub(super) kind: &'static str,
    pub(super) projection: &'static str,
    pub(super) source: Option<String>,
    pub(super) peer: Option<String>,
    /// Sources of an aggregate's leaves.
    pub(super) leaves: Vec<String>,
    row: Json,
}

/// What a source name stands for.
pub(super) enum Source<'a> {
    Slot(&'a SlotResource),
    Artifact,
}

pub(super) fn source<'a>(name: &str, abi: &'a CallAbi, resources: &'a [Resource]) -> Option<Source<'a>> {
    match abi.resource(name) {
        Some(resource) => Some(Source::Slot(resource)),
        None => resources.iter().find(|resource| resource.name == name).map(|_| Source::Artifact),
    }
}

impl Source<'_> {
    fn kind(&self) -> ResourceKind {
        match self {
            Self::Slot(resource) => resource.kind,
            Self::Artifact => ResourceKind::Tensor,
        }
    }

    pub(super) fn writable_tensor(&self) -> bool {
        match self {
            Self::Slot(resource) => resource.kind == ResourceKind::Tensor && resource.writable,
            Self::Artifact => true,
        }
    }
}

impl Binding {
    pub(super) fn identity(&self) -> Json {
        self.row.clone()
    }

    /// Whether the binding hands out the source's storage.
    pub(super) fn exposes(&self) -> bool {
        matches!(self.projection, "descriptor" | "device_ptr")
    }

    /// Every resource the binding mentions.
    pub(super) fn mentions(&self) -> impl Iterator<Item = &str> {
        self.source.iter().chain(&self.peer).chain(&self.leaves).map(String::as_str)
    }

    pub(super) fn read(node: &Node<'_>, abi: &CallAbi, resources: &[Resource]) -> Checked<Self> {
        let members = node.table()?;
        let kind = members.need("kind")?.one_of(&[
            "tensor",
            "pointer",
            "scalar",
            "stream",
            "group",
            "opaque",
            "aggregate",
        ])?;
        if kind == "aggregate" {
            return aggregate(&members, abi, resources);
        }
        let default = match kind {
            "tensor" => "descriptor",
            "scalar" => "value",
            _ => "identity",
        };
        let projection = match members.get("projection") {
            Some(node) => node.one_of(&[
                "descriptor",
                "device_ptr",
                "shape",
                "stride",
                "numel",
                "rank",
                "storage_offset",
                "value",
                "identity",
                "size",
                "native_handle",
                "peer_ptr_table",
            ])?,
            None => default,
        };
        let name = members.need("source")?.text()?;
        let Some(found) = source(name, abi, resources) else {
            return members.need("source")?.fail(format!("no resource `{}`", name.escape_debug()));
        };
        let mut binding = Self {
            kind,
            projection,
            source: Some(name.to_owned()),
            peer: None,
            leaves: Vec::new(),
            row: Json::Null,
        };
        let mut row = vec![
            ("kind".to_owned(), text(kind)),
            ("projection".to_owned(), text(projection)),
            ("source".to_owned(), text(name)),
        ];
        let options = match (found.kind(), kind, projection) {
            (ResourceKind::Tensor, "tensor", "descriptor") => descriptor(&members)?,
            (ResourceKind::Tensor, "pointer", "device_ptr") => align(&members, &["assumed_align"])?,
            (_, "scalar", _) => scalar(&members, &found, projection)?,
            (ResourceKind::Stream, "stream", "identity")
            | (ResourceKind::Opaque, "opaque", "identity")
            | (ResourceKind::Group, "group", "identity") => {
                members.only(&["kind", "source"], &["projection"])?;
                Vec::new()
            }
            (ResourceKind::Group, "pointer", "native_handle") => {
                members.only(&["kind", "source", "projection"], &[])?;
                granted(&members, &found, "group.native_handle.v1")?;
                Vec::new()
            }
            (ResourceKind::Group, "pointer", "peer_ptr_table") => {
                members.only(&["kind", "source", "projection", "peer_resource"], &[])?;
                granted(&members, &found, "group.peer_ptr_table.v1")?;
                let peer = members.need("peer_resource")?;
                let shared = resources
                    .iter()
                    .any(|resource| Some(resource.name.as_str()) == peer.text().ok() && resource.shared());
                if !shared {
                    return peer.fail("a peer table needs a declared resource of scope group_ipc");
                }
                binding.peer = Some(peer.text()?.to_owned());
                vec![("peer_resource", text(peer.text()?))]
            }
            (resource, ..) => {
                return members
                    .fail(format!("a {} resource has no ({kind}, {projection}) binding", resource.as_str()));
            }
        };
        row.extend(options.into_iter().map(|(key, value)| (key.to_owned(), value)));
        binding.row = Json::object(row);
        Ok(binding)
    }
}

type Options = Vec<(&'static str, Json)>;

fn granted(members: &Members<'_>, source: &Source<'_>, capability: &str) -> Checked<()> {
    let Source::Slot(resource) = source else { return members.fail("only a group has peers") };
    if resource.provider_capabilities.iter().any(|granted| granted == capability) {
        return Ok(());
    }
    members.fail(format!("the slot does not grant `{capability}`"))
}

fn align(members: &Members<'_>, optional: &[&str]) -> Checked<Options> {
    let mut optional = optional.to_vec();
    optional.push("projection");
    members.only(&["kind", "source"], &optional)?;
    match members.get("assumed_align") {
        Some(node) => Ok(vec![("assumed_align", int(node.power_of_two(1)?))]),
        None => Ok(Vec::new()),
    }
}

fn descriptor(members: &Members<'_>) -> Checked<Options> {
    let mut options = align(members, &["unsqueeze", "assumed_align", "leading_dim"])?;
    if let Some(node) = members.get("unsqueeze") {
        let axes = node.items(0, 8)?.iter().map(|axis| axis.integer(-16, 16)).collect::<Checked<Vec<_>>>()?;
        if !axes.is_empty() {
            options.push(("unsqueeze", Json::Array(axes.into_iter().map(int).collect())));
        }
    }
    if let Some(node) = members.get("leading_dim") {
        options.push(("leading_dim", int(node.integer(0, 16)?)));
    }
    Ok(options)
}

/// The options of a scalar binding or leaf.
fn scalar(members: &Members<'_>, source: &Source<'_>, projection: &str) -> Checked<Options> {
    let axial = source.kind() == ResourceKind::Tensor && matches!(projection, "shape" | "stride");
    let required: &[&str] = if axial { &["source", "cast", "axis"] } else { &["source", "cast"] };
    members.only(required, &["kind", "projection"])?;
    let cast = members.need("cast")?.one_of(&SCALARS)?;
    let fits = match (source, projection) {
        (Source::Slot(resource), "value") if resource.kind == ResourceKind::Scalar => {
            let own = resource.scalar_type.as_deref().unwrap_or_default();
            own == "bool" && cast == "bool"
                || is_integer(own) && is_integer(cast)
                || is_float(own) && is_float(cast)
        }
        (Source::Slot(resource), "rank" | "size") if resource.kind == ResourceKind::Group => is_integer(cast),
        (source, "shape" | "stride" | "numel" | "rank" | "storage_offset")
            if source.kind() == ResourceKind::Tensor =>
        {
            is_integer(cast)
        }
        _ => return members.fail(format!("the resource has no scalar projection `{projection}`")),
    };
    if !fits {
        return members.fail(format!("the value cannot be cast to {cast}"));
    }
    let mut options = vec![("cast", text(cast))];
    if axial {
        options.push(("axis", int(members.need("axis")?.integer(0, 15)?)));
    }
    Ok(options)
}

/// How much of an aggregate has been read.
#[derive(Default)]
struct Count {
    leaves: usize,
    dynamic: usize,
    sources: Vec<String>,
}

fn aggregate(members: &Members<'_>, abi: &CallAbi, resources: &[Resource]) -> Checked<Binding> {
    members.only(&["kind", "cast", "component_cast", "components"], &["projection"])?;
    if let Some(node) = members.get("projection") {
        node.one_of(&["tuple"])?;
    }
    let cast = members.need("cast")?.one_of(&AGGREGATES)?;
    let component = members.need("component_cast")?.one_of(&["i32", "i64"])?;
    let mut count = Count::default();
    let components = members.need("components")?;
    let tree = children(&components, component, abi, resources, 1, &mut count)?;
    if count.leaves > 32 || count.dynamic > 16 {
        return components.fail("an aggregate has at most 32 leaves, 16 of them dynamic");
    }
    let row = Json::object([
        ("cast", text(cast)),
        ("component_cast", text(component)),
        ("components", tree),
        ("kind", text("aggregate")),
        ("projection", text("tuple")),
    ]);
    let leaves = count.sources;
    Ok(Binding { kind: "aggregate", projection: "tuple", source: None, peer: None, leaves, row })
}

fn children(
    node: &Node<'_>,
    cast: &'static str,
    abi: &CallAbi,
    resources: &[Resource],
    depth: usize,
    count: &mut Count,
) -> Checked<Json> {
    if depth > 4 {
        return node.fail("an aggregate nests at most 4 deep");
    }
    let mut rows = Vec::new();
    for child in node.items(1, 16)? {
        rows.push(match child.value {
            Val::Array(_) => children(&child, cast, abi, resources, depth + 1, count)?,
            _ => leaf(&child, cast, abi, resources, count)?,
        });
    }
    Ok(Json::Array(rows))
}

fn leaf(
    node: &Node<'_>,
    cast: &'static str,
    abi: &CallAbi,
    resources: &[Resource],
    count: &mut Count,
) -> Checked<Json> {
    count.leaves += 1;
    let members = node.table()?;
    if let Some(fixed) = members.get("static") {
        members.only(&["static"], &[])?;
        let (low, high) = range(cast).unwrap_or((0, 0));
        let Val::Int(value) = fixed.value else { return fixed.fail("expected an integer") };
        let value = Int::try_from(value.clone()).ok();
        return match value.filter(|value| Int::from(low) <= *value && *value <= Int::from(high)) {
            Some(value) => Ok(Json::object([("static", Json::Int(value))])),
            None => fixed.fail(format!("the integer does not fit {cast}")),
        };
    }
    count.dynamic += 1;
    members.only(&["source", "projection", "cast"], &["axis"])?;
    let name = members.need("source")?.text()?;
    let Some(found) = source(name, abi, resources) else {
        return members.need("source")?.fail(format!("no resource `{}`", name.escape_debug()));
    };
    let projection = members.need("projection")?.one_of(&[
        "shape",
        "stride",
        "numel",
        "rank",
        "storage_offset",
        "value",
        "size",
    ])?;
    members.need("cast")?.one_of(&[cast])?;
    let options = scalar(&members, &found, projection)?;
    count.sources.push(name.to_owned());
    let mut row = vec![("projection", text(projection)), ("source", text(name))];
    row.extend(options);
    Ok(Json::object(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_types_agree() {
        let from_scalars: Vec<_> = SCALARS.into_iter().filter(|scalar| is_integer(scalar)).collect();
        assert_eq!(from_scalars, ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]);
        assert_eq!(range("i32"), Some((-2_147_483_648, 2_147_483_647)));
    }
}
