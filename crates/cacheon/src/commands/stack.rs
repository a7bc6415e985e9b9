//! `stack show`, `plan`, `diff`, `materialize` and `verify-tree`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use cacheon_bundle::{Bundle, BundleError, inspect};
use cacheon_identity::{Canonical as _, Decode as _, Digest, Domain, Json};
use cacheon_intake::campaign::report::own_name;
use cacheon_ledger::stack::StoredStack;
use cacheon_stack::contribution::{ContributionRef, ProposalRef};
use cacheon_stack::ids::{ArtifactDigest, Attribution, SelectedPayload, TargetId, TargetSpec, TreeDigest};
use cacheon_stack::plan::{MarginalArm, plan_arm, transition};
use cacheon_stack::tree::{EngineTree, PublishTreeError, ReopenError, materialize, reopen};
use cacheon_stack::{Catalog, EvaluationStack, StackContext};
use serde_json::{Value, json};

use crate::args::{
    StackDiffArgs, StackMaterializeArgs, StackPlanArgs, StackShowArgs, StackSource, StackVerifyTreeArgs,
};
use crate::diff::differences;
use crate::home::{Existing, resolve};
use crate::output::{Failure, INFRASTRUCTURE, Output, REFUSED, value};
use crate::pretty::pretty;
use crate::table::{Align, Table, plain};

/// As the CPU arena attributes contributions.
const ATTRIBUTION: Domain = Domain::with_members("cacheon.rs.attribution.v1", &["hotkey"]);

fn refused(text: impl std::fmt::Display) -> Failure {
    Failure::message(REFUSED, plain(&text.to_string()))
}

fn broken(path: &Path) -> impl FnOnce(std::io::Error) -> Failure + '_ {
    move |error| Failure::message(INFRASTRUCTURE, format!("{}: {error}", path.display()))
}

fn unreadable(path: &Path) -> impl FnOnce(BundleError) -> Failure + '_ {
    move |error| match error {
        BundleError::Refused(finding) => {
            refused(format!("{}: {finding}; {}", path.display(), finding.rule.help()))
        }
        error @ BundleError::Infrastructure { .. } => Failure::infrastructure(error),
    }
}

/// The current stack of every arena.
pub(crate) fn show(args: &StackShowArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let Some(reader) = home.reader().map_err(Failure::infrastructure)? else {
        output.result(
            "no arena has a stack yet; `cacheon arena run BUNDLE` records the first",
            &json!({"stacks": []}),
        );
        return Ok(());
    };
    let rows = reader.reservations().map_err(Failure::infrastructure)?;
    let claims = reader.claims().map_err(Failure::infrastructure)?;
    let (mut text, mut stacks) = (String::new(), Vec::new());
    for stored in reader.stacks().map_err(Failure::infrastructure)? {
        let mut table = Table::new(&[
            ("TARGET", Align::Left),
            ("BUNDLE", Align::Left),
            ("HOTKEY", Align::Left),
            ("SPEEDUP", Align::Right),
            ("CONTRIBUTION", Align::Left),
        ]);
        let mut entries = Vec::new();
        for (target, entry) in stored.manifest.entries() {
            let artifact = match entry {
                ContributionRef::Proposal(proposal) => proposal.artifact.digest().to_string(),
                ContributionRef::Integrated(integrated) => integrated.source_tree.to_string(),
            };
            let bundle = rows.iter().find(|row| row.content_hash == artifact).map(own_name);
            let bundle = bundle.unwrap_or_else(|| artifact.chars().take(12).collect());
            let claim = claims.iter().find(|it| it.active && it.claim.contribution == entry.digest());
            let hotkey = claim.map(|it| it.claim.hotkey.to_string());
            #[allow(clippy::cast_precision_loss, reason = "for people")]
            let speedup = claim.map(|it| it.claim.speedup_ppm() as f64 / 1e6);
            table.row([
                target.to_string(),
                bundle.clone(),
                hotkey.clone().unwrap_or_else(|| "-".to_owned()),
                speedup.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}x")),
                entry.digest().to_string(),
            ]);
            entries.push(json!({
                "target": target.as_str(), "bundle": bundle, "artifact": artifact, "hotkey": hotkey,
                "speedup": speedup, "contribution": entry.digest().to_string(),
            }));
        }
        let state = &stored.state;
        let _ = writeln!(text, "arena {}", state.arena_digest);
        let _ = writeln!(
            text,
            "generation {}  stack {}  tree {}",
            state.generation, state.stack_digest, state.tree_digest
        );
        let _ = writeln!(text, "base engine {}", stored.manifest.base_engine);
        match entries.is_empty() {
            true => text.push_str("no crown yet: every target runs the base engine\n"),
            false => text.push_str(&table.render()),
        }
        stacks.push(json!({
            "arena": state.arena_digest.to_string(),
            "generation": state.generation,
            "stack": state.stack_digest.to_string(),
            "tree": state.tree_digest.to_string(),
            "transition_event": state.transition_event_id.to_string(),
            "entries": entries,
            "manifest": manifest_json(&stored.manifest)?,
        }));
    }
    output.result(&text, &json!({ "stacks": stacks }));
    Ok(())
}

