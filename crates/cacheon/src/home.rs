//! Which state directory a command uses.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cacheon_arena::definition::Definition;
use cacheon_arena::home::Home;
use cacheon_identity::Decode as _;
use cacheon_ledger::{LedgerError, Reader};

use crate::args::Common;
use crate::output::{Failure, INFRASTRUCTURE, USAGE};

/// The state directory of a command: `--home`, else `CACHEON_HOME`, else the XDG data directory. Always absolute.
///
/// # Errors
/// No directory is named and the environment has no home either.
pub(crate) fn resolve(common: &Common) -> Result<PathBuf, Failure> {
    let found = choose(common.home.clone(), std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"));
    let chosen = found.ok_or_else(|| {
        Failure::message(
            USAGE,
            "neither XDG_DATA_HOME nor HOME is set; name a state directory with --home DIR",
        )
    })?;
    std::path::absolute(&chosen).map_err(Failure::infrastructure)
}

fn choose(given: Option<PathBuf>, xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let set = |value: Option<OsString>| value.filter(|text| !text.is_empty()).map(PathBuf::from);
    given
        // The XDG rules have relative values ignored.
        .or_else(|| set(xdg).filter(|path| path.is_absolute()).map(|path| path.join("cacheon")))
        .or_else(|| set(home).map(|path| path.join(".local/share/cacheon")))
}

/// A state directory that is only looked at: nothing in it is created or locked.
#[derive(Debug)]
pub(crate) struct Existing {
    root: PathBuf,
}

impl Existing {
    /// The state directory, which must be there.
    ///
    /// # Errors
    /// It is not there, or not a directory.
    pub(crate) fn find(common: &Common) -> Result<Self, Failure> {
        let root = resolve(common)?;
        if root.is_dir() {
            return Ok(Self { root });
        }
        Err(Failure::message(
            INFRASTRUCTURE,
            format!(
                "{} is no state directory yet; `cacheon demo` or `cacheon arena init` makes one",
                root.display()
            ),
        ))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn evidence(&self) -> PathBuf {
        self.root.join("evidence")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.root.join("ledger.sqlite")
    }

    /// The ledger, for reading; none before the first bundle.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub(crate) fn reader(&self) -> Result<Option<Reader>, LedgerError> {
        if self.ledger().is_file() { Reader::open(&self.ledger()).map(Some) } else { Ok(None) }
    }

    /// The whole of it, for a command that writes.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub(crate) fn open(&self) -> Result<Home, Failure> {
        Home::open(&self.root).map_err(Failure::infrastructure)
    }

    /// Whether the arena defined here crowns what it measures. An undefined one has measured nothing.
    pub(crate) fn crownable(&self) -> bool {
        let bytes = std::fs::read(self.root.join("arena.json")).unwrap_or_default();
        let definition = Definition::decode_bytes(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).ok();
        definition.is_none_or(|definition| definition.container.isolation == "full")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_set_wins() {
        let text = |text: &str| Some(OsString::from(text));
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(choose(path("/a"), text("/x"), text("/h")), path("/a"));
        assert_eq!(choose(None, text("/x"), text("/h")), path("/x/cacheon"));
        assert_eq!(choose(None, text("relative"), text("/h")), path("/h/.local/share/cacheon"));
        assert_eq!(choose(None, text(""), text("/h")), path("/h/.local/share/cacheon"));
        assert_eq!(choose(None, None, None), None);
    }
}
