//! The `stacks_plans` cases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_identity::{Canonical, Decode, Json};
use cacheon_stack::catalog::{ActiveSetError, Catalog};
use cacheon_stack::ids::Entropy;
use cacheon_stack::manifest::{CatalogSnapshot, ContextError};
use cacheon_stack::plan::{CohortError, MarginalArm, PlanError, confirm_record, plan_arm, plan_cohort};
use cacheon_stack::{ContributionRef, EvaluationStack, StackContext, TargetId};
use cacheon_vectors::Case;
use common::{expect_eq, expect_reject, expect_text, to_json};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn catalog(case: &Case<'_>, name: &Value) -> Result<Catalog, String> {
    let name = name.as_str().ok_or("no catalog name")?;
    let snapshot = CatalogSnapshot::new(to_json(&case.file["catalogs"][name])).map_err(text)?;
    expect_eq(
        "catalog digest",
        &snapshot.digest().to_string().as_str(),
        &case.file["catalog_digests"][name].as_str().unwrap(),
    )?;
    let catalog = Catalog::parse(snapshot).map_err(text)?;
    for target in catalog.targets().values() {
        let expected = case.file["target_spec_digests"][name][target.id.as_str()].as_str().unwrap();
        expect_eq("spec", &target.spec.to_string().as_str(), &expected)?;
    }
    Ok(catalog)
}

fn active_slug(error: &ActiveSetError) -> &'static str {
    match error {
        ActiveSetError::Unknown(_) => "unknown_target",
        ActiveSetError::Duplicate(_) => "duplicate",
        ActiveSetError::Conflict { .. } => "active_conflict",
        ActiveSetError::RequirementMissing { .. } => "requirement_missing",
    }
}

