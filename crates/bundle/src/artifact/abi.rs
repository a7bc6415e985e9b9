//! Call ABIs: which resources a slot's call site hands to a direct artifact.

use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};
use std::sync::LazyLock;

const CALL_ABI: Domain = Domain::with_members(
    "cacheon.artifact-call-abi",
    &["call_args", "prepare_args", "prepare_result", "resources", "slot"],
);
const AUTHORITY: Domain = Domain::with_members(
    "cacheon.artifact-target-authority",
    &["call_abi", "call_abi_sha256", "dispatch_slot", "schema", "target_id"],
);

/// Kind of a slot resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// A device tensor.
    Tensor,
    /// A host scalar.
    Scalar,
    /// A raw pointer.
    Pointer,
    /// A stream.
    Stream,
    /// A process group.
    Group,
    /// Something only the engine understands.
    Opaque,
}

impl ResourceKind {
    const ALL: [Self; 6] =
        [Self::Tensor, Self::Scalar, Self::Pointer, Self::Stream, Self::Group, Self::Opaque];

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
        }
    }
}

/// One resource of a call site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotResource {
    /// Its name, for example `input.x`.
    pub name: String,
    /// Its kind.
    pub kind: ResourceKind,
    /// Whether a call may write it.
    pub writable: bool,
    /// Type of a scalar.
    pub scalar_type: Option<String>,
    /// The capability field that specialisation needs.
    pub capability_field: Option<String>,
    /// Capabilities of a group.
    pub provider_capabilities: Vec<String>,
    access: String,
    provider_resource: Option<String>,
    provider_projection: Option<String>,
}

/// The call ABI of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAbi {
    /// The slot.
    pub slot: String,
    /// Resources, in order.
    pub resources: Vec<SlotResource>,
    /// Arguments of a call.
    pub call_args: Vec<String>,
    /// Arguments of a prepare step.
    pub prepare_args: Vec<String>,
    /// What a prepare step leaves.
    pub prepare_result: Option<String>,
}

impl CallAbi {
    /// A resource by name.
    #[must_use]
    pub fn resource(&self, name: &str) -> Option<&SlotResource> {
        self.resources.iter().find(|resource| resource.name == name)
    }

    /// The identity digest: provider capabilities and capability fields are left out.
    #[must_use]
    pub fn digest(&self) -> Digest {
        CALL_ABI.digest(self)
    }

    /// What a direct artifact at `target` is dispatched with, and its digest.
    #[must_use]
    pub fn target_authority(&self, target: &str) -> (Json, Digest) {
        let authority = Json::object([
            ("call_abi", self.to_json().unwrap_or(Json::Null)),
            ("call_abi_sha256", Json::Str(self.digest().to_string())),
            ("dispatch_slot", Json::from(self.slot.as_str())),
            ("schema", Json::from("cacheon.artifact-target-authority.v1")),
            ("target_id", Json::from(target)),
        ]);
        let digest = AUTHORITY.digest(&authority);
        (authority, digest)
    }
}

impl Canonical for SlotResource {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("access", &self.access)
                .field("kind", self.kind.as_str())
                .field("name", &self.name)
                .field_if("provider_projection", self.provider_projection.as_ref())
                .field_if("provider_resource", self.provider_resource.as_ref())
                .field_if("scalar_type", self.scalar_type.as_ref());
        });
    }
}

impl Canonical for CallAbi {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("call_args", &self.call_args)
                .field("prepare_args", &self.prepare_args)
                .field("prepare_result", &self.prepare_result)
                .field("resources", &self.resources)
                .field("slot", &self.slot);
        });
    }
}

impl Decode for SlotResource {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let optional =
            ["capability_field", "provider_capabilities", "provider_projection", "provider_resource"];
        let optional = [optional.as_slice(), &["scalar_type"]].concat();
        let mut fields = Fields::closed_with(json, &["access", "kind", "name"], &optional)?;
        let kind = fields.take("kind")?;
        let known = ResourceKind::ALL.into_iter().find(|it| kind.json().as_str() == Some(it.as_str()));
        let access: String = fields.decode("access")?;
        Ok(Self {
            kind: known.ok_or_else(|| DecodeError::invalid("a resource kind", kind.json()))?,
            writable: access != "read",
            name: fields.decode("name")?,
            scalar_type: fields.decode_optional("scalar_type")?,
            capability_field: fields.decode_optional("capability_field")?,
            provider_capabilities: fields.decode_optional("provider_capabilities")?.unwrap_or_default(),
            provider_resource: fields.decode_optional("provider_resource")?,
            provider_projection: fields.decode_optional("provider_projection")?,
            access,
        })
    }
}

impl Decode for CallAbi {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let required = ["call_args", "resources", "slot"];
        let mut fields = Fields::closed_with(json, &required, &["prepare_args", "prepare_result"])?;
        Ok(Self {
            slot: fields.decode("slot")?,
            resources: fields.decode("resources")?,
            call_args: fields.decode("call_args")?,
            prepare_args: fields.decode_optional("prepare_args")?.unwrap_or_default(),
            prepare_result: fields.decode_optional("prepare_result")?,
        })
    }
}

/// The call ABIs of one catalog snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAbis(Vec<CallAbi>);

static A: LazyLock<CallAbis> = LazyLock::new(|| load(include_bytes!("../../data/call-abis-2026-08-20.json")));
static B: LazyLock<CallAbis> = LazyLock::new(|| load(include_bytes!("../../data/call-abis-2026-08-22.json")));

fn load(bytes: &[u8]) -> CallAbis {
    // A file that does not read leaves no slot with an ABI; a test proves that both read.
    let read = Json::parse(bytes).ok().and_then(|json| Vec::<CallAbi>::decode(&json).ok());
    CallAbis(read.unwrap_or_default())
}

impl CallAbis {
    /// Those of the catalog registered on 2026-08-20.
    #[must_use]
    pub fn registered_2026_08_20() -> &'static Self {
        &A
    }

    /// Those of the catalog registered on 2026-08-22: another attention contract, no fused experts.
    #[must_use]
    pub fn registered_2026_08_22() -> &'static Self {
        &B
    }

    /// The ABI of a slot, if direct artifacts can serve it.
    #[must_use]
    pub fn slot(&self, slot: &str) -> Option<&CallAbi> {
        self.0.iter().find(|abi| abi.slot == slot)
    }

    /// Every ABI.
    pub fn iter(&self) -> impl Iterator<Item = &CallAbi> {
        self.0.iter()
    }
}
