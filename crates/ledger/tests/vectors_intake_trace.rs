//! Golden traces of the intake store: the same operations must leave the same rows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use cacheon_evidence::{EvidenceRef, EvidenceStore, Steps};
use cacheon_identity::{Decode, Digest, Json};
use cacheon_ledger::lease::EvaluationLease;
use cacheon_ledger::qualify::{Batch, BatchOutcome, RetryPlan, RetryStrategy, Verdict};
use cacheon_ledger::recovery::Recovery;
use cacheon_ledger::screen::ScreenReceipt;
use cacheon_ledger::{
    Arrival, ArrivalFacts, Fingerprint, Head, IntakePolicy, Ledger, LedgerError, OpenOptions, PaymentPointer,
    Scope, Stage, Status,
};
use cacheon_settlement::Qualification;
use cacheon_stack::EvaluationStack;
use cacheon_stack::ids::TreeDigest;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use support::{digest, ids, number, reservation, show, to_json};

/// What a step gave: a value, or a refusal.
type Outcome = Result<Value, String>;

enum Step {
    Ran(Outcome),
    Skipped,
}

struct Store {
    _home: tempfile::TempDir,
    dir: String,
    path: PathBuf,
    options: OpenOptions,
    ledger: Option<Ledger>,
    leases: HashMap<String, EvaluationLease>,
    recoveries: HashMap<String, Recovery>,
    last: support::Dump,
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Object(members) => {
            let unit = members.get("repeat").and_then(Value::as_str).ok_or("no repeat")?;
            let length = members.get("length").and_then(Value::as_u64).ok_or("no length")?;
            Ok(unit.chars().cycle().take(length as usize).collect())
        }
        other => Err(format!("{other} is no text")),
    }
}

fn optional(value: Option<&Value>) -> Result<Option<u64>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => number(value).map(Some),
    }
}

fn status(outcome: Result<Status, LedgerError>) -> Outcome {
    outcome.map(|status| json!(status.as_str())).map_err(show)
}

fn statuses(outcome: Result<Vec<Status>, LedgerError>) -> Outcome {
    outcome.map(|list| list.iter().map(|status| json!(status.as_str())).collect()).map_err(show)
}

impl Store {
    fn new(trace: &Value) -> Result<Self, String> {
        let shm = std::path::Path::new("/dev/shm");
        let home =
            if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.map_err(show)?;
        let dir = home.path().to_str().unwrap().to_owned();
        let path = home.path().join("state").join("intake.sqlite3");
        let scope = &trace["scope"];
        let scope =
            Scope::chain(scope["genesis_hash"].as_str().unwrap(), number(&scope["netuid"])?).map_err(show)?;
        let options = OpenOptions {
            policy: IntakePolicy::decode(&to_json(&trace["policy"])?).map_err(show)?,
            scope,
            recovery: trace["store"] == "recoverable",
            steps: Steps::none(),
        };
        let ledger = Some(Ledger::open(&path, options.clone()).map_err(show)?);
        Ok(Self {
            _home: home,
            dir,
            path,
            options,
            ledger,
            leases: HashMap::new(),
            recoveries: HashMap::new(),
            last: support::Dump::new(),
        })
    }

    fn dump(&self) -> support::Dump {
        support::dump(&self.path, &self.dir)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.ledger = None;
        self.ledger = Some(Ledger::open(&self.path, self.options.clone()).map_err(show)?);
        Ok(())
    }

    fn step(&mut self, op: &str, args: &Value) -> Result<Step, String> {
        match op {
            "restart" => {
                self.reopen()?;
                return Ok(Step::Ran(Ok(Value::Null)));
            }
            "open_second_controller" => {
                let second = Ledger::open(&self.path, self.options.clone());
                let locked = matches!(second, Err(LedgerError::Locked { .. }));
                return Ok(Step::Ran(if locked { Err("locked".to_owned()) } else { Ok(Value::Null) }));
            }
            "reopen_scope" | "reopen_mode" | "reopen_schema" => {
                return self.reopen_with(op, args).map(Step::Ran);
            }
            _ => {}
        }
        if op == "reserve_finalized" {
            return self.reserve(args);
        }
        self.operate(op, args).map(Step::Ran)
    }

