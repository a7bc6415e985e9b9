//! Device launch plans: kernels, and launches whose every number is a checked expression.

use super::binding::{Binding, BindingKind};
use super::plain::{Plain, Row};
use super::{ArtifactError, Class};
use cacheon_identity::{Digest, Domain, Json, hexfloat};
use std::collections::{BTreeMap, BTreeSet};

const PLAN: Domain = Domain::with_members("cacheon.device-launch-plan", &["kernels", "launches", "schema"]);
const PLAN_SCHEMA: &str = "cacheon.device-launch-plan.v1";
const EXPRESSION_SCHEMA: &str = "cacheon.cuda-expression-dag.v1";

const MAX_KERNELS: usize = 1024;
const MAX_LAUNCHES: usize = 256;
const MAX_PARAMETERS: usize = 256;
const MAX_PARAMETER_BYTES: i128 = 4096;
const MAX_NODES: usize = 128;
const MAX_OPERANDS: usize = 8;
const MAX_AXIS: i128 = 15;
const MAX_FIELDS: usize = 64;
const MAX_TMA_RANK: usize = 5;
pub(super) const MAX_BINDINGS: usize = 64;

/// Scalar types of kernel parameters, with their width in bytes.
const SCALARS: [(&str, i128); 12] = [
    ("bool", 1),
    ("i8", 1),
    ("u8", 1),
    ("i16", 2),
    ("u16", 2),
    ("f16", 2),
    ("i32", 4),
    ("u32", 4),
    ("f32", 4),
    ("i64", 8),
    ("u64", 8),
    ("f64", 8),
];
const SCALAR_NAMES: [&str; 12] =
    ["bool", "i8", "u8", "i16", "u16", "f16", "i32", "u32", "f32", "i64", "u64", "f64"];
const TMA_ELEMENTS: [&str; 13] =
    ["u8", "u16", "u32", "i32", "i64", "f16", "f32", "f64", "bf16", "tf32", "tf32_32b", "f8e4m3", "f8e5m2"];
const INTERLEAVE: [&str; 3] = ["none", "interleave_16b", "interleave_32b"];
const SWIZZLE: [&str; 5] = ["none", "swizzle_32b", "swizzle_64b", "swizzle_128b", "swizzle_128b_atom_32b"];
const L2_PROMOTION: [&str; 4] = ["none", "l2_64b", "l2_128b", "l2_256b"];
const OOB_FILL: [&str; 3] = ["none", "zero", "nan_request_zero_fma"];
const CLUSTER_SCHEDULING: [&str; 3] = ["default", "spread", "load_balancing"];
const PORTABILITY: [&str; 3] = ["default", "require_portable", "allow_non_portable"];
const GROUP_PROJECTIONS: [&str; 2] = ["native_handle", "peer_ptr_table"];

/// What a plan's mention of a binding must find there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Scalar,
    Tensor,
    Address,
    Stream,
    Group(&'static str),
}

/// A plan that follows every rule of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePlan {
    canonical: Plain,
    uses: Vec<(usize, Need, String)>,
    capabilities: BTreeSet<&'static str>,
}

impl DevicePlan {
    /// Reads a plan; bindings are joined later, by [`DevicePlan::join`].
    ///
    /// # Errors
    /// The first rule broken.
    pub fn read(value: &Plain, path: &str) -> Result<Self, ArtifactError> {
        let row = Row::open(value, path, Class::DevicePlan, &["kernels", "launches", "schema"])?;
        if row.text("schema")? != PLAN_SCHEMA {
            return row.refuse("schema", format!("the schema is {PLAN_SCHEMA}"));
        }
        let mut reader = Reader { uses: Vec::new(), capabilities: BTreeSet::new(), kernels: BTreeMap::new() };
        let kernels = reader.kernels(&row)?;
        let mut launches = Vec::new();
        for (index, value) in row.array("launches", 1, MAX_LAUNCHES)?.iter().enumerate() {
            let at = format!("{}[{index}]", row.at("launches"));
            launches.push(reader.launch(value, &at, index)?);
        }
        let canonical = Plain::table([
            ("kernels", Plain::Array(kernels)),
            ("launches", Plain::Array(launches)),
            ("schema", PLAN_SCHEMA.into()),
        ]);
        Ok(Self { canonical, uses: reader.uses, capabilities: reader.capabilities })
    }

