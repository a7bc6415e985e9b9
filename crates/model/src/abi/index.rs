//! `index.json`: what a prebuilt publication's shared object offers.

use super::{Domain, NumericField, NumericSet, Slot, TextField};
use cacheon_identity::decode::{Decode, DecodeError, Fields, Member};
use cacheon_identity::{Int, Json};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Schema of [`KernelIndex`].
const SCHEMA: &str = "cacheon.c-kernel-index.v1";

/// Most ops of one publication.
const MAX_OPS: usize = 256;

/// Longest name of an entry, a variant or a library, in bytes.
const MAX_NAME: usize = 200;

/// Why an index was refused.
#[derive(Debug, Error, PartialEq)]
pub enum IndexError {
    /// Not the closed object this reader knows.
    #[error("the kernel index is malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// Two ops of one slot share a variant name.
    #[error("the kernel index names variant {variant:?} of {slot} twice")]
    Duplicate {
        /// The slot.
        slot: Slot,
        /// The variant.
        variant: String,
    },
}

/// One op of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelOp {
    /// The slot it serves.
    pub slot: Slot,
    /// Variant name, unique within the slot.
    pub variant: String,
    /// Symbol prefix: `<entry>_run` and, optionally, `<entry>_prepare`, `<entry>_destroy`.
    pub entry: String,
    /// Declared domain.
    pub domain: Domain,
}

impl KernelOp {
    /// `<entry>_run`
    #[must_use]
    pub fn run_symbol(&self) -> String {
        format!("{}_run", self.entry)
    }

    /// `<entry>_prepare`
    #[must_use]
    pub fn prepare_symbol(&self) -> String {
        format!("{}_prepare", self.entry)
    }

    /// `<entry>_destroy`
    #[must_use]
    pub fn destroy_symbol(&self) -> String {
        format!("{}_destroy", self.entry)
    }
}

/// What a shared object offers, in manifest order. One slot's variants have distinct names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelIndex {
    library: String,
    ops: Vec<KernelOp>,
}

fn identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && text.len() <= MAX_NAME
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn simple(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text != "."
        && text != ".."
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn numeric_set(member: &Member<'_>) -> Result<NumericSet, DecodeError> {
    let mut fields = Fields::open(member.json()).map_err(|error| error.within(member.name()))?;
    let set = if let Some(values) = fields.optional("one_of") {
        let mut numbers = BTreeSet::new();
        for value in values.as_array()? {
            numbers.insert(value.as_u64().ok_or_else(|| DecodeError::invalid("integers from 0", "one_of"))?);
        }
        NumericSet::OneOf(numbers.into_iter().collect())
    } else {
        let bound = |member: Option<Member<'_>>| member.map(|m| m.as_u64()).transpose();
        NumericSet::Range { min: bound(fields.optional("min"))?, max: bound(fields.optional("max"))? }
    };
    fields.finish().map_err(|error| error.within(member.name()))?;
    Ok(set)
}

fn domain(member: &Member<'_>) -> Result<Domain, DecodeError> {
    let mut domain = Domain::default();
    let mut fields = Fields::open(member.json())?;
    for name in member.as_object()?.keys() {
        if let Some(field) = NumericField::parse(name) {
            domain.numeric.insert(field, numeric_set(&fields.take(name)?)?);
        } else if let Some(field) = TextField::parse(name) {
            let mut values = BTreeSet::new();
            for value in fields.take(name)?.as_array()? {
                let text = value.as_str().ok_or_else(|| DecodeError::invalid("texts", name))?;
                values.insert(text.to_owned());
            }
            domain.text.insert(field, values.into_iter().collect());
        }
    }
    // Whatever was not taken is a field no CPU call has: such a kernel would never run.
    fields.finish()?;
    Ok(domain)
}

impl Decode for KernelOp {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["domain", "entry", "slot", "variant"])?;
        let slot = fields.take("slot")?;
        Ok(Self {
            slot: Slot::parse(slot.as_str()?).ok_or_else(|| {
                DecodeError::invalid("a slot of the CPU catalog", slot.as_str().unwrap_or(""))
            })?,
            variant: fields.take("variant")?.str_where("a simple id", simple)?.to_owned(),
            entry: fields.take("entry")?.str_where("a C identifier", identifier)?.to_owned(),
            domain: domain(&fields.take("domain")?)?,
        })
    }
}

impl KernelIndex {
    /// An index over `ops`, whose shared object has the file name `library`.
    ///
    /// # Errors
    /// Names that are no simple ids or C identifiers, no or too many ops, or a variant twice.
    pub fn new(library: &str, ops: Vec<KernelOp>) -> Result<Self, IndexError> {
        let broken = |rule, value: &str| IndexError::Malformed(DecodeError::invalid(rule, value));
        if !simple(library) {
            return Err(broken("a simple file name", library));
        }
        if ops.is_empty() || ops.len() > MAX_OPS {
            return Err(broken("1 to 256 ops", &ops.len().to_string()));
        }
        let mut seen = BTreeSet::new();
        for op in &ops {
            if !identifier(&op.entry) {
                return Err(broken("a C identifier", &op.entry));
            }
            if !simple(&op.variant) {
                return Err(broken("a simple id", &op.variant));
            }
            if !seen.insert((op.slot, op.variant.as_str())) {
                return Err(IndexError::Duplicate { slot: op.slot, variant: op.variant.clone() });
            }
        }
        Ok(Self { library: library.to_owned(), ops })
    }