    fn reopen_with(&mut self, op: &str, args: &Value) -> Result<Outcome, String> {
        self.ledger = None;
        let mut options = self.options.clone();
        let lock = self.path.with_file_name("intake.sqlite3.lock");
        let parent = self.path.parent().unwrap().to_owned();
        let second = parent.join("second-link");
        let chmod =
            |path: &PathBuf, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let set_schema = |value: &str| {
            let conn = rusqlite::Connection::open(&self.path).unwrap();
            conn.execute("UPDATE metadata SET value=?1 WHERE key='schema'", [value]).unwrap();
        };
        let octal = |value: &Value| u32::from_str_radix(value.as_str().unwrap(), 8).unwrap();
        let (name, value) = args.as_object().unwrap().iter().next().unwrap();
        match (op, name.as_str()) {
            ("reopen_scope", _) => {
                options.scope =
                    Scope::chain(args["genesis_hash"].as_str().unwrap(), number(&args["netuid"])?)
                        .map_err(show)?;
            }
            (_, "database_mode") => chmod(&self.path, octal(value)),
            (_, "lock_mode") => chmod(&lock, octal(value)),
            (_, "parent_mode") => chmod(&parent, octal(value)),
            (_, "database_links") => fs::hard_link(&self.path, &second).unwrap(),
            (_, "metadata_schema") => set_schema(value.as_str().unwrap()),
            other => return Err(format!("{other:?} is not built")),
        }
        let opened = Ledger::open(&self.path, options).map(drop);
        chmod(&parent, 0o700);
        chmod(&self.path, 0o600);
        chmod(&lock, 0o600);
        let _ = fs::remove_file(&second);
        let mut stored = Value::Null;
        if op == "reopen_schema" {
            let conn = rusqlite::Connection::open(&self.path).unwrap();
            let schema: String = conn
                .query_row("SELECT value FROM metadata WHERE key='schema'", [], |row| row.get(0))
                .unwrap();
            stored = json!(schema);
            set_schema("5");
        }
        Ok(match opened {
            Ok(()) => Ok(stored),
            Err(error) if op == "reopen_schema" => Err(format!("{stored}|{error}")),
            Err(error) => Err(show(error)),
        })
    }

    fn reserve(&mut self, args: &Value) -> Result<Step, String> {
        let mut arrivals = Vec::new();
        for row in args["arrivals"].as_array().ok_or("no arrivals")? {
            let big =
                ["payment_block", "payment_extrinsic_index"].iter().any(|name| row[*name].as_i64().is_none());
            if big {
                // The type cannot hold the pointer; the arrival is decided without it (spec 30 §13, 2).
                return Ok(Step::Skipped);
            }
            let facts = ArrivalFacts {
                hotkey: text(&row["hotkey"])?,
                content_hash: text(&row["content_hash"])?,
                url: text(&row["url"])?,
                block: number(&row["block"])?,
                block_hash: text(&row["block_hash"])?,
                event_index: number(&row["event_index"])?,
                event_subindex: number(&row["event_subindex"])?,
                payload_digest: Some(digest(&row["payload_digest"])?),
                invalid_reason: text(&row["invalid_reason"])?,
                payment: PaymentPointer {
                    block: number(&row["payment_block"])?,
                    extrinsic_index: number(&row["payment_extrinsic_index"])?,
                },
            };
            match Arrival::new(facts) {
                Ok(arrival) => arrivals.push(arrival),
                Err(refused) => return Ok(Step::Ran(Err(show(refused)))),
            }
        }
        let head =
            Head { block: number(&args["finalized_block"])?, hash: text(&args["finalized_block_hash"])? };
        let fee = args["eval_cost_amount_tao_rao"].as_i64().ok_or("no fee")?;
        let ledger = self.ledger.as_mut().ok_or("closed")?;
        Ok(Step::Ran(ledger.reserve_finalized(&arrivals, &head, fee).map(|list| ids(&list)).map_err(show)))
    }

