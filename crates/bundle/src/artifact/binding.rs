//! Bindings: which resource, seen how, becomes which argument of a launch.

use super::abi::{CallAbi, ResourceKind, SlotResource};
use super::plain::{Members, Plain, Row};
use super::resource::{MAX_ALIGNMENT, Resource};
use super::{ArtifactError, Class, is_float_type, is_integer_type};

const CASTS: [&str; 14] =
    ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "tf32", "f64"];
const AGGREGATES: [&str; 5] = ["Shape", "Coord", "Tile", "IntTuple", "Stride"];
const MAX_AXIS: i128 = 15;
const MAX_UNSQUEEZE: usize = 8;
const MAX_LEADING_DIM: i128 = 16;
const MAX_DEPTH: usize = 4;
const MAX_CHILDREN: usize = 16;
const MAX_LEAVES: usize = 32;
const MAX_DYNAMIC: usize = 16;

/// What a binding is to a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingKind {
    /// A tensor descriptor.
    Tensor,
    /// A host scalar.
    Scalar,
    /// An address.
    Pointer,
    /// A stream.
    Stream,
    /// A process group.
    Group,
    /// Something only the engine understands.
    Opaque,
    /// A tuple of integers.
    Aggregate,
}

impl BindingKind {
    const ALL: [Self; 7] =
        [Self::Tensor, Self::Scalar, Self::Pointer, Self::Stream, Self::Group, Self::Opaque, Self::Aggregate];

    /// As it is spelled.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Scalar => "scalar",
            Self::Pointer => "pointer",
            Self::Stream => "stream",
            Self::Group => "group",
            Self::Opaque => "opaque",
            Self::Aggregate => "aggregate",
        }
    }

    const fn default_projection(self) -> &'static str {
        match self {
            Self::Tensor => "descriptor",
            Self::Scalar => "value",
            Self::Aggregate => "tuple",
            _ => "identity",
        }
    }
}

/// A checked binding.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    kind: BindingKind,
    canonical: Plain,
    found: Found,
}

/// What a binding refers to.
#[derive(Debug, Clone, Default, PartialEq)]
struct Found {
    /// Every resource named, leaves and peers included.
    mentions: Vec<String>,
    /// The resource whose storage it exposes.
    storage: Option<String>,
    /// The slot output it can write.
    writes: Option<String>,
    /// Source and projection that need a capability of the provider.
    requirement: Option<(String, &'static str)>,
    /// What the bound group lists.
    group_capabilities: Vec<String>,
}

impl Binding {
    pub(super) fn kind(&self) -> BindingKind {
        self.kind
    }

    pub(super) fn canonical(&self) -> &Plain {
        &self.canonical
    }

    pub(super) fn mentions(&self) -> &[String] {
        &self.found.mentions
    }

    pub(super) fn storage(&self) -> Option<&str> {
        self.found.storage.as_deref()
    }

    pub(super) fn writes(&self) -> Option<&str> {
        self.found.writes.as_deref()
    }

    pub(super) fn requirement(&self) -> Option<(&str, &'static str)> {
        self.found.requirement.as_ref().map(|(source, projection)| (source.as_str(), *projection))
    }

    /// Whether the bound group lists the capability of a projection.
    pub(super) fn group_grants(&self, projection: &str) -> bool {
        self.found.grants(projection)
    }
}

impl Found {
    fn grants(&self, projection: &str) -> bool {
        self.group_capabilities.iter().any(|it| it == super::group_capability(projection))
    }
}

/// What a source name stands for.
enum Source<'a> {
    Slot(&'a SlotResource),
    Artifact,
}

impl Source<'_> {
    fn kind(&self) -> ResourceKind {
        match self {
            Self::Slot(it) => it.kind,
            Self::Artifact => ResourceKind::Tensor,
        }
    }

    fn writable(&self) -> bool {
        matches!(self, Self::Slot(it) if it.writable)
    }
}

/// Where sources are looked up.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) abi: &'a CallAbi,
    pub(super) resources: &'a [Resource],
}

impl<'a> Scope<'a> {
    fn source(self, row: &Row<'_>, key: &str) -> Result<(String, Source<'a>), ArtifactError> {
        let name = row.text(key)?;
        if self.resources.iter().any(|it| it.name == name) {
            return Ok((name.to_owned(), Source::Artifact));
        }
        match self.abi.resource(name) {
            Some(resource) => Ok((name.to_owned(), Source::Slot(resource))),
            None => row.refuse(key, "neither a resource of the slot nor one of the row"),
        }
    }

    /// Whether a resource may be filled before a launch.
    pub(super) fn fillable(self, name: &str) -> bool {
        self.resources.iter().any(|it| it.name == name)
            || self.abi.resource(name).is_some_and(|it| it.kind == ResourceKind::Tensor && it.writable)
    }
}

