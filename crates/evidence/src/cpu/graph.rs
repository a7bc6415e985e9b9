//! From conformance calls to the graph evidence that the veto grades (chapter 40 §7). On a CPU a "graph" is a sequence of
//! calls at the same addresses: the eager call is the first, the replays are those that follow with fresh content.

use std::collections::BTreeMap;

use cacheon_identity::{Digest, Domain, record};
use cacheon_records::cpu::{CallFacts, ConformanceCase, ConformanceRaw, SealedPlan};
use cacheon_verdict::cpu::Tolerance;
use cacheon_verdict::fields::{Identifier, SchemaOne};
use cacheon_verdict::graph::{
    FailureKind, GraphEvidenceRef, GraphGrade, GraphMemberEvidence, GraphPolicyV1, GraphRawEvidence,
    GraphRequirement, GraphShapeEvidence, GraphVariantEvidence, regrade,
};

use super::RawFault;
use super::audit::tolerance;

/// Domain of a shape descriptor.
pub const SHAPE: Domain = Domain::with_members("cacheon.rs.cpu.shape.v1", ShapeDescriptor::MEMBERS);

record! {
    /// One shape of one variant, as the requirement names it.
    pub struct ShapeDescriptor {
        /// Dimensions in the slot's order.
        pub dims: Vec<u32>,
        /// Name.
        pub shape: String,
        /// Slot.
        pub slot: String,
        /// Variant.
        pub variant: String,
    }
}

impl ShapeDescriptor {
    /// The descriptor digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SHAPE.digest(self)
    }
}

fn descriptor(case: &ConformanceCase) -> Digest {
    ShapeDescriptor {
        dims: case.dims.clone(),
        shape: case.shape.clone(),
        slot: case.slot.clone(),
        variant: case.variant.clone(),
    }
    .digest()
}

/// The raw graph evidence of a conformance run.
///
/// # Errors
/// [`RawFault`] for a slot without tolerance or records that cannot be graph evidence.
pub fn raw_evidence(
    plan: &SealedPlan,
    requirement: &GraphRequirement,
    raw: &ConformanceRaw,
) -> Result<GraphRawEvidence, RawFault> {
    let mut members: BTreeMap<&str, BTreeMap<&str, Vec<GraphShapeEvidence>>> = BTreeMap::new();
    for case in &raw.cases {
        let rules = plan.tolerances.iter().find(|rules| rules.slot == case.slot);
        let rules = rules.ok_or(RawFault::new("tolerances", "a slot has no sealed tolerance"))?;
        let shape = shape_evidence(&tolerance(rules)?, case);
        members.entry(&case.slot).or_default().entry(&case.variant).or_default().push(shape);
    }
    let identifier =
        |text: &str| Identifier::parse(text).map_err(|error| RawFault::from_error("slot", &error));
    let members = members
        .into_iter()
        .map(|(slot, variants)| {
            let variants = variants
                .into_iter()
                .map(|(variant, mut shapes)| {
                    shapes.sort_by_key(|shape| shape.descriptor_digest);
                    Ok(GraphVariantEvidence {
                        context_applicable: true,
                        domain_coverage_complete: true,
                        shapes,
                        slot_id: identifier(slot)?,
                        variant_id: identifier(variant)?,
                    })
                })
                .collect::<Result<Vec<_>, RawFault>>()?;
            Ok(GraphMemberEvidence { slot_id: identifier(slot)?, variants })
        })
        .collect::<Result<Vec<_>, RawFault>>()?;
    let evidence = GraphRawEvidence {
        members,
        policy_version: GraphPolicyV1,
        requirement_digest: requirement.digest(),
        schema_version: SchemaOne,
    };
    evidence.checked().map_err(|error| RawFault::from_error("cases", &error))
}

/// Whether a call matched: tolerance kept, no guard hit, the outputs unchanged between return and the end.
fn matched(tolerance: &Tolerance, call: &CallFacts) -> bool {
    let found = cacheon_verdict::cpu::Comparison {
        elements: call.elements,
        matched: call.matched,
        non_finite: call.non_finite,
        worst: call.worst.get(),
    };
    tolerance.accepts(&found) && call.guards == 0 && call.hash_at_end == call.hash_at_return
}

fn shape_evidence(tolerance: &Tolerance, case: &ConformanceCase) -> GraphShapeEvidence {
    let eager = case.calls.first().is_some_and(|call| matched(tolerance, call));
    let replays = case.calls.get(1..).unwrap_or_default();
    let good = replays.iter().take_while(|call| matched(tolerance, call)).count();
    let (failure_kind, graph_replays) = match (eager, good == replays.len() && good > 0) {
        (false, _) => (FailureKind::Eager, 0),
        (true, true) => (FailureKind::None, good as u64),
        (true, false) => (FailureKind::Replay, good as u64),
    };
    GraphShapeEvidence {
        applicable: true,
        descriptor_digest: descriptor(case),
        eager_passed: eager,
        failure_kind,
        graph_passed: failure_kind == FailureKind::None,
        graph_replays,
        graph_required: true,
    }
}

/// Grades a conformance run.
///
/// # Errors
/// [`RawFault`].
pub fn grade(
    plan: &SealedPlan,
    requirement: &GraphRequirement,
    raw: &ConformanceRaw,
) -> Result<GraphGrade, RawFault> {
    let evidence = raw_evidence(plan, requirement, raw)?;
    let reference = GraphEvidenceRef::of(requirement, evidence.digest());
    Ok(regrade(requirement, Some(&reference), Some(&evidence)))
}