    fn batch(&self, args: &Value) -> Result<Result<Batch, String>, String> {
        let reference = |value: &Value| EvidenceRef::decode(&to_json(value)?).map_err(show);
        let attempt =
            if args["attempt_ref"].is_null() { None } else { Some(reference(&args["attempt_ref"])?) };
        let root = args["evidence_root"].as_str().map(|root| root.replace("$DIR", &self.dir));
        if let (Some(text), Some(attempt), Some(root)) = (args.get("attempt_text"), &attempt, &root) {
            let bytes = text.as_str().unwrap().as_bytes();
            match EvidenceStore::new(root).publish(&attempt.label, bytes) {
                Ok(stored) => assert_eq!(stored, *attempt),
                // A root that cannot hold evidence must be refused by the ledger itself.
                Err(error) => assert!(!root.starts_with('/') || root.contains(".."), "{error}"),
            }
        }
        let mut outcomes = Vec::new();
        for row in args["outcomes"].as_array().ok_or("no outcomes")? {
            let cited = &row["attempt_artifact_sha256"];
            let cites = attempt.as_ref().is_some_and(|attempt| *cited == json!(attempt.sha256.to_string()));
            if !cited.is_null() && !cites {
                return Ok(Err("an outcome cites another attempt".to_owned()));
            }
            let report = || digest(&row["report_digest"]);
            let verdict = match (row["decision"].as_str(), row["report_digest"].is_null()) {
                (Some("PASS"), false) => {
                    let qualification =
                        match Qualification::decode(&to_json(&row["settlement_qualification"])?) {
                            Ok(qualification) => qualification,
                            Err(error) => return Ok(Err(show(error))),
                        };
                    if let Some(recorded) = row.get("settlement_qualification_digest")
                        && *recorded != json!(qualification.digest().to_string())
                    {
                        return Err(format!("qualification digest {}", qualification.digest()));
                    }
                    Verdict::Pass { report: report()?, qualification: Box::new(qualification) }
                }
                (Some("FAIL"), false) => Verdict::Fail { report: report()? },
                (Some("NO_DECISION"), false) => Verdict::Undecided { report: report()? },
                (Some("NO_DECISION"), true) => Verdict::Failure { failure: digest(&row["failure_digest"])? },
                other => return Ok(Err(format!("{other:?}"))),
            };
            outcomes.push(BatchOutcome {
                reservation: reservation(&row["reservation_id"])?,
                selected_delta: digest(&row["selected_delta_digest"])?,
                verdict,
                reason: text(&row["reason"])?,
            });
        }
        let retry = match &args["retry_plan"] {
            Value::Null => None,
            plan => Some(RetryPlan {
                strategy: RetryStrategy::parse(plan["strategy"].as_str().unwrap())
                    .ok_or("unknown strategy")?,
                groups: plan["groups"]
                    .as_array()
                    .ok_or("no groups")?
                    .iter()
                    .map(|group| group.as_array().unwrap().iter().map(reservation).collect())
                    .collect::<Result<_, _>>()?,
            }),
        };
        let block = number(&args["current_finalized_block"])?;
        let authority = digest(&args["authority_manifest_digest"])?;
        Ok(Ok(Batch { authority, outcomes, attempt, retry, block, evidence_root: root }))
    }

