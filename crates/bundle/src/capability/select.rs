//! Call descriptors, and which variant serves a call.

use super::field::{Scalar, canonical_name, canonical_value};
use super::{CapabilityError, Domain};
use crate::text::is_simple_id;
use std::collections::BTreeMap;

/// What is known of one call: canonical fields and values. A field that is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor(BTreeMap<String, Scalar>);

impl Descriptor {
    /// A descriptor from raw fields; `None` values are dropped.
    ///
    /// # Errors
    /// A bad name or value, or two spellings of one field that disagree.
    pub fn new<'a>(
        fields: impl IntoIterator<Item = (&'a str, Option<Scalar>)>,
    ) -> Result<Self, CapabilityError> {
        let mut known: BTreeMap<String, Scalar> = BTreeMap::new();
        for (name, value) in fields {
            let field = canonical_name(name)?;
            let Some(value) = value else { continue };
            let value = canonical_value(&field, &value)?;
            match known.get(&field) {
                Some(other) if *other != value => {
                    return Err(CapabilityError::new(
                        field,
                        format!("two spellings disagree: {other} and {value}"),
                    ));
                }
                _ => {
                    known.insert(field, value);
                }
            }
        }
        Ok(Self(known))
    }

    /// The value of a canonical field.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Scalar> {
        self.0.get(field)
    }

    /// Every field, sorted by name.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Scalar)> {
        self.0.iter().map(|(field, value)| (field.as_str(), value))
    }

    /// The sizes of one sparse-prefill scoring call; every size is that of the very call.
    ///
    /// # Errors
    /// A value that its field does not take.
    #[allow(clippy::too_many_arguments)]
    pub fn msa_prefill(
        dtype: &str,
        architecture: Option<&str>,
        head_dim: u64,
        block_size: u64,
        q_len: u64,
        kv_len: u64,
        top_k: u64,
        topology: &[(&str, Option<u64>)],
    ) -> Result<Self, CapabilityError> {
        let mut fields = vec![
            ("dtype", Some(Scalar::from(dtype))),
            ("architecture", architecture.map(Scalar::from)),
            ("head_dim", Some(head_dim.into())),
            ("last_dim", Some(head_dim.into())),
            ("block_size", Some(block_size.into())),
            ("q_len", Some(q_len.into())),
            ("num_tokens", Some(q_len.into())),
            ("kv_len", Some(kv_len.into())),
            ("batch_size", Some(1u64.into())),
            ("num_q_heads", Some(1u64.into())),
            ("num_kv_heads", Some(1u64.into())),
            ("top_k", Some(top_k.into())),
            ("phase", Some("prefill".into())),
            ("layout", Some("row_major".into())),
            ("graph_mode", Some("eager".into())),
            ("quant", Some("dense".into())),
        ];
        fields.extend(topology.iter().map(|(field, value)| (*field, value.map(Scalar::from))));
        Self::new(fields)
    }

    /// The fields of one collective call; `dimensions` are added as they are.
    ///
    /// # Errors
    /// A value that its field does not take, or a dimension that contradicts a fixed field.
    pub fn collective<'a>(
        dtype: &str,
        architecture: Option<&str>,
        graph_mode: &str,
        world_size: u64,
        quant: &str,
        dimensions: impl IntoIterator<Item = (&'a str, Option<Scalar>)>,
    ) -> Result<Self, CapabilityError> {
        let mut fields = vec![
            ("dtype", Some(Scalar::from(dtype))),
            ("architecture", architecture.map(Scalar::from)),
            ("graph_mode", Some(graph_mode.into())),
            ("layout", Some("row_major".into())),
            ("quant", Some(quant.into())),
            ("world_size", Some(world_size.into())),
            ("tp_size", Some(world_size.into())),
        ];
        fields.extend(dimensions);
        Self::new(fields)
    }
}

/// Why a domain does not take a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The constrained field.
    pub field: String,
    /// The call's value; `None` when the descriptor lacks the field (a `missing` mismatch, else `outside_domain`).
    pub actual: Option<Scalar>,
}

