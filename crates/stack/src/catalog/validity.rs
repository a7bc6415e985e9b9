//! The rules that join the rows of a catalog (spec 10 §7.2), and the closures derived from them.

use super::{Catalog, Target, TargetKind};
use crate::ids::TargetId;
use cacheon_identity::DecodeError;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE_PAIR: &str = "a composition rule orders exactly its two targets";
const UNKNOWN: &str = "a target names another that is not in the catalog";
const SLOT_MEMBER: &str = "a slot target's only member is itself, and its contract is that slot's";
const ATOMIC_MEMBERS: &str = "an atomic target has at least two members, each a slot target it displaces";
const SAME_MEMBERS: &str = "two targets have the same members";
const SHARED_MEMBER: &str = "two targets share a member and neither displaces the other";
const CYCLE: &str = "displacement, requirement and precedence have no cycles";
const CONTRADICTION: &str = "a target displaces what it requires";
const COMPATIBLE: &str = "compatible targets name each other and stand in exactly one composition rule";
const FAMILY: &str = "both targets of a composition rule have the rule's binding family";
const FEATURES: &str = "every target allows `entry` and none allows `setup`";

fn refuse<T>(rule: &'static str, at: &TargetId) -> Result<T, DecodeError> {
    Err(DecodeError::invalid(rule, at))
}

/// Fills in the closures and checks the catalog as a whole.
pub(super) fn derive_and_check(catalog: &mut Catalog) -> Result<(), DecodeError> {
    names_exist(catalog)?;
    let displacement = closures(catalog, |target| &target.displaces)?;
    let requirement = closures(catalog, |target| &target.requires)?;
    for target in catalog.targets.values_mut() {
        target.displacement_closure = displacement.get(&target.id).cloned().unwrap_or_default();
        target.requirement_closure = requirement.get(&target.id).cloned().unwrap_or_default();
        if !target.displacement_closure.is_disjoint(&target.requirement_closure) {
            return refuse(CONTRADICTION, &target.id);
        }
        if !target.allowed_features.contains("entry") || target.allowed_features.contains("setup") {
            return refuse(FEATURES, &target.id);
        }
    }
    catalog.targets.values().try_for_each(|target| members_hold(catalog, target))?;
    member_sets_hold(catalog)?;
    compatibility_holds(catalog)?;
    precedence_is_acyclic(catalog)
}

fn names_exist(catalog: &Catalog) -> Result<(), DecodeError> {
    for target in catalog.targets.values() {
        let named = target.members.iter().chain(&target.displaces).chain(&target.requires);
        let unknown = |id: &&TargetId| !catalog.targets.contains_key(*id);
        if let Some(id) = named.chain(&target.compatible_with).find(unknown) {
            return refuse(UNKNOWN, id);
        }
    }
    match catalog.rules.iter().flat_map(|rule| &rule.precedence).find(|id| !catalog.targets.contains_key(*id))
    {
        Some(id) => refuse(UNKNOWN, id),
        None => Ok(()),
    }
}

/// Transitive closure of a relation that may have no cycle.
fn closures(
    catalog: &Catalog,
    relation: impl Fn(&Target) -> &BTreeSet<TargetId>,
) -> Result<BTreeMap<TargetId, BTreeSet<TargetId>>, DecodeError> {
    let mut out = BTreeMap::new();
    for target in catalog.targets.values() {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&TargetId> = relation(target).iter().collect();
        while let Some(id) = open.pop() {
            if reached.insert(id.clone()) {
                open.extend(catalog.targets.get(id).map(&relation).into_iter().flatten());
            }
        }
        if reached.contains(&target.id) {
            return refuse(CYCLE, &target.id);
        }
        out.insert(target.id.clone(), reached);
    }
    Ok(out)
}

fn members_hold(catalog: &Catalog, target: &Target) -> Result<(), DecodeError> {
    match &target.kind {
        TargetKind::Slot(contract) => {
            let itself = target.members == [target.id.clone()] && contract.slot == target.id;
            if itself { Ok(()) } else { refuse(SLOT_MEMBER, &target.id) }
        }
        TargetKind::Atomic { .. } => {
            let distinct: BTreeSet<_> = target.members.iter().collect();
            let slots = target.members.iter().all(|id| {
                target.displaces.contains(id)
                    && catalog.target(id).is_some_and(|member| member.contract().is_some())
            });
            let whole = distinct.len() == target.members.len() && distinct.len() >= 2 && slots;
            if whole { Ok(()) } else { refuse(ATOMIC_MEMBERS, &target.id) }
        }
    }
}

fn member_sets_hold(catalog: &Catalog) -> Result<(), DecodeError> {
    let targets: Vec<_> = catalog.targets.values().collect();
    for (index, a) in targets.iter().enumerate() {
        let of_a: BTreeSet<_> = a.members.iter().collect();
        for b in targets.iter().skip(index + 1) {
            let of_b: BTreeSet<_> = b.members.iter().collect();
            if of_a == of_b {
                return refuse(SAME_MEMBERS, &b.id);
            }
            let displaced = a.displacement_closure.contains(&b.id) || b.displacement_closure.contains(&a.id);
            if !of_a.is_disjoint(&of_b) && !displaced {
                return refuse(SHARED_MEMBER, &b.id);
            }
        }
    }
    Ok(())
}

fn compatibility_holds(catalog: &Catalog) -> Result<(), DecodeError> {
    for target in catalog.targets.values() {
        for other in &target.compatible_with {
            let mutual = catalog.target(other).is_some_and(|it| it.compatible_with.contains(&target.id));
            let covers = |rule: &&super::CompositionRule| {
                rule.precedence.contains(&target.id) && rule.precedence.contains(other)
            };
            if !mutual || *other == target.id || catalog.rules.iter().filter(covers).count() != 1 {
                return refuse(COMPATIBLE, &target.id);
            }
        }
    }
    for rule in &catalog.rules {
        for id in &rule.precedence {
            let Some(target) = catalog.target(id) else { return refuse(UNKNOWN, id) };
            if !rule.precedence.iter().all(|other| other == id || target.compatible_with.contains(other)) {
                return refuse(COMPATIBLE, id);
            }
            if target.contract().is_some_and(|it| it.binding_family != rule.binding_family) {
                return refuse(FAMILY, id);
            }
        }
    }
    Ok(())
}

fn precedence_is_acyclic(catalog: &Catalog) -> Result<(), DecodeError> {
    let mut after: BTreeMap<&TargetId, BTreeSet<&TargetId>> = BTreeMap::new();
    for rule in &catalog.rules {
        for (first, second) in rule.precedence.iter().zip(rule.precedence.iter().skip(1)) {
            after.entry(first).or_default().insert(second);
        }
    }
    for start in after.keys() {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&TargetId> = after.get(start).into_iter().flatten().copied().collect();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(after.get(id).into_iter().flatten());
            }
        }
        if reached.contains(start) {
            return refuse(CYCLE, start);
        }
    }
    Ok(())
}
