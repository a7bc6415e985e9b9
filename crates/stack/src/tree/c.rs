//! What a contribution in C emits.

use super::emit::{Emission, OpBlock, generated};
use super::{MaterializeError, namespace};
use crate::contribution::ContributionRef;
use cacheon_bundle::inspect::Inspection;
use cacheon_bundle::{Bundle, Finding, Place, Rule};
use cacheon_identity::Json;

/// Copies the declared sources under `c/<namespace>/` as they are, so that quoted includes resolve as in the bundle,
/// writes the metadata projections, and adds one op per row. The ops come from the selected payload: sorted, canonical.
pub(super) fn emit(
    emission: &mut Emission,
    entry: &ContributionRef,
    bundle: &Bundle,
    inspection: &Inspection,
) -> Result<(), MaterializeError> {
    let namespace = namespace(&entry.selected_delta());
    let placed = |path: &str| format!("c/{namespace}/{path}");
    let metadata_path = |path: &str| format!("metadata/{}", generated(&namespace, path, ".json"));
    let refuse = |path: &str| MaterializeError::Inspection {
        target: entry.target().clone(),
        finding: Box::new(Finding::new(Rule::Path, Place::file(path), "the file is not in the bundle")),
    };
    for path in &inspection.c_files {
        let bytes = bundle.tree().file(path).ok_or_else(|| refuse(path))?;
        emission.file(placed(path), bytes.to_vec())?;
    }
    for (path, text) in &inspection.metadata {
        emission.file(metadata_path(path), text.clone().into_bytes())?;
    }
    let ops = inspection.selected_payload.get("ops").and_then(Json::as_array).unwrap_or(&[]);
    for op in ops {
        let text = |name: &str| op.get(name).and_then(Json::as_str);
        let list = |name: &str| -> Vec<String> {
            let items = op.get(name).and_then(Json::as_array).unwrap_or(&[]);
            items.iter().filter_map(Json::as_str).map(str::to_owned).collect()
        };
        let sources: Vec<_> = list("c_sources").iter().map(|path| placed(path)).collect();
        let mut block = OpBlock::default();
        block
            .text("slot", text("slot").unwrap_or_default())
            .text("variant", text("variant").unwrap_or_default())
            .text("source", &placed(text("source").unwrap_or_default()))
            .text("entry", text("entry").unwrap_or_default())
            .optional("metadata", text("metadata").map(metadata_path).as_deref())
            .list("dtypes", &list("dtypes"))
            .list("architectures", &list("architectures"))
            .list("c_sources", &sources);
        emission.op(block);
    }
    Ok(())
}
