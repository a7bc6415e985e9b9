//! Bundle-relative POSIX paths: order, suffix, exclusion from identity.

use std::cmp::Ordering;

/// The receipt that the referee itself adds at the root of a worker bundle; left out of the committed-content hash.
pub const NATIVE_RECEIPT: &str = ".cacheon-native-artifact.json";

/// Compares paths component by component, each by code point: `a/x` before `a-b/x`, `k/z.py` before `k.py`
/// (`spec/10-contribution.md` §2.1).
#[must_use]
pub fn component_order(left: &str, right: &str) -> Ordering {
    left.split('/').cmp(right.split('/'))
}

/// The last component.
#[must_use]
pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Everything before the last component, or the empty string.
#[must_use]
pub fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

/// The name's text from its last dot; empty when the name starts with its only dot or ends with one.
#[must_use]
pub fn suffix(path: &str) -> &str {
    let name = name(path);
    match name.rfind('.') {
        Some(dot) if dot > 0 && dot + 1 < name.len() => &name[dot..],
        _ => "",
    }
}

/// The name without its suffix.
#[must_use]
pub fn stem(path: &str) -> &str {
    let name = name(path);
    &name[..name.len() - suffix(path).len()]
}

/// A directory name that identity never enters.
#[must_use]
pub fn ignored_component(component: &str) -> bool {
    matches!(component, "__pycache__" | ".git")
}

/// Whether a file's last component keeps it out of identity.
#[must_use]
pub fn ignored_file_name(name: &str) -> bool {
    ignored_component(name) || name.starts_with("._") || matches!(suffix(name), ".pyc" | ".pyo")
}

/// Whether a file at this path is left out of the content hash.
#[must_use]
pub fn excluded(path: &str) -> bool {
    ignored_file_name(name(path)) || path.split('/').any(ignored_component)
}

/// Whether the path is canonical: relative, no empty, `.` or `..` component, no backslash, no NUL
/// (`spec/10-contribution.md` §8).
#[must_use]
pub fn canonical(path: &str) -> bool {
    !path.contains(['\\', '\0']) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// `path` seen from the file `base`, `..` folded; `None` when it leaves the bundle.
#[must_use]
pub fn relative_to(base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = parent(base).split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_component() {
        let mut paths = vec!["k.py", "a-b/x", "k/z.py", "a/x", "a.b", "\u{10000}", "\u{ffff}"];
        paths.sort_by(|left, right| component_order(left, right));
        assert_eq!(paths, ["a/x", "a-b/x", "a.b", "k/z.py", "k.py", "\u{ffff}", "\u{10000}"]);
    }

    #[test]
    fn suffixes_follow_the_last_dot() {
        for (path, expected) in
            [("a.tar.pyc", ".pyc"), (".pyc", ""), ("a.pyc.", ""), ("..pyc", ".pyc"), ("d.x/a", ""), ("a", "")]
        {
            assert_eq!(suffix(path), expected, "{path}");
        }
    }

    #[test]
    fn relative_paths_fold_and_stay_inside() {
        assert_eq!(relative_to("kernels/a.cu", "../inc/h.cuh").as_deref(), Some("inc/h.cuh"));
        assert_eq!(relative_to("kernels/a.cu", "../../h.cuh"), None);
    }
}
