//! The `stacks_manifests` cases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_identity::{Canonical, Decode, DecodeError, DecodeKind, DigestError};
use cacheon_stack::manifest::{ContextError, EditError, rule};
use cacheon_stack::review::{self, CoverageError};
use cacheon_stack::{
    ContributionRef, EngineRelease, IntegrationReview, ReferenceManifest, StackContext, StackManifest,
    TargetId,
};
use cacheon_vectors::Case;
use common::{expect_eq, expect_reject, expect_text, input_json, to_json};
use std::collections::BTreeMap;

fn slug(error: &DecodeError) -> &'static str {
    let last = error.path.last().map_or("", String::as_str);
    let in_artifact = error.path.first().is_some_and(|part| part == "artifacts");
    match &error.kind {
        DecodeKind::Missing(name) if name == "type" => "type",
        DecodeKind::Missing(_) | DecodeKind::Extra(_) => "fields",
        DecodeKind::Version { .. } if last == "type" => "type",
        DecodeKind::Version { .. } => "version",
        DecodeKind::Range { .. } if in_artifact => "evidence_ref",
        DecodeKind::Digest(DigestError::Zero) => "zero_digest",
        DecodeKind::Digest(DigestError::Format(_)) => "digest",
        DecodeKind::Type { expected: "a digest", .. } => "digest",
        DecodeKind::Type { .. } => "shape",
        DecodeKind::Invalid { rule: r, .. } => match *r {
            cacheon_stack::ids::TARGET_ID => "target_id",
            rule::SNAPSHOT => "catalog_snapshot",
            rule::CATALOG_DIGEST => "catalog_digest",
            rule::ENTRY_KEY => "entry_key",
            rule::NOT_INTEGRATED => "not_integrated",
            review::rule::APPROVED => "not_approved",
            review::rule::REVIEWER => "reviewer",
            review::rule::COMMIT => "review_commit",
            review::rule::ATTEMPT_REUSE => "attempt_reuse",
            review::rule::ARTIFACT_SCHEMA => "artifact_schema",
            review::rule::ARTIFACT_DISTINCT => "artifact_distinct",
            review::rule::ARTIFACT_BINDING => "artifact_binding",
            _ if in_artifact => "evidence_ref",
            _ => "?",
        },
        _ => "?",
    }
}

fn context_slug(error: &ContextError) -> &'static str {
    match error {
        ContextError::Runtime { .. } => "context_runtime",
        ContextError::BaseEngine { .. } => "context_base_engine",
        ContextError::Arena { .. } => "context_arena",
        ContextError::Catalog { .. } => "context_catalog",
        ContextError::Specs(_) => "context_specs",
        ContextError::Rows(_) => "context_specs",
        ContextError::TargetAbsent(_) => "context_target_absent",
        ContextError::TargetSpec { .. } => "context_target_spec",
    }
}

fn reference(case: &Case<'_>) -> Result<(), String> {
    let read = ContributionRef::decode(&input_json(case, "input")?);
    let Some(it) = expect_reject(case, read, slug)? else { return Ok(()) };
    expect_text(case, "digest", &it.digest())?;
    expect_text(case, "selected_delta_digest", &it.selected_delta())?;
    expect_text(case, "type", &it.type_name())?;
    expect_eq(
        "round trip",
        &ContributionRef::decode_bytes(&it.to_canonical()).map_err(|e| e.to_string())?,
        &it,
    )
}

fn manifest(case: &Case<'_>) -> Result<Option<StackManifest>, String> {
    let json = input_json(case, "input")?;
    let Some(it) = expect_reject(case, StackManifest::decode(&json), slug)? else { return Ok(None) };
    expect_text(case, "digest", &it.digest())?;
    expect_eq("roundtrip", &case.get("roundtrip")?.as_bool(), &Some(true))?;
    expect_eq("written form", &it.to_canonical(), &json.to_canonical())?;
    Ok(Some(it))
}

