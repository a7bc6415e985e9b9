//! The connection-local functions that the schema's triggers call: without them a foreign tool cannot update a leased
//! row, and within them only the members of the lease being worked on may change.

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    /// Members of the lease whose result is being accepted.
    context: Option<BTreeSet<String>>,
    /// The lease whose recovery-protected rows may change.
    recovery: Option<String>,
}

/// What the running transaction may touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fence(Arc<Mutex<State>>);

impl Fence {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the three functions on a connection.
    pub(crate) fn register(&self, conn: &Connection) -> rusqlite::Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        let fence = self.clone();
        conn.create_scalar_function("cacheon_evaluation_mutation_authorized", 1, flags, move |ctx| {
            let id: String = ctx.get(0)?;
            Ok(i64::from(fence.state().context.as_ref().is_some_and(|members| members.contains(&id))))
        })?;
        let fence = self.clone();
        conn.create_scalar_function("cacheon_evaluation_mutation_context_active", 0, flags, move |_| {
            Ok(i64::from(fence.state().context.is_some()))
        })?;
        let fence = self.clone();
        conn.create_scalar_function("cacheon_evaluation_recovery_mutation_authorized", 1, flags, move |ctx| {
            let id: String = ctx.get(0)?;
            Ok(i64::from(fence.state().recovery.as_deref() == Some(&id)))
        })
    }

    /// Whether a lease's result is being accepted, and `id` is a member.
    pub(crate) fn member(&self, id: &str) -> Option<bool> {
        self.state().context.as_ref().map(|members| members.contains(id))
    }

    /// Opens the result context of a lease until the guard is dropped.
    #[must_use]
    pub(crate) fn enter(&self, members: impl IntoIterator<Item = String>) -> Guard {
        self.state().context = Some(members.into_iter().collect());
        Guard(self.clone())
    }

    /// Allows changes of one lease's protected rows until the guard is dropped.
    #[must_use]
    pub(crate) fn recover(&self, lease: &str) -> RecoveryGuard {
        self.state().recovery = Some(lease.to_owned());
        RecoveryGuard(self.clone())
    }
}

/// Closes the result context.
pub(crate) struct Guard(Fence);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.state().context = None;
    }
}

/// Ends the recovery's authority.
pub(crate) struct RecoveryGuard(Fence);

impl Drop for RecoveryGuard {
    fn drop(&mut self) {
        self.0.state().recovery = None;
    }
}
