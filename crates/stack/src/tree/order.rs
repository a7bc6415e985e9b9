//! The two orders a tree's paths are sorted by, and where they disagree.

use cacheon_bundle::path::component_order;

/// The first pair of neighbours, in component order, that stands the other way round as strings. Such a tree is refused
/// by the deployed reader, and here, until every operator changes (spec 20 §5.6).
pub(super) fn disagreement<'a>(paths: impl IntoIterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    let mut paths: Vec<&str> = paths.into_iter().collect();
    paths.sort_unstable_by(|a, b| component_order(a, b));
    let next = paths.iter().skip(1);
    paths.iter().zip(next).find(|(a, b)| a > b).map(|(a, b)| (*a, *b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_beside_its_package_disagrees() {
        assert_eq!(disagreement(["k/foo/bar.py", "k/foo.py"]), Some(("k/foo/bar.py", "k/foo.py")));
        assert_eq!(disagreement(["k/a.py", "k-b/a.py"]), Some(("k/a.py", "k-b/a.py")));
        assert_eq!(disagreement(["a", "a_b/c", "b/c"]), None);
    }
}