    #[allow(clippy::too_many_lines)]
    fn operate(&mut self, op: &str, args: &Value) -> Result<Outcome, String> {
        let limit = optional(args.get("limit"))?;
        if op == "apply_qualification_batch" {
            return Ok(match self.batch(args)? {
                Ok(batch) => {
                    statuses(self.ledger.as_mut().ok_or("closed")?.apply_qualification_batch(&batch))
                }
                Err(refused) => Err(refused),
            });
        }
        let handle = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (lease_name, recovery_name) = (handle("lease"), handle("recovery"));
        let lease = self.leases.get(&lease_name).cloned();
        let recovery = self.recoveries.get(&recovery_name).cloned();
        let block = || number(&args["current_block"]);
        let length = || number(&args["lease_blocks"]);
        let reason = || text(&args["reason"]);
        let id = || reservation(&args["reservation_id"]);
        let lease_by_recovery = self.recoveries.get(&lease_name).map(|recovery| recovery.lease.clone());
        let ledger = self.ledger.as_mut().ok_or("closed")?;
        let list = |outcome: Result<Vec<_>, LedgerError>| outcome.map(|list| ids(&list)).map_err(show);
        Ok(match op {
            "pending" => list(ledger.pending(limit)),
            "screenable" => list(ledger.screenable(limit)),
            "promoted" => list(ledger.promoted(limit)),
            "auto_requeueable_holds" => list(ledger.auto_requeueable_holds(limit)),
            "mark_fetching" => status(ledger.mark_fetching(&id()?)),
            "mark_transport_retry" => status(ledger.mark_transport_retry(&id()?, &reason()?)),
            "mark_failed" => status(ledger.mark_failed(&id()?, &reason()?)),
            "mark_held" => status(ledger.mark_held(&id()?, &reason()?)),
            "mark_hold_retry_exhausted" => {
                ledger.mark_hold_retry_exhausted(&id()?).map(Value::from).map_err(show)
            }
            "release_hold" => status(ledger.release_hold(&id()?, &reason()?)),
            "mark_published" => {
                let fingerprint = Fingerprint::decode(&to_json(&args["delta_fingerprint"])?).map_err(show)?;
                let root = text(&args["publication_root"])?;
                status(ledger.mark_published(
                    &id()?,
                    &fingerprint,
                    &digest(&args["publication_digest"])?,
                    &root,
                ))
            }
            "begin_screen" => ledger
                .begin_screen(&id()?, &digest(&args["service_digest"])?)
                .map(|begun| json!([begun.status.as_str(), begun.lane.as_str(), begun.attempt]))
                .map_err(show),
            "apply_screen_receipt" => match ScreenReceipt::decode(&to_json(&args["receipt"])?) {
                Ok(receipt) => {
                    if receipt.digest() != digest(&args["receipt_digest"])? {
                        return Err(format!("receipt digest {}", receipt.digest()));
                    }
                    status(ledger.apply_screen_receipt(&id()?, &digest(&args["candidate_digest"])?, &receipt))
                }
                Err(error) => Err(show(error)),
            },
            "demote_promoted_for_rescreen" => status(ledger.demote_promoted(&id()?, &reason()?)),
            "mark_qualifying" => {
                let manifest = to_json(&args["authority_manifest"])?;
                status(ledger.mark_qualifying(&id()?, &digest(&args["authority_digest"])?, &manifest))
            }
            "reconcile_copies" => ledger
                .reconcile_copies()
                .map(|pairs| pairs.iter().map(|(a, b)| json!([a.to_string(), b.to_string()])).collect())
                .map_err(show),
            "mark_reference_copy" => {
                status(ledger.mark_reference_copy(&id()?, &text(&args["reference_name"])?))
            }
            "retire_duplicate_screenables" => ledger
                .retire_duplicates(&digest(&args["service_digest"])?)
                .map(|pairs| pairs.iter().map(|(id, reason)| json!([id.to_string(), reason])).collect())
                .map_err(show),
            "expire_stale" => list(ledger.expire_stale(block()?)),
            "expire" => status(ledger.expire(&id()?, block()?, &reason()?)),
            "requeue_validator_downtime_expired" => {
                let rows = args["reservation_ids"].as_array().ok_or("no ids")?;
                let rows = rows.iter().map(reservation).collect::<Result<Vec<_>, _>>()?;
                let authority = digest(&args["authority_digest"])?;
                let repeat = args["allow_repeat_refresh"].as_bool().ok_or("no flag")?;
                statuses(ledger.requeue_downtime(&rows, &authority, block()?, repeat))
            }
            "release_manifest_compatibility_failure" => status(
                ledger.release_manifest_compatibility(&id()?, &digest(&args["expected_reason_digest"])?),
            ),
            "archive_schema3_migration_hold" => ledger
                .archive_schema3(&id()?, number(&args["current_finalized_block"])?, &reason()?)
                .map(|(status, reason)| json!([status.as_str(), reason]))
                .map_err(show),
            "arena_queue_snapshot" => ledger
                .queue_snapshot(block()?)
                .map(|view| {
                    json!({"queued": view.queued, "oldest_age_blocks": view.oldest_age_blocks,
                        "active_screens": view.active_screens,
                        "active_qualifications": view.active_qualifications})
                })
                .map_err(show),
            "initialize_evaluation_stack" => {
                let manifest = EvaluationStack::decode(&to_json(&args["manifest"])?).map_err(show)?;
                let tree = TreeDigest::new(digest(&args["tree_digest"])?);
                ledger
                    .initialize_stack(&manifest, tree)
                    .map(|state| {
                        json!({"generation": state.generation,
                            "transition_event_id": state.transition_event_id.to_string()})
                    })
                    .map_err(show)
            }
            "lease_settlement_cohort" => ledger
                .lease_settlement(block()?, length()?)
                .map(|lease| {
                    lease.map_or(Value::Null, |lease| {
                        let candidates: Vec<_> = lease.candidates.iter().map(ToString::to_string).collect();
                        let previous =
                            lease.previous_event.map(|event| event.to_string()).unwrap_or_default();
                        json!({"lease_id": lease.id.to_string(), "authority_digest": lease.authority,
                            "generation": lease.generation, "expires_block": lease.expires_block,
                            "candidates": candidates, "initial_event_sequence": lease.first_sequence,
                            "previous_event_digest": previous})
                    })
                })
                .map_err(show),
            "commit_settlement" => ledger
                .commit_settlement(&digest(&args["lease_id"])?, block()?)
                .map(|settled| {
                    let state = settled.state;
                    json!({"generation": state.generation, "stack_digest": state.stack_digest.to_string(),
                        "tree_digest": state.tree_digest.to_string(),
                        "transition_event_id": state.transition_event_id.to_string()})
                })
                .map_err(show),
            "settlement_state_digest" => {
                ledger.settlement_state_digest().map(|digest| json!(digest.to_string())).map_err(show)
            }
            "preview_evaluation_claim" => {
                let Some(stage) = Stage::parse(args["stage"].as_str().unwrap()) else {
                    return Ok(Err("unknown stage".to_owned()));
                };
                list(ledger.preview_claim(stage, optional(args.get("max_members"))?))
            }
            "claim_evaluation_lease" => {
                let Some(stage) = Stage::parse(args["stage"].as_str().unwrap()) else {
                    return Ok(Err("unknown stage".to_owned()));
                };
                let members = optional(args.get("max_members"))?;
                match ledger.claim_evaluation_lease(
                    stage,
                    &text(&args["owner"])?,
                    block()?,
                    length()?,
                    members,
                ) {
                    Ok(None) => Ok(Value::Null),
                    Ok(Some(lease)) => {
                        let members: Vec<_> = lease
                            .members
                            .iter()
                            .map(|m| json!([m.id.to_string(), m.prior.as_str()]))
                            .collect();
                        let returns = json!({"lease_id": lease.id.to_string(), "generation": lease.generation,
                            "members": members, "expires_block": lease.expires_block});
                        self.leases.insert(lease_name, lease);
                        Ok(returns)
                    }
                    Err(error) => Err(show(error)),
                }
            }
            "heartbeat_evaluation_lease" => {
                let lease = lease.or(lease_by_recovery).ok_or("unknown lease")?;
                match ledger.heartbeat(&lease, block()?, length()?) {
                    Ok(renewed) => {
                        let expires = json!(renewed.expires_block);
                        self.leases.insert(handle("stores_as"), renewed);
                        Ok(expires)
                    }
                    Err(error) => Err(show(error)),
                }
            }
            "release_evaluation_lease" => {
                let lease = lease.or(lease_by_recovery).ok_or("unknown lease")?;
                let result = match args["result_digest"].as_str() {
                    None | Some("") => None,
                    Some(text) => match Digest::parse(text) {
                        Ok(digest) => Some(digest),
                        Err(error) => return Ok(Err(show(error))),
                    },
                };
                ledger
                    .release_lease(&lease, block()?, &reason()?, result.as_ref())
                    .map(|()| Value::Null)
                    .map_err(show)
            }
            "accept_evaluation_result" => {
                let lease = lease.or(lease_by_recovery).ok_or("unknown lease")?;
                accept(ledger, &lease, args)?
            }
            "expire_evaluation_leases" => ledger
                .expire_evaluation_leases(block()?)
                .map(|list| list.iter().map(|id| json!(id.to_string())).collect())
                .map_err(show),
            "claim_recoverable_qualification" => {
                let members = optional(args.get("max_members"))?;
                match ledger.claim_recoverable_qualification(
                    &text(&args["owner"])?,
                    block()?,
                    length()?,
                    members,
                ) {
                    Ok(None) => Ok(Value::Null),
                    Ok(Some(recovery)) => {
                        let returns = json!({"recovery_id": recovery.id.to_string(),
                            "lease_id": recovery.lease.id.to_string(), "phase": recovery.phase.as_str(),
                            "action": recovery.phase.action().as_str()});
                        self.recoveries.insert(recovery_name, recovery);
                        Ok(returns)
                    }
                    Err(error) => Err(show(error)),
                }
            }
            "pending_qualification_recovery" => ledger
                .pending_recovery()
                .map(|found| {
                    found.map_or(Value::Null, |recovery| {
                        json!([
                            recovery.id.to_string(),
                            recovery.phase.as_str(),
                            recovery.phase.action().as_str()
                        ])
                    })
                })
                .map_err(show),
            "renew_recovery_lease" => {
                let recovery = recovery.ok_or("unknown recovery")?;
                match ledger.renew_recovery(&recovery, block()?, length()?) {
                    Ok(next) => {
                        let returns = json!([next.phase.as_str(), next.lease.expires_block, next.revision]);
                        self.recoveries.insert(recovery_name, next);
                        Ok(returns)
                    }
                    Err(error) => Err(show(error)),
                }
            }
            "hold_recovery" => {
                let recovery = recovery.ok_or("unknown recovery")?;
                match ledger.hold_recovery(&recovery, block()?, &reason()?) {
                    Ok(next) => {
                        let returns =
                            json!([next.phase.as_str(), next.phase.action().as_str(), next.revision]);
                        self.recoveries.insert(recovery_name, next);
                        Ok(returns)
                    }
                    Err(error) => Err(show(error)),
                }
            }
            "release_pre_resident_recovery" => {
                let recovery = recovery.ok_or("unknown recovery")?;
                ledger
                    .release_recovery(&recovery, block()?, &reason()?)
                    .map(|id| json!(id.to_string()))
                    .map_err(show)
            }
            "raw_sql" => ledger.raw_sql(&text(&args["sql"])?).map(|()| Value::Null).map_err(show),
            other => return Err(cacheon_vectors::unknown_op(other)),
        })
    }
}

