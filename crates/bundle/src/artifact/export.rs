//! One export: a factory, its bindings and the device plan that uses them.

use super::PROVIDER;
use super::abi::{CallAbi, ResourceKind, is_float, is_integer, range};
use super::binding::{Binding, source};
use super::plan::{self, DevicePlan};
use super::resource::Resource;
use super::value::{Checked, Members, Node, Val, int, is_id, text};
use crate::pyjson;
use crate::text::{is_c_identifier, is_keyword};
use cacheon_identity::{Int, Json, hexfloat};
use std::collections::BTreeMap;

const PROFILE_INPUTS: [&str; 5] = [
    "max_active_clusters.cluster_size_1",
    "max_active_clusters.cluster_size_16",
    "max_active_clusters.cluster_size_2",
    "max_active_clusters.cluster_size_4",
    "max_active_clusters.cluster_size_8",
];

/// Roles in the order in which a plan's exports run.
pub(super) const ROLES: [&str; 5] = ["init", "prepare", "reset", "run", "destroy"];

/// A scalar of exactly one type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Bool(bool),
    Int(Int),
    Float(f64),
    Text(&'static str),
}

impl Scalar {
    /// A value as JSON stores it, floats with their exact bits.
    fn identity(&self) -> Json {
        match self {
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => Json::Int(value.clone()),
            Self::Float(value) => Json::object([
                ("hex", Json::Str(hexfloat::format(*value).unwrap_or_default())),
                ("type", text("float")),
            ]),
            Self::Text(value) => text(value),
        }
    }

    /// Equality with a metadata value: type and value.
    pub(super) fn equals(&self, other: &pyjson::Value) -> bool {
        match (self, other) {
            (Self::Bool(mine), pyjson::Value::Bool(theirs)) => mine == theirs,
            (Self::Int(mine), pyjson::Value::Int(theirs)) => mine == theirs,
            (Self::Float(mine), pyjson::Value::Float(theirs)) => mine == theirs,
            _ => false,
        }
    }
}

/// A value that a tensor is filled with before the launch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fill {
    pub(super) target: String,
    value: Scalar,
}

/// An export.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Export {
    pub(super) provider: String,
    pub(super) name: String,
    pub(super) factory: String,
    pub(super) profile_inputs: Vec<&'static str>,
    pub(super) bindings: Vec<Binding>,
    pub(super) device_plan: DevicePlan,
    pub(super) role: &'static str,
    pub(super) plan: String,
    pub(super) step: i64,
    pub(super) specializes: BTreeMap<String, Scalar>,
    pub(super) prelaunch: Vec<Fill>,
    requirements: (Json, Json),
}

impl Export {
    pub(super) fn provider_requirements(&self) -> Json {
        self.requirements.0.clone()
    }

    pub(super) fn specialization_requirements(&self) -> Json {
        self.requirements.1.clone()
    }

    /// The resources whose storage the export hands out or fills.
    pub(super) fn touched(&self) -> impl Iterator<Item = &str> {
        let exposed = self.bindings.iter().filter(|binding| binding.exposes());
        let storage = exposed.filter_map(|binding| binding.source.as_deref());
        let peers = self.bindings.iter().filter_map(|binding| binding.peer.as_deref());
        storage.chain(peers).chain(self.prelaunch.iter().map(|fill| fill.target.as_str()))
    }

    /// Every resource the export mentions.
    pub(super) fn mentions(&self) -> impl Iterator<Item = &str> {
        let fills = self.prelaunch.iter().map(|fill| fill.target.as_str());
        self.bindings.iter().flat_map(Binding::mentions).chain(fills)
    }

    pub(super) fn identity(&self) -> Json {
        let list = |all: Vec<Json>| Json::Array(all);
        let fills = self.prelaunch.iter().map(|fill| {
            Json::object([
                ("op", text("fill")),
                ("target", text(&fill.target)),
                ("value", fill.value.identity()),
            ])
        });
        let specializes = self.specializes.iter().map(|(source, value)| (source.clone(), value.identity()));
        Json::object([
            ("bindings", list(self.bindings.iter().map(Binding::identity).collect())),
            ("device_plan", self.device_plan.canonical().clone()),
            ("factory", text(&self.factory)),
            ("name", text(&self.name)),
            ("plan", text(&self.plan)),
            ("prelaunch", list(fills.collect())),
            ("profile_inputs", list(self.profile_inputs.iter().map(|input| text(input)).collect())),
            ("provider", text(&self.provider)),
            ("provider_capability_requirements", self.provider_requirements()),
            ("role", text(self.role)),
            ("specialization_capability_requirements", self.specialization_requirements()),
            ("specializes", Json::object(specializes)),
            ("step", int(self.step)),
        ])
    }

