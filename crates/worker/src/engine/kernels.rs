//! Shared objects and the functions found in them.

use super::ffi::{DestroyFn, PrepareFn, RunFn};
use cacheon_model::abi::{KernelIndex, KernelOp, Slot};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::path::Path;
use thiserror::Error;

/// Why an op of a publication cannot run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadFailure {
    /// The dynamic linker refused the object.
    #[error("the shared object cannot be loaded: {reason}")]
    Object {
        /// The linker's words.
        reason: String,
    },
    /// The object has no such function.
    #[error("the shared object does not export {symbol}")]
    Symbol {
        /// The missing function.
        symbol: String,
    },
}

pub(super) struct LoadedOp {
    pub(super) op: KernelOp,
    pub(super) functions: Result<Functions, LoadFailure>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) run: RunFn,
    pub(super) prepare: Option<PrepareFn>,
    pub(super) destroy: Option<DestroyFn>,
}

/// The ops of one publication, loaded as far as they could be.
///
/// The object stays mapped until the process ends: unloading would run more of its code, and a process that has mapped a
/// candidate's bytes is thrown away whole.
pub struct KernelSet {
    pub(super) ops: Vec<LoadedOp>,
}

impl std::fmt::Debug for KernelSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.ops.iter().map(|op| (op.op.slot, &op.op.variant, op.functions.is_ok())))
            .finish()
    }
}

impl KernelSet {
    /// Loads `object` and looks up what `index` says it offers. Whatever is missing is kept as a failure of its op.
    ///
    /// # Safety
    /// Loading runs the object's initialisers, and every function found is trusted to have the header's signature. Call
    /// it only in a process that may be lost to that code.
    #[must_use]
    pub unsafe fn load(object: &Path, index: &KernelIndex) -> Self {
        // SAFETY: passed on to the caller.
        let library = unsafe { Library::open(Some(object), RTLD_NOW | RTLD_LOCAL) };
        let library = match library {
            Ok(library) => std::mem::ManuallyDrop::new(library),
            Err(error) => {
                let failure = LoadFailure::Object { reason: error.to_string() };
                return Self::failed(index, &failure);
            }
        };
        let ops = index.ops().iter().map(|op| LoadedOp {
            op: op.clone(),
            // SAFETY: passed on to the caller.
            functions: unsafe { functions(&library, op) },
        });
        Self { ops: ops.collect() }
    }

    /// A set none of whose ops can run.
    #[must_use]
    pub fn failed(index: &KernelIndex, failure: &LoadFailure) -> Self {
        let ops = index.ops().iter().map(|op| LoadedOp { op: op.clone(), functions: Err(failure.clone()) });
        Self { ops: ops.collect() }
    }

    /// The ops that cannot run, with the reason.
    pub fn failures(&self) -> impl Iterator<Item = (Slot, &str, &LoadFailure)> {
        self.ops.iter().filter_map(|loaded| {
            loaded.functions.as_ref().err().map(|e| (loaded.op.slot, loaded.op.variant.as_str(), e))
        })
    }

    /// Every op in index order, runnable or not.
    pub fn ops(&self) -> impl Iterator<Item = &KernelOp> {
        self.ops.iter().map(|loaded| &loaded.op)
    }
}

unsafe fn functions(library: &Library, op: &KernelOp) -> Result<Functions, LoadFailure> {
    let missing = |symbol: &str| LoadFailure::Symbol { symbol: symbol.to_owned() };
    let symbol = op.run_symbol();
    macro_rules! run {
        ($variant:ident) => {
            // SAFETY: the header fixes the signature of this slot's `run`; the caller of `load` trusts the object with it.
            unsafe { library.get(symbol.as_bytes()) }.map(|found| RunFn::$variant(*found))
        };
    }
    let run = match op.slot {
        Slot::LinearQuantized => run!(Linear),
        Slot::AttentionDecode => run!(Attention),
        Slot::SiluAndMul => run!(Silu),
        Slot::RmsNorm => run!(RmsNorm),
    }
    .map_err(|_| missing(&symbol))?;
    // SAFETY: as above, for the two optional functions.
    let prepare = unsafe { library.get::<PrepareFn>(op.prepare_symbol().as_bytes()) };
    // SAFETY: as above.
    let destroy = unsafe { library.get::<DestroyFn>(op.destroy_symbol().as_bytes()) };
    Ok(Functions { run, prepare: prepare.ok().map(|f| *f), destroy: destroy.ok().map(|f| *f) })
}
