//! Golden cases of emissions V1.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::{Decode, DecodeError, Digest, Json};
use cacheon_settlement::burn::{BurnAuthority, OwnerBurnAuthority};
use cacheon_settlement::economics::context::ContextError;
use cacheon_settlement::economics::{
    ArenaStanding, EmissionsPolicy, GlobalContext, ProjectError, Projector, allocate_pool, credit,
};
use cacheon_settlement::{DiscoveryClaim, StandingClaim};
use cacheon_stack::catalog::Catalog;
use cacheon_stack::{CatalogSnapshot, EvaluationStack};
use cacheon_vectors::{Case, unknown_op};
use serde_json::{Value, json as value};
use std::collections::BTreeMap;
use support::{generic, json, judge};

type Outcome = Result<Vec<(&'static str, Value)>, Vec<&'static str>>;

fn digest(digest: impl std::fmt::Display) -> Value {
    digest.to_string().into()
}

fn claim_slugs(error: &DecodeError) -> Vec<&'static str> {
    let mut slugs = generic(error);
    slugs.extend(match error.path.first().map(String::as_str) {
        Some("speedup_ppm") => vec!["speedup"],
        Some("bounty_units") => vec!["bounty_units"],
        Some("hotkey" | "target_id") => vec!["malformed"],
        _ => vec![],
    });
    slugs
}

/// A context from its inputs; the metagraph digest is an output.
fn context(input: &Value) -> Result<GlobalContext, Vec<&'static str>> {
    let located = |error: DecodeError| {
        let mut slugs = generic(&error);
        if error.to_string().contains("block hash") {
            slugs.push("block_hash");
        }
        slugs
    };
    let scope = Digest::decode(&json(&input["chain_scope_digest"])).map_err(located)?;
    let block = u64::decode(&json(&input["current_block"])).map_err(located)?;
    let hash = Decode::decode(&json(&input["current_block_hash"])).map_err(located)?;
    let members = Vec::decode(&json(&input["metagraph_members"])).map_err(located)?;
    let validator = Decode::decode(&json(&input["validator_hotkey"])).map_err(located)?;
    GlobalContext::new(scope, block, hash, members, validator).map_err(|error| match error {
        ContextError::ZeroScope => vec!["digest"],
        ContextError::Empty | ContextError::Duplicate(_) => vec!["metagraph"],
        ContextError::ValidatorAbsent(_) => vec!["validator_absent"],
    })
}

fn stack(case: &Case<'_>, arena: &Value) -> EvaluationStack {
    let full = value!({
        "arena_digest": arena["stack"]["arena_digest"],
        "base_engine_digest": case.file["frozen"]["base_engine_digest"],
        "catalog_digest": case.file["catalog_digest"],
        "catalog_snapshot": case.file["catalog_snapshot"],
        "entries": arena["stack"]["entries"],
        "runtime_digest": case.file["frozen"]["runtime_digest"],
        "schema_version": 1,
        "stack_policy_version": "evaluation-stack.v1",
        "type": "evaluation_stack",
    });
    EvaluationStack::decode(&json(&full)).unwrap()
}

fn project(case: &Case<'_>) -> Outcome {
    let context = context(case.value.get("context").unwrap())?;
    let policy = EmissionsPolicy::decode(&json(&case.value["policy"])).map_err(|e| generic(&e))?;
    let catalog = CatalogSnapshot::new(json(&case.file["catalog_snapshot"])).unwrap();
    let catalog = Catalog::parse(catalog).unwrap();
    let rows = case.value["arenas"].as_array().unwrap();
    let mut arenas = Vec::new();
    for row in rows {
        let claims = Vec::<StandingClaim>::decode(&json(&row["claims"])).map_err(|e| claim_slugs(&e))?;
        arenas.push((stack(case, row), row["stack_generation"].as_u64().unwrap(), claims));
    }
    let standing: Vec<_> = arenas
        .iter()
        .map(|(stack, generation, claims)| ArenaStanding {
            catalog: &catalog,
            claims,
            generation: *generation,
            stack,
        })
        .collect();
    let discovery =
        Vec::<DiscoveryClaim>::decode(&json(&case.value["discovery_claims"])).map_err(|e| claim_slugs(&e))?;
    let slug = |error: ProjectError| match error {
        ProjectError::NoArena => vec!["no_arena"],
        ProjectError::DuplicateArena(_) => vec!["duplicate_arena"],
        ProjectError::NoCrown(_) => vec!["no_crown"],
        ProjectError::ActiveSet { .. } => vec!["active_set"],
        ProjectError::ClaimCoverage { .. } => vec!["claim_coverage"],
        ProjectError::ClaimArena { .. } => vec!["claim_arena"],
        ProjectError::ClaimStale { .. } => vec!["claim_stale"],
        ProjectError::ClaimFromFuture { .. } => vec!["claim_from_future"],
        ProjectError::DecayedToZero => vec!["decayed_to_zero"],
        ProjectError::DiscoveryDuplicate(_) => vec!["discovery_duplicate"],
        ProjectError::DiscoveryDisabled => vec!["discovery_disabled"],
        ProjectError::Catalog { .. } | ProjectError::Overflow => vec![],
    };
    let projector = Projector::new(policy, &context, &standing, &discovery).map_err(slug)?;
    let projection = projector.project().map_err(slug)?;
    let zero_rows = projection.weights().values().filter(|weight| **weight == 0).count();
    assert_eq!(projection.dust().len(), zero_rows);
    assert_eq!(projector.faults_at(0).unwrap(), projection.dust());
    let authorities: Vec<Value> = projection.authority_digests().into_iter().map(digest).collect();
    let rows = |bytes: Vec<u8>| -> Value { serde_json::from_slice(&bytes).unwrap() };
    let canonical = |value: &dyn Fn() -> Vec<u8>| rows(value());
    use cacheon_identity::Canonical;
    let mut outputs = vec![
        ("policy_digest", digest(projection.policy())),
        ("context_digest", digest(context.digest())),
        ("metagraph_digest", digest(context.metagraph_digest())),
        ("arena_authority_digests", authorities.into()),
        ("standing", canonical(&|| projection.standing().to_canonical())),
        ("discovery", canonical(&|| projection.discovery().to_canonical())),
        ("expired", canonical(&|| projection.expired().to_canonical())),
        ("weights", canonical(&|| projection.weights().to_canonical())),
        ("projection_digest", digest(projection.digest())),
    ];
    if let [authority] = projection.authorities() {
        let single = value!({
            "context_digest": digest(context.of_arena(authority.generation).digest()),
            "projection_digest": digest(projection.single_arena_digest().unwrap()),
        });
        outputs.push(("single_arena", single));
    }
    Ok(outputs)
}