    /// The canonical form: every member written, null when absent.
    #[must_use]
    pub fn canonical(&self) -> &Plain {
        &self.canonical
    }

    /// The plan's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PLAN.digest(&self.canonical.to_json())
    }

    /// The canonical form as JSON.
    #[must_use]
    pub fn to_json(&self) -> Json {
        self.canonical.to_json()
    }

    /// What a device must be able to do, sorted.
    #[must_use]
    pub fn required_capabilities(&self) -> &BTreeSet<&'static str> {
        &self.capabilities
    }

    /// Checks every binding index against the export's bindings.
    pub(super) fn join(&self, bindings: &[Binding]) -> Result<(), ArtifactError> {
        for (index, need, path) in &self.uses {
            let refuse = |problem: String| Err(ArtifactError::new(Class::DevicePlan, path.clone(), problem));
            let Some(binding) = bindings.get(*index) else {
                return refuse(format!("binding {index} does not exist"));
            };
            let fits = match need {
                Need::Scalar => binding.kind() == BindingKind::Scalar,
                Need::Tensor => binding.kind() == BindingKind::Tensor,
                Need::Address => {
                    matches!(binding.kind(), BindingKind::Pointer | BindingKind::Tensor | BindingKind::Opaque)
                }
                Need::Stream => binding.kind() == BindingKind::Stream,
                Need::Group(_) => binding.kind() == BindingKind::Group,
            };
            if !fits {
                return refuse(format!("binding {index} is of kind `{}`", binding.kind().as_str()));
            }
            if let Need::Group(projection) = need
                && !binding.group_grants(projection)
            {
                return refuse(format!("the group of binding {index} does not list `{projection}`"));
            }
        }
        Ok(())
    }
}

struct Reader {
    uses: Vec<(usize, Need, String)>,
    capabilities: BTreeSet<&'static str>,
    kernels: BTreeMap<String, Vec<i128>>,
}

fn width(scalar: &str) -> i128 {
    SCALARS.iter().find(|(name, _)| *name == scalar).map_or(0, |(_, width)| *width)
}

fn is_symbol(text: &str) -> bool {
    let start = |b: u8| b.is_ascii_alphabetic() || b"_.$".contains(&b);
    text.len() <= 4096
        && text.bytes().next().is_some_and(start)
        && text.bytes().all(|b| start(b) || b.is_ascii_digit() || b == b'@')
}

fn optional(value: Option<i128>) -> Plain {
    value.map_or(Plain::Null, Plain::Int)
}

fn choice_or_null(row: &Row<'_>, key: &str, choices: &[&'static str]) -> Result<Plain, ArtifactError> {
    if row.get(key).is_some() { row.choice(key, choices).map(Plain::from) } else { Ok(Plain::Null) }
}

impl Reader {
    fn binding(&mut self, row: &Row<'_>, key: &str, need: Need) -> Result<Plain, ArtifactError> {
        let index = row.int(key, 0, MAX_BINDINGS as i128 - 1)?;
        self.uses.push((usize::try_from(index).unwrap_or(usize::MAX), need, row.at(key)));
        Ok(Plain::Int(index))
    }