fn context(case: &Case<'_>) -> Result<Result<StackContext, ContextError>, String> {
    let json = input_json(case, "context")?;
    let text = |name: &str| json.get(name).and_then(|v| v.as_str()).ok_or(format!("context has no {name}"));
    let catalog =
        cacheon_stack::CatalogSnapshot::new(json.get("catalog_snapshot").ok_or("no catalog")?.clone());
    let arena = match json.get("arena_digest").and_then(|v| v.as_str()) {
        Some(text) => Some(text.parse().map_err(to_text)?),
        None => None,
    };
    let context = StackContext::new(
        text("runtime_digest")?.parse().map_err(to_text)?,
        text("base_engine_digest")?.parse().map_err(to_text)?,
        arena,
        catalog.map_err(to_text)?,
    );
    let claimed = BTreeMap::<String, cacheon_stack::ids::TargetSpec>::decode(
        json.get("target_spec_digests").ok_or("no target_spec_digests")?,
    );
    let claimed = claimed.map_err(to_text)?;
    let claimed: Result<_, _> = claimed.into_iter().map(|(k, v)| Ok((TargetId::parse(&k)?, v))).collect();
    let claimed = claimed.map_err(|e: DecodeError| e.to_string())?;
    let digest = text("catalog_digest")?.parse().map_err(to_text)?;
    Ok(context.and_then(|context| context.confirm(digest, &claimed).map(|()| context)))
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn validate(case: &Case<'_>) -> Result<(), String> {
    let it = manifest(case)?.ok_or("the manifest must parse")?;
    let outcome = context(case)?.and_then(|context| it.validate_against(&context));
    match (outcome, case.value.get("context_reject").and_then(|v| v.as_str())) {
        (Ok(()), None) => expect_eq("valid", &case.get("valid")?.as_bool(), &Some(true)),
        (Ok(()), Some(slug)) => Err(format!("accepted, should reject as {slug}")),
        (Err(error), Some(slug)) => expect_eq("reject class", &context_slug(&error), &slug),
        (Err(error), None) => Err(format!("refused: {error}")),
    }
}

enum With {
    Decode(DecodeError),
    Edit(EditError),
}

fn with_contribution(case: &Case<'_>) -> Result<(), String> {
    let it = StackManifest::decode(&input_json(case, "input")?).map_err(to_text)?;
    let outcome = (|| {
        let new = ContributionRef::decode(&to_json(case.get("contribution").map_err(bad)?))
            .map_err(With::Decode)?;
        let remove =
            Vec::<TargetId>::decode(&to_json(case.get("remove").map_err(bad)?)).map_err(With::Decode)?;
        it.with_contribution(new, &remove).map_err(With::Edit)
    })();
    let slug = |error: &With| match error {
        With::Decode(error) => slug(error),
        With::Edit(EditError::RemoveInactive(_)) => "remove_inactive",
        With::Edit(EditError::RemoveTwice(_)) => "duplicate",
        With::Edit(EditError::NotIntegrated(_)) => "not_integrated",
    };
    let Some(next) = expect_reject(case, outcome, slug)? else { return Ok(()) };
    expect_text(case, "digest", &next.digest())
}

fn bad(message: String) -> With {
    With::Decode(DecodeError::invalid("the case is whole", &message))
}

fn reference_manifest(case: &Case<'_>) -> Result<(), String> {
    let it = expect_reject(case, ReferenceManifest::decode(&input_json(case, "input")?), slug)?;
    let Some(it) = it else { return Ok(()) };
    expect_text(case, "digest", &it.digest())?;
    expect_text(case, "measured_digest", &it.measured_digest())
}

fn integration_review(case: &Case<'_>) -> Result<(), String> {
    let json = input_json(case, "input")?;
    let Some(it) = expect_reject(case, IntegrationReview::decode(&json), slug)? else { return Ok(()) };
    expect_text(case, "digest", &it.digest())?;
    expect_text(case, "artifacts_digest", &it.artifacts.digest())?;
    let projected = it.integrated_ref();
    expect_eq(
        "integrated_ref",
        &projected.to_canonical(),
        &to_json(case.get("integrated_ref")?).to_canonical(),
    )?;
    expect_text(case, "integrated_ref_digest", &projected.digest())?;
    expect_text(case, "selected_delta_digest", &projected.selected_delta())?;
    expect_eq("written form", &it.to_canonical(), &json.to_canonical())
}

fn release_integrations(case: &Case<'_>) -> Result<(), String> {
    let release = EngineRelease::decode(&input_json(case, "input")?).map_err(to_text)?;
    let outcome = review::decode_records(&input_json(case, "records")?)
        .and_then(|records| review::check_coverage(&release, &records));
    let slug = |error: &CoverageError| match error {
        CoverageError::Records(_) => "records",
        CoverageError::Coverage(_) => "coverage",
        CoverageError::Mismatch(_) => "record_mismatch",
    };
    match expect_reject(case, outcome, slug)? {
        Some(()) => expect_eq("valid", &case.get("valid")?.as_bool(), &Some(true)),
        None => Ok(()),
    }
}

#[test]
fn vectors_stacks_manifests() {
    cacheon_vectors::run("stacks_manifests", &[], |case| match case.op() {
        "contribution_ref" => reference(case),
        "stack_manifest" => manifest(case).map(|_| ()),
        "validate_against" => validate(case),
        "with_contribution" => with_contribution(case),
        "integration_review" => integration_review(case),
        "release_integrations" => release_integrations(case),
        "reference_manifest" => reference_manifest(case),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}
