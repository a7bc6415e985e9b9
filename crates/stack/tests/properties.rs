//! Round trips, order, and catalogs that must not load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_identity::{Canonical, Decode, Json, sha256};
use cacheon_stack::catalog::{self, Catalog};
use cacheon_stack::ids::{Attribution, SelectedPayload, TreeDigest};
use cacheon_stack::manifest::CatalogSnapshot;
use cacheon_stack::plan::{PlanError, StackIdentity, confirm_record, plan_arm};
use cacheon_stack::{ContributionRef, EvaluationStack, IntegratedRef, ProposalRef, StackContext, TargetId};
use proptest::prelude::*;

fn registered() -> &'static Catalog {
    catalog::by_digest(catalog::REGISTERED_2026_08_22).unwrap()
}

fn context() -> StackContext {
    let digest = |name: &str| sha256(name.as_bytes()).to_string();
    StackContext::new(
        digest("runtime").parse().unwrap(),
        digest("base").parse().unwrap(),
        Some(digest("arena").parse().unwrap()),
        registered().snapshot().clone(),
    )
    .unwrap()
}

prop_compose! {
    fn reference()(index in 0usize..12, payload in any::<u64>(), who in any::<u8>(), integrated in any::<bool>())
        -> ContributionRef
    {
        let target = registered().targets().values().nth(index).unwrap();
        let digest = |salt: &str| sha256(format!("{salt}{payload}").as_bytes());
        let (payload, attribution) = (SelectedPayload::new(digest("p")), Attribution::new(sha256(&[who])));
        if integrated {
            IntegratedRef {
                attribution, payload, target: target.id.clone(), target_spec: target.spec,
                source_tree: digest("s").to_string().parse().unwrap(),
                review: digest("r").to_string().parse().unwrap(),
            }.into()
        } else {
            ProposalRef {
                attribution, payload, target: target.id.clone(), target_spec: target.spec,
                artifact: digest("a").to_string().parse().unwrap(),
            }.into()
        }
    }
}