    /// Reads `index.json`.
    ///
    /// # Errors
    /// [`IndexError`]: not strict JSON, another schema, an unknown member, slot or domain field, or what
    /// [`KernelIndex::new`] refuses.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        let json = Json::parse(bytes).map_err(|error| IndexError::Malformed(error.into()))?;
        let mut fields = Fields::closed(&json, &["library", "ops", "schema"])?;
        fields.take("schema")?.exactly(SCHEMA)?;
        let library = fields.take("library")?.as_str()?.to_owned();
        let ops = fields.take("ops")?.as_array()?.iter().map(KernelOp::decode).collect::<Result<_, _>>()?;
        Self::new(&library, ops)
    }

    /// The canonical bytes of `index.json`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let text = |value: &str| Json::Str(value.to_owned());
        let number = |value: u64| Json::Int(Int::from(value));
        let domain = |domain: &Domain| {
            let mut members = BTreeMap::new();
            for (field, set) in &domain.numeric {
                let set = match set {
                    NumericSet::OneOf(values) => {
                        Json::object([("one_of", Json::Array(values.iter().copied().map(number).collect()))])
                    }
                    NumericSet::Range { min, max } => Json::object(
                        [("min", min), ("max", max)]
                            .into_iter()
                            .filter_map(|(k, v)| v.map(|v| (k, number(v)))),
                    ),
                };
                members.insert(field.id().to_owned(), set);
            }
            for (field, values) in &domain.text {
                let values = values.iter().map(|v| text(v)).collect();
                members.insert(field.id().to_owned(), Json::Array(values));
            }
            Json::Object(members)
        };
        let ops = self.ops.iter().map(|op| {
            Json::object([
                ("domain", domain(&op.domain)),
                ("entry", text(&op.entry)),
                ("slot", text(op.slot.id())),
                ("variant", text(&op.variant)),
            ])
        });
        Json::object([
            ("library", text(&self.library)),
            ("ops", Json::Array(ops.collect())),
            ("schema", text(SCHEMA)),
        ])
        .to_canonical()
    }

    /// File name of the shared object beside the index.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The ops, in manifest order.
    #[must_use]
    pub fn ops(&self) -> &[KernelOp] {
        &self.ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{CallDescriptor, Phase};

    fn op(variant: &str) -> KernelOp {
        let mut domain = Domain::default();
        domain.numeric.insert(NumericField::NumTokens, NumericSet::Range { min: None, max: Some(4) });
        domain.numeric.insert(NumericField::LastDim, NumericSet::OneOf(vec![64, 576]));
        domain.text.insert(TextField::Quant, vec!["q4_1".to_owned()]);
        KernelOp {
            slot: Slot::LinearQuantized,
            variant: variant.to_owned(),
            entry: "fast".to_owned(),
            domain,
        }
    }

    #[test]
    fn an_index_survives_its_bytes() {
        let index = KernelIndex::new("kernels.so", vec![op("a"), op("b")]).unwrap();
        assert_eq!(KernelIndex::parse(&index.to_bytes()).unwrap(), index);
    }

    #[test]
    fn hostile_indices_are_refused() {
        assert!(matches!(
            KernelIndex::new("kernels.so", vec![op("a"), op("a")]),
            Err(IndexError::Duplicate { .. })
        ));
        for library in ["", "..", "a/b", "a b"] {
            assert!(KernelIndex::new(library, vec![op("a")]).is_err(), "{library}");
        }
        let good = String::from_utf8(KernelIndex::new("k.so", vec![op("a")]).unwrap().to_bytes()).unwrap();
        for (from, to) in [
            ("linear.quantized", "linear.dense"),
            ("\"fast\"", "\"9fast\""),
            ("\"fast\"", "\"fa;st\""),
            ("index.v1", "index.v2"),
            ("\"quant\"", "\"world_size\""),
            ("\"max\"", "\"maximum\""),
            ("\"library\"", "\"extra\":1,\"library\""),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            assert!(KernelIndex::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_domain_fails_closed() {
        let call = CallDescriptor {
            phase: Phase::Decode,
            quant: "q4_1",
            num_tokens: 1,
            last_dim: 576,
            hidden_dim: Some(576),
            intermediate_dim: Some(192),
            attention: None,
        };
        let domain = op("a").domain;
        assert!(domain.contains(&call));
        assert!(!domain.contains(&CallDescriptor { quant: "q8_0", ..call }));
        assert!(!domain.contains(&CallDescriptor { num_tokens: 5, ..call }));
        assert!(!domain.contains(&CallDescriptor { last_dim: 32, ..call }));
        let mut attention = Domain::default();
        attention.numeric.insert(NumericField::KvLen, NumericSet::Range { min: None, max: None });
        assert!(!attention.contains(&call));
        assert!(Domain::default().contains(&call));
    }
}
