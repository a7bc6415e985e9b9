//! What a tree says of itself: `metadata/cacheon_engine_tree.json`.

use super::{MATERIALIZER_POLICY_VERSION, RUNTIME_MANIFEST, namespace};
use crate::contribution::selected_delta;
use crate::ids::{
    ContributionDigest, SelectedDelta, SelectedPayload, StackDigest, TargetId, TargetSpec, TreeDigest,
};
use crate::text::object;
use cacheon_bundle::pretty::pretty;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};

const TREE: Domain =
    Domain::with_members("cacheon.materialized-engine-tree", &["files", "materializer_policy_version"]);

/// A rule of tree records, as it stands in error messages.
pub(super) mod rule {
    /// A row's derived members.
    pub(in crate::tree) const ROW: &str =
        "a contribution row's delta and namespace derive from its payload, target and spec";
    /// The order of rows.
    pub(in crate::tree) const ROW_ORDER: &str = "contribution rows stand in target order, each once";
    /// The runtime manifest.
    pub(in crate::tree) const RUNTIME_MANIFEST: &str = "the runtime manifest is null or `manifest.toml`";
    /// The mode of files.
    pub(in crate::tree) const MODE: &str = "every file has mode 292";
    /// The kind of a source.
    pub(in crate::tree) const SOURCE_KIND: &str =
        "a source is a `proposal_artifact` or an `integrated_source`";
}

/// What a contribution's source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A bundle as submitted; its digest is the content hash.
    Proposal,
    /// Reviewed source; its digest is that of the source tree.
    Integrated,
}

impl SourceKind {
    /// As it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposal => "proposal_artifact",
            Self::Integrated => "integrated_source",
        }
    }
}

impl Canonical for SourceKind {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self.as_str());
    }
}

impl Decode for SourceKind {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let known =
            [Self::Proposal, Self::Integrated].into_iter().find(|it| json.as_str() == Some(it.as_str()));
        known.ok_or_else(|| DecodeError::invalid(rule::SOURCE_KIND, json))
    }
}

cacheon_identity::record! {
    /// One contribution of a tree.
    pub struct ContributionRow {
        /// The reference in the stack.
        pub contribution as "contribution_ref_digest": ContributionDigest,
        /// Where its files lie.
        pub namespace: String,
        /// The executable difference.
        pub selected_delta as "selected_delta_digest": SelectedDelta,
        /// The payload.
        pub selected_payload as "selected_payload_digest": SelectedPayload,
        /// Content hash or source tree.
        pub source as "source_digest": Digest,
        /// Which of the two.
        pub source_kind: SourceKind,
        /// The target.
        pub target as "target_id": TargetId,
        /// The target's catalog row.
        pub target_spec as "target_spec_digest": TargetSpec,
    }
}

cacheon_identity::record! {
    /// One file of a tree.
    pub struct TreeFile {
        /// Permission bits; always 292 (0444).
        pub mode: u32,
        /// Relative path.
        pub path: String,
        /// SHA-256 of its bytes.
        pub sha256: Digest,
        /// Bytes.
        pub size: u64,
    }
}

/// The tree record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRecord {
    /// By target.
    pub contributions: Vec<ContributionRow>,
    /// Every file but the record itself, string-sorted.
    pub files: Vec<TreeFile>,
    /// Whether there is a runtime manifest.
    pub runtime_manifest: bool,
    /// The stack.
    pub stack: StackDigest,
}

impl TreeRecord {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["contributions", "files", "materializer_policy_version", "runtime_manifest", "stack_digest"];

    /// The file: indented, key-sorted JSON with a final newline.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        // A record is shallow, so that it always reads back as a tree.
        let json = self.to_json().unwrap_or(Json::Null);
        let mut text = pretty(&json);
        text.push('\n');
        text.into_bytes()
    }

    /// Checks what one row derives from others of its members, and the order of rows.
    ///
    /// # Errors
    /// [`rule::ROW`], [`rule::ROW_ORDER`].
    pub fn check_rows(&self) -> Result<(), DecodeError> {
        let mut last: Option<&TargetId> = None;
        for row in &self.contributions {
            let delta = selected_delta(&row.selected_payload, &row.target, &row.target_spec);
            if delta != row.selected_delta || namespace(&delta) != row.namespace {
                return Err(DecodeError::invalid(rule::ROW, &row.target).within("contributions"));
            }
            if last.is_some_and(|last| last >= &row.target) {
                return Err(DecodeError::invalid(rule::ROW_ORDER, &row.target).within("contributions"));
            }
            last = Some(&row.target);
        }
        Ok(())
    }
}

impl Canonical for TreeRecord {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("contributions", &self.contributions)
                .field("files", &self.files)
                .field("materializer_policy_version", &MATERIALIZER_POLICY_VERSION)
                .field("runtime_manifest", &self.runtime_manifest.then_some(RUNTIME_MANIFEST))
                .field("stack_digest", &self.stack);
        });
    }
}

impl Decode for TreeRecord {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("materializer_policy_version")?.exactly_int(MATERIALIZER_POLICY_VERSION)?;
        let manifest = fields.take("runtime_manifest")?;
        let runtime_manifest = match manifest.json() {
            Json::Null => false,
            Json::Str(text) if text == RUNTIME_MANIFEST => true,
            other => return Err(manifest.error(DecodeKind::invalid(rule::RUNTIME_MANIFEST, other))),
        };
        let files: Vec<TreeFile> = fields.decode("files")?;
        if let Some(file) = files.iter().find(|file| file.mode != super::FILE_MODE) {
            return Err(DecodeError::invalid(rule::MODE, &file.path).within("files"));
        }
        let record = Self {
            contributions: fields.decode("contributions")?,
            files,
            runtime_manifest,
            stack: fields.decode("stack_digest")?,
        };
        record.check_rows()?;
        Ok(record)
    }
}

/// The digest of a tree over all its files, string-sorted, the record's included.
pub(super) fn tree_digest(files: &[TreeFile]) -> TreeDigest {
    TreeDigest::new(TREE.digest(&object(|o| {
        o.field("files", files).field("materializer_policy_version", &MATERIALIZER_POLICY_VERSION);
    })))
}
