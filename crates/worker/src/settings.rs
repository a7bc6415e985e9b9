//! Where things are, from the environment. The container's launch policy closes the environment; tests set their own.

use std::path::PathBuf;

/// What the worker is started with. Every member has the container's value as its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `CACHEON_SOCKET_FD`: descriptor of the protocol socket; 3.
    pub socket: i32,
    /// `CACHEON_MODEL`: the model file; `/cacheon/model.gguf`.
    pub model: PathBuf,
    /// `CACHEON_PUBLICATIONS`: folder with one folder per publication number; `/cacheon/publications`.
    pub publications: PathBuf,
    /// `CACHEON_SHIM_UID`: user (and group) of the shim; none outside the container.
    pub shim_uid: Option<u32>,
    /// `CACHEON_ENGINE_UID`: user (and group) of the engine processes.
    pub engine_uid: Option<u32>,
    /// `CACHEON_MAX_CONTEXT`: most positions of one sequence; 2048, or what the model was made for if that is less.
    pub max_context: usize,
}

/// A variable that does not hold what it should.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value:?}: {expected}")]
pub struct SettingsError {
    /// The variable.
    pub name: &'static str,
    /// What it holds.
    pub value: String,
    /// What it should hold.
    pub expected: &'static str,
}

/// Longest context unless the environment says otherwise, in positions.
const MAX_CONTEXT: usize = 2048;

impl Settings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// The first variable that is set and malformed.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn read(get: impl Fn(&'static str) -> Option<String>) -> Result<Self, SettingsError> {
        let number = |name: &'static str, least: u32, most: u32, expected: &'static str| {
            let Some(value) = get(name) else { return Ok(None) };
            match value.parse::<u32>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
                _ => Err(SettingsError { name, value, expected }),
            }
        };
        let user = "a user id from 1 to 2147483646";
        let uid = |name| number(name, 1, i32::MAX as u32 - 1, user);
        let path = |name, default: &str| PathBuf::from(get(name).unwrap_or_else(|| default.to_owned()));
        let settings = Self {
            socket: number("CACHEON_SOCKET_FD", 3, 1023, "a descriptor from 3 to 1023")?.unwrap_or(3) as i32,
            model: path("CACHEON_MODEL", "/cacheon/model.gguf"),
            publications: path("CACHEON_PUBLICATIONS", "/cacheon/publications"),
            shim_uid: uid("CACHEON_SHIM_UID")?,
            engine_uid: uid("CACHEON_ENGINE_UID")?,
            max_context: number(
                "CACHEON_MAX_CONTEXT",
                1,
                1 << 20,
                "a number of positions from 1 to 1048576",
            )?
            .map_or(MAX_CONTEXT, |n| n as usize),
        };
        if settings.shim_uid.is_some() && settings.shim_uid == settings.engine_uid {
            let value = settings.engine_uid.map(|uid| uid.to_string()).unwrap_or_default();
            let expected = "another user than CACHEON_SHIM_UID";
            return Err(SettingsError { name: "CACHEON_ENGINE_UID", value, expected });
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_container_needs_no_variables() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.socket, 3);
        assert_eq!(settings.model, PathBuf::from("/cacheon/model.gguf"));
        assert_eq!(settings.shim_uid, None);
    }

    #[test]
    fn wrong_values_are_named() {
        for (name, value) in [
            ("CACHEON_SOCKET_FD", "2"),
            ("CACHEON_SOCKET_FD", "x"),
            ("CACHEON_SHIM_UID", "0"),
            ("CACHEON_ENGINE_UID", "-1"),
            ("CACHEON_MAX_CONTEXT", "0"),
        ] {
            assert_eq!(read(&[(name, value)]).unwrap_err().name, name, "{value}");
        }
        let same = read(&[("CACHEON_SHIM_UID", "7"), ("CACHEON_ENGINE_UID", "7")]);
        assert_eq!(same.unwrap_err().name, "CACHEON_ENGINE_UID");
    }
}
