//! The pristine reference a qualification measures against (spec 20 §2.1).

use crate::ids::{ArenaDigest, BaseEngine, CatalogDigest, RuntimeDigest, StackDigest, TreeDigest};
use crate::text::object;
use cacheon_identity::{Digest, Domain};

const FULL: Domain =
    Domain::with_members("cacheon.qualification.reference-manifest", ReferenceManifest::MEMBERS);
const MEASURED: Domain = Domain::with_members(
    "cacheon.qualification.reference-manifest-measured",
    &[
        "arena_digest",
        "base_engine_digest",
        "catalog_digest",
        "hidden_corpus_commitment",
        "hidden_judge_digest",
        "logical_hardware_digest",
        "model_content_digest",
        "model_manifest_digest",
        "model_revision_digest",
        "pristine_stack_digest",
        "pristine_tree_digest",
        "runtime_digest",
        "selection_policy_digest",
        "tokenizer_digest",
        "worker_distribution_digest",
        "workload_digest",
    ],
);

cacheon_identity::typed_digest! {
    /// A whole reference manifest, provenance included.
    pub struct ReferenceDigest;
    /// What a reference manifest measures: calibration and raw quality bind to this one.
    pub struct MeasuredReference;
}

cacheon_identity::record! {
    /// Eighteen digests that fix the pristine side of a measurement.
    #[derive(Copy)]
    pub struct ReferenceManifest {
        /// The arena.
        pub arena as "arena_digest": ArenaDigest,
        /// The pristine engine.
        pub base_engine as "base_engine_digest": BaseEngine,
        /// The target catalog.
        pub catalog as "catalog_digest": CatalogDigest,
        /// The controller's distribution; provenance only.
        pub controller_distribution as "controller_distribution_digest": Digest,
        /// The hidden prompts, committed.
        pub hidden_corpus_commitment: Digest,
        /// The hidden judge.
        pub hidden_judge as "hidden_judge_digest": Digest,
        /// The hardware as policy describes it.
        pub logical_hardware as "logical_hardware_digest": Digest,
        /// The model's bytes.
        pub model_content as "model_content_digest": Digest,
        /// The model's manifest.
        pub model_manifest as "model_manifest_digest": Digest,
        /// The model's revision.
        pub model_revision as "model_revision_digest": Digest,
        /// The pristine launch; provenance only.
        pub pristine_launch as "pristine_launch_digest": Digest,
        /// The stack with no contribution.
        pub pristine_stack as "pristine_stack_digest": StackDigest,
        /// Its tree.
        pub pristine_tree as "pristine_tree_digest": TreeDigest,
        /// The serving runtime.
        pub runtime as "runtime_digest": RuntimeDigest,
        /// How prompts are selected.
        pub selection_policy as "selection_policy_digest": Digest,
        /// The tokeniser.
        pub tokenizer as "tokenizer_digest": Digest,
        /// The worker's distribution.
        pub worker_distribution as "worker_distribution_digest": Digest,
        /// The workload.
        pub workload as "workload_digest": Digest,
    }
}

impl ReferenceManifest {
    /// The digest with provenance.
    #[must_use]
    pub fn digest(&self) -> ReferenceDigest {
        ReferenceDigest::new(FULL.digest(self))
    }

    /// The digest of what is measured: without the controller's distribution and the launch.
    #[must_use]
    pub fn measured_digest(&self) -> MeasuredReference {
        MeasuredReference::new(MEASURED.digest(&object(|o| {
            o.field("arena_digest", &self.arena)
                .field("base_engine_digest", &self.base_engine)
                .field("catalog_digest", &self.catalog)
                .field("hidden_corpus_commitment", &self.hidden_corpus_commitment)
                .field("hidden_judge_digest", &self.hidden_judge)
                .field("logical_hardware_digest", &self.logical_hardware)
                .field("model_content_digest", &self.model_content)
                .field("model_manifest_digest", &self.model_manifest)
                .field("model_revision_digest", &self.model_revision)
                .field("pristine_stack_digest", &self.pristine_stack)
                .field("pristine_tree_digest", &self.pristine_tree)
                .field("runtime_digest", &self.runtime)
                .field("selection_policy_digest", &self.selection_policy)
                .field("tokenizer_digest", &self.tokenizer)
                .field("worker_distribution_digest", &self.worker_distribution)
                .field("workload_digest", &self.workload);
        })))
    }
}
