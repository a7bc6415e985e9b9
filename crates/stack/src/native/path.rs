//! Which names a publication may hold.

use super::limits;

/// Why a path cannot stand in a publication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NativePathError {
    /// Longer than 1024 bytes.
    #[error("`{0}` is longer than 1024 bytes")]
    Long(String),
    /// More than 32 components.
    #[error("`{0}` is deeper than 32 components")]
    Deep(String),
    /// A component outside the grammar.
    #[error("component `{component}` of `{path}` is not one that a publication may hold")]
    Component {
        /// The path.
        path: String,
        /// The component.
        component: String,
    },
}

/// `[A-Za-z0-9][A-Za-z0-9._+@=,\-\[\] ]{0,254}`.
fn is_component(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 255
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._+@=,-[] ".contains(b))
}

/// `_{1,2}[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_+-]+)*\.(py|so)`.
fn is_module_leaf(text: &str) -> bool {
    let Some(name) = text.strip_suffix(".py").or_else(|| text.strip_suffix(".so")) else { return false };
    let Some(rest) = name.strip_prefix("__").or_else(|| name.strip_prefix('_')) else { return false };
    let mut parts = rest.split('.');
    let word = |part: &str| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    parts.next().is_some_and(word)
        && parts.all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b))
        })
}

/// Checks a publication path; the last component of a file may also be a private module name such as `_C.so`.
///
/// # Errors
/// [`NativePathError`].
pub fn check_path(path: &str, is_file: bool) -> Result<(), NativePathError> {
    let shown = || path.chars().take(160).collect::<String>();
    if path.len() > limits::PATH_BYTES {
        return Err(NativePathError::Long(shown()));
    }
    let components: Vec<_> = path.split('/').collect();
    if components.len() > limits::DEPTH {
        return Err(NativePathError::Deep(shown()));
    }
    for (index, component) in components.iter().enumerate() {
        let leaf = is_file && index + 1 == components.len();
        let known = is_component(component) || (leaf && is_module_leaf(component));
        if !known {
            let component = component.chars().take(80).collect();
            return Err(NativePathError::Component { path: shown(), component });
        }
    }
    Ok(())
}
