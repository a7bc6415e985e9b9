//! Field names and values in their canonical spelling.

use super::CapabilityError;
use crate::text::strip;
use cacheon_identity::Int;
use std::fmt;

/// Fields whose values are integers >= 0.
pub const NUMERIC: [&str; 19] = [
    "alignment",
    "batch_size",
    "block_size",
    "ep_size",
    "exp_tokens",
    "head_dim",
    "hidden_dim",
    "intermediate_dim",
    "kv_len",
    "last_dim",
    "num_experts",
    "num_kv_heads",
    "num_q_heads",
    "num_tokens",
    "page_size",
    "q_len",
    "top_k",
    "tp_size",
    "world_size",
];

/// Fields whose values are text.
pub const TEXT: [&str; 8] =
    ["architecture", "dtype", "graph_mode", "layout", "model", "phase", "quant", "runtime"];

/// A value of a descriptor or a predicate. Text sorts after integers, booleans first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scalar {
    /// Only in descriptor fields outside the two tables.
    Bool(bool),
    /// An integer of any size.
    Int(Int),
    /// Canonical text.
    Text(String),
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Scalar {
    fn from(value: u64) -> Self {
        Self::Int(Int::from(value))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(out, "{value}"),
            Self::Int(value) => write!(out, "{value}"),
            Self::Text(value) => out.write_str(value),
        }
    }
}

/// Whether the field takes integers.
#[must_use]
pub fn is_numeric(field: &str) -> bool {
    NUMERIC.contains(&field)
}

/// Whether the field is in one of the two tables.
#[must_use]
pub fn is_known(field: &str) -> bool {
    is_numeric(field) || TEXT.contains(&field)
}

/// The canonical spelling of a field name.
///
/// # Errors
/// A name that does not match `[a-z][a-z0-9_]*` after folding.
pub fn canonical_name(name: &str) -> Result<String, CapabilityError> {
    let folded = strip(name).to_lowercase().replace('-', "_");
    let canonical = match folded.as_str() {
        "arch" => "architecture",
        "dtype_name" => "dtype",
        "ep" => "ep_size",
        "tp" => "tp_size",
        "world" | "worldsize" => "world_size",
        other => other,
    };
    let mut bytes = canonical.bytes();
    let well_formed = bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if well_formed {
        Ok(canonical.to_owned())
    } else {
        let shown: String = name.chars().take(80).collect();
        Err(CapabilityError::new(shown, "a field name is a letter, then letters, digits and `_`"))
    }
}

/// The canonical spelling of a text value.
///
/// # Errors
/// Empty text.
pub fn canonical_text(field: &str, value: &str) -> Result<String, CapabilityError> {
    let stripped = strip(value);
    let canonical = match field {
        "model" => stripped.to_owned(),
        _ if !TEXT.contains(&field) => stripped.to_owned(),
        "dtype" => {
            let lower = stripped.to_lowercase();
            match lower.as_str() {
                "bf16" | "torch.bfloat16" => "bfloat16".to_owned(),
                "fp16" | "torch.float16" => "float16".to_owned(),
                "fp32" | "torch.float32" => "float32".to_owned(),
                other => other.replace('-', "_"),
            }
        }
        _ => {
            let folded = stripped.to_lowercase().replace('-', "_");
            match (field, folded.as_str()) {
                ("architecture", text) if text.starts_with("sm_") => format!("sm{}", &text[3..]),
                ("graph_mode", "capture" | "capturing" | "graph" | "graphs_on" | "on" | "replay") => {
                    "cuda_graph".to_owned()
                }
                ("graph_mode", "graphs_off" | "off") => "eager".to_owned(),
                ("phase", "extend") => "prefill".to_owned(),
                ("quant", "none" | "unquantized") => "dense".to_owned(),
                _ => folded,
            }
        }
    };
    if canonical.is_empty() {
        return Err(CapabilityError::new(field, "the text is empty"));
    }
    Ok(canonical)
}

/// The canonical value of a field that is already canonically named.
///
/// # Errors
/// A value of the wrong kind, a negative number in a numeric field, empty text.
pub fn canonical_value(field: &str, value: &Scalar) -> Result<Scalar, CapabilityError> {
    match value {
        Scalar::Int(number) if is_numeric(field) && !number.is_negative() => Ok(value.clone()),
        _ if is_numeric(field) => Err(CapabilityError::new(field, format!("{value} is not an integer >= 0"))),
        Scalar::Text(text) => canonical_text(field, text).map(Scalar::Text),
        other if TEXT.contains(&field) => Err(CapabilityError::new(field, format!("{other} is not text"))),
        other => Ok(other.clone()),
    }
}