    pub(super) fn read(node: &Node<'_>, abi: &CallAbi, resources: &[Resource]) -> Checked<Self> {
        let members = node.table()?;
        members.only(
            &["provider", "name", "factory", "profile_inputs", "bindings", "device_plan"],
            &[
                "role",
                "plan",
                "step",
                "specializes",
                "prelaunch",
                "provider_capability_requirements",
                "specialization_capability_requirements",
            ],
        )?;
        let provider = members.need("provider")?;
        if !is_id(provider.text()?, 128) || provider.text()? != PROVIDER {
            return provider.fail(format!("the only registered provider is {PROVIDER}"));
        }
        let id = |key: &str, default: &str| -> Checked<String> {
            let Some(node) = members.get(key) else { return Ok(default.to_owned()) };
            if is_id(node.text()?, 64) {
                Ok(node.text()?.to_owned())
            } else {
                node.fail("expected lowercase letters, digits, `.`, `_` and `-`, at most 64")
            }
        };
        let factory = members.need("factory")?;
        if !is_c_identifier(factory.text()?) || is_keyword(factory.text()?) || factory.text()?.len() > 128 {
            return factory.fail("expected an ASCII Python name of at most 128 characters");
        }
        let mut profile_inputs = Vec::new();
        for input in members.need("profile_inputs")?.items(0, 16)? {
            let name = input.one_of(&PROFILE_INPUTS)?;
            if profile_inputs.contains(&name) {
                return input.fail("the input is listed twice");
            }
            profile_inputs.push(name);
        }
        profile_inputs.sort_unstable();
        let mut bindings = Vec::new();
        for binding in members.need("bindings")?.items(1, 64)? {
            bindings.push(Binding::read(&binding, abi, resources)?);
        }
        let plan_node = members.need("device_plan")?;
        let device_plan = plan::read(&plan_node)?;
        device_plan.join(&plan_node, &bindings)?;
        let specializes = specializes(&members, abi)?;
        let requirements = requirements(&members, abi, &bindings, &specializes)?;
        let export = Self {
            provider: provider.text()?.to_owned(),
            name: id("name", "")?,
            factory: factory.text()?.to_owned(),
            profile_inputs,
            bindings,
            device_plan,
            role: members.get("role").map_or(Ok("run"), |node| node.one_of(&ROLES))?,
            plan: id("plan", "default")?,
            step: members.get("step").map_or(Ok(0), |node| node.integer(0, 255))?,
            specializes,
            prelaunch: prelaunch(&members, abi, resources)?,
            requirements,
        };
        export.boundary(node, abi)?;
        Ok(export)
    }

    /// What the role lets an export see.
    fn boundary(&self, node: &Node<'_>, abi: &CallAbi) -> Checked<()> {
        for name in self.mentions() {
            let prefix = name.split('.').next().unwrap_or_default();
            let ambient = matches!(prefix, "group" | "stream");
            let opaque = abi.resource(name).is_some_and(|resource| resource.kind == ResourceKind::Opaque);
            let listed = |args: &[String]| args.iter().any(|arg| arg == name);
            let visible = match self.role {
                "run" => {
                    !opaque
                        && (listed(&abi.call_args)
                            || ambient
                            || matches!(prefix, "workspace" | "state" | "prepared"))
                }
                "prepare" => {
                    listed(&abi.prepare_args)
                        || ambient
                        || matches!(prefix, "workspace" | "state" | "prepared")
                }
                "init" => ambient || matches!(prefix, "workspace" | "state"),
                _ => ambient || matches!(prefix, "workspace" | "state" | "prepared"),
            };
            if !visible {
                return node.fail(format!("the role {} does not see `{name}`", self.role));
            }
        }
        Ok(())
    }
}