/// Reads one binding.
pub(super) fn read(value: &Plain, path: &str, scope: Scope<'_>) -> Result<Binding, ArtifactError> {
    let known = [
        "kind",
        "source",
        "projection",
        "cast",
        "axis",
        "unsqueeze",
        "assumed_align",
        "leading_dim",
        "peer_resource",
        "component_cast",
        "components",
    ];
    let row = Row::open(value, path, Class::Binding, &known)?;
    let spelled = row.text("kind")?;
    let Some(kind) = BindingKind::ALL.into_iter().find(|kind| kind.as_str() == spelled) else {
        return row.refuse("kind", "no such binding kind");
    };
    let projection = row.optional_text("projection")?.unwrap_or(kind.default_projection());
    let mut members = Members::new();
    members.insert("kind".to_owned(), spelled.into());
    members.insert("projection".to_owned(), projection.into());
    let found = if kind == BindingKind::Aggregate {
        aggregate(&row, projection, &mut members, scope)?
    } else {
        sourced(&row, kind, projection, &mut members, scope)?
    };
    Ok(Binding { kind, canonical: Plain::Table(members), found })
}

fn sourced(
    row: &Row<'_>,
    kind: BindingKind,
    projection: &str,
    members: &mut Members,
    scope: Scope<'_>,
) -> Result<Found, ArtifactError> {
    let (name, source) = scope.source(row, "source")?;
    members.insert("source".to_owned(), name.as_str().into());
    let group_capabilities = match &source {
        Source::Slot(it) => it.provider_capabilities.clone(),
        Source::Artifact => Vec::new(),
    };
    let mut found = Found { mentions: vec![name.clone()], group_capabilities, ..Found::default() };
    let mut used = vec!["kind", "source", "projection"];
    match (source.kind(), kind, projection) {
        (ResourceKind::Tensor, BindingKind::Tensor, "descriptor") => {
            used.extend(["unsqueeze", "assumed_align", "leading_dim"]);
            found.storage = Some(name.clone());
            found.writes = source.writable().then_some(name);
            tensor_options(row, members)?;
        }
        (ResourceKind::Tensor, BindingKind::Pointer, "device_ptr") => {
            used.push("assumed_align");
            found.storage = Some(name.clone());
            found.writes = source.writable().then_some(name);
            alignment(row, members)?;
        }
        (_, BindingKind::Scalar, _) => {
            used.extend(["cast", "axis"]);
            let cast = scalar(row, projection, &source, members)?;
            members.insert("cast".to_owned(), cast.into());
        }
        (ResourceKind::Group, BindingKind::Group, "identity")
        | (ResourceKind::Pointer, BindingKind::Pointer, "identity")
        | (ResourceKind::Stream, BindingKind::Stream, "identity")
        | (ResourceKind::Opaque, BindingKind::Opaque, "identity") => {}
        (ResourceKind::Group, BindingKind::Pointer, "native_handle") => {
            granted(row, &found, "native_handle")?;
            found.requirement = Some((name, "native_handle"));
        }
        (ResourceKind::Group, BindingKind::Pointer, "peer_ptr_table") => {
            used.push("peer_resource");
            granted(row, &found, "peer_ptr_table")?;
            found.requirement = Some((name, "peer_ptr_table"));
            let peer = row.text("peer_resource")?;
            if !scope.resources.iter().any(|it| it.name == peer && it.group_ipc) {
                return row.refuse("peer_resource", "a peer table needs a persistent group_ipc resource");
            }
            members.insert("peer_resource".to_owned(), peer.into());
            found.mentions.push(peer.to_owned());
            found.storage = Some(peer.to_owned());
        }
        (of, ..) => {
            let (of, as_what) = (of.as_str(), kind.as_str());
            let problem = format!("a {of} cannot be bound as `{as_what}` with projection `{projection}`");
            return row.refuse("projection", problem);
        }
    }
    row.only(&used)?;
    Ok(found)
}

fn granted(row: &Row<'_>, found: &Found, projection: &str) -> Result<(), ArtifactError> {
    if found.grants(projection) {
        return Ok(());
    }
    let capability = super::group_capability(projection);
    row.refuse("projection", format!("the slot's group does not list {capability}"))
}

fn alignment(row: &Row<'_>, members: &mut Members) -> Result<(), ArtifactError> {
    if let Some(value) = row.optional_int("assumed_align", 1, MAX_ALIGNMENT)? {
        if value.count_ones() != 1 {
            return row.refuse("assumed_align", format!("{value} is not a power of two"));
        }
        members.insert("assumed_align".to_owned(), Plain::Int(value));
    }
    Ok(())
}