fn manifest_json(manifest: &EvaluationStack) -> Result<Value, Failure> {
    manifest.to_json().map(|json| value(&json)).map_err(Failure::infrastructure)
}

/// A stack to work on, with the catalog and context it was made in.
struct Base {
    manifest: EvaluationStack,
    catalog: Catalog,
    context: StackContext,
    bundles: PathBuf,
}

impl Base {
    fn open(source: &StackSource, common: &crate::args::Common) -> Result<Self, Failure> {
        let manifest = match &source.stack {
            Some(path) => {
                let bytes = std::fs::read(path).map_err(broken(path))?;
                let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                EvaluationStack::decode_bytes(bytes)
                    .map_err(|error| refused(format!("{}: {error}", path.display())))?
            }
            None => Self::current(&Existing::find(common)?)?.manifest,
        };
        let bundles = match &source.bundles {
            Some(path) => path.clone(),
            None => resolve(common)?.join("bundles"),
        };
        let catalog =
            Catalog::parse(manifest.catalog.clone()).map_err(|error| refused(format!("catalog: {error}")))?;
        let context = StackContext::new(
            manifest.runtime,
            manifest.base_engine,
            Some(manifest.arena),
            manifest.catalog.clone(),
        )
        .map_err(refused)?;
        Ok(Self { manifest, catalog, context, bundles })
    }

    fn current(home: &Existing) -> Result<StoredStack, Failure> {
        let reader = home.reader().map_err(Failure::infrastructure)?;
        let mut stacks = match reader {
            Some(reader) => reader.stacks().map_err(Failure::infrastructure)?,
            None => Vec::new(),
        };
        match (stacks.pop(), stacks.is_empty()) {
            (Some(one), true) => Ok(one),
            (None, _) => Err(refused("no arena has a stack here yet; name a manifest with --stack FILE")),
            (Some(_), false) => {
                Err(refused("several arenas have a stack here; name a manifest with --stack FILE"))
            }
        }
    }

    /// The published bundle of every entry of `stack`; `given` are tried first, by content hash.
    fn sources(
        &self,
        stack: &EvaluationStack,
        given: &[Bundle],
    ) -> Result<BTreeMap<TargetId, Bundle>, Failure> {
        let mut sources = BTreeMap::new();
        for (target, entry) in stack.entries() {
            let ContributionRef::Proposal(proposal) = entry else {
                let text =
                    format!("{target} holds an integrated contribution; only bundles are materialised here");
                return Err(refused(text));
            };
            let hash = proposal.artifact.digest();
            let bundle = match given.iter().find(|bundle| bundle.content_hash() == hash) {
                Some(bundle) => bundle.clone(),
                None => {
                    let path = self.bundles.join(hash.to_string());
                    if !path.is_dir() {
                        let text = format!(
                            "the bundle of {target} ({hash}) is not below {}; name its folder",
                            self.bundles.display()
                        );
                        return Err(refused(text));
                    }
                    Bundle::read(&path).map_err(unreadable(&path))?
                }
            };
            sources.insert(target.clone(), bundle);
        }
        Ok(sources)
    }

