//! Slot contracts: what a call site promises and how its output is judged.

use crate::ids::TargetId;
use crate::text::object;
use cacheon_identity::decimal::Decimal;
use cacheon_identity::{Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json};

const CONTRACT: Domain = Domain::with_members("cacheon.target-contract", SlotContract::MEMBERS);
const ATOMIC_CONTRACT: Domain = Domain::with_members(
    "cacheon.atomic-target-contract",
    &["atomic_semantics_id", "member_contract_digests", "schema_version", "target_id"],
);

pub(super) fn slot_digest(contract: &Json) -> Digest {
    CONTRACT.digest(contract)
}

pub(super) fn atomic_digest(target: &TargetId, semantics: &str, members: &[Digest]) -> Digest {
    ATOMIC_CONTRACT.digest(&object(|o| {
        o.field("atomic_semantics_id", semantics)
            .field("member_contract_digests", members)
            .field("schema_version", &1u8)
            .field("target_id", target);
    }))
}

/// How one output is compared with its reference (spec 10 §11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorrectnessMode {
    /// Every element within tolerance.
    AllClose,
    /// A share of the elements within tolerance.
    MatchedRatio,
    /// Cosine of the flattened outputs, with an optional norm guard.
    Cosine,
    /// Overlap of the top-k sets.
    TopkOverlap,
}

/// The bars of a comparison; decimals are plain text without exponent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correctness {
    /// The comparison.
    pub mode: CorrectnessMode,
    /// How many of the largest count, for top-k overlap.
    pub top_k: u64,
    /// Least share within tolerance.
    pub min_ratio: Decimal,
    /// Least cosine.
    pub min_cosine: Decimal,
    /// Greatest relative error of the norm; zero means no guard.
    pub max_rel_norm_err: Decimal,
    /// Least top-k overlap.
    pub min_overlap: Decimal,
}

/// What counts as equal for one dtype: `|error| <= atol + rtol * |expected|`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tolerance {
    /// The dtype, for example `float32`.
    pub dtype: String,
    /// Absolute part.
    pub atol: Decimal,
    /// Relative part.
    pub rtol: Decimal,
}

/// The contract of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotContract {
    /// The slot.
    pub slot: TargetId,
    /// `op`, `block` or `collective`.
    pub kind: String,
    /// The conventional entry name.
    pub entry: String,
    /// The conventional prepare name, where the slot has a prepare step.
    pub prepare: Option<String>,
    /// Inputs whose content changes under a captured graph.
    pub graph_dynamic_inputs: Vec<String>,
    /// Input ABI.
    pub input_abi: String,
    /// Output ABI.
    pub output_abi: String,
    /// The reference computation.
    pub reference: String,
    /// The verification profile.
    pub verification_profile: String,
    /// The binding at the call site.
    pub binding_family: String,
    /// How outputs are compared.
    pub correctness: Correctness,
    /// Tolerances by dtype.
    pub tolerances: Vec<Tolerance>,
    /// Greatest KL divergence at the sampler, where the slot is held to one.
    pub kl_threshold: Option<Decimal>,
}

impl SlotContract {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "binding_family_id",
        "correctness",
        "entry",
        "graph_dynamic_inputs",
        "input_abi_id",
        "kind",
        "kl_threshold",
        "output_abi_id",
        "prepare",
        "reference_id",
        "schema_version",
        "slot_id",
        "tolerances",
        "verification_profile_id",
    ];
}

/// A decimal of a contract, as it stands in error messages.
const DECIMAL: &str = "contract numbers are plain decimals without exponent or trailing zeros";
/// A mode, as it stands in error messages.
const MODE: &str = "a correctness mode is allclose, matched_ratio, cosine or topk_overlap";

fn decimal(json: &Json) -> Result<Decimal, DecodeError> {
    let text = json.as_str().unwrap_or_default();
    Decimal::parse(text).map_err(|_| DecodeError::invalid(DECIMAL, json))
}

fn decimal_in(fields: &mut Fields<'_>, name: &str) -> Result<Decimal, DecodeError> {
    let member = fields.take(name)?;
    decimal(member.json()).map_err(|error| error.within(name))
}

impl Decode for CorrectnessMode {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Ok(match json.as_str() {
            Some("allclose") => Self::AllClose,
            Some("matched_ratio") => Self::MatchedRatio,
            Some("cosine") => Self::Cosine,
            Some("topk_overlap") => Self::TopkOverlap,
            _ => return Err(DecodeError::invalid(MODE, json)),
        })
    }
}

impl Decode for Correctness {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let names = ["max_rel_norm_err", "min_cosine", "min_overlap", "min_ratio", "mode", "top_k"];
        let mut fields = Fields::closed(json, &names)?;
        Ok(Self {
            mode: fields.decode("mode")?,
            top_k: fields.take("top_k")?.as_u64()?,
            min_ratio: decimal_in(&mut fields, "min_ratio")?,
            min_cosine: decimal_in(&mut fields, "min_cosine")?,
            max_rel_norm_err: decimal_in(&mut fields, "max_rel_norm_err")?,
            min_overlap: decimal_in(&mut fields, "min_overlap")?,
        })
    }
}

impl Decode for Tolerance {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["atol", "dtype", "rtol"])?;
        Ok(Self {
            dtype: fields.decode("dtype")?,
            atol: decimal_in(&mut fields, "atol")?,
            rtol: decimal_in(&mut fields, "rtol")?,
        })
    }
}

impl Decode for SlotContract {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("schema_version")?.exactly_int(1)?;
        let kl = fields.take("kl_threshold")?;
        let kl_threshold = match kl.json() {
            Json::Null => None,
            other => Some(decimal(other).map_err(|error| error.within("kl_threshold"))?),
        };
        let kind = fields.take("kind")?;
        if !matches!(kind.as_str()?, "op" | "block" | "collective") {
            let rule = "a slot is an op, a block or a collective";
            return Err(kind.error(DecodeKind::invalid(rule, kind.json())));
        }
        Ok(Self {
            slot: fields.decode("slot_id")?,
            kind: kind.decode()?,
            entry: fields.decode("entry")?,
            prepare: fields.decode("prepare")?,
            graph_dynamic_inputs: fields.decode("graph_dynamic_inputs")?,
            input_abi: fields.decode("input_abi_id")?,
            output_abi: fields.decode("output_abi_id")?,
            reference: fields.decode("reference_id")?,
            verification_profile: fields.decode("verification_profile_id")?,
            binding_family: fields.decode("binding_family_id")?,
            correctness: fields.decode("correctness")?,
            tolerances: fields.decode("tolerances")?,
            kl_threshold,
        })
    }
}
