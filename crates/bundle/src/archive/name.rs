//! What a member of an archive may be called.

use super::{MAX_PATH, refused_member};
use crate::finding::BundleError;
use crate::path::{ignored_component, ignored_file_name, name};

/// The member's path, or why intake refuses it. `raw` has lost its trailing slashes.
pub(super) fn checked(raw: &[u8]) -> Result<&str, BundleError> {
    let shown = || String::from_utf8_lossy(raw).into_owned();
    let refuse = |problem: &str| Err(refused_member(&shown(), problem));
    let Ok(path) = std::str::from_utf8(raw) else { return refuse("the name is not UTF-8") };
    if path.len() > MAX_PATH {
        return refuse("the path is longer than the system opens");
    }
    if path.bytes().any(|byte| byte < 0x20 || byte == 0x7f || byte == b'\\') {
        return refuse("the name holds a control character or a backslash");
    }
    let mut depth = 0;
    for part in path.split('/') {
        depth += 1;
        if matches!(part, "" | "." | "..") {
            return refuse("the path is not plain and relative");
        }
        if part.len() > 255 {
            return refuse("a component of the path is longer than 255 bytes");
        }
        if ignored_component(part) {
            return refuse("the path has a component that identity leaves out (.git, __pycache__)");
        }
    }
    if depth > crate::walk::MAX_DEPTH {
        return refuse("directories are nested too deeply");
    }
    if ignored_file_name(name(path)) {
        return refuse("identity leaves files of this name out (._*, .pyc, .pyo)");
    }
    Ok(path)
}