/// Opens the result context and runs the inner operations in order with the given receipt.
fn accept(ledger: &mut Ledger, lease: &EvaluationLease, args: &Value) -> Result<Outcome, String> {
    let inner: Vec<String> = args["inner"]
        .as_array()
        .ok_or("no inner")?
        .iter()
        .map(|op| op.as_str().unwrap().to_owned())
        .collect();
    let service = digest(&args["service_digest"])?;
    let candidate = digest(&args["candidate_digest"])?;
    let receipt = ScreenReceipt::decode(&to_json(&args["receipt"])?).map_err(show)?;
    let result: Digest = digest(&args["result_digest"])?;
    let member = lease.members.first().ok_or("no member")?.id;
    let outcome = ledger.accept_result(lease, number(&args["current_block"])?, &result, |tx| {
        let mut last = Value::Null;
        for op in &inner {
            last = match op.as_str() {
                "begin_screen" => {
                    let begun = tx.begin_screen(&member, &service)?;
                    json!([begun.status.as_str(), begun.lane.as_str(), begun.attempt])
                }
                "apply_screen_receipt" => {
                    json!(tx.apply_screen_receipt(&member, &candidate, &receipt)?.as_str())
                }
                other => panic!("inner operation {other} is not built"),
            };
        }
        Ok(last)
    });
    Ok(outcome.map_err(show))
}

