//! Named durable steps, so that a test can stop or kill a writer at each of them.
//!
//! Every operation that changes durable state passes a [`Step`] to its [`Steps`] just after the change took effect. A
//! production run uses [`Steps::none`], which costs one branch. A test either records the steps (to check that no
//! acknowledgement precedes its `fsync`), refuses one (the operation returns at once and cleans nothing up, as if the
//! process had died there) or kills the process with SIGKILL.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One durable step, named `<area>.<what has just happened>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step(pub &'static str);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

type Hook = dyn Fn(Step) -> ControlFlow<()> + Send + Sync;

/// The observer of durable steps. Cheap to clone; clones share one observer.
#[derive(Clone, Default)]
pub struct Steps(Option<Arc<Hook>>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Steps(observed)" } else { "Steps(none)" })
    }
}

/// A step whose observer asked the operation to stop there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped after durable step {0} by its observer")]
pub struct Stopped(pub Step);

impl Steps {
    /// No observer.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Calls `hook` after every durable step; `Break` stops the operation there.
    #[must_use]
    pub fn new(hook: impl Fn(Step) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Appends every step to `log`.
    #[must_use]
    pub fn recording(log: Arc<Mutex<Vec<Step>>>) -> Self {
        Self::new(move |step| {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(step);
            ControlFlow::Continue(())
        })
    }

    /// Stops the operation at step number `index` (from 0), counted over all clones.
    #[must_use]
    pub fn stopping_at(index: u64) -> Self {
        let seen = AtomicU64::new(0);
        Self::new(move |_| match seen.fetch_add(1, Ordering::SeqCst) == index {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    /// Kills this process with SIGKILL at step number `index` (from 0), counted over all clones.
    #[must_use]
    pub fn killing_at(index: u64) -> Self {
        let seen = AtomicU64::new(0);
        Self::new(move |_| {
            if seen.fetch_add(1, Ordering::SeqCst) == index {
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
            ControlFlow::Continue(())
        })
    }

    /// Reports that `name` has just become true.
    ///
    /// # Errors
    /// [`Stopped`] when the observer asked to stop here.
    pub fn reach(&self, name: &'static str) -> Result<(), Stopped> {
        let step = Step(name);
        match &self.0 {
            Some(hook) if hook(step).is_break() => Err(Stopped(step)),
            _ => Ok(()),
        }
    }
}
