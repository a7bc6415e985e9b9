//! The validator loop of one machine: bundles in, crowns out, with the arena behind its trait.
//!
//! Nothing is decided here. A screen and a verdict come from the arena and its evidence, a crown from settlement; the
//! loop asks in the right order, refuses what the evidence does not support, and keeps everything durable in the
//! ledger. A run that is interrupted anywhere is continued by the next one: the ledger says where each bundle stands, the
//! arena's journal what may still run.
//!
//! | Module | Holds |
//! |---|---|
//! | [`reopen`] | retained attempts, reopened: facts that follow from bytes |
//! | [`pairing`] | cohorts, qualifications, independence |
//! | [`note`] | what a screen leaves |
//! | [`report`] | what became of each bundle, read back from the ledger |
//! | [`release`] | giving a held bundle a new attempt |
//!
//! Bundles are taken by target, targets in order of their first arrival, bundles of a target in order of arrival. When
//! every open bundle of a target has reached a stopping point, the target settles, so that its best is crowned and
//! bundles of the next target are measured against the stack that resulted.

mod drive;
mod judge;
pub mod note;
pub mod pairing;
pub mod release;
pub mod reopen;
pub mod report;

use std::path::PathBuf;

use cacheon_bundle::BundleError;
use cacheon_evidence::{EvidenceStore, StoreError};
use cacheon_identity::{Decode as _, DecodeError};
use cacheon_ledger::reader::ReportError;
use cacheon_ledger::settle::{CandidateStatus, DEFAULT_LEASE_BLOCKS};
use cacheon_ledger::{Ledger, LedgerError, Reader, Reservation, ReservationId, Status};
use cacheon_records::arena::{Arena, ArenaFault, Incumbent, Progress};
use cacheon_stack::contribution::ContributionRef;
use cacheon_stack::ids::{ArenaDigest, TreeDigest};
use cacheon_stack::{Catalog, EvaluationStack};

use crate::local::{AdmitError, admit};
use crate::publish::{self, PublishError, publish};
use reopen::{Reopen, ReopenError};
use report::{Named, Report, Sources};

/// How a campaign treats bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where immutable copies of bundles lie.
    pub bundles: PathBuf,
    /// The evidence store's root, absolute.
    pub evidence: PathBuf,
    /// Attempts that a candidate may end itself before it fails for good, 1 or more.
    pub candidate_attempt_cap: u64,
    /// Undecided attempts that infrastructure may end, in one role, before the bundle is held, 1 or more.
    pub infrastructure_attempt_cap: u64,
    /// Whether a PASS may settle. Without, a report says what would have been crowned.
    pub crownable: bool,
}

/// A bundle as it was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Its folder.
    pub path: PathBuf,
    /// Who is credited.
    pub hotkey: String,
    /// Whether it is measured anew if it qualified before and was set aside when another was crowned.
    pub again: bool,
}

/// What a campaign tells while it works: the bundle, and what its arena says.
pub type OnStep<'a> = &'a mut dyn FnMut(&str, &Progress);

/// Why a campaign stopped. Never a verdict on a bundle; running again continues.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Reading the ledger back.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The evidence store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bundle's copy.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A bundle's folder could not be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The arena cannot work.
    #[error("{bundle}: {fault}")]
    Arena {
        /// The bundle it was working on, or `arena`.
        bundle: String,
        /// The cause.
        fault: ArenaFault,
    },
    /// Retained evidence does not support what the ledger holds.
    #[error("{bundle}: attempt {attempt}: {source}")]
    Evidence {
        /// The bundle.
        bundle: String,
        /// The attempt.
        attempt: String,
        /// Why.
        source: Box<ReopenError>,
    },
    /// A pair that is waiting to settle is not the one its evidence makes.
    #[error("{bundle}: what waits to settle is not what its evidence supports: {why}; nothing was settled")]
    Unsupported {
        /// The bundle.
        bundle: String,
        /// Why.
        why: String,
    },
    /// A record of ours is damaged.
    #[error("{what}: {why}")]
    Record {
        /// Which.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl From<DecodeError> for CampaignError {
    fn from(error: DecodeError) -> Self {
        Self::Record { what: "stack manifest", why: error.to_string() }
    }
}

impl From<AdmitError> for CampaignError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Ledger(error) => error.into(),
            AdmitError::Bundle(error) => error.into(),
        }
    }
}

/// A validator loop over one ledger and one arena.
pub struct Campaign<'a> {
    ledger: &'a mut Ledger,
    arena: &'a mut dyn Arena,
    retained: &'a dyn Reopen,
    config: Config,
    store: EvidenceStore,
    catalog: Catalog,
    digest: ArenaDigest,
}

impl std::fmt::Debug for Campaign<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Campaign")
            .field("arena", &self.digest)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn arena_fault(bundle: &str) -> impl FnOnce(ArenaFault) -> CampaignError + '_ {
    move |fault| CampaignError::Arena { bundle: bundle.to_owned(), fault }
}

