//! Device plans: which kernels are launched, how wide, and with which parameters.

use super::binding::Binding;
use super::expression;
use super::value::{Checked, Members, Node, Val, int, text};
use cacheon_identity::{Digest, Domain, Json};
use std::collections::BTreeSet;

const SCHEMA: &str = "cacheon.device-launch-plan.v1";
const PLAN: Domain = Domain::new("cacheon.device-launch-plan");
const MAX_BINDING: i64 = 63;

/// What a plan needs a binding to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Scalar,
    Tensor,
    /// Pointer, tensor or opaque.
    Address,
    Stream,
    Group,
}

/// Every binding a plan refers to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Uses(Vec<(i64, Use, String)>);

impl Uses {
    pub(super) fn index(&mut self, node: &Node<'_>, needed: Use) -> Checked<i64> {
        let index = node.integer(0, MAX_BINDING)?;
        self.0.push((index, needed, node.path.clone()));
        Ok(index)
    }
}

/// A device plan that is correct in itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePlan {
    canonical: Json,
    capabilities: BTreeSet<&'static str>,
    uses: Uses,
}

impl DevicePlan {
    /// The plan with every member written.
    #[must_use]
    pub fn canonical(&self) -> &Json {
        &self.canonical
    }

    /// The plan's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PLAN.digest(&self.canonical)
    }

    /// What a loader must be able to do, sorted.
    #[must_use]
    pub fn required_capabilities(&self) -> Vec<&'static str> {
        self.capabilities.iter().copied().collect()
    }

    /// Checks the plan against the bindings it refers to.
    pub(super) fn join(&self, node: &Node<'_>, bindings: &[Binding]) -> Checked<()> {
        for (index, needed, path) in &self.uses.0 {
            let binding = usize::try_from(*index).ok().and_then(|index| bindings.get(index));
            let fits = binding.is_some_and(|binding| match needed {
                Use::Scalar => binding.kind == "scalar",
                Use::Tensor => binding.kind == "tensor",
                Use::Address => matches!(binding.kind, "pointer" | "tensor" | "opaque"),
                Use::Stream => binding.kind == "stream",
                Use::Group => binding.kind == "group",
            });
            if !fits {
                let what = format!("{needed:?}").to_lowercase();
                return node.fail(format!("{path}: binding {index} is absent or no {what}"));
            }
        }
        Ok(())
    }
}

/// Reads a device plan.
///
/// # Errors
/// The first member that breaks a rule.
pub fn device_plan(value: &Val) -> Result<DevicePlan, super::ArtifactError> {
    read(&Node::new(value, "device_plan"))
}

pub(super) fn read(node: &Node<'_>) -> Checked<DevicePlan> {
    let members = node.table()?;
    members.only(&["kernels", "launches", "schema"], &[])?;
    members.need("schema")?.one_of(&[SCHEMA])?;
    let kernels = members.need("kernels")?;
    let mut known: Vec<(String, Vec<i64>)> = Vec::new();
    for item in kernels.items(1, 1024)? {
        let kernel = kernel(&item.table()?)?;
        if known.last().is_some_and(|before| before.0 >= kernel.0) {
            return item.fail("kernels must be sorted by name and unique");
        }
        known.push(kernel);
    }
    let mut plan = Plan { uses: Uses::default(), capabilities: BTreeSet::new() };
    let mut launches = Vec::new();
    for (ordinal, item) in members.need("launches")?.items(1, 256)?.iter().enumerate() {
        launches.push(plan.launch(&item.table()?, ordinal, &known)?);
    }
    let rows = known.iter().map(|(name, sizes)| {
        let sizes = sizes.iter().copied().map(int).collect();
        Json::object([("name", text(name)), ("parameter_sizes", Json::Array(sizes))])
    });
    let canonical = Json::object([
        ("kernels", Json::Array(rows.collect())),
        ("launches", Json::Array(launches)),
        ("schema", text(SCHEMA)),
    ]);
    Ok(DevicePlan { canonical, capabilities: plan.capabilities, uses: plan.uses })
}