    fn tree(&self, stack: &EvaluationStack, given: &[Bundle]) -> Result<EngineTree, Failure> {
        let sources = self.sources(stack, given)?;
        let borrowed: BTreeMap<TargetId, &Bundle> =
            sources.iter().map(|(id, bundle)| (id.clone(), bundle)).collect();
        materialize(stack, &self.catalog, &borrowed).map_err(refused)
    }
}

/// What a bundle would replace.
pub(crate) fn plan(args: &StackPlanArgs, output: Output) -> Result<(), Failure> {
    let base = Base::open(&args.source, &args.common)?;
    let bundle = Bundle::read(&args.bundle).map_err(unreadable(&args.bundle))?;
    let inspection = inspect(&bundle, &base.catalog)
        .map_err(|finding| refused(format!("{finding}; {}", finding.rule.help())))?;
    let hotkey = Json::object([("hotkey", Json::Str(args.hotkey.clone()))]);
    let reference = ContributionRef::Proposal(ProposalRef {
        artifact: ArtifactDigest::new(bundle.content_hash()),
        attribution: Attribution::new(ATTRIBUTION.digest(&hotkey)),
        payload: SelectedPayload::new(inspection.selected_payload_digest),
        target: TargetId::parse(&inspection.target_id).map_err(refused)?,
        target_spec: TargetSpec::new(inspection.target_spec_digest),
    });
    let (resulting, _) =
        transition(&base.manifest, reference.clone(), &base.catalog, &base.context).map_err(refused)?;
    let given = [bundle];
    let incumbent_tree = base.tree(&base.manifest, &[])?.digest();
    let candidate_tree = base.tree(&resulting, &given)?.digest();
    let arm =
        plan_arm(&base.manifest, reference, &base.catalog, &base.context, incumbent_tree, candidate_tree)
            .map_err(refused)?;
    if let Some(path) = &args.out {
        let mut bytes = arm.candidate().to_canonical();
        bytes.push(b'\n');
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(broken(path))?;
        file.write_all(&bytes).map_err(broken(path))?;
    }
    let json = planned(&arm, incumbent_tree, candidate_tree)?;
    output.result(&told(&arm, &args.hotkey), &json);
    Ok(())
}

fn told(arm: &MarginalArm, hotkey: &str) -> String {
    let change = arm.transition();
    let target = change.replacement.target();
    let mut text = match &change.prior {
        Some(prior) => format!("{target}: replaces {}\n", prior.digest()),
        None => format!("{target}: replaces the base engine's own\n"),
    };
    for gone in &change.displaced {
        let _ = writeln!(text, "{}: displaced, {}", gone.target(), gone.digest());
    }
    let mut table = Table::new(&[("", Align::Left), ("INCUMBENT", Align::Left), ("CANDIDATE", Align::Left)]);
    let (before, after) = (arm.baseline(), arm.challenger());
    table.row(["stack".to_owned(), before.stack.to_string(), after.stack.to_string()]);
    table.row(["tree".to_owned(), before.tree.to_string(), after.tree.to_string()]);
    text.push_str(&table.render());
    let _ = writeln!(text, "contribution   {} (credited to {hotkey})", change.replacement.digest());
    let _ = writeln!(text, "selected delta {}", arm.selected_delta());
    let _ = writeln!(text, "arm            {}", arm.digest());
    text
}

fn planned(arm: &MarginalArm, incumbent: TreeDigest, candidate: TreeDigest) -> Result<Value, Failure> {
    let change = arm.transition();
    Ok(json!({
        "target": change.replacement.target().as_str(),
        "prior": change.prior.as_ref().map(|it| it.digest().to_string()),
        "displaced": change.displaced.iter().map(|it| it.target().to_string()).collect::<Vec<_>>(),
        "contribution": change.replacement.digest().to_string(),
        "selected_delta": arm.selected_delta().to_string(),
        "arm": arm.digest().to_string(),
        "incumbent": {"stack": arm.baseline().stack.to_string(), "tree": incumbent.to_string()},
        "candidate": {"stack": arm.challenger().stack.to_string(), "tree": candidate.to_string(),
                      "manifest": manifest_json(arm.candidate())?},
    }))
}