impl<'a> Campaign<'a> {
    /// A campaign; the arena's first stack is recorded if it has none.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn open(
        ledger: &'a mut Ledger,
        arena: &'a mut dyn Arena,
        retained: &'a dyn Reopen,
        config: Config,
    ) -> Result<Self, CampaignError> {
        let digest = ArenaDigest::new(arena.service_digest());
        let stack = match ledger.stack(digest)? {
            Some(stored) => stored.manifest,
            None => {
                let genesis = arena.genesis().map_err(arena_fault("arena"))?;
                let stack = EvaluationStack::decode_bytes(&genesis.manifest)?;
                ledger.initialize_stack(&stack, TreeDigest::new(genesis.tree_digest))?;
                stack
            }
        };
        let catalog = Catalog::parse(stack.catalog.clone())?;
        let store = EvidenceStore::new(&config.evidence);
        Ok(Self { ledger, arena, retained, config, store, catalog, digest })
    }

    /// Admits the submissions in order, takes every open bundle to a stopping point, settles, and reports: the submitted
    /// bundles first, then others that were continued.
    ///
    /// # Errors
    /// [`CampaignError`]; what is durable stays, and the next run continues from it.
    pub fn run(&mut self, submissions: &[Submission], step: OnStep<'_>) -> Result<Report, CampaignError> {
        let mut named = self.admit_all(submissions)?;
        self.ledger.reconcile_copies()?;
        for group in self.groups()? {
            for id in group {
                let row = self.ledger.read(|tx| tx.reservation(&id))?;
                if is_open(&row) {
                    let name = report::name_of(&named, &row);
                    self.drive(&id, &name, step)?;
                    if !named.iter().any(|it| it.reservation == Some(id)) {
                        named.push(Named { name, reservation: Some(id), refusal: None });
                    }
                }
            }
            self.settle(&named)?;
        }
        self.report(&named)
    }

    /// What became of bundles, without doing anything.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn report(&self, named: &[Named]) -> Result<Report, CampaignError> {
        let reader = Reader::open(self.ledger.path())?;
        let sources = Sources {
            reader: &reader,
            retained: self.retained,
            notes: &self.store,
            crownable: self.config.crownable,
        };
        Report::build(&sources, named)
    }

    fn admit_all(&mut self, submissions: &[Submission]) -> Result<Vec<Named>, CampaignError> {
        let mut named = Vec::with_capacity(submissions.len());
        for submission in submissions {
            let folder = submission.path.file_name().map_or_else(
                || submission.path.display().to_string(),
                |name| name.to_string_lossy().into_owned(),
            );
            let published = match publish(&self.config.bundles, &submission.path) {
                Ok(published) => published,
                Err(error) if blames_bundle(&error) => {
                    named.push(Named { name: folder, reservation: None, refusal: Some(error.to_string()) });
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let id = admit(self.ledger, &self.catalog, &published, &submission.hotkey, submission.again)?;
            named.push(Named { name: folder, reservation: Some(id), refusal: None });
        }
        Ok(named)
    }

    /// Reservations by the members they contest, groups by their first arrival ever, each in order of arrival. Rows that
    /// are resolved count too, so that an interrupted run and its continuation see the same order.
    fn groups(&self) -> Result<Vec<Vec<ReservationId>>, CampaignError> {
        let mut groups: Vec<(Vec<String>, Vec<ReservationId>)> = Vec::new();
        for row in Reader::open(self.ledger.path())?.reservations()? {
            // A bundle that inspection refused contests nothing.
            if row.members_json.is_empty() || row.fingerprint_json.is_empty() {
                continue;
            }
            let contested = pairing::contested(&self.catalog, &row.members()?);
            match groups.iter_mut().find(|(members, _)| *members == contested) {
                Some((_, rows)) => rows.push(row.id),
                None => groups.push((contested, vec![row.id])),
            }
        }
        Ok(groups.into_iter().map(|(_, rows)| rows).collect())
    }

    /// The current stack and its tree.
    fn current(&self) -> Result<(EvaluationStack, TreeDigest), CampaignError> {
        match self.ledger.stack(self.digest)? {
            Some(stored) => Ok((stored.manifest, stored.state.tree_digest)),
            None => {
                Err(CampaignError::Record { what: "stack", why: format!("arena {} has none", self.digest) })
            }
        }
    }

    /// A stack as an arena takes it, its bundles re-hashed.
    fn incumbent(&self, stack: &EvaluationStack, tree: TreeDigest) -> Result<Incumbent, CampaignError> {
        use cacheon_identity::Canonical as _;
        let mut sources = Vec::new();
        for entry in stack.entries().values() {
            if let ContributionRef::Proposal(proposal) = entry {
                sources.push(publish::reopen(&self.config.bundles, proposal.artifact.digest())?);
            }
        }
        Ok(Incumbent { manifest: stack.to_canonical(), tree_digest: tree.digest(), sources })
    }

    /// Settles every cohort that is ready, after deriving each of its qualifications again from retained bytes.
    fn settle(&mut self, named: &[Named]) -> Result<(), CampaignError> {
        if !self.config.crownable {
            return Ok(());
        }
        let reader = Reader::open(self.ledger.path())?;
        let mut waiting = reader.candidates()?;
        waiting.retain(|it| {
            it.status == CandidateStatus::Pending && it.candidate.primary().arena == self.digest
        });
        if waiting.is_empty() {
            return Ok(());
        }
        for it in &waiting {
            self.support(&reader.reservation(&it.reservation)?, &it.candidate, named)?;
        }
        drop(reader);
        loop {
            let block = self.ledger.read(|tx| Ok(tx.cursor()?.map_or(0, |(block, _)| block)))?;
            // Cohort by cohort: a bundle that is held stops its own targets, not others.
            match self.ledger.lease_settlement(block, DEFAULT_LEASE_BLOCKS)? {
                Some(lease) => self.ledger.commit_settlement(&lease.id, block)?,
                None => return Ok(()),
            };
        }
    }
}

/// Whether a row may still move by itself.
fn is_open(row: &Reservation) -> bool {
    matches!(row.status, Status::Published | Status::ReproductionPending | Status::Promoted)
}

/// Whether the bundle's own bytes are to blame for a failed publication.
fn blames_bundle(error: &PublishError) -> bool {
    match error {
        PublishError::Bundle(error) => error.finding().is_some(),
        PublishError::Empty(_) | PublishError::NotRegular(_) => true,
        PublishError::Altered { .. } | PublishError::Io { .. } => false,
    }
}
