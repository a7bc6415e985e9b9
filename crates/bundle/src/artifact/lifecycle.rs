//! What the exports of one row owe each other.

use super::abi::CallAbi;
use super::export::{Export, ROLES};
use super::resource::Resource;
use super::value::{Checked, Node};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(
    row: &Node<'_>,
    exports: &[Export],
    resources: &[Resource],
    abi: &CallAbi,
) -> Checked<()> {
    let mut names = BTreeSet::new();
    let mut plans: BTreeMap<&str, Vec<&Export>> = BTreeMap::new();
    for export in exports {
        if !names.insert(&export.name) {
            return row.fail(format!("two exports are named `{}`", export.name));
        }
        plans.entry(&export.plan).or_default().push(export);
    }
    for steps in plans.values() {
        plan(row, steps, resources, abi)?;
    }
    let predicates: Vec<&Export> = plans.values().filter_map(|steps| steps.first().copied()).collect();
    for (index, left) in predicates.iter().enumerate() {
        for right in &predicates[index + 1..] {
            apart(row, left, right)?;
        }
    }
    Ok(())
}

/// Two plans must exclude each other, or one must be a strict special case of the other.
fn apart(row: &Node<'_>, left: &Export, right: &Export) -> Checked<()> {
    let (mine, theirs) = (&left.specializes, &right.specializes);
    let disjoint = mine.iter().any(|(key, value)| theirs.get(key).is_some_and(|other| other != value));
    let within = |small: &BTreeMap<_, _>, large: &BTreeMap<_, _>| {
        small.len() < large.len() && small.iter().all(|(key, value)| large.get(key) == Some(value))
    };
    if disjoint || within(mine, theirs) || within(theirs, mine) {
        return Ok(());
    }
    row.fail(format!("the plans `{}` and `{}` serve the same calls", left.plan, right.plan))
}

fn rank(role: &str) -> usize {
    ROLES.iter().position(|known| *known == role).unwrap_or(ROLES.len())
}

/// The exports of one plan, sorted by step.
fn plan(row: &Node<'_>, steps: &[&Export], resources: &[Resource], abi: &CallAbi) -> Checked<()> {
    let Some(first) = steps.first() else { return Ok(()) };
    for pair in steps.windows(2) {
        if pair[0].step == pair[1].step {
            return row.fail(format!("the plan `{}` has two exports at step {}", first.plan, pair[0].step));
        }
        if rank(pair[0].role) > rank(pair[1].role) {
            return row.fail(format!("the plan `{}` runs its roles out of order", first.plan));
        }
    }
    if steps.iter().any(|export| export.specializes != first.specializes) {
        return row.fail(format!("the exports of the plan `{}` specialise differently", first.plan));
    }
    let runs: Vec<&&Export> = steps.iter().filter(|export| export.role == "run").collect();
    if runs.is_empty() {
        return row.fail(format!("the plan `{}` never runs", first.plan));
    }
    let written: BTreeSet<&str> = runs.iter().flat_map(|export| export.touched()).collect();
    if let Some(output) = abi.outputs().find(|output| !written.contains(output)) {
        return row.fail(format!("the plan `{}` never writes `{output}`", first.plan));
    }
    let used: BTreeSet<&str> = steps.iter().flat_map(|export| export.touched()).collect();
    if let Some(unused) = resources.iter().find(|resource| !used.contains(resource.name.as_str())) {
        return row.fail(format!("the plan `{}` never uses `{}`", first.plan, unused.name));
    }
    for resource in resources {
        buffer(row, steps, resource)?;
    }
    for export in steps.iter().filter(|export| export.role == "destroy") {
        let classes: BTreeSet<(&str, &str)> = export
            .mentions()
            .filter_map(|name| resources.iter().find(|resource| resource.name == name))
            .map(|resource| (resource.lifetime, resource.scope))
            .collect();
        if classes.len() > 1 {
            return row.fail(format!("the export `{}` destroys buffers of two kinds", export.name));
        }
    }
    Ok(())
}

/// When a buffer of some lifetime may be mentioned.
fn buffer(row: &Node<'_>, steps: &[&Export], resource: &Resource) -> Checked<()> {
    let name = resource.name.as_str();
    let mentioned = |role: &str| {
        steps.iter().any(|export| export.role == role && export.mentions().any(|other| other == name))
    };
    match resource.lifetime {
        "call" if mentioned("init") || mentioned("destroy") => {
            row.fail(format!("`{name}` lives for one call: init and destroy cannot use it"))
        }
        "prepared" => {
            let prepares = steps
                .iter()
                .any(|export| export.role == "prepare" && export.touched().any(|other| other == name));
            let consumes = steps.iter().filter(|export| export.role == "run").any(|export| {
                export.bindings.iter().any(|binding| {
                    let own = binding.exposes() && binding.source.as_deref() == Some(name);
                    own || binding.peer.as_deref() == Some(name)
                })
            });
            if mentioned("init") || mentioned("reset") {
                return row
                    .fail(format!("`{name}` exists only after preparing: init and reset cannot use it"));
            }
            if !prepares || !consumes {
                return row
                    .fail(format!("`{name}` must be made by a prepare export and bound by a run export"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
