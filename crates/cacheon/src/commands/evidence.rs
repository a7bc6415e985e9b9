//! `evidence list`, `show` and `verify`: retained bytes, with neither ledger nor arena.

use std::fmt::Write as _;

use cacheon_evidence::cpu::attempt::{Artifact, Attempt, read_record};
use cacheon_evidence::cpu::verify::{Verified, VerifyError, verify};
use cacheon_evidence::fsck::{Stored, list};
use cacheon_evidence::{EvidenceStore, StoreError};
use cacheon_identity::{Digest, Json};
use serde_json::{Value, json};

use crate::args::{EvidenceListArgs, EvidenceShowArgs, EvidenceVerifyArgs};
use crate::home::Existing;
use crate::output::{Failure, Output, REFUSED, number, value};
use crate::pretty::pretty;
use crate::table::{Align, Table};

/// Largest object that is read, bytes.
const LIMIT: u64 = 1 << 30;
/// Fewest digits of a digest that name an object.
const PREFIX: usize = 8;

fn store(home: &Existing) -> EvidenceStore {
    EvidenceStore::new(home.evidence()).with_limit(LIMIT)
}

/// Every object, by domain and digest; an empty store before the first.
fn objects(home: &Existing, store: &EvidenceStore) -> Result<Vec<Stored>, Failure> {
    if !home.evidence().is_dir() {
        return Ok(Vec::new());
    }
    let mut objects = list(store).map_err(Failure::infrastructure)?;
    objects.sort();
    Ok(objects)
}

/// The retained objects.
pub(crate) fn list_objects(args: &EvidenceListArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let store = store(&home);
    let mut objects = objects(&home, &store)?;
    if let Some(domain) = &args.domain {
        objects.retain(|it| it.domain.as_str() == domain);
    }
    let mut table = Table::new(&[
        ("DOMAIN", Align::Left),
        ("SHA-256", Align::Left),
        ("BYTES", Align::Right),
        ("RECORDS", Align::Left),
    ]);
    let mut rows = Vec::new();
    for it in &objects {
        let summary = summary(&store, it);
        table.row([
            it.domain.to_string(),
            it.sha256.to_string(),
            it.size.to_string(),
            summary.clone().unwrap_or_default(),
        ]);
        rows.push(json!({
            "domain": it.domain.as_str(), "sha256": it.sha256.to_string(), "bytes": it.size, "summary": summary,
        }));
    }
    let text = if objects.is_empty() { "nothing is retained yet".to_owned() } else { table.render() };
    output.result(&text, &json!({ "objects": rows }));
    Ok(())
}

/// What an attempt records, for a list; nothing is derived.
fn summary(store: &EvidenceStore, it: &Stored) -> Option<String> {
    if it.domain.as_str() != Artifact::Attempt.names().0 {
        return None;
    }
    let bytes = store.find(it.domain.as_str(), &it.sha256).ok()??;
    let attempt: Attempt = read_record(&bytes).ok()?;
    Some(format!("{} {}", attempt.decision, attempt.reason))
}

fn refused(text: String) -> Failure {
    Failure::message(REFUSED, text)
}

/// The objects that a digest or prefix names: one digest, in every domain that holds it.
fn find<'a>(objects: &'a [Stored], word: &str, what: &str) -> Result<Vec<&'a Stored>, Failure> {
    let hex = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if word.len() < PREFIX || word.len() > 64 || !hex {
        return Err(refused(format!(
            "`{word}` is no digest: give {PREFIX} to 64 lower-case hexadecimal digits"
        )));
    }
    let found: Vec<&Stored> = objects.iter().filter(|it| it.sha256.to_string().starts_with(word)).collect();
    let mut digests: Vec<Digest> = found.iter().map(|it| it.sha256).collect();
    digests.dedup();
    digests.sort_unstable();
    digests.dedup();
    match digests.len() {
        1 => Ok(found),
        0 => Err(refused(format!("no {what} here begins with {word}; `cacheon evidence list` shows all"))),
        several => Err(refused(format!("{several} objects begin with {word}; give more digits"))),
    }
}