fn burn(case: &Case<'_>) -> Outcome {
    let payload = json(&case.value["payload"]);
    let got = match case.text("domain").unwrap() {
        "cacheon.chain.burn-weight-authority" => BurnAuthority::decode(&payload).map(|it| it.digest()),
        "cacheon.chain.subnet-owner-burn-weight-authority" => {
            OwnerBurnAuthority::decode(&payload).map(|it| it.digest())
        }
        other => return Err(vec![if other.is_empty() { "domain" } else { "unknown domain" }]),
    };
    Ok(vec![("digest", digest(got.map_err(|e| generic(&e))?))])
}

#[test]
fn vectors_stacks_economics() {
    cacheon_vectors::run("stacks_economics", &[], |case| match case.op() {
        "credit" => {
            let number = |name: &str| case.value[name].as_u64().unwrap();
            let got = credit(u128::from(number("speedup_ppm")), number("age"), number("half_life_blocks"));
            let got = u64::try_from(got).unwrap().into();
            judge(case, &["speedup_ppm", "age", "half_life_blocks"], Ok(vec![("credit", got)]))
        }
        "allocate_pool" => {
            let Json::Object(credits) = read(case.get("credits")?) else { return Err("credits".into()) };
            let credits: BTreeMap<String, u128> =
                credits.into_iter().map(|(k, v)| (k, v.as_int().unwrap().to_u128().unwrap())).collect();
            let outcome = allocate_pool(&credits, case.value["pool"].as_u64().unwrap());
            let outcome = outcome.map(|shares| vec![("result", serde_json::to_value(shares).unwrap())]);
            judge(case, &["credits", "pool"], outcome.map_err(|_| vec!["no_positive_credit"]))
        }
        "project" => judge(case, &["policy", "context", "arenas", "discovery_claims"], project(case)),
        "standing_claim" => {
            let claim = StandingClaim::decode(&json(case.get("input")?)).map_err(|e| claim_slugs(&e));
            let outputs = |claim: StandingClaim| {
                vec![("digest", digest(claim.digest())), ("family_id", digest(claim.family()))]
            };
            judge(case, &["input"], claim.map(outputs))
        }
        "discovery_claim" => {
            let claim = DiscoveryClaim::decode(&json(case.get("input")?)).map_err(|e| claim_slugs(&e));
            judge(case, &["input"], claim.map(|claim| vec![("digest", digest(claim.digest()))]))
        }
        "policy" => {
            let policy = EmissionsPolicy::decode(&json(case.get("input")?));
            let slugs = |error: DecodeError| {
                let mut slugs = generic(&error);
                if !slugs.contains(&"fields") {
                    slugs.push("policy");
                }
                slugs
            };
            judge(case, &["input"], policy.map_err(slugs).map(|it| vec![("digest", digest(it.digest()))]))
        }
        "context" => {
            let outcome = context(case.get("input")?).map(|it| {
                let again = GlobalContext::decode(&cacheon_identity::Canonical::to_json(&it).unwrap());
                assert_eq!(again.as_ref(), Ok(&it));
                vec![("digest", digest(it.digest())), ("metagraph_digest", digest(it.metagraph_digest()))]
            });
            judge(case, &["input"], outcome)
        }
        "burn_authority" => judge(case, &["domain", "payload"], burn(case)),
        other => Err(unknown_op(other)),
    });
}

/// `serde_json` keeps integers beyond 64 bits only as floats, so big credits are read from the raw file.
fn read(value: &Value) -> Json {
    Json::parse(value.to_string().as_bytes()).unwrap_or_else(|_| {
        let text = value
            .to_string()
            .replace("1e+30", "1000000000000000000000000000000")
            .replace("1e30", "1000000000000000000000000000000");
        Json::parse(text.as_bytes()).unwrap()
    })
}