impl Mismatch {
    /// `missing` or `outside_domain`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        if self.actual.is_some() { "outside_domain" } else { "missing" }
    }
}

impl Domain {
    /// Every constraint the call fails, in constraint order. Empty = the domain takes the call.
    #[must_use]
    pub fn mismatches(&self, call: &Descriptor) -> Vec<Mismatch> {
        let mut failed = Vec::new();
        for constraint in self.constraints() {
            let actual = call.get(&constraint.field);
            if !actual.is_some_and(|value| constraint.admits(value)) {
                failed.push(Mismatch { field: constraint.field, actual: actual.cloned() });
            }
        }
        if !self.graph_safe
            && let Some(mode) = call.get("graph_mode").filter(|mode| **mode == Scalar::from("cuda_graph"))
        {
            failed.push(Mismatch { field: "graph_mode".to_owned(), actual: Some(mode.clone()) });
        }
        failed
    }

    /// Whether the domain takes the call.
    #[must_use]
    pub fn admits(&self, call: &Descriptor) -> bool {
        self.mismatches(call).is_empty()
    }
}

/// The variants of one slot: names unique, domains not empty and pairwise disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry(Vec<(String, Domain)>);

/// How a selection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Kernels are switched off.
    RegistryInactive,
    /// The slot has no variant.
    SlotUnregistered,
    /// No variant takes the call.
    OutOfDomain,
    /// More than one does.
    Ambiguous,
    /// Exactly one does.
    Selected,
}

impl Outcome {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::RegistryInactive => "registry_inactive",
            Self::SlotUnregistered => "slot_unregistered",
            Self::OutOfDomain => "out_of_domain",
            Self::Ambiguous => "ambiguous",
            Self::Selected => "selected",
        }
    }
}

/// A selection and why every variant took the call or did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// How it ended.
    pub outcome: Outcome,
    /// The one variant, when [`Outcome::Selected`].
    pub selected: Option<String>,
    /// Per variant, what it failed; empty lists for variants that take the call.
    pub mismatches: BTreeMap<String, Vec<Mismatch>>,
}

impl Registry {
    /// Adds a variant.
    ///
    /// # Errors
    /// A name that is no simple id or already taken, an empty domain, or one that overlaps an earlier variant's.
    pub fn register(&mut self, variant: &str, domain: Domain) -> Result<(), CapabilityError> {
        let refuse = |problem: String| Err(CapabilityError::new(format!("variant {variant}"), problem));
        if !is_simple_id(variant) {
            return refuse("the name may hold letters, digits, `.`, `_` and `-` only".to_owned());
        }
        if domain.is_empty() {
            return refuse("its domain is empty: no call satisfies every constraint".to_owned());
        }
        for (other, theirs) in &self.0 {
            if other == variant {
                return refuse("the name is taken by another row of the slot".to_owned());
            }
            if domain.overlaps(theirs) {
                return refuse(format!("its domain overlaps that of variant {other}"));
            }
        }
        self.0.push((variant.to_owned(), domain));
        Ok(())
    }

    /// The variants in order of registration.
    pub fn variants(&self) -> impl Iterator<Item = (&str, &Domain)> {
        self.0.iter().map(|(name, domain)| (name.as_str(), domain))
    }

    /// Which variant serves a call.
    #[must_use]
    pub fn select(&self, call: &Descriptor, active: bool) -> Selection {
        let mut selection =
            Selection { outcome: Outcome::RegistryInactive, selected: None, mismatches: BTreeMap::new() };
        if !active {
            return selection;
        }
        selection.mismatches =
            self.0.iter().map(|(name, domain)| (name.clone(), domain.mismatches(call))).collect();
        let mut takers = self.0.iter().filter(|(name, _)| selection.mismatches[name].is_empty());
        selection.outcome = match (self.0.is_empty(), takers.next(), takers.next()) {
            (true, ..) => Outcome::SlotUnregistered,
            (_, None, _) => Outcome::OutOfDomain,
            (_, Some(_), Some(_)) => Outcome::Ambiguous,
            (_, Some((name, _)), None) => {
                selection.selected = Some(name.clone());
                Outcome::Selected
            }
        };
        selection
    }
}
