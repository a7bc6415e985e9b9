//! Expressions of a device plan: small graphs whose nodes look back only.

use super::plan::{Use, Uses};
use super::value::{Checked, Members, Node, Val, int, text};
use cacheon_identity::{Int, Json, hexfloat};

const SCHEMA: &str = "cacheon.cuda-expression-dag.v1";
const MAX_NODES: usize = 128;

const OPS: [&str; 26] = [
    "const",
    "binding_scalar",
    "tensor_dim",
    "tensor_stride",
    "tensor_numel",
    "tensor_storage_offset",
    "tensor_element_size",
    "neg",
    "not",
    "add",
    "sub",
    "mul",
    "floor_div",
    "ceil_div",
    "mod",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "min",
    "max",
    "select",
];

/// Operands of an operation: least and most.
fn arity(op: &str) -> (usize, usize) {
    match op {
        "neg" | "not" => (1, 1),
        "min" | "max" => (1, 8),
        "select" => (3, 3),
        _ => (2, 2),
    }
}

/// Reads an expression into its canonical form.
pub(super) fn read(node: &Node<'_>, uses: &mut Uses) -> Checked<Json> {
    let members = node.table()?;
    members.only(&["nodes", "result", "schema"], &[])?;
    members.need("schema")?.one_of(&[SCHEMA])?;
    let nodes = members.need("nodes")?.items(1, MAX_NODES)?;
    let mut rows = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        rows.push(read_node(&node.table()?, index, uses)?);
    }
    let result = members.need("result")?.integer(0, last(nodes.len()))?;
    Ok(Json::object([("nodes", Json::Array(rows)), ("result", int(result)), ("schema", text(SCHEMA))]))
}

fn last(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX) - 1
}

fn read_node(members: &Members<'_>, index: usize, uses: &mut Uses) -> Checked<Json> {
    members.only(&["op"], &["axis", "binding", "operands", "value"])?;
    let op = members.need("op")?.one_of(&OPS)?;
    let constant = op == "const";
    let leaf = op == "binding_scalar" || op.starts_with("tensor_");
    let axial = matches!(op, "tensor_dim" | "tensor_stride");
    for (key, wanted) in [("value", constant), ("binding", leaf), ("axis", axial)] {
        if members.given(key).is_some() != wanted {
            return members.fail(format!("`{op}` {} `{key}`", if wanted { "needs" } else { "takes no" }));
        }
    }
    let value = match members.given("value") {
        Some(node) => self::constant(&node)?,
        None => Json::Null,
    };
    let binding = match members.given("binding") {
        Some(node) => {
            let needed = if op == "binding_scalar" { Use::Scalar } else { Use::Tensor };
            int(uses.index(&node, needed)?)
        }
        None => Json::Null,
    };
    let axis = match members.given("axis") {
        Some(node) => int(node.integer(0, 15)?),
        None => Json::Null,
    };
    let (least, most) = if constant || leaf { (0, 0) } else { arity(op) };
    let operands = match members.given("operands") {
        Some(node) => {
            let items = node.items(least, most)?;
            items.iter().map(|item| item.integer(0, last(index)).map(int)).collect::<Checked<Vec<_>>>()?
        }
        None if least == 0 => Vec::new(),
        None => return members.fail(format!("`{op}` needs `operands`")),
    };
    Ok(Json::object([
        ("axis", axis),
        ("binding", binding),
        ("op", text(op)),
        ("operands", Json::Array(operands)),
        ("value", value),
    ]))
}

fn constant(node: &Node<'_>) -> Checked<Json> {
    match node.value {
        Val::Bool(value) => Ok(Json::Bool(*value)),
        Val::Int(value) => match Int::try_from(value.clone()).ok().filter(|value| value.to_i64().is_some()) {
            Some(value) => Ok(Json::Int(value)),
            None => node.fail("an integer constant is a signed 64-bit number"),
        },
        Val::Table(_) => {
            let members = node.table()?;
            members.only(&["f64_hex"], &[])?;
            let hex = members.need("f64_hex")?;
            match hexfloat::parse(hex.text()?) {
                Ok(value) if value.is_finite() => Ok(Json::object([("f64_hex", text(hex.text()?))])),
                _ => hex.fail("a float constant is written as a canonical hexadecimal float"),
            }
        }
        _ => node.fail("a constant is a boolean, an integer or {f64_hex = ...}"),
    }
}