fn tensor_options(row: &Row<'_>, members: &mut Members) -> Result<(), ArtifactError> {
    let unsqueeze = row.optional_array("unsqueeze", MAX_UNSQUEEZE)?;
    if !unsqueeze.iter().all(|value| matches!(value, Plain::Int(-16..=16))) {
        return row.refuse("unsqueeze", "axes are integers of -16..=16");
    }
    if !unsqueeze.is_empty() {
        members.insert("unsqueeze".to_owned(), Plain::Array(unsqueeze.to_vec()));
    }
    alignment(row, members)?;
    if let Some(value) = row.optional_int("leading_dim", 0, MAX_LEADING_DIM)? {
        members.insert("leading_dim".to_owned(), Plain::Int(value));
    }
    Ok(())
}

/// Checks a scalar's projection, axis and cast against its source; gives the cast.
fn scalar(
    row: &Row<'_>,
    projection: &str,
    source: &Source<'_>,
    members: &mut Members,
) -> Result<&'static str, ArtifactError> {
    let cast = row.choice("cast", &CASTS)?;
    let (fits, with_axis) = match (source, source.kind(), projection) {
        (_, ResourceKind::Tensor, "shape" | "stride") => (is_integer_type(cast), true),
        (_, ResourceKind::Tensor, "numel" | "rank" | "storage_offset")
        | (_, ResourceKind::Group, "rank" | "size") => (is_integer_type(cast), false),
        (Source::Slot(it), ResourceKind::Scalar, "value") => {
            let own = it.scalar_type.as_deref().unwrap_or_default();
            let same = (own == "bool" && cast == "bool")
                || (is_integer_type(own) && is_integer_type(cast))
                || (is_float_type(own) && is_float_type(cast));
            (same, false)
        }
        _ => return row.refuse("projection", format!("`{projection}` is no scalar of this resource")),
    };
    if !fits {
        return row.refuse("cast", format!("the value cannot be cast to {cast}"));
    }
    if with_axis {
        members.insert("axis".to_owned(), Plain::Int(row.int("axis", 0, MAX_AXIS)?));
    } else if row.get("axis").is_some() {
        return row.refuse("axis", "only shape and stride have an axis");
    }
    Ok(cast)
}

fn aggregate(
    row: &Row<'_>,
    projection: &str,
    members: &mut Members,
    scope: Scope<'_>,
) -> Result<Found, ArtifactError> {
    row.only(&["kind", "projection", "cast", "component_cast", "components"])?;
    if projection != "tuple" {
        return row.refuse("projection", "an aggregate is a tuple");
    }
    let cast = row.choice("cast", &AGGREGATES)?;
    let component = row.choice("component_cast", &["i32", "i64"])?;
    let mut leaves = Leaves { scope, component, total: 0, dynamic: 0, mentions: Vec::new() };
    let components = row.need("components")?;
    leaves.group(components, &row.at("components"), 1)?;
    members.insert("cast".to_owned(), cast.into());
    members.insert("component_cast".to_owned(), component.into());
    members.insert("components".to_owned(), components.clone());
    Ok(Found { mentions: leaves.mentions, ..Found::default() })
}

struct Leaves<'a> {
    scope: Scope<'a>,
    component: &'static str,
    total: usize,
    dynamic: usize,
    mentions: Vec<String>,
}

impl Leaves<'_> {
    fn group(&mut self, value: &Plain, path: &str, depth: usize) -> Result<(), ArtifactError> {
        let refuse = |problem: String| Err(ArtifactError::new(Class::Binding, path, problem));
        let Plain::Array(items) = value else {
            return refuse(format!("expected an array, found {}", value.kind()));
        };
        if depth > MAX_DEPTH || !(1..=MAX_CHILDREN).contains(&items.len()) {
            return refuse(format!("components are 1 to {MAX_CHILDREN} elements, at most {MAX_DEPTH} deep"));
        }
        for (index, item) in items.iter().enumerate() {
            let at = format!("{path}[{index}]");
            match item {
                Plain::Array(_) => self.group(item, &at, depth + 1)?,
                _ => self.leaf(item, &at)?,
            }
        }
        Ok(())
    }

    fn leaf(&mut self, value: &Plain, path: &str) -> Result<(), ArtifactError> {
        let known = ["static", "source", "projection", "cast", "axis"];
        let row = Row::open(value, path, Class::Binding, &known)?;
        self.total += 1;
        if row.get("static").is_some() {
            row.only(&["static"])?;
            let (low, high) = match self.component {
                "i32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
                _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
            };
            row.int("static", low, high)?;
        } else {
            let (name, source) = self.scope.source(&row, "source")?;
            let projection = row.optional_text("projection")?.unwrap_or("value");
            let cast = scalar(&row, projection, &source, &mut Members::new())?;
            if cast != self.component {
                return row.refuse("cast", format!("the aggregate's components are {}", self.component));
            }
            self.dynamic += 1;
            self.mentions.push(name);
        }
        if self.total > MAX_LEAVES || self.dynamic > MAX_DYNAMIC {
            let problem = format!("more than {MAX_LEAVES} leaves or {MAX_DYNAMIC} that are not static");
            return Err(ArtifactError::new(Class::Binding, path, problem));
        }
        Ok(())
    }
}
