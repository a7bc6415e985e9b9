//! `arena status` and `arena release`: they need a state directory, not an arena.

use cacheon_evidence::{EvidenceStore, Steps};
use cacheon_intake::campaign::release::{ReleaseError, release};
use cacheon_intake::campaign::reopen::RetainedAttempts;
use cacheon_intake::campaign::report::{Named, Report, Sources, everything};
use cacheon_intake::local::reopen_ledger;
use cacheon_ledger::{LedgerError, Reader, Status};
use serde_json::json;

use crate::args::{ReleaseArgs, StatusArgs};
use crate::home::Existing;
use crate::output::{Failure, Output, REFUSED};
use crate::results::{Depth, to_json, to_text};

/// What a person who releases says; the ledger and the journal keep it.
const REASON: &str = "released_by_operator";

/// Every bundle of the state directory, its attempts, and what it waits for.
pub(crate) fn status(args: &StatusArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let report = match home.reader().map_err(Failure::infrastructure)? {
        Some(reader) => {
            let retained = RetainedAttempts::new(home.evidence());
            let notes = EvidenceStore::new(home.evidence());
            let sources =
                Sources { reader: &reader, retained: &retained, notes: &notes, crownable: home.crownable() };
            let named = everything(&reader).map_err(Failure::infrastructure)?;
            Report::build(&sources, &named).map_err(Failure::infrastructure)?
        }
        None => Report::default(),
    };
    let text = match report.results.is_empty() {
        true => format!(
            "{}: no bundle was submitted yet; `cacheon arena run BUNDLE` submits one",
            home.root().display()
        ),
        false => to_text(&report, Depth::Full),
    };
    output.result(&text, &to_json(&report));
    Ok(())
}

/// Releases held bundles so that the next run gives each a new attempt.
pub(crate) fn release_held(args: &ReleaseArgs, output: Output) -> Result<(), Failure> {
    let home = Existing::find(&args.common)?;
    let Some(reader) = home.reader().map_err(Failure::infrastructure)? else {
        return Err(Failure::message(REFUSED, "no bundle was submitted yet; nothing is held"));
    };
    let chosen = choose(&reader, &args.bundles)?;
    drop(reader);
    let _lock = home.open()?.lock().map_err(Failure::infrastructure)?;
    let mut ledger = reopen_ledger(&home.ledger(), Steps::none()).map_err(Failure::infrastructure)?;
    let mut released = Vec::new();
    for named in &chosen {
        let Some(id) = named.reservation else { continue };
        let status = release(&mut ledger, &home.journal(), &id, REASON).map_err(failed)?;
        released
            .push(json!({"bundle": named.name, "reservation": id.to_string(), "status": status.as_str()}));
    }
    let names: Vec<&str> = chosen.iter().map(|it| it.name.as_str()).collect();
    let text = match names.is_empty() {
        true => "nothing is held".to_owned(),
        false => format!("released: {}. `cacheon arena run` gives each a new attempt", names.join(", ")),
    };
    output.result(&text, &json!({ "released": released }));
    Ok(())
}

fn failed(error: ReleaseError) -> Failure {
    match &error {
        ReleaseError::NotHeld { .. } | ReleaseError::Ledger(LedgerError::Refused(_)) => {
            Failure::refused(error)
        }
        _ => Failure::infrastructure(error),
    }
}

/// The rows that the words name: a bundle's name, or at least eight digits of its content hash. Without words, all that
/// are held.
fn choose(reader: &Reader, words: &[String]) -> Result<Vec<Named>, Failure> {
    let rows = reader.reservations().map_err(Failure::infrastructure)?;
    let named = everything(reader).map_err(Failure::infrastructure)?;
    let held = |named: &Named| {
        rows.iter().any(|row| Some(row.id) == named.reservation && row.status == Status::Held)
    };
    if words.is_empty() {
        return Ok(named.into_iter().filter(held).collect());
    }
    let mut chosen: Vec<Named> = Vec::new();
    for word in words {
        let matches = |it: &Named| {
            let hash =
                rows.iter().find(|row| Some(row.id) == it.reservation).map(|row| row.content_hash.as_str());
            it.name == *word || (word.len() >= 8 && hash.is_some_and(|hash| hash.starts_with(word.as_str())))
        };
        let all: Vec<&Named> = named.iter().filter(|it| matches(it)).collect();
        let stopped: Vec<&Named> = all.iter().copied().filter(|it| held(it)).collect();
        match (stopped.as_slice(), all.is_empty()) {
            ([], true) => {
                let text = format!("no bundle here is called `{word}`; `cacheon arena status` lists them");
                return Err(Failure::message(REFUSED, text));
            }
            ([], false) => {
                let text = format!("`{word}` is not held; `cacheon arena status` says where it stands");
                return Err(Failure::message(REFUSED, text));
            }
            (several, _) => chosen.extend(several.iter().map(|it| (*it).clone())),
        }
    }
    Ok(chosen)
}