/// An arm of a case, or the slug it is refused with.
fn arm(case: &Case<'_>, value: &Value) -> Result<Result<MarginalArm, &'static str>, String> {
    let catalog = catalog(case, &value["catalog"])?;
    let frozen = &case.file["frozen"];
    let manifest = json!({
        "arena_digest": frozen["arena_digest"], "base_engine_digest": frozen["base_engine_digest"],
        "catalog_digest": catalog.digest().to_string(), "catalog_snapshot": {"$catalog": value["catalog"]},
        "entries": value["incumbent_entries"], "runtime_digest": frozen["runtime_digest"], "schema_version": 1,
        "stack_policy_version": "evaluation-stack.v1", "type": "evaluation_stack",
    });
    let mut manifest = manifest;
    common::expand(&mut manifest, &case.file["catalogs"]);
    let incumbent = EvaluationStack::decode(&to_json(&manifest)).map_err(text)?;
    let digest = |name: &str| frozen[name].as_str().unwrap();
    let context = StackContext::new(
        digest("runtime_digest").parse().map_err(text)?,
        digest("base_engine_digest").parse().map_err(text)?,
        Some(digest("arena_digest").parse().map_err(text)?),
        catalog.snapshot().clone(),
    )
    .map_err(text)?;
    let replacement = ContributionRef::decode(&to_json(&value["replacement"])).map_err(text)?;
    let tree = |name: &str| value[name].as_str().unwrap().parse();
    let (Ok(before), Ok(after)) = (tree("incumbent_tree_digest"), tree("candidate_tree_digest")) else {
        return Ok(Err("digest"));
    };
    Ok(plan_arm(&incumbent, replacement, &catalog, &context, before, after).map_err(|error| match error {
        PlanError::Context(ContextError::TargetAbsent(_)) => "unknown_target",
        PlanError::Context(_) | PlanError::Catalog { .. } => "context_mismatch",
        PlanError::UnknownTarget(_) => "unknown_target",
        PlanError::Active(error) => active_slug(&error),
        PlanError::StaleTargetSpec { .. } => "stale_target_spec",
        PlanError::NoExecutableDelta { .. } => "no_executable_delta",
        PlanError::DecomposeBlocked { .. } => "decompose_blocked",
        PlanError::TreeUnchanged(_) => "tree_unchanged",
        PlanError::Edit(_) => "?",
    }))
}

fn plan(case: &Case<'_>) -> Result<(), String> {
    let Some(arm) = expect_reject(case, arm(case, case.value)?, |slug| slug)? else { return Ok(()) };
    expect_text(case, "arm_digest", &arm.digest())?;
    expect_text(case, "incumbent_stack_digest", &arm.baseline().stack)?;
    expect_text(case, "candidate_stack_digest", &arm.challenger().stack)?;
    expect_text(case, "selected_delta_digest", &arm.selected_delta())?;
    expect_text(case, "contribution_digest", &arm.transition().replacement.digest())?;
    let targets: Vec<_> = arm.candidate().entries().keys().map(|it| Json::from(it.as_str())).collect();
    expect_eq("candidate_targets", &Json::Array(targets), &to_json(case.get("candidate_targets")?))?;
    let transition = arm.transition();
    let expected = to_json(case.get("transition")?);
    let prior = transition.prior.as_ref().map(|it| it.digest().to_string());
    expect_eq("prior", &prior.as_deref(), &expected.get("prior").and_then(Json::as_str))?;
    let displaced: Vec<_> = transition.displaced.iter().map(|it| Json::from(it.target().as_str())).collect();
    expect_eq("displaced", &Some(&Json::Array(displaced)), &expected.get("displaced"))?;
    let spec = transition.replacement.target_spec().to_string();
    expect_eq(
        "target_spec_digest",
        &Some(spec.as_str()),
        &expected.get("target_spec_digest").and_then(Json::as_str),
    )?;
    expect_eq("transition members", &expected.as_object().map(BTreeMap::len), &Some(3))?;
    let rollback = arm.rollback();
    let written = rollback.to_json().map_err(text)?;
    let expected = to_json(case.get("rollback")?);
    expect_eq(
        "rollback digest",
        &Some(rollback.digest().to_string().as_str()),
        &expected.get("digest").and_then(Json::as_str),
    )?;
    for name in ["restored", "expected_current"] {
        expect_eq(name, &written.get(name), &expected.get(name))?;
    }
    expect_eq("rolled back", &rollback.apply(arm.challenger()), &Ok(arm.baseline()))?;
    expect_eq("stale rollback", &rollback.apply(arm.baseline()).is_err(), &true)?;
    confirm_record(&arm, &arm.to_canonical()).map_err(text)
}

fn cohort(case: &Case<'_>) -> Result<(), String> {
    let arms: Result<Result<Vec<_>, _>, String> =
        case.get("arms")?.as_array().ok_or("no arms")?.iter().map(|value| arm(case, value)).collect();
    let arms = arms?.map_err(|slug| format!("an arm was refused as {slug}"))?;
    let order = Vec::<ContributionRef>::decode(&to_json(case.get("authority_order")?)).map_err(text)?;
    let outcome = match case.text("entropy_digest")?.parse::<Entropy>() {
        Err(_) => Err("digest"),
        Ok(entropy) => plan_cohort(arms, &order, entropy).map_err(|error| match error {
            CohortError::Empty => "empty",
            CohortError::MixedIncumbent(_) => "mixed_incumbent",
            CohortError::DuplicateDelta(_) => "duplicate_delta",
            CohortError::DuplicateStack(_) => "duplicate_stack",
            CohortError::DuplicateTree(_) => "duplicate_tree",
            CohortError::AuthorityOrder(_) => "authority_order",
        }),
    };
    let Some(plan) = expect_reject(case, outcome, |slug| slug)? else { return Ok(()) };
    expect_text(case, "digest", &plan.digest())?;
    let arms: Vec<_> = plan.arms().iter().map(MarginalArm::digest).collect();
    expect_eq("arms_sorted", &arms.to_canonical(), &to_json(case.get("arms_sorted")?).to_canonical())?;
    let digests = plan.authority_order().to_canonical();
    expect_eq("authority_digests", &digests, &to_json(case.get("authority_digests")?).to_canonical())?;
    let execution = plan.execution_order().to_canonical();
    expect_eq("execution_order", &execution, &to_json(case.get("execution_order")?).to_canonical())
}

fn ordered(case: &Case<'_>) -> Result<(), String> {
    let catalog = catalog(case, case.get("catalog")?)?;
    let targets = Vec::<TargetId>::decode(&to_json(case.get("targets")?)).map_err(text)?;
    let outcome = catalog.ordered_active(&targets);
    let Some(order) = expect_reject(case, outcome, active_slug)? else { return Ok(()) };
    expect_eq("ordered", &order.to_canonical(), &to_json(case.get("ordered")?).to_canonical())
}

fn closures(case: &Case<'_>) -> Result<(), String> {
    let catalog = catalog(case, case.get("catalog")?)?;
    let of = |read: fn(&cacheon_stack::catalog::Target) -> &std::collections::BTreeSet<TargetId>| {
        catalog
            .targets()
            .iter()
            .map(|(id, target)| (id.clone(), read(target).clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let displacement = of(|target| target.displacement_closure()).to_canonical();
    expect_eq("displacement", &displacement, &to_json(case.get("displacement")?).to_canonical())?;
    let requires = of(|target| target.requirement_closure()).to_canonical();
    expect_eq("requires", &requires, &to_json(case.get("requires")?).to_canonical())
}

#[test]
fn vectors_stacks_plans() {
    cacheon_vectors::run("stacks_plans", &[], |case| match case.op() {
        "plan_arm" => plan(case),
        "cohort" => cohort(case),
        "ordered_active_targets" => ordered(case),
        "closures" => closures(case),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}