    fn kernels(&mut self, plan: &Row<'_>) -> Result<Vec<Plain>, ArtifactError> {
        let mut out = Vec::new();
        let mut last: Option<&str> = None;
        for (index, value) in plan.array("kernels", 1, MAX_KERNELS)?.iter().enumerate() {
            let at = format!("{}[{index}]", plan.at("kernels"));
            let row = Row::open(value, &at, Class::DevicePlan, &["name", "parameter_sizes"])?;
            let name = row.text("name")?;
            if !is_symbol(name) {
                return row
                    .refuse("name", "a kernel name is a letter or one of `_.$`, then those, digits and `@`");
            }
            if last.is_some_and(|last| last >= name) {
                return row.refuse("name", format!("kernel `{name}` stands out of order or twice"));
            }
            last = Some(name);
            let mut sizes = Vec::new();
            for size in row.array("parameter_sizes", 0, MAX_PARAMETERS)? {
                match size {
                    Plain::Int(size) if (1..=MAX_PARAMETER_BYTES).contains(size) => sizes.push(*size),
                    _ => return row.refuse("parameter_sizes", "a parameter has 1 to 4096 bytes"),
                }
            }
            let listed = sizes.iter().copied().map(Plain::Int).collect();
            out.push(Plain::table([("name", name.into()), ("parameter_sizes", Plain::Array(listed))]));
            self.kernels.insert(name.to_owned(), sizes);
        }
        Ok(out)
    }

    fn launch(&mut self, value: &Plain, path: &str, ordinal: usize) -> Result<Plain, ArtifactError> {
        let known = [
            "attributes",
            "block",
            "cluster",
            "grid",
            "kernel",
            "ordinal",
            "parameters",
            "shared_mem_bytes",
            "stream_binding",
        ];
        let row = Row::open(value, path, Class::DevicePlan, &known)?;
        let expected = ordinal as i128;
        row.int("ordinal", expected, expected)?;
        let kernel = row.text("kernel")?;
        let Some(sizes) = self.kernels.get(kernel).cloned() else {
            return row.refuse("kernel", "the plan declares no such kernel");
        };
        let grid = self.dimensions(&row, "grid")?;
        let block = self.dimensions(&row, "block")?;
        let cluster =
            if row.get("cluster").is_some() { self.dimensions(&row, "cluster")? } else { Plain::Null };
        let shared = self.expression(row.need("shared_mem_bytes")?, &row.at("shared_mem_bytes"))?;
        let mut parameters = Vec::new();
        for (index, value) in row.array("parameters", 0, MAX_PARAMETERS)?.iter().enumerate() {
            let at = format!("{}[{index}]", row.at("parameters"));
            let (parameter, size) = self.parameter(value, &at)?;
            if sizes.get(index) != Some(&size) {
                return Err(ArtifactError::new(
                    Class::DevicePlan,
                    at,
                    "the width is not that of the kernel's parameter",
                ));
            }
            parameters.push(parameter);
        }
        if parameters.len() != sizes.len() {
            return row.refuse("parameters", format!("the kernel takes {} parameters", sizes.len()));
        }
        // The key is required; only JSON can say null.
        let stream = match row.members.get("stream_binding") {
            None => return row.refuse("stream_binding", "the field is missing"),
            Some(Plain::Null) => Plain::Null,
            Some(_) => self.binding(&row, "stream_binding", Need::Stream)?,
        };
        Ok(Plain::table([
            ("attributes", attributes(row.need("attributes")?, &row.at("attributes"))?),
            ("block", block),
            ("cluster", cluster),
            ("grid", grid),
            ("kernel", kernel.into()),
            ("ordinal", Plain::Int(expected)),
            ("parameters", Plain::Array(parameters)),
            ("shared_mem_bytes", shared),
            ("stream_binding", stream),
        ]))
    }

    fn dimensions(&mut self, launch: &Row<'_>, key: &str) -> Result<Plain, ArtifactError> {
        let row = Row::open(launch.need(key)?, &launch.at(key), Class::DevicePlan, &["x", "y", "z"])?;
        let mut axis = |name: &str| self.expression(row.need(name)?, &row.at(name));
        Ok(Plain::table([("x", axis("x")?), ("y", axis("y")?), ("z", axis("z")?)]))
    }