fn record(path: &Path) -> Result<Json, Failure> {
    let bytes = std::fs::read(path).map_err(broken(path))?;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Json::parse(bytes).map_err(|error| refused(format!("{}: {error}", path.display())))
}

/// What differs between two records. Exit 2 when anything does.
pub(crate) fn diff(args: &StackDiffArgs, output: Output) -> Result<(), Failure> {
    let found = differences(&record(&args.left)?, &record(&args.right)?);
    let side = |json: &Option<Json>| match json {
        Some(json) => pretty(json).trim_end().replace('\n', "\n      "),
        None => "absent".to_owned(),
    };
    let mut text = String::new();
    for it in &found {
        let _ = writeln!(text, "{}\n    - {}\n    + {}", plain(&it.path), side(&it.left), side(&it.right));
    }
    let _ = match found.len() {
        0 => writeln!(text, "the records are equal, member by member"),
        1 => writeln!(text, "1 member differs"),
        several => writeln!(text, "{several} members differ"),
    };
    let rows = found.iter().map(|it| {
        json!({"path": it.path, "left": it.left.as_ref().map(value), "right": it.right.as_ref().map(value),
               "in_left": it.left.is_some(), "in_right": it.right.is_some()})
    });
    output.result(&text, &json!({"equal": found.is_empty(), "differences": rows.collect::<Vec<_>>()}));
    if found.is_empty() { Ok(()) } else { Err(Failure::quiet(REFUSED)) }
}

/// Writes the tree of a stack.
pub(crate) fn write_tree(args: &StackMaterializeArgs, output: Output) -> Result<(), Failure> {
    let base = Base::open(&args.source, &args.common)?;
    let mut given = Vec::new();
    for path in &args.with {
        given.push(Bundle::read(path).map_err(unreadable(path))?);
    }
    let tree = base.tree(&base.manifest, &given)?;
    let sources: Vec<&Path> = args.with.iter().map(PathBuf::as_path).collect();
    let opened = tree.publish(&args.destination, &sources).map_err(|error| match &error {
        PublishTreeError::Disk(_) | PublishTreeError::Reopen(ReopenError::Disk(_)) => {
            Failure::infrastructure(error)
        }
        _ => Failure::refused(error),
    })?;
    let bytes: usize = tree.files().values().map(|file| file.bytes.len()).sum();
    let (files, digest) = (tree.files().len(), opened.digest.to_string());
    let text = format!(
        "{}: {files} files, {bytes} bytes\ntree  {digest}\nstack {}",
        opened.path.display(),
        tree.stack()
    );
    let json = json!({"path": opened.path.display().to_string(), "tree": digest, "stack": tree.stack().to_string(),
                      "files": files, "bytes": bytes});
    output.result(&text, &json);
    Ok(())
}

/// Checks a tree against its digest.
pub(crate) fn verify_tree(args: &StackVerifyTreeArgs, output: Output) -> Result<(), Failure> {
    let named =
        args.tree.file_name().and_then(|name| name.to_str()).filter(|name| Digest::parse(name).is_ok());
    let Some(text) = args.digest.as_deref().or(named) else {
        return Err(Failure::message(
            crate::output::USAGE,
            format!("{} is not called by a digest; name the one it must have", args.tree.display()),
        ));
    };
    let expected = TreeDigest::parse(text).map_err(|error| Failure::message(crate::output::USAGE, error))?;
    match reopen(&args.tree, expected) {
        Ok(opened) => {
            let count = opened.record.contributions.len();
            let told = format!("{expected}: verified, {count} contributions, stack {}", opened.record.stack);
            let json = json!({"verified": true, "tree": expected.to_string(), "stack": opened.record.stack.to_string(),
                              "contributions": count});
            output.result(&told, &json);
            Ok(())
        }
        Err(error) => {
            let json = json!({"verified": false, "tree": expected.to_string(), "error": error.to_string()});
            output.result(&plain(&format!("{}: NOT verified: {error}", args.tree.display())), &json);
            Err(Failure::quiet(REFUSED))
        }
    }
}
