//! `scan` and `inspect`: a bundle as data. Nothing of it is run.

use std::fmt::Write as _;
use std::path::Path;

use cacheon_bundle::{Abi, Bundle, BundleError, Finding, Inspection, TargetKind, inspect};
use cacheon_stack::catalog::{CPU_1, Catalog, by_digest, known};
use serde_json::{Value, json};

use crate::args::{BundleArgs, InspectArgs};
use crate::output::{Failure, Output, REFUSED, value};
use crate::table::plain;

fn failed(error: BundleError) -> Failure {
    match error {
        BundleError::Refused(finding) => refused(&finding),
        error @ BundleError::Infrastructure { .. } => Failure::infrastructure(error),
    }
}

fn refused(finding: &Finding) -> Failure {
    Failure::message(REFUSED, plain(&format!("{finding}; {}", finding.rule.help())))
}

fn read(path: &Path) -> Result<Bundle, Failure> {
    Bundle::read(path).map_err(failed)
}

/// The static scan of one bundle.
pub(crate) fn scan(args: &BundleArgs, output: Output) -> Result<(), Failure> {
    let bundle = read(&args.bundle)?;
    let report = bundle.scan();
    let manifest = bundle.manifest();
    let mut text = format!(
        "bundle: {}  abi: {}  ops: {}\n",
        plain(&manifest.bundle_id),
        manifest.abi.as_str(),
        manifest.ops.len()
    );
    let mut shown = 0;
    for op in &manifest.ops {
        let own = |finding: &&Finding| {
            let file = finding.place.file.as_deref();
            file == Some(op.source.as_str()) || op.c_sources.iter().any(|path| file == Some(path.as_str()))
        };
        let findings: Vec<&Finding> = report.findings().iter().filter(own).collect();
        let clean = findings.iter().all(|finding| finding.rule.advisory());
        let word = if clean { "clean" } else { "VIOLATIONS" };
        let _ = writeln!(text, "  [{word}] {} <- {}", plain(&op.slot), plain(&op.source));
        for finding in findings {
            shown += 1;
            let _ = writeln!(text, "      {}", line(finding));
        }
    }
    if shown < report.findings().len() {
        text.push_str("  the bundle as a whole\n");
        let owned = |finding: &Finding| {
            manifest.ops.iter().any(|op| {
                let file = finding.place.file.as_deref();
                file == Some(op.source.as_str())
                    || op.c_sources.iter().any(|path| file == Some(path.as_str()))
            })
        };
        for finding in report.findings().iter().filter(|finding| !owned(finding)) {
            let _ = writeln!(text, "      {}", line(finding));
        }
    }
    let mut json = value(&report.to_json());
    if let Value::Object(members) = &mut json {
        members.insert("bundle".to_owned(), json!(manifest.bundle_id));
        members.insert("content_hash".to_owned(), json!(bundle.content_hash().to_string()));
    }
    output.result(&text, &json);
    if report.ok() { Ok(()) } else { Err(Failure::quiet(REFUSED)) }
}

fn line(finding: &Finding) -> String {
    let mark = if finding.rule.advisory() { "advice: " } else { "" };
    plain(&format!("{mark}{finding}; {}", finding.rule.help()))
}

/// What the referee will see of a bundle.
pub(crate) fn inspect_one(args: &InspectArgs, output: Output) -> Result<(), Failure> {
    let bundle = read(&args.bundle)?;
    let catalog = catalog(&bundle, args.catalog.as_deref())?;
    let inspection = inspect(&bundle, catalog).map_err(|finding| refused(&finding))?;
    output.result(&describe(&bundle, catalog, &inspection), &described(&bundle, catalog, &inspection));
    Ok(())
}

fn catalog(bundle: &Bundle, wanted: Option<&str>) -> Result<&'static Catalog, Failure> {
    let none = |text: String| Failure::message(REFUSED, text);
    if let Some(prefix) = wanted {
        let matching: Vec<&'static Catalog> =
            known().iter().filter(|it| it.digest().to_string().starts_with(prefix)).collect();
        return match matching.as_slice() {
            [one] => Ok(one),
            _ => {
                let all: Vec<String> = known().iter().map(|it| it.digest().to_string()).collect();
                Err(none(format!("{prefix} names no single catalog; there are {}", all.join(", "))))
            }
        };
    }
    let newest = || known().iter().rfind(|it| it.digest() != CPU_1);
    let found = if bundle.manifest().abi == Abi::C { by_digest(CPU_1) } else { newest() };
    found.ok_or_else(|| none("no catalog is carried for this ABI".to_owned()))
}

fn kind(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Slot => "slot",
        TargetKind::Atomic => "atomic",
    }
}

fn describe(bundle: &Bundle, catalog: &Catalog, it: &Inspection) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<18} {}", plain(value));
    };
    row("bundle", &bundle.manifest().bundle_id);
    row("abi", bundle.manifest().abi.as_str());
    row("content hash", &bundle.content_hash().to_string());
    row("catalog", &catalog.digest().to_string());
    row("target", &format!("{} ({})", it.target_id, kind(it.target_kind)));
    row("members", &it.members.iter().cloned().collect::<Vec<_>>().join(", "));
    row("features", &it.features.iter().cloned().collect::<Vec<_>>().join(", "));
    row("target spec", &it.target_spec_digest.to_string());
    row("selected payload", &it.selected_payload_digest.to_string());
    row("selected delta", &it.selected_delta_digest.to_string());
    row("swappable", it.swappable.as_ref().map_or_else(|why| why.text(), |()| "yes"));
    for variant in &it.variants {
        let name = if variant.variant.is_empty() { "(default)" } else { &variant.variant };
        row("variant", &format!("{} {name} -> {}", variant.slot, variant.entry));
    }
    text
}

fn described(bundle: &Bundle, catalog: &Catalog, it: &Inspection) -> Value {
    json!({
        "bundle": bundle.manifest().bundle_id,
        "abi": bundle.manifest().abi.as_str(),
        "content_hash": bundle.content_hash().to_string(),
        "catalog_digest": catalog.digest().to_string(),
        "target_id": it.target_id,
        "target_kind": kind(it.target_kind),
        "members": it.members,
        "features": it.features,
        "target_spec_digest": it.target_spec_digest.to_string(),
        "selected_payload": value(&it.selected_payload),
        "selected_payload_digest": it.selected_payload_digest.to_string(),
        "selected_delta_digest": it.selected_delta_digest.to_string(),
        "swappable": it.swappable.is_ok(),
        "not_swappable_because": it.swappable.as_ref().err().map(|why| why.text()),
        "variants": it.variants.iter().map(|variant| json!({
            "slot": variant.slot, "variant": variant.variant, "entry": variant.entry,
        })).collect::<Vec<_>>(),
    })
}