    fn expression(&mut self, value: &Plain, path: &str) -> Result<Plain, ArtifactError> {
        let row = Row::open(value, path, Class::DevicePlan, &["nodes", "result", "schema"])?;
        if row.text("schema")? != EXPRESSION_SCHEMA {
            return row.refuse("schema", format!("the schema is {EXPRESSION_SCHEMA}"));
        }
        let nodes = row.array("nodes", 1, MAX_NODES)?;
        let mut out = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            out.push(self.node(node, &format!("{}[{index}]", row.at("nodes")), index)?);
        }
        let result = row.int("result", 0, nodes.len() as i128 - 1)?;
        Ok(Plain::table([
            ("nodes", Plain::Array(out)),
            ("result", Plain::Int(result)),
            ("schema", EXPRESSION_SCHEMA.into()),
        ]))
    }

    fn node(&mut self, value: &Plain, path: &str, index: usize) -> Result<Plain, ArtifactError> {
        let row = Row::open(value, path, Class::DevicePlan, &["axis", "binding", "op", "operands", "value"])?;
        let op = row.text("op")?;
        let (mut axis, mut binding, mut operands, mut constant) =
            (Plain::Null, Plain::Null, Vec::new(), Plain::Null);
        let arguments = |low: usize, high: usize| -> Result<Vec<Plain>, ArtifactError> {
            row.only(&["op", "operands"])?;
            let listed = row.array("operands", low, high)?;
            for operand in listed {
                match operand {
                    Plain::Int(at) if (0..index as i128).contains(at) => {}
                    _ => return row.refuse("operands", "an operand refers to an earlier node"),
                }
            }
            Ok(listed.to_vec())
        };
        match op {
            "const" => {
                row.only(&["op", "value"])?;
                constant = constant_value(&row)?;
            }
            "binding_scalar" => {
                row.only(&["op", "binding"])?;
                binding = self.binding(&row, "binding", Need::Scalar)?;
            }
            "tensor_dim" | "tensor_stride" => {
                row.only(&["op", "binding", "axis"])?;
                binding = self.binding(&row, "binding", Need::Tensor)?;
                axis = Plain::Int(row.int("axis", 0, MAX_AXIS)?);
            }
            "tensor_numel" | "tensor_storage_offset" | "tensor_element_size" => {
                row.only(&["op", "binding"])?;
                binding = self.binding(&row, "binding", Need::Tensor)?;
            }
            "neg" | "not" => operands = arguments(1, 1)?,
            "add" | "sub" | "mul" | "floor_div" | "ceil_div" | "mod" | "eq" | "ne" | "lt" | "le" | "gt"
            | "ge" | "and" | "or" => operands = arguments(2, 2)?,
            "min" | "max" => operands = arguments(1, MAX_OPERANDS)?,
            "select" => operands = arguments(3, 3)?,
            _ => return row.refuse("op", "no such operation"),
        }
        Ok(Plain::table([
            ("axis", axis),
            ("binding", binding),
            ("op", op.into()),
            ("operands", Plain::Array(operands)),
            ("value", constant),
        ]))
    }

    fn parameter(&mut self, value: &Plain, path: &str) -> Result<(Plain, i128), ArtifactError> {
        let known =
            ["binding", "expression", "fields", "group_projection", "kind", "scalar_type", "size", "tma"];
        let row = Row::open(value, path, Class::DevicePlan, &known)?;
        let kind = row.text("kind")?;
        let size = row.int("size", 1, MAX_PARAMETER_BYTES)?;
        self.capabilities.insert("cuda.checked_expression.v1");
        let (mut binding, mut expression, mut fields, mut group, mut scalar, mut tma) =
            (Plain::Null, Plain::Null, Vec::new(), Plain::Null, Plain::Null, Plain::Null);
        let used: &[&str];
        let mut fixed = None;
        match kind {
            "pointer" => {
                (used, fixed) = (&["kind", "size", "binding"], Some(8));
                binding = self.binding(&row, "binding", Need::Address)?;
            }
            "scalar" => {
                used = &["kind", "size", "scalar_type", "expression"];
                let name = row.choice("scalar_type", &SCALAR_NAMES)?;
                fixed = Some(width(name));
                scalar = name.into();
                expression = self.expression(row.need("expression")?, &row.at("expression"))?;
            }
            "packed_struct" => {
                used = &["kind", "size", "fields"];
                self.capabilities.insert("cuda.packed_struct.v1");
                fields = self.packed(&row, size)?;
            }
            "tma_descriptor" => {
                (used, fixed) = (&["kind", "size", "tma"], Some(128));
                self.capabilities.insert("cuda.tma_descriptor.v1");
                tma = self.tma(row.need("tma")?, &row.at("tma"))?;
            }
            "cutlass_fast_divmod_i32_v1" | "cute_fast_divmod_i32_v1" => {
                (used, fixed) = (&["kind", "size", "expression"], Some(12));
                let cutlass = kind.starts_with("cutlass");
                let name = if cutlass { "cutlass.fast_divmod.i32.v1" } else { "cute.fast_divmod.i32.v1" };
                self.capabilities.insert(name);
                expression = self.expression(row.need("expression")?, &row.at("expression"))?;
            }
            "group_handle" => {
                (used, fixed) = (&["kind", "size", "binding", "group_projection"], Some(8));
                let projection = row.choice("group_projection", &GROUP_PROJECTIONS)?;
                self.capabilities.insert(super::group_capability(projection));
                binding = self.binding(&row, "binding", Need::Group(projection))?;
                group = projection.into();
            }
            _ => return row.refuse("kind", "no such parameter kind"),
        }
        row.only(used)?;
        if fixed.is_some_and(|fixed| fixed != size) {
            return row.refuse("size", format!("this parameter has {} bytes", fixed.unwrap_or(size)));
        }
        let parameter = Plain::table([
            ("binding", binding),
            ("expression", expression),
            ("fields", Plain::Array(fields)),
            ("group_projection", group),
            ("kind", kind.into()),
            ("scalar_type", scalar),
            ("size", Plain::Int(size)),
            ("tma", tma),
        ]);
        Ok((parameter, size))
    }

    fn packed(&mut self, parameter: &Row<'_>, size: i128) -> Result<Vec<Plain>, ArtifactError> {
        let mut out = Vec::new();
        let mut taken: Vec<(i128, i128)> = Vec::new();
        for (index, value) in parameter.array("fields", 1, MAX_FIELDS)?.iter().enumerate() {
            let at = format!("{}[{index}]", parameter.at("fields"));
            let known = ["data_hex", "expression", "offset", "scalar_type", "tensor_binding"];
            let row = Row::open(value, &at, Class::DevicePlan, &known)?;
            let offset = row.int("offset", 0, size - 1)?;
            let (mut data, mut expression, mut scalar, mut tensor) =
                (Plain::Null, Plain::Null, Plain::Null, Plain::Null);
            let bytes;
            if let Some(hex) = row.optional_text("data_hex")? {
                row.only(&["offset", "data_hex"])?;
                let lower = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if hex.is_empty() || hex.len() % 2 != 0 || !lower {
                    return row.refuse("data_hex", "data is pairs of lowercase hexadecimal digits");
                }
                bytes = hex.len() as i128 / 2;
                data = hex.into();
            } else if row.get("tensor_binding").is_some() {
                row.only(&["offset", "tensor_binding"])?;
                bytes = 8;
                tensor = self.binding(&row, "tensor_binding", Need::Tensor)?;
            } else {
                row.only(&["offset", "scalar_type", "expression"])?;
                let name = row.choice("scalar_type", &SCALAR_NAMES)?;
                bytes = width(name);
                scalar = name.into();
                expression = self.expression(row.need("expression")?, &row.at("expression"))?;
            }
            let (start, end) = (offset, offset + bytes);
            if end > size {
                return row.refuse("offset", format!("the field ends at {end}, the parameter at {size}"));
            }
            if taken.iter().any(|(from, to)| start < *to && *from < end) {
                return row.refuse("offset", "two fields overlap");
            }
            taken.push((start, end));
            out.push(Plain::table([
                ("data_hex", data),
                ("expression", expression),
                ("offset", Plain::Int(offset)),
                ("scalar_type", scalar),
                ("tensor_binding", tensor),
            ]));
        }
        Ok(out)
    }

    fn tma(&mut self, value: &Plain, path: &str) -> Result<Plain, ArtifactError> {
        let known = [
            "binding",
            "box_dims",
            "element_strides",
            "element_type",
            "global_dims",
            "global_strides",
            "interleave",
            "l2_promotion",
            "oob_fill",
            "swizzle",
        ];
        let row = Row::open(value, path, Class::DevicePlan, &known)?;
        let binding = self.binding(&row, "binding", Need::Tensor)?;
        let rank = row.array("global_dims", 1, MAX_TMA_RANK)?.len();
        let mut list = |key: &str, length: usize| -> Result<Plain, ArtifactError> {
            let values = row.array(key, length, length)?;
            let read = |(index, value)| self.expression(value, &format!("{}[{index}]", row.at(key)));
            values.iter().enumerate().map(read).collect::<Result<_, _>>().map(Plain::Array)
        };
        Ok(Plain::table([
            ("binding", binding),
            ("box_dims", list("box_dims", rank)?),
            ("element_strides", list("element_strides", rank)?),
            ("element_type", row.choice("element_type", &TMA_ELEMENTS)?.into()),
            ("global_dims", list("global_dims", rank)?),
            ("global_strides", list("global_strides", rank - 1)?),
            ("interleave", row.choice("interleave", &INTERLEAVE)?.into()),
            ("l2_promotion", row.choice("l2_promotion", &L2_PROMOTION)?.into()),
            ("oob_fill", row.choice("oob_fill", &OOB_FILL)?.into()),
            ("swizzle", row.choice("swizzle", &SWIZZLE)?.into()),
        ]))
    }
}