fn tree(stack: &EvaluationStack) -> TreeDigest {
    TreeDigest::new(sha256(stack.digest().to_string().as_bytes()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any walk of accepted transitions keeps every rule, reads back, and can be undone step by step.
    #[test]
    fn transitions_keep_the_rules_and_can_be_undone(steps in prop::collection::vec(reference(), 1..12)) {
        let (catalog, context) = (registered(), context());
        let mut stack = EvaluationStack::empty(&context, context.arena.unwrap());
        for step in steps {
            let before = StackIdentity { stack: stack.digest(), tree: tree(&stack) };
            let candidate_tree = TreeDigest::new(sha256(step.digest().to_string().as_bytes()));
            let arm = match plan_arm(&stack, step.clone(), catalog, &context, before.tree, candidate_tree) {
                Ok(arm) => arm,
                Err(PlanError::NoExecutableDelta { .. } | PlanError::DecomposeBlocked { .. }) => continue,
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            prop_assert!(catalog.validate_active(arm.candidate().entries().keys()).is_ok());
            let order = catalog.ordered_active(arm.candidate().entries().keys()).unwrap();
            prop_assert_eq!(order.len(), arm.candidate().entries().len());
            let again = EvaluationStack::decode_bytes(&arm.candidate().to_canonical()).unwrap();
            prop_assert_eq!(&again, arm.candidate());
            prop_assert_eq!(again.digest(), arm.challenger().stack);
            prop_assert!(again.validate_against(&context).is_ok());
            prop_assert!(confirm_record(&arm, &arm.to_canonical()).is_ok());
            prop_assert_eq!(arm.rollback().apply(arm.challenger()).unwrap(), before);
            prop_assert!(arm.rollback().apply(before).is_err());
            stack = arm.candidate().clone();
        }
    }

    /// No single edited character of a manifest keeps its digest; most do not read at all.
    #[test]
    fn an_edited_manifest_is_another_one(at in any::<prop::sample::Index>(), with in any::<char>(), it in reference()) {
        let context = context();
        let stack = EvaluationStack::empty(&context, context.arena.unwrap()).with_contribution(it, &[]).unwrap();
        let text = String::from_utf8(stack.to_canonical()).unwrap();
        let mut chars: Vec<char> = text.chars().collect();
        let index = at.index(chars.len());
        prop_assume!(chars[index] != with);
        chars[index] = with;
        let edited: String = chars.into_iter().collect();
        if let Ok(other) = EvaluationStack::decode_bytes(edited.as_bytes()) {
            prop_assert_ne!(other.digest(), stack.digest());
        }
    }

    /// Target ids are what their grammar says, and nothing else.
    #[test]
    fn target_ids_keep_their_grammar(text in ".{0,12}") {
        let keeps = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        prop_assert_eq!(TargetId::parse(&text).is_ok(), keeps);
    }
}

/// The snapshot with one member changed.
fn edited(path: &[&str], value: Json) -> Result<Catalog, String> {
    fn put(json: &mut Json, path: &[&str], value: Json) {
        let next = match json {
            Json::Object(members) => members.get_mut(path[0]).unwrap(),
            Json::Array(items) => items.get_mut(path[0].parse::<usize>().unwrap()).unwrap(),
            _ => panic!("no member {}", path[0]),
        };
        if path.len() == 1 { *next = value } else { put(next, &path[1..], value) }
    }
    let mut json = registered().snapshot().json().clone();
    put(&mut json, path, value);
    let snapshot = CatalogSnapshot::new(json).map_err(|error| error.to_string())?;
    Catalog::parse(snapshot).map_err(|error| error.to_string())
}

#[test]
fn a_catalog_that_breaks_a_rule_does_not_load() {
    let list = |items: &[&str]| Json::Array(items.iter().map(|it| Json::from(*it)).collect());
    // Targets 7, 9, 10, 11: the epilogue, both fused experts, rmsnorm.
    for (name, path, value) in [
        ("version", &["schema_version"][..], Json::from(2)),
        ("policy", &["policy_version"], Json::from("target-catalog.v2")),
        ("registry", &["artifact_provider_registry", "schema_version"], Json::from(2)),
        ("order", &["targets", "0", "target_id"], Json::from("zzz")),
        ("members", &["targets", "11", "members"], list(&["attention.sdpa"])),
        ("contract", &["targets", "11", "contract_ref", "entry"], Json::from("other")),
        ("unknown displaced", &["targets", "11", "displaces"], list(&["nope"])),
        ("displacement cycle", &["targets", "6", "displaces"], list(&["collective.moe_epilogue.v1"])),
        (
            "requires what it displaces",
            &["targets", "7", "requires"],
            list(&["collective.ar_residual_rmsnorm"]),
        ),
        ("one-sided compatibility", &["targets", "9", "compatible_with"], list(&[])),
        ("compatible without a rule", &["targets", "11", "compatible_with"], list(&["attention.sdpa"])),
        (
            "unsorted",
            &["targets", "7", "displaces"],
            list(&["collective.moe_finalize_ar_rmsnorm", "collective.ar_residual_rmsnorm"]),
        ),
        ("setup allowed", &["targets", "11", "allowed_features"], list(&["entry", "setup"])),
        ("entry not allowed", &["targets", "11", "allowed_features"], list(&["variants"])),
        ("rule over one target", &["composition_rules", "0", "precedence"], list(&["moe.fused_experts"])),
        ("rule mode", &["composition_rules", "0", "mode"], Json::from("all")),
        ("rule family", &["composition_rules", "0", "binding_family_id"], Json::from("other")),
    ] {
        let loaded = edited(path, value);
        assert!(loaded.is_err(), "{name} loaded");
    }
    assert!(edited(&["schema_version"], Json::from(1)).is_ok(), "the unedited snapshot loads");
}
