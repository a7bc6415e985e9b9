//! `weights project`: what the settled crowns earn under emissions policy V1 (spec 20 §10).

use std::collections::BTreeMap;

use cacheon_ledger::Reader;
use cacheon_settlement::StandingClaim;
use cacheon_settlement::claim::Hotkey;
use cacheon_settlement::economics::context::{BlockHash, GlobalContext, MetagraphMember};
use cacheon_settlement::economics::policy::EmissionsPolicy;
use cacheon_settlement::economics::projection::{ArenaStanding, Projection, Projector};
use cacheon_stack::Catalog;
use serde_json::{Value, json};

use crate::args::WeightsProjectArgs;
use crate::home::Existing;
use crate::output::{Failure, INFRASTRUCTURE, Output};
use crate::table::{Align, Table};

/// A projection for people and programs.
pub(crate) struct Projected {
    pub(crate) text: String,
    pub(crate) json: Value,
}

/// Projects and prints.
pub(crate) fn project(args: &WeightsProjectArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let projected = match home.reader().map_err(Failure::infrastructure)? {
        Some(reader) => from_ledger(&reader, args.half_life_blocks, &args.validator)?,
        None => nothing(),
    };
    output.result(&projected.text, &projected.json);
    Ok(())
}

fn nothing() -> Projected {
    Projected {
        text: "no crown stands; there is nothing to project".to_owned(),
        json: json!({"weights": [], "standing": [], "projection_digest": null}),
    }
}

fn damaged(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::message(INFRASTRUCTURE, format!("{what}: {why}"))
}

/// Projects the standing claims of a ledger. The local metagraph is the validator at uid 0 and every claimant after it,
/// in order of name; there are no discovery claims.
pub(crate) fn from_ledger(reader: &Reader, half_life: u64, validator: &str) -> Result<Projected, Failure> {
    let mut claims: BTreeMap<_, Vec<StandingClaim>> = BTreeMap::new();
    for stored in reader.claims().map_err(Failure::infrastructure)? {
        if stored.active {
            claims.entry(stored.claim.arena).or_default().push(stored.claim);
        }
    }
    if claims.is_empty() {
        return Ok(nothing());
    }
    let policy = EmissionsPolicy::new(half_life, half_life, 0).map_err(|error| damaged("policy", error))?;
    let context = context(reader, validator, claims.values().flatten())?;
    let mut stacks = Vec::new();
    for stored in reader.stacks().map_err(Failure::infrastructure)? {
        if claims.contains_key(&stored.state.arena_digest) {
            let catalog = Catalog::parse(stored.manifest.catalog.clone());
            stacks.push((stored, catalog.map_err(|error| damaged("catalog", error))?));
        }
    }
    let arenas: Vec<ArenaStanding<'_>> = stacks
        .iter()
        .map(|(stored, catalog)| ArenaStanding {
            catalog,
            claims: claims.get(&stored.state.arena_digest).map_or(&[][..], Vec::as_slice),
            generation: stored.state.generation,
            stack: &stored.manifest,
        })
        .collect();
    let projector =
        Projector::new(policy, &context, &arenas, &[]).map_err(|error| damaged("projection", error))?;
    let projection = projector.project().map_err(|error| damaged("projection", error))?;
    Ok(rendered(&projection, &context, policy))
}

fn context<'a>(
    reader: &Reader,
    validator: &str,
    claims: impl Iterator<Item = &'a StandingClaim>,
) -> Result<GlobalContext, Failure> {
    let (block, hash) = reader
        .cursor()
        .map_err(Failure::infrastructure)?
        .ok_or_else(|| damaged("ledger", "it has claims and no block"))?;
    let validator = Hotkey::parse(validator).map_err(|error| damaged("validator", error))?;
    let mut names: Vec<Hotkey> =
        claims.map(|claim| claim.hotkey.clone()).filter(|it| *it != validator).collect();
    names.sort();
    names.dedup();
    names.insert(0, validator.clone());
    let members =
        names.into_iter().zip(0u64..).map(|(hotkey, uid)| MetagraphMember { hotkey, uid }).collect();
    let hash = BlockHash::parse(&hash).map_err(|error| damaged("block hash", error))?;
    GlobalContext::new(reader.scope().digest(), block, hash, members, validator)
        .map_err(|error| damaged("context", error))
}

fn rendered(projection: &Projection<'_>, context: &GlobalContext, policy: EmissionsPolicy) -> Projected {
    let mut table =
        Table::new(&[("HOTKEY", Align::Left), ("WEIGHT", Align::Right), ("CREDIT", Align::Right)]);
    let mut weights = Vec::new();
    for (hotkey, ppm) in projection.weights() {
        let own = projection.standing().iter().filter(|row| row.hotkey == *hotkey);
        let credit: u128 = own.map(|row| row.credit).fold(0, u128::saturating_add);
        #[allow(clippy::cast_precision_loss, reason = "at most 10^6")]
        let percent = *ppm as f64 / 10_000.0;
        table.row([hotkey.to_string(), format!("{percent:.4}%"), credit.to_string()]);
        weights.push(json!({"hotkey": hotkey.as_str(), "weight_ppm": ppm}));
    }
    for row in projection.standing() {
        table.note(&format!("{} at {}: credit {}", row.hotkey, row.target_id, row.credit));
    }
    for fault in projection.dust() {
        table.note(&fault.to_string());
    }
    let (block, half) = (context.block(), policy.half_life_blocks());
    let text = format!(
        "{}at local block {block}, half-life {half} blocks, projection {}\n",
        table.render(),
        projection.digest()
    );
    let standing = projection.standing().iter().map(|row| {
        json!({"target": row.target_id.to_string(), "hotkey": row.hotkey.as_str(), "credit": row.credit.to_string(),
               "claim": row.claim_digest.to_string()})
    });
    let json = json!({
        "weights": weights,
        "standing": standing.collect::<Vec<_>>(),
        "block": block,
        "half_life_blocks": half,
        "policy_digest": policy.digest().to_string(),
        "metagraph_digest": context.metagraph_digest().to_string(),
        "projection_digest": projection.digest().to_string(),
    });
    Projected { text, json }
}