fn constant_value(row: &Row<'_>) -> Result<Plain, ArtifactError> {
    match row.need("value")? {
        Plain::Int(value) if i64::try_from(*value).is_ok() => Ok(Plain::Int(*value)),
        Plain::Bool(value) => Ok(Plain::Bool(*value)),
        value @ Plain::Table(_) => {
            let inner = Row::open(value, &row.at("value"), Class::DevicePlan, &["f64_hex"])?;
            let text = inner.text("f64_hex")?;
            match hexfloat::parse(text) {
                Ok(_) => Ok(value.clone()),
                Err(error) => inner.refuse("f64_hex", error.to_string()),
            }
        }
        _ => row.refuse("value", "a constant is a boolean, a 64-bit integer or {\"f64_hex\": …}"),
    }
}

fn attributes(value: &Plain, path: &str) -> Result<Plain, ArtifactError> {
    let known = [
        "cluster_scheduling",
        "cooperative",
        "portable_cluster_mode",
        "priority",
        "programmatic_stream_serialization",
        "shared_memory_mode",
    ];
    let row = Row::open(value, path, Class::DevicePlan, &known)?;
    let priority = row.optional_int("priority", i128::from(i32::MIN), i128::from(i32::MAX))?;
    Ok(Plain::table([
        ("cluster_scheduling", choice_or_null(&row, "cluster_scheduling", &CLUSTER_SCHEDULING)?),
        ("cooperative", Plain::Bool(row.flag("cooperative")?)),
        ("portable_cluster_mode", choice_or_null(&row, "portable_cluster_mode", &PORTABILITY)?),
        ("priority", optional(priority)),
        ("programmatic_stream_serialization", Plain::Bool(row.flag("programmatic_stream_serialization")?)),
        ("shared_memory_mode", choice_or_null(&row, "shared_memory_mode", &PORTABILITY)?),
    ]))
}