fn kernel(members: &Members<'_>) -> Checked<(String, Vec<i64>)> {
    members.only(&["name", "parameter_sizes"], &[])?;
    let name = members.need("name")?;
    let symbol = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | b'@');
    let text = name.text()?;
    let first =
        text.bytes().next().is_some_and(|byte| symbol(byte) && byte != b'@' && !byte.is_ascii_digit());
    if !first || text.len() > 4096 || !text.bytes().all(symbol) {
        return name.fail("no kernel symbol has this form");
    }
    let sizes = members.need("parameter_sizes")?.items(0, 256)?;
    let sizes = sizes.iter().map(|size| size.integer(1, 4096)).collect::<Checked<_>>()?;
    Ok((text.to_owned(), sizes))
}

struct Plan {
    uses: Uses,
    capabilities: BTreeSet<&'static str>,
}

fn width(scalar: &str) -> Option<i64> {
    Some(match scalar {
        "bool" | "i8" | "u8" => 1,
        "i16" | "u16" | "f16" => 2,
        "i32" | "u32" | "f32" => 4,
        "i64" | "u64" | "f64" => 8,
        _ => return None,
    })
}

const SCALARS: [&str; 12] =
    ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64"];

impl Plan {
    fn expression(&mut self, node: &Node<'_>) -> Checked<Json> {
        expression::read(node, &mut self.uses)
    }

    fn dimensions(&mut self, node: &Node<'_>) -> Checked<Json> {
        let members = node.table()?;
        members.only(&["x", "y", "z"], &[])?;
        let mut axis = |key: &'static str| Ok((key, self.expression(&members.need(key)?)?));
        Ok(Json::object([axis("x")?, axis("y")?, axis("z")?]))
    }

    fn launch(
        &mut self,
        members: &Members<'_>,
        ordinal: usize,
        kernels: &[(String, Vec<i64>)],
    ) -> Checked<Json> {
        members.only(
            &[
                "ordinal",
                "kernel",
                "grid",
                "block",
                "shared_mem_bytes",
                "parameters",
                "stream_binding",
                "attributes",
            ],
            &["cluster"],
        )?;
        let expected = i64::try_from(ordinal).unwrap_or(i64::MAX);
        members.need("ordinal")?.integer(expected, expected)?;
        let name = members.need("kernel")?;
        let Some((kernel, sizes)) =
            kernels.iter().find(|(kernel, _)| Some(kernel.as_str()) == name.text().ok())
        else {
            return name.fail("the plan has no kernel of this name");
        };
        let grid = self.dimensions(&members.need("grid")?)?;
        let block = self.dimensions(&members.need("block")?)?;
        let cluster = match members.given("cluster") {
            Some(node) => self.dimensions(&node)?,
            None => Json::Null,
        };
        let shared = self.expression(&members.need("shared_mem_bytes")?)?;
        let parameters = members.need("parameters")?;
        let items = parameters.items(0, 256)?;
        if items.len() != sizes.len() {
            return parameters.fail(format!("the kernel takes {} parameters", sizes.len()));
        }
        let mut rows = Vec::new();
        for (item, size) in items.iter().zip(sizes) {
            rows.push(self.parameter(&item.table()?, *size)?);
        }
        let stream = match members.given("stream_binding") {
            Some(node) => int(self.uses.index(&node, Use::Stream)?),
            None => Json::Null,
        };
        Ok(Json::object([
            ("attributes", attributes(&members.need("attributes")?.table()?)?),
            ("block", block),
            ("cluster", cluster),
            ("grid", grid),
            ("kernel", text(kernel)),
            ("ordinal", int(expected)),
            ("parameters", Json::Array(rows)),
            ("shared_mem_bytes", shared),
            ("stream_binding", stream),
        ]))
    }

