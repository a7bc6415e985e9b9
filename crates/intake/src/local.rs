//! Admission of bundles that never saw a chain: the ledger of one machine, and how a folder becomes a reservation.

use std::path::Path;

use cacheon_bundle::{Bundle, BundleError, Inspection, inspect};
use cacheon_evidence::Steps;
use cacheon_identity::{Digest, OrEmpty};
use cacheon_ledger::local::LocalSubmission;
use cacheon_ledger::row::truncate_reason;
use cacheon_ledger::{
    Arrival, ArrivalFacts, Fingerprint, IntakePolicy, Ledger, LedgerError, OpenOptions, PaymentPointer,
    Reader, ReservationId, Scope,
};
use cacheon_records::arena::PublishedBundle;
use cacheon_stack::Catalog;

/// The reason class of a bundle that inspection refuses.
pub const STATIC_POLICY: &str = "static_policy";

/// Opens (or creates) the ledger of a local state directory as its one writer. `scope` names what the ledger belongs to:
/// the arena's identity, so that verdicts of one arena are never shown as another's.
///
/// # Errors
/// [`LedgerError::Locked`], [`LedgerError::ForeignScope`] when the ledger belongs to another identity, database errors.
pub fn open_ledger(path: &Path, scope: &str, steps: Steps) -> Result<Ledger, LedgerError> {
    let mut options = OpenOptions::new(Scope::local(scope));
    // How often an undecided bundle is tried again is decided by the campaign, which knows who ended the attempt.
    options.policy = IntakePolicy { max_qualification_retries: 1 << 30, ..IntakePolicy::local() };
    options.steps = steps;
    Ledger::open(path, options)
}

/// Opens the ledger as its one writer under the scope it already has, for a command that needs no arena.
///
/// # Errors
/// No database there, [`LedgerError::Locked`], database errors.
pub fn reopen_ledger(path: &Path, steps: Steps) -> Result<Ledger, LedgerError> {
    let mut options = OpenOptions::new(Reader::open(path)?.scope().clone());
    options.policy = IntakePolicy { max_qualification_retries: 1 << 30, ..IntakePolicy::local() };
    options.steps = steps;
    Ledger::open(path, options)
}

/// Admits a published bundle, in one transaction. The same bytes of the same submitter again are the same reservation,
/// whatever became of it; with `again`, one that qualified and was set aside is admitted anew. A bundle that inspection
/// refuses is admitted and failed, so that its verdict is remembered.
///
/// # Errors
/// A submitter's name that breaks its grammar, database errors, a copy that cannot be read.
pub fn admit(
    ledger: &mut Ledger,
    catalog: &Catalog,
    bundle: &PublishedBundle,
    hotkey: &str,
    again: bool,
) -> Result<ReservationId, AdmitError> {
    if let Some(known) = known(ledger, bundle.content_hash, hotkey)?
        && !again
    {
        return Ok(known);
    }
    let inspected = Bundle::read(&bundle.path).and_then(|read| Ok(inspect(&read, catalog)?));
    match inspected {
        Ok(inspection) => {
            let fingerprint = fingerprint(&inspection);
            let root = bundle.path.to_string_lossy();
            let submission = LocalSubmission {
                hotkey,
                content_hash: bundle.content_hash,
                fingerprint: &fingerprint,
                publication: bundle.content_hash,
                publication_root: &root,
            };
            Ok(if again { ledger.resubmit_local(&submission)? } else { ledger.submit_local(&submission)? })
        }
        Err(BundleError::Refused(finding)) => {
            if let Some(known) = known(ledger, bundle.content_hash, hotkey)? {
                return Ok(known);
            }
            let reason = truncate_reason(&format!("{STATIC_POLICY}:{finding}"));
            Ok(refuse(ledger, bundle.content_hash, hotkey, &reason)?)
        }
        Err(error @ BundleError::Infrastructure { .. }) => Err(error.into()),
    }
}

/// Why a bundle could not be admitted. Never a verdict on it.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The machine failed while the bundle was read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

fn known(ledger: &Ledger, content: Digest, hotkey: &str) -> Result<Option<ReservationId>, LedgerError> {
    let content = content.to_string();
    let rows = Reader::open(ledger.path())?.reservations()?;
    let mut same = rows.into_iter().filter(|row| row.content_hash == content && row.hotkey == hotkey);
    Ok(same.next_back().map(|row| row.id))
}

/// The copy fingerprint of an inspected bundle: exact payloads only until the fragments of C sources are defined.
fn fingerprint(inspection: &Inspection) -> Fingerprint {
    Fingerprint {
        advisory_fingerprints: Vec::new(),
        containment_fingerprints: Vec::new(),
        exact_payload_digest: inspection.selected_payload_digest,
        members: inspection.members.iter().cloned().collect(),
        normalized_delta_digest: OrEmpty::EMPTY,
        product_kind: "component".to_owned(),
        selected_delta_digest: inspection.selected_delta_digest,
        target_id: inspection.target_id.clone(),
        target_spec_digest: OrEmpty(Some(inspection.target_spec_digest)),
    }
}

/// Admits and fails in one transaction.
fn refuse(
    ledger: &mut Ledger,
    content: Digest,
    hotkey: &str,
    reason: &str,
) -> Result<ReservationId, LedgerError> {
    ledger.transaction("campaign.refuse.written", "campaign.refuse.committed", |tx| {
        let head = tx.advance_local()?;
        let arrival = Arrival::new(ArrivalFacts {
            hotkey: hotkey.to_owned(),
            content_hash: content.to_string(),
            url: format!("local:{content}"),
            block: head.block,
            block_hash: head.hash.clone(),
            event_index: 0,
            event_subindex: 0,
            payload_digest: None,
            invalid_reason: String::new(),
            payment: PaymentPointer::default(),
        })?;
        let id = arrival.reservation_id();
        tx.reserve_finalized(&[arrival], &head, 0)?;
        tx.mark_fetching(&id)?;
        tx.mark_failed(&id, reason)?;
        Ok(id)
    })
}