fn check(store: &mut Store, step: &Value) -> Result<bool, String> {
    let op = step["op"].as_str().ok_or("no op")?;
    let Step::Ran(outcome) = store.step(op, &step["args"])? else { return Ok(false) };
    let after = store.dump();
    let found = support::changes(&store.last, &after);
    store.last = after;
    let wanted = support::recorded(&step["changes"]);
    let ok = step["ok"].as_bool().ok_or("no ok")?;
    match (&outcome, ok) {
        (Ok(_), false) => return Err("accepted".to_owned()),
        (Err(error), true) => return Err(format!("refused: {error}")),
        _ => {}
    }
    if found != wanted {
        let extra: Vec<_> = found.iter().filter(|text| !wanted.contains(text)).collect();
        let missing: Vec<_> = wanted.iter().filter(|text| !found.contains(text)).collect();
        return Err(format!("changes: extra {extra:#?} missing {missing:#?}"));
    }
    let returns = step.get("returns").cloned().unwrap_or(Value::Null);
    match outcome {
        Ok(value) if support::canonical(&value) != support::canonical(&returns) => {
            // The inner operations' results are returned only where a case records them.
            if op == "accept_evaluation_result" && returns.is_null() {
                return Ok(true);
            }
            Err(format!("returned {value}, recorded {returns}"))
        }
        Err(text) if op == "reopen_schema" && !text.starts_with(&returns.to_string()) => {
            Err(format!("left schema {text}, recorded {returns}"))
        }
        _ => Ok(true),
    }
}