    fn parameter(&mut self, members: &Members<'_>, size: i64) -> Checked<Json> {
        const FIELDS: [&str; 6] =
            ["binding", "expression", "fields", "group_projection", "scalar_type", "tma"];
        members.only(&["kind", "size"], &FIELDS)?;
        let kind = members.need("kind")?.one_of(&[
            "pointer",
            "scalar",
            "packed_struct",
            "tma_descriptor",
            "cutlass_fast_divmod_i32_v1",
            "cute_fast_divmod_i32_v1",
            "group_handle",
        ])?;
        let wanted: &[&str] = match kind {
            "pointer" => &["binding"],
            "scalar" => &["scalar_type", "expression"],
            "packed_struct" => &["fields"],
            "tma_descriptor" => &["tma"],
            "group_handle" => &["binding", "group_projection"],
            _ => &["expression"],
        };
        for field in FIELDS {
            let given = members.given(field).filter(|node| *node.value != Val::Array(Vec::new()));
            if given.is_some() != wanted.contains(&field) && !(field == "fields" && kind == "packed_struct") {
                let verb = if wanted.contains(&field) { "needs" } else { "takes no" };
                return members.fail(format!("a {kind} parameter {verb} `{field}`"));
            }
        }
        let mut row: Vec<(&str, Json)> = vec![("kind", text(kind)), ("size", int(size))];
        let own = match kind {
            "tma_descriptor" => 128,
            "cutlass_fast_divmod_i32_v1" | "cute_fast_divmod_i32_v1" => 12,
            "scalar" => width(members.need("scalar_type")?.one_of(&SCALARS)?).unwrap_or(0),
            "packed_struct" => size,
            _ => 8,
        };
        members.need("size")?.integer(own, own)?;
        if own != size {
            return members.fail(format!("the kernel's parameter has {size} bytes"));
        }
        self.capabilities.insert("cuda.checked_expression.v1");
        let mut fields = Json::Array(Vec::new());
        let mut tma = Json::Null;
        let mut expression = Json::Null;
        let mut binding = Json::Null;
        let mut scalar_type = Json::Null;
        let mut projection = Json::Null;
        match kind {
            "pointer" => binding = int(self.uses.index(&members.need("binding")?, Use::Address)?),
            "group_handle" => {
                binding = int(self.uses.index(&members.need("binding")?, Use::Group)?);
                let which = members.need("group_projection")?.one_of(&["native_handle", "peer_ptr_table"])?;
                let native = which == "native_handle";
                self.capabilities.insert(if native {
                    "group.native_handle.v1"
                } else {
                    "group.peer_ptr_table.v1"
                });
                projection = text(which);
            }
            "packed_struct" => {
                self.capabilities.insert("cuda.packed_struct.v1");
                fields = self.fields(&members.need("fields")?, size)?;
            }
            "tma_descriptor" => {
                self.capabilities.insert("cuda.tma_descriptor.v1");
                tma = self.tma(&members.need("tma")?.table()?)?;
            }
            _ => {
                match kind {
                    "cutlass_fast_divmod_i32_v1" => {
                        self.capabilities.insert("cutlass.fast_divmod.i32.v1");
                    }
                    "cute_fast_divmod_i32_v1" => {
                        self.capabilities.insert("cute.fast_divmod.i32.v1");
                    }
                    _ => scalar_type = text(members.need("scalar_type")?.one_of(&SCALARS)?),
                }
                expression = self.expression(&members.need("expression")?)?;
            }
        }
        row.extend([
            ("binding", binding),
            ("expression", expression),
            ("fields", fields),
            ("group_projection", projection),
            ("scalar_type", scalar_type),
            ("tma", tma),
        ]);
        Ok(Json::object(row))
    }

    fn fields(&mut self, node: &Node<'_>, size: i64) -> Checked<Json> {
        let mut taken: Vec<(i64, i64)> = Vec::new();
        let mut rows = Vec::new();
        for item in node.items(0, 64)? {
            let members = item.table()?;
            members.only(&["offset"], &["scalar_type", "expression", "data_hex", "tensor_binding"])?;
            let offset = members.need("offset")?.integer(0, size - 1)?;
            let (scalar, expression) = (members.given("scalar_type"), members.given("expression"));
            let (data, tensor) = (members.given("data_hex"), members.given("tensor_binding"));
            let mut row = [
                ("data_hex", Json::Null),
                ("expression", Json::Null),
                ("scalar_type", Json::Null),
                ("tensor_binding", Json::Null),
            ];
            let length = match (scalar, expression, data, tensor) {
                (Some(scalar), Some(expression), None, None) => {
                    let scalar = scalar.one_of(&SCALARS)?;
                    row[1].1 = self.expression(&expression)?;
                    row[2].1 = text(scalar);
                    width(scalar).unwrap_or(0)
                }
                (None, None, Some(data), None) => {
                    let hex = data.text()?;
                    let digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
                    if hex.is_empty() || hex.len() % 2 != 0 || !hex.bytes().all(digit) {
                        return data.fail("expected pairs of lowercase hexadecimal digits");
                    }
                    row[0].1 = text(hex);
                    i64::try_from(hex.len() / 2).unwrap_or(i64::MAX)
                }
                (None, None, None, Some(tensor)) => {
                    row[3].1 = int(self.uses.index(&tensor, Use::Tensor)?);
                    8
                }
                _ => {
                    return item
                        .fail("a field holds one of: scalar_type with expression, data_hex, tensor_binding");
                }
            };
            let end = offset.saturating_add(length);
            if end > size || taken.iter().any(|(from, to)| offset < *to && *from < end) {
                return item.fail("the field leaves the parameter or overlaps another");
            }
            taken.push((offset, end));
            rows.push(Json::object(row.into_iter().chain([("offset", int(offset))])));
        }
        Ok(Json::Array(rows))
    }

