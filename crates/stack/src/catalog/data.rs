//! The snapshots this program carries.

use super::Catalog;
use crate::ids::CatalogDigest;
use crate::manifest::CatalogSnapshot;
use cacheon_identity::{Digest, Json};
use std::sync::LazyLock;

/// The catalog registered on 2026-08-20; retained stacks embed it.
pub const REGISTERED_2026_08_20: CatalogDigest = CatalogDigest::new(Digest::from_static(
    "171302dde69a419264958499d07cd57f84e84516dee0e89c40a630f807a8152b",
));
/// The catalog registered on 2026-08-22.
pub const REGISTERED_2026_08_22: CatalogDigest = CatalogDigest::new(Digest::from_static(
    "a027f7a4dacef0f0b2f23868b3b36002ac828e6c0ada7d7d19c6c3e82537ad16",
));
/// The CPU arena's own catalog: four slots behind the C ABI, no artifact provider. Its verification profiles
/// (`cpu.<slot>.verify.v1`) read `atol` in units of the reference output's root mean square; the arena's sealed
/// definition may be stricter.
pub const CPU_1: CatalogDigest = CatalogDigest::new(Digest::from_static(
    "c9864c0cdaf027c63fa77a86b93f8c581828e9f86e3ee4374d60327786bbf444",
));

static KNOWN: LazyLock<Vec<Catalog>> = LazyLock::new(|| {
    let files: [(&[u8], CatalogDigest); 3] = [
        (include_bytes!("../../data/catalog-registered-2026-08-20.json"), REGISTERED_2026_08_20),
        (include_bytes!("../../data/catalog-registered-2026-08-22.json"), REGISTERED_2026_08_22),
        (include_bytes!("../../data/catalog-cpu-1.json"), CPU_1),
    ];
    // A file that is not what its digest says is not carried; a test proves that all three are.
    files.into_iter().filter_map(|(bytes, digest)| load(bytes).filter(|it| it.digest() == digest)).collect()
});

fn load(bytes: &[u8]) -> Option<Catalog> {
    let json = Json::parse(bytes).ok()?;
    Catalog::parse(CatalogSnapshot::new(json).ok()?).ok()
}

/// Every carried catalog.
#[must_use]
pub fn known() -> &'static [Catalog] {
    &KNOWN
}

/// The carried catalog with this digest.
#[must_use]
pub fn by_digest(digest: CatalogDigest) -> Option<&'static Catalog> {
    KNOWN.iter().find(|catalog| catalog.digest() == digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_carried_snapshot_is_what_its_digest_says() {
        let digests: Vec<_> = known().iter().map(Catalog::digest).collect();
        assert_eq!(digests, [REGISTERED_2026_08_20, REGISTERED_2026_08_22, CPU_1]);
        let cpu = by_digest(CPU_1).unwrap();
        let slots: Vec<_> = cpu.targets().keys().map(|id| id.as_str()).collect();
        assert_eq!(
            slots,
            ["activation.silu_and_mul", "attention.decode", "linear.quantized", "norm.rmsnorm"]
        );
        for target in cpu.targets().values() {
            assert_eq!(target.members, std::slice::from_ref(&target.id));
            assert!(target.contract().is_some());
        }
    }
}
