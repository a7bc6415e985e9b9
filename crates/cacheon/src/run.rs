//! Bundles through an arena, with progress as it happens and the results at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cacheon_evidence::Steps;
use cacheon_intake::campaign::reopen::RetainedAttempts;
use cacheon_intake::campaign::report::Report;
use cacheon_intake::campaign::{Campaign, CampaignError, Config, Submission};
use cacheon_intake::local::{open_ledger, reopen_ledger};
use cacheon_ledger::{Ledger, Reader, Scope};
use cacheon_records::arena::{Arena, Decision};
use serde_json::{Value, json};

use crate::args::HALF_LIFE_BLOCKS;
use crate::commands::weights;
use crate::output::{Failure, INFRASTRUCTURE, Output, REFUSED, USAGE};
use crate::results::{Depth, to_json, to_text};

/// The ledger in a state directory.
const LEDGER: &str = "ledger.sqlite";

/// An arena that is ready to work, and how its definition wants bundles treated.
pub(crate) struct Opened<'a> {
    /// The state directory, locked by whoever opened the arena.
    pub(crate) home: PathBuf,
    /// The arena.
    pub(crate) arena: &'a mut dyn Arena,
    /// Attempts that a candidate may end itself.
    pub(crate) candidate_attempt_cap: u32,
    /// Attempts that infrastructure may end.
    pub(crate) infrastructure_attempt_cap: u32,
    /// Whether a PASS may settle.
    pub(crate) crownable: bool,
    /// Observer of durable steps, for crash tests.
    pub(crate) steps: Steps,
}

/// Takes bundles to their stopping points and settles.
///
/// # Errors
/// The arena or the state directory failed; running again continues.
pub(crate) fn campaign(
    opened: Opened<'_>,
    submissions: &[Submission],
    output: Output,
) -> Result<Report, Failure> {
    let evidence = opened.home.join("evidence");
    let scope = opened.arena.service_digest().to_string();
    let mut ledger = ledger_of(&opened.home, &scope, opened.steps, output)?;
    let retained = RetainedAttempts::new(&evidence);
    let config = Config {
        bundles: opened.home.join("bundles"),
        evidence,
        candidate_attempt_cap: u64::from(opened.candidate_attempt_cap),
        infrastructure_attempt_cap: u64::from(opened.infrastructure_attempt_cap),
        crownable: opened.crownable,
    };
    let mut campaign = Campaign::open(&mut ledger, opened.arena, &retained, config).map_err(stopped)?;
    campaign.run(submissions, &mut |bundle, it| output.progress(bundle, it.stage, &it.text)).map_err(stopped)
}

/// The ledger of one arena identity. Verdicts of another are never shown as this one's: when the worker, the model or a
/// policy changed, the other arena's ledger is put aside under its own name, and this one's is brought back or begun.
fn ledger_of(home: &Path, scope: &str, steps: Steps, output: Output) -> Result<Ledger, Failure> {
    let path = home.join(LEDGER);
    let aside = |scope: &Scope| {
        let name: String = scope.digest().to_string().chars().take(12).collect();
        home.join(format!("ledger-{name}.sqlite"))
    };
    let wanted = Scope::local(scope);
    let found =
        if path.is_file() { Some(Reader::open(&path).map_err(Failure::infrastructure)?) } else { None };
    if let Some(held) = found.map(|reader| reader.scope().clone()).filter(|held| *held != wanted) {
        // Opened and closed by its writer, the database is one file.
        drop(reopen_ledger(&path, Steps::none()).map_err(Failure::infrastructure)?);
        let kept = aside(&held);
        output.heading(&format!(
            "The worker, the model or a policy changed, so that this is another arena. The ledger of the earlier one is kept as {}",
            kept.display()
        ));
        rename(&path, &kept)?;
    }
    let earlier = aside(&wanted);
    if !path.exists() && earlier.is_file() {
        rename(&earlier, &path)?;
    }
    open_ledger(&path, scope, steps).map_err(Failure::infrastructure)
}

/// Renames, never over anything.
fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    if to.exists() {
        return Err(Failure::message(
            INFRASTRUCTURE,
            format!("{} is in the way; move it aside", to.display()),
        ));
    }
    std::fs::rename(from, to).map_err(Failure::infrastructure)
}

fn stopped(error: CampaignError) -> Failure {
    Failure::infrastructure(error)
}

/// Folders as submissions. A folder that is not there is a mistake on the command line.
///
/// # Errors
/// The first folder that is no directory.
pub(crate) fn submissions(
    folders: &[PathBuf],
    hotkey: &str,
    again: bool,
) -> Result<Vec<Submission>, Failure> {
    let mut all = Vec::with_capacity(folders.len());
    for folder in folders {
        if !folder.is_dir() {
            return Err(Failure::message(
                USAGE,
                format!("{} is no folder; a bundle is one", folder.display()),
            ));
        }
        // `..` and a trailing slash have no name of their own.
        let path = std::fs::canonicalize(folder).map_err(Failure::infrastructure)?;
        all.push(Submission { path, hotkey: hotkey.to_owned(), again });
    }
    Ok(all)
}

/// The result of `arena run`: refused when a bundle was; verdicts against a candidate are results like any other.
pub(crate) fn conclude_run(report: &Report, output: Output) -> Result<(), Failure> {
    let mut json = to_json(report);
    if let Value::Object(members) = &mut json {
        members.insert("event".to_owned(), json!("result"));
    }
    output.result(&to_text(report, Depth::Brief), &json);
    let refused = report.results.iter().any(|it| it.decision == Decision::Fail && it.reservation.is_none());
    if refused { Err(Failure::quiet(REFUSED)) } else { Ok(()) }
}

/// The result of `demo`: results, crowns, projected weights and the seconds it took, as its last line. The true verdicts
/// are its success, whatever they are.
pub(crate) fn conclude_demo(
    report: &Report,
    home: &Path,
    begun: Instant,
    output: Output,
) -> Result<(), Failure> {
    let projected = match Reader::open(&home.join(LEDGER)) {
        Ok(reader) => weights::from_ledger(&reader, HALF_LIFE_BLOCKS, "local-validator")?,
        Err(error) => return Err(Failure::infrastructure(error)),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let mut json = to_json(report);
    if let Value::Object(members) = &mut json {
        members.insert("event".to_owned(), json!("result"));
        members.insert("weights".to_owned(), projected.json["weights"].clone());
        members.insert("seconds".to_owned(), json!((seconds * 1e3).round() / 1e3));
    }
    let text = format!(
        "{}\n{}\n\n{seconds:.1} s. Check any verdict: cacheon evidence verify --home {}",
        to_text(report, Depth::Brief),
        projected.text.trim_end(),
        home.display(),
    );
    output.result(&text, &json);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn each_arena_identity_has_its_own_ledger_and_finds_it_again() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o700)).unwrap();
        let open =
            |scope: &str| ledger_of(home, scope, Steps::none(), Output::Json).map_err(|it| it.code).unwrap();
        let files = || {
            let names =
                std::fs::read_dir(home).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(".sqlite")).count()
        };
        let mut first = open("one");
        first.transaction("written", "committed", |tx| tx.advance_local()).unwrap();
        drop(first);
        drop(open("one"));
        assert_eq!(files(), 1);
        let second = open("two");
        assert!(second.read(|tx| tx.cursor()).unwrap().is_none(), "another identity begins afresh");
        drop(second);
        assert_eq!(files(), 2);
        let again = open("one");
        assert_eq!(again.read(|tx| tx.cursor()).unwrap().unwrap().0, 1, "the first finds its ledger again");
        assert_eq!(files(), 2);
    }
}