    fn tma(&mut self, members: &Members<'_>) -> Checked<Json> {
        members.only(
            &[
                "binding",
                "element_type",
                "global_dims",
                "global_strides",
                "box_dims",
                "element_strides",
                "interleave",
                "swizzle",
                "l2_promotion",
                "oob_fill",
            ],
            &[],
        )?;
        let binding = int(self.uses.index(&members.need("binding")?, Use::Tensor)?);
        let rank = members.need("global_dims")?.items(1, 5)?.len();
        let mut list = |key: &'static str, count: usize| {
            let items = members.need(key)?.items(count, count)?;
            let rows = items.iter().map(|item| self.expression(item)).collect::<Checked<Vec<_>>>()?;
            Ok((key, Json::Array(rows)))
        };
        let lists = [
            list("global_dims", rank)?,
            list("global_strides", rank - 1)?,
            list("box_dims", rank)?,
            list("element_strides", rank)?,
        ];
        let choice = |key: &'static str, choices: &[&'static str]| {
            Ok((key, text(members.need(key)?.one_of(choices)?)))
        };
        let choices = [
            choice(
                "element_type",
                &[
                    "u8", "u16", "u32", "i32", "i64", "f16", "f32", "f64", "bf16", "tf32", "tf32_32b",
                    "f8e4m3", "f8e5m2",
                ],
            )?,
            choice("interleave", &["none", "interleave_16b", "interleave_32b"])?,
            choice(
                "swizzle",
                &["none", "swizzle_32b", "swizzle_64b", "swizzle_128b", "swizzle_128b_atom_32b"],
            )?,
            choice("l2_promotion", &["none", "l2_64b", "l2_128b", "l2_256b"])?,
            choice("oob_fill", &["none", "zero", "nan_request_zero_fma"])?,
        ];
        Ok(Json::object([("binding", binding)].into_iter().chain(lists).chain(choices)))
    }
}

fn attributes(members: &Members<'_>) -> Checked<Json> {
    const MODES: [&str; 3] = ["default", "require_portable", "allow_non_portable"];
    let flags = ["cooperative", "programmatic_stream_serialization"];
    let modes = ["portable_cluster_mode", "shared_memory_mode"];
    members.only(&[], &[flags[0], flags[1], "priority", "cluster_scheduling", modes[0], modes[1]])?;
    let mut row = Vec::new();
    for key in flags {
        let value = members.get(key).map_or(Ok(false), |node| node.boolean())?;
        row.push((key, Json::Bool(value)));
    }
    let priority = match members.given("priority") {
        Some(node) => int(node.integer(i64::from(i32::MIN), i64::from(i32::MAX))?),
        None => Json::Null,
    };
    row.push(("priority", priority));
    let mut choice = |key: &'static str, choices: &[&'static str]| -> Checked<()> {
        let value = members.get(key).map_or(Ok(None), |node| node.optional_one_of(choices))?;
        row.push((key, value.map_or(Json::Null, text)));
        Ok(())
    };
    choice("cluster_scheduling", &["default", "spread", "load_balancing"])?;
    modes.into_iter().try_for_each(|key| choice(key, &MODES))?;
    Ok(Json::object(row))
}