fn specializes(members: &Members<'_>, abi: &CallAbi) -> Checked<BTreeMap<String, Scalar>> {
    let mut all = BTreeMap::new();
    let Some(node) = members.get("specializes") else { return Ok(all) };
    for (name, value) in node.table()?.entries() {
        let resource = abi.resource(name).filter(|resource| resource.capability_field.is_some());
        let Some(scalar) = resource.and_then(|resource| resource.scalar_type.as_deref()) else {
            return value.fail("only a scalar with a capability field can be specialised");
        };
        let typed = match value.value {
            Val::Bool(value) if scalar == "bool" => Some(Scalar::Bool(*value)),
            Val::Int(number) if is_integer(scalar) => {
                let (low, high) = range(scalar).unwrap_or((0, 0));
                let number = Int::try_from(number.clone()).ok();
                number
                    .filter(|number| Int::from(low) <= *number && *number <= Int::from(high))
                    .map(Scalar::Int)
            }
            Val::Float(value) if is_float(scalar) && value.is_finite() => Some(Scalar::Float(*value)),
            _ => None,
        };
        match typed {
            Some(typed) => all.insert(name.to_owned(), typed),
            None => return value.fail(format!("the value must be a {scalar}")),
        };
    }
    Ok(all)
}

fn prelaunch(members: &Members<'_>, abi: &CallAbi, resources: &[Resource]) -> Checked<Vec<Fill>> {
    let Some(node) = members.get("prelaunch") else { return Ok(Vec::new()) };
    let mut fills = Vec::new();
    for item in node.items(0, 16)? {
        let row = item.table()?;
        row.only(&["op", "target", "value"], &[])?;
        row.need("op")?.one_of(&["fill"])?;
        let target = row.need("target")?;
        let name = target.text()?;
        if !source(name, abi, resources).is_some_and(|source| source.writable_tensor()) {
            return target.fail("a fill needs a tensor that may be written");
        }
        let value = row.need("value")?;
        let typed = match value.value {
            Val::Bool(value) => Scalar::Bool(*value),
            Val::Int(_) => Scalar::Int(Int::from(value.integer(i64::MIN, i64::MAX)?)),
            Val::Float(value) if value.is_finite() => Scalar::Float(*value),
            Val::Text(_) => Scalar::Text(value.one_of(&["-inf", "+inf", "nan"])?),
            _ => return value.fail("expected a boolean, integer, finite float, `-inf`, `+inf` or `nan`"),
        };
        fills.push(Fill { target: name.to_owned(), value: typed });
    }
    Ok(fills)
}

/// What an export asks of its provider and of the metadata; lists that are stated must be exactly these.
fn requirements(
    members: &Members<'_>,
    abi: &CallAbi,
    bindings: &[Binding],
    specializes: &BTreeMap<String, Scalar>,
) -> Checked<(Json, Json)> {
    let mut provider: Vec<(String, &str, &str)> = bindings
        .iter()
        .filter_map(|binding| {
            let capability = match binding.projection {
                "native_handle" => "group.native_handle.v1",
                "peer_ptr_table" => "group.peer_ptr_table.v1",
                _ => return None,
            };
            Some((binding.source.clone()?, binding.projection, capability))
        })
        .collect();
    provider.sort();
    provider.dedup();
    let provider = provider.into_iter().map(|(source, projection, capability)| {
        Json::object([
            ("capability", text(capability)),
            ("projection", text(projection)),
            ("source", text(&source)),
        ])
    });
    let fields = specializes.keys().filter_map(|source| {
        let field = abi.resource(source)?.capability_field.as_deref()?;
        Some(Json::object([("capability_field", text(field)), ("source", text(source))]))
    });
    let derived = (Json::Array(provider.collect()), Json::Array(fields.collect()));
    for (key, list) in [
        ("provider_capability_requirements", &derived.0),
        ("specialization_capability_requirements", &derived.1),
    ] {
        if let Some(node) = members.get(key)
            && *node.value != Val::from(list)
        {
            return node.fail("the list is not the one that follows from the declaration");
        }
    }
    Ok(derived)
}
