//! The effective domain of one variant.

use super::field::Scalar;
use cacheon_identity::Int;
use std::collections::{BTreeMap, BTreeSet};

/// One constraint on one field: either a set of allowed values or an inclusive range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    /// Canonical field name.
    pub field: String,
    /// The allowed values; empty for a range.
    pub allowed: BTreeSet<Scalar>,
    /// Lower bound, inclusive.
    pub min: Option<Int>,
    /// Upper bound, inclusive.
    pub max: Option<Int>,
}

impl Predicate {
    /// One of these values.
    #[must_use]
    pub fn one_of(field: &str, allowed: BTreeSet<Scalar>) -> Self {
        Self { field: field.to_owned(), allowed, min: None, max: None }
    }

    /// An inclusive range.
    #[must_use]
    pub fn range(field: &str, min: Option<Int>, max: Option<Int>) -> Self {
        Self { field: field.to_owned(), allowed: BTreeSet::new(), min, max }
    }

    /// Whether a value satisfies the constraint.
    #[must_use]
    pub fn admits(&self, value: &Scalar) -> bool {
        if !self.allowed.is_empty() {
            return self.allowed.contains(value);
        }
        match value {
            Scalar::Int(value) => {
                self.min.as_ref().is_none_or(|min| value >= min)
                    && self.max.as_ref().is_none_or(|max| value <= max)
            }
            _ => false,
        }
    }
}

/// The calls a variant is meant for. Fields it does not constrain are open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// Element types; empty = open.
    pub dtypes: BTreeSet<String>,
    /// Machine architectures; empty = open.
    pub architectures: BTreeSet<String>,
    /// Quantisations; empty = open.
    pub quant: BTreeSet<String>,
    /// Upper bound of `last_dim`.
    pub max_last_dim: Option<Int>,
    /// Lower bound of `num_tokens`.
    pub min_num_tokens: Option<Int>,
    /// Upper bound of `num_tokens`.
    pub max_num_tokens: Option<Int>,
    /// Whether the variant may run under graph capture.
    pub graph_safe: bool,
    /// The capability predicates, sorted by field.
    pub predicates: Vec<Predicate>,
}

fn texts(field: &str, values: &BTreeSet<String>) -> Predicate {
    Predicate::one_of(field, values.iter().cloned().map(Scalar::Text).collect())
}

impl Domain {
    /// Every constraint in the order in which mismatches are reported, the graph-mode exclusion apart.
    #[must_use]
    pub fn constraints(&self) -> Vec<Predicate> {
        let mut all = Vec::new();
        if !self.dtypes.is_empty() {
            all.push(texts("dtype", &self.dtypes));
        }
        if !self.architectures.is_empty() {
            all.push(texts("architecture", &self.architectures));
        }
        if self.max_last_dim.is_some() {
            all.push(Predicate::range("last_dim", None, self.max_last_dim.clone()));
        }
        if self.min_num_tokens.is_some() || self.max_num_tokens.is_some() {
            all.push(Predicate::range(
                "num_tokens",
                self.min_num_tokens.clone(),
                self.max_num_tokens.clone(),
            ));
        }
        if !self.quant.is_empty() {
            all.push(texts("quant", &self.quant));
        }
        all.extend(self.predicates.iter().cloned());
        all
    }

    /// Whether nothing is constrained besides graph capture.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.constraints().is_empty()
    }

    fn fields(&self) -> BTreeMap<String, FieldSet> {
        let mut fields: BTreeMap<String, FieldSet> = BTreeMap::new();
        for constraint in self.constraints() {
            fields.entry(constraint.field.clone()).or_default().narrow(&constraint);
        }
        if !self.graph_safe {
            fields.entry("graph_mode".to_owned()).or_default().without_graph = true;
        }
        fields
    }

    /// Whether no call can satisfy every constraint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields().values().any(FieldSet::is_empty)
    }

    /// Whether some call satisfies both domains.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let theirs = other.fields();
        let mut all = self.fields();
        for (field, set) in &theirs {
            all.entry(field.clone()).or_default().meet(set);
        }
        !all.values().any(FieldSet::is_empty)
    }
}

/// The values one field may take: all constraints on it together.
#[derive(Debug, Clone, Default)]
struct FieldSet {
    allowed: Option<BTreeSet<Scalar>>,
    min: Option<Int>,
    max: Option<Int>,
    without_graph: bool,
}

impl FieldSet {
    fn narrow(&mut self, constraint: &Predicate) {
        if constraint.allowed.is_empty() {
            self.bound(constraint.min.as_ref(), constraint.max.as_ref());
        } else {
            self.restrict(&constraint.allowed);
        }
    }

    fn restrict(&mut self, values: &BTreeSet<Scalar>) {
        self.allowed = Some(match self.allowed.take() {
            None => values.clone(),
            Some(mine) => mine.intersection(values).cloned().collect(),
        });
    }

    fn bound(&mut self, min: Option<&Int>, max: Option<&Int>) {
        if let Some(min) = min {
            self.min = Some(self.min.take().map_or_else(|| min.clone(), |mine| mine.max(min.clone())));
        }
        if let Some(max) = max {
            self.max = Some(self.max.take().map_or_else(|| max.clone(), |mine| mine.min(max.clone())));
        }
    }

    fn meet(&mut self, other: &Self) {
        if let Some(values) = &other.allowed {
            self.restrict(values);
        }
        self.bound(other.min.as_ref(), other.max.as_ref());
        self.without_graph |= other.without_graph;
    }

    fn is_empty(&self) -> bool {
        match &self.allowed {
            Some(values) => !values.iter().any(|value| match value {
                Scalar::Int(value) => {
                    self.min.as_ref().is_none_or(|min| value >= min)
                        && self.max.as_ref().is_none_or(|max| value <= max)
                }
                Scalar::Text(text) => !(self.without_graph && text == "cuda_graph"),
                Scalar::Bool(_) => true,
            }),
            None => match (&self.min, &self.max) {
                (Some(min), Some(max)) => min > max,
                _ => false,
            },
        }
    }
}