#[test]
fn vectors_intake_trace() {
    let Some(file) = cacheon_vectors::load("intake-trace") else {
        println!("vectors intake-trace: SKIPPED, this clone has no vector folder (set CACHEON_VECTORS)");
        return;
    };
    let only = std::env::var("CACHEON_TRACE").ok();
    let (mut ran, mut skipped, mut failures) = (0usize, 0usize, Vec::new());
    for trace in file["traces"].as_array().expect("traces") {
        let name = trace["name"].as_str().expect("a name");
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let mut store = Store::new(trace).unwrap_or_else(|error| panic!("{name}: {error}"));
        store.last = store.dump();
        let fixtures = trace.get("fixtures").cloned().unwrap_or(Value::Null);
        for (index, step) in trace["steps"].as_array().expect("steps").iter().enumerate() {
            let step = support::resolve(step, &fixtures);
            match check(&mut store, &step) {
                Ok(true) => ran += 1,
                Ok(false) => skipped += 1,
                Err(why) => {
                    failures.push(format!(
                        "{name} step {index} {}: {}",
                        step["op"],
                        &why[..why.len().min(1800)]
                    ));
                    break;
                }
            }
        }
    }
    println!("vectors intake-trace: {ran} run, {skipped} deferred");
    assert!(failures.is_empty(), "{} traces failed\n{}", failures.len(), failures.join("\n"));
    let _ = Json::Null;
}