/// One retained object.
pub(crate) fn show(args: &EvidenceShowArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let store = store(&home);
    let objects = objects(&home, &store)?;
    let found = find(&objects, &args.digest, "object")?;
    let Some(first) = found.first() else { return Err(refused("nothing found".to_owned())) };
    let bytes = store.find(first.domain.as_str(), &first.sha256).map_err(Failure::infrastructure)?;
    let bytes = bytes.ok_or_else(|| refused(format!("{} is gone", first.sha256)))?;
    let record = Json::parse(&bytes).ok();
    let domains: Vec<&str> = found.iter().map(|it| it.domain.as_str()).collect();
    let mut text = format!("{}  {} bytes  {}\n", first.sha256, bytes.len(), domains.join(", "));
    match &record {
        Some(record) => text.push_str(&pretty(record)),
        None => text.push_str("not JSON; the file holds it byte for byte\n"),
    }
    let json = json!({
        "domains": domains,
        "sha256": first.sha256.to_string(),
        "bytes": bytes.len(),
        "record": record.as_ref().map(value),
    });
    output.result(&text, &json);
    Ok(())
}

/// Derives verdicts again from bytes, and says what that proves.
pub(crate) fn verify_attempts(args: &EvidenceVerifyArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let store = store(&home);
    let mut attempts = objects(&home, &store)?;
    attempts.retain(|it| it.domain.as_str() == Artifact::Attempt.names().0);
    let mut chosen = Vec::new();
    if args.digests.is_empty() {
        chosen.extend(attempts.iter().map(|it| it.sha256));
    }
    for word in &args.digests {
        chosen.extend(find(&attempts, word, "attempt")?.iter().map(|it| it.sha256));
    }
    let (mut text, mut rows, mut broken) = (String::new(), Vec::new(), 0usize);
    for sha in &chosen {
        match verify(&store, *sha) {
            Ok(verified) => {
                text.push_str(&told(&verified));
                rows.push(verdict(&verified));
            }
            // The machine's failure says nothing about the evidence.
            Err(VerifyError::Store { source: StoreError::Fs(error), .. }) => {
                return Err(Failure::infrastructure(error));
            }
            Err(error) => {
                broken += 1;
                let _ = writeln!(text, "{sha}: does NOT verify: {error}");
                rows.push(json!({"sha256": sha.to_string(), "verifies": false, "error": error.to_string()}));
            }
        }
    }
    let _ = match chosen.len() {
        0 => writeln!(text, "no attempt is retained yet"),
        count => writeln!(text, "{} of {count} attempts verify", count - broken),
    };
    output.result(&text, &json!({"attempts": rows, "verified": chosen.len() - broken, "broken": broken}));
    if broken == 0 { Ok(()) } else { Err(Failure::quiet(REFUSED)) }
}

fn told(it: &Verified) -> String {
    let derived = &it.derived;
    let sealed = &it.plan.sealed;
    let mut text = format!(
        "{}: {} {} ({} {} of {} at {})\n",
        it.sha256,
        derived.decision.as_str(),
        derived.reason,
        sealed.role,
        sealed.attempt,
        &sealed.content_hash.to_string()[..12],
        sealed.target_id,
    );
    if let (Some(speedup), Some(bar)) = (derived.speedup, derived.bar) {
        let _ = writeln!(text, "  speedup {:.3}x against a bar of {:.3}x", speedup.get(), bar.get());
    }
    for line in &it.proven {
        let _ = writeln!(text, "  proven: {line}");
    }
    for line in &it.not_proven {
        let _ = writeln!(text, "  not proven: {line}");
    }
    text
}

fn verdict(it: &Verified) -> Value {
    let derived = &it.derived;
    let sealed = &it.plan.sealed;
    json!({
        "sha256": it.sha256.to_string(),
        "verifies": true,
        "decision": derived.decision.as_str(),
        "reason": derived.reason,
        "speedup": number(derived.speedup.map(|it| it.to_string()).as_deref()),
        "bar": number(derived.bar.map(|it| it.to_string()).as_deref()),
        "role": sealed.role,
        "number": sealed.attempt,
        "reservation": sealed.reservation.to_string(),
        "content_hash": sealed.content_hash.to_string(),
        "target": sealed.target_id,
        "proven": it.proven,
        "not_proven": it.not_proven,
    })
}
