//! The life of a plan: which role may see what, and that nothing is used before it is made.

use super::abi::CallAbi;
use super::export::{Export, Role};
use super::plain::{Members, Plain};
use super::resource::{Lifetime, Resource};
use super::{ArtifactError, Class};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the exports of a row together.
pub(super) fn check(
    exports: &[Export],
    resources: &[Resource],
    abi: &CallAbi,
    path: &str,
) -> Result<(), ArtifactError> {
    let mut plans: BTreeMap<&str, Vec<&Export>> = BTreeMap::new();
    for export in exports {
        boundary(export, resources, abi, path)?;
        plans.entry(&export.plan).or_default().push(export);
    }
    for (name, members) in &plans {
        // Exports are sorted, so that a plan's members stand in step order.
        plan(name, members, resources, abi, path)?;
    }
    distinct(&plans, path)
}

fn refuse<T>(class: Class, path: &str, problem: String) -> Result<T, ArtifactError> {
    Err(ArtifactError::new(class, path, problem))
}

/// Whether every mention of an export is one its role may see.
fn boundary(export: &Export, resources: &[Resource], abi: &CallAbi, path: &str) -> Result<(), ArtifactError> {
    let role = export.role;
    let own: &[String] = match role {
        Role::Run => &abi.call_args,
        Role::Prepare => &abi.prepare_args,
        _ => &[],
    };
    let find = |name: &str| resources.iter().find(|it| it.name == name);
    for name in export.mentions() {
        let sees = match find(name).map(|it| it.lifetime) {
            Some(Lifetime::Call) => !matches!(role, Role::Init | Role::Destroy),
            Some(Lifetime::Prepared) => !matches!(role, Role::Init | Role::Reset),
            Some(Lifetime::Engine) => true,
            None => {
                let shared = name.starts_with("group.") || name.starts_with("stream.");
                let opaque = abi.prepare_result.as_deref() == Some(name);
                shared || (own.iter().any(|it| it == name) && !opaque)
            }
        };
        if !sees {
            let problem =
                format!("export `{}` of role `{}` may not see `{name}`", export.name, role.as_str());
            return refuse(Class::CallAbi, path, problem);
        }
    }
    if role == Role::Destroy {
        let class = |name: &str| find(name).map(|it| (it.lifetime, it.group_ipc));
        let classes: BTreeSet<_> = export.mentions().filter_map(class).collect();
        if classes.len() > 1 {
            let problem = format!("export `{}` destroys resources of two lifetimes or scopes", export.name);
            return refuse(Class::CallAbi, path, problem);
        }
    }
    Ok(())
}

fn plan(
    name: &str,
    exports: &[&Export],
    resources: &[Resource],
    abi: &CallAbi,
    path: &str,
) -> Result<(), ArtifactError> {
    let refuse = |problem: String| refuse(Class::CallAbi, path, format!("plan `{name}`: {problem}"));
    let pairs = || exports.iter().zip(exports.iter().skip(1));
    if let Some((_, late)) = pairs().find(|(a, b)| a.role > b.role) {
        return refuse(format!("`{}` runs after a later role", late.name));
    }
    if let Some((_, other)) = pairs().find(|(a, b)| !same(&a.specializes, &b.specializes)) {
        return refuse(format!("`{}` specialises otherwise than the others", other.name));
    }
    let runs: Vec<_> = exports.iter().filter(|export| export.role == Role::Run).collect();
    if runs.is_empty() {
        return refuse("it never runs".to_owned());
    }
    let written: BTreeSet<&str> = runs
        .iter()
        .flat_map(|export| {
            let bound = export.bindings.iter().filter_map(|it| it.writes());
            bound.chain(export.prelaunch.iter().map(|(target, _)| target.as_str()))
        })
        .collect();
    let mut outputs = abi.call_args.iter().filter(|arg| arg.starts_with("output."));
    if let Some(missing) = outputs.find(|output| !written.contains(output.as_str())) {
        return refuse(format!("no run writes `{missing}`"));
    }
    for resource in resources {
        let exposes = |export: &Export| export.bindings.iter().any(|it| it.storage() == Some(&resource.name));
        let fills = |export: &Export| export.prelaunch.iter().any(|(target, _)| *target == resource.name);
        if !exports.iter().any(|export| exposes(export) || fills(export)) {
            return refuse(format!("`{}` is never used", resource.name));
        }
        if resource.lifetime == Lifetime::Prepared {
            let mut prepares = exports.iter().filter(|export| export.role == Role::Prepare);
            let made = prepares.any(|export| exposes(export) || fills(export));
            if !made || !runs.iter().any(|export| exposes(export)) {
                let problem = "needs a prepare that makes it and a run that binds it";
                return refuse(format!("`{}` {problem}", resource.name));
            }
        }
    }
    Ok(())
}

/// Equality in which 1, 1.0 and true are three values, and floats compare by bits.
pub(super) fn identical(a: &Plain, b: &Plain) -> bool {
    match (a, b) {
        (Plain::Float(a), Plain::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

fn same(a: &Members, b: &Members) -> bool {
    a.len() == b.len() && subset(a, b)
}

fn subset(a: &Members, b: &Members) -> bool {
    a.iter().all(|(key, value)| b.get(key).is_some_and(|other| identical(value, other)))
}

/// Two plans never claim a call on equal terms: they are disjoint, or one is strictly narrower.
fn distinct(plans: &BTreeMap<&str, Vec<&Export>>, path: &str) -> Result<(), ArtifactError> {
    let first = |(name, exports): (&&'_ str, &Vec<&'_ Export>)| {
        exports.first().map(|export| ((*name).to_owned(), export.specializes.clone()))
    };
    let predicates: Vec<(String, Members)> = plans.iter().filter_map(first).collect();
    for (index, (name, a)) in predicates.iter().enumerate() {
        for (other, b) in predicates.iter().skip(index + 1) {
            let disjoint = a.iter().any(|(key, value)| b.get(key).is_some_and(|it| !identical(value, it)));
            let nested = a.len() != b.len() && (subset(a, b) || subset(b, a));
            if !disjoint && !nested {
                let problem = format!("plans `{name}` and `{other}` claim the same calls");
                return refuse(Class::PlanAmbiguity, path, problem);
            }
        }
    }
    Ok(())
}
