//! `digest FILE`: what a record is called, and by whom.

use std::fmt::Write as _;

use cacheon_evidence::cpu::attempt::Attempt;
use cacheon_identity::domain::envelope_digest;
use cacheon_identity::{Canonical, Decode, DecodeError, Digest, Int, Json, sha256};
use cacheon_records::cpu::SealedPlan;
use cacheon_settlement::economics::policy::EmissionsPolicy;
use cacheon_settlement::{Candidate, DiscoveryClaim, Event, Qualification, StackState, StandingClaim};
use cacheon_stack::arena::ServiceManifest;
use cacheon_stack::manifest::EngineRelease;
use cacheon_stack::{ContributionRef, EvaluationStack, IntegrationReview, ReferenceManifest};
use serde_json::json;

use crate::args::DigestArgs;
use crate::output::{Failure, INFRASTRUCTURE, Output, REFUSED};
use crate::table::plain;

/// The digests of a record, each with what it is called.
type Names = Result<Vec<(&'static str, Digest)>, DecodeError>;

/// One kind of record and how it is named.
struct Kind {
    name: &'static str,
    names: fn(&Json) -> Names,
}

fn one<T: Decode>(json: &Json, name: impl FnOnce(T) -> Digest) -> Names {
    Ok(vec![("digest", name(T::decode(json)?))])
}

/// Every kind that is recognised by its closed members.
const KINDS: &[Kind] = &[
    Kind { name: "evaluation stack", names: |json| one(json, |it: EvaluationStack| it.digest().digest()) },
    Kind { name: "engine release", names: |json| one(json, |it: EngineRelease| it.digest().digest()) },
    Kind { name: "contribution reference", names: contribution },
    Kind {
        name: "arena service manifest",
        names: |json| one(json, |it: ServiceManifest| it.digest().digest()),
    },
    Kind { name: "reference manifest", names: reference },
    Kind {
        name: "integration review",
        names: |json| one(json, |it: IntegrationReview| it.digest().digest()),
    },
    Kind { name: "qualification", names: |json| one(json, |it: Qualification| it.digest().digest()) },
    Kind { name: "settlement candidate", names: |json| one(json, |it: Candidate| it.digest().digest()) },
    Kind { name: "settlement event", names: |json| one(json, |it: Event| it.digest().digest()) },
    Kind { name: "standing claim", names: claim },
    Kind { name: "discovery claim", names: |json| one(json, |it: DiscoveryClaim| it.digest().digest()) },
    Kind { name: "emissions policy", names: |json| one(json, |it: EmissionsPolicy| it.digest().digest()) },
    Kind { name: "stack state", names: |json| one(json, |it: StackState| it.digest()) },
    Kind { name: "sealed plan of the CPU arena", names: |json| one(json, |it: SealedPlan| it.digest()) },
    Kind { name: "attempt of the CPU arena", names: |json| one(json, |it: Attempt| it.digest()) },
];

fn contribution(json: &Json) -> Names {
    let it = ContributionRef::decode(json)?;
    Ok(vec![("digest", it.digest().digest()), ("selected delta", it.selected_delta().digest())])
}

fn reference(json: &Json) -> Names {
    let it = ReferenceManifest::decode(json)?;
    Ok(vec![("digest", it.digest().digest()), ("measured digest", it.measured_digest().digest())])
}

fn claim(json: &Json) -> Names {
    let it = StandingClaim::decode(json)?;
    Ok(vec![("digest", it.digest().digest()), ("family", it.family().digest())])
}

/// Names a file.
pub(crate) fn name(args: &DigestArgs, output: Output) -> Result<(), Failure> {
    let path = &args.file;
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::message(INFRASTRUCTURE, format!("{}: {error}", path.display())))?;
    let whole = sha256(&bytes);
    let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let parsed = Json::parse(body);
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<16} {}", plain(value));
    };
    row("sha256", &whole.to_string());
    row("bytes", &bytes.len().to_string());
    let (mut canonical, mut kind, mut names) = (None, None, Vec::new());
    match &parsed {
        Err(error) => row("kind", &format!("no record: {error}")),
        Ok(json) => {
            let form = json.to_canonical();
            canonical = Some(sha256(&form));
            let same = match (form == bytes, form == body) {
                (true, _) => "yes",
                (false, true) => "yes, with a final newline",
                _ => "no",
            };
            row("canonical", same);
            row("canonical sha256", &sha256(&form).to_string());
            let known = KINDS.iter().find_map(|it| (it.names)(json).ok().map(|names| (it.name, names)));
            if let Some((name, known)) = known {
                row("kind", name);
                for (what, digest) in &known {
                    row(what, &digest.to_string());
                }
                (kind, names) = (Some(name), known);
            } else {
                row("kind", "no record that is recognised by its members; digest it with --domain DOMAIN");
            }
        }
    }
    let mut in_domain = None;
    if let Some(domain) = &args.domain {
        let json = parsed.as_ref().map_err(|error| {
            Failure::message(
                REFUSED,
                plain(&format!("{}: {error}; only JSON has a record digest", path.display())),
            )
        })?;
        let digest = envelope_digest(domain, json, &Int::from(1u64))
            .map_err(|error| Failure::message(crate::output::USAGE, error))?;
        row(domain, &digest.to_string());
        in_domain = Some(json!({"domain": domain, "digest": digest.to_string()}));
    }
    let json = json!({
        "sha256": whole.to_string(),
        "bytes": bytes.len(),
        "canonical_sha256": canonical.map(|it| it.to_string()),
        "is_canonical": parsed.as_ref().ok().map(|json| Canonical::to_canonical(json) == bytes),
        "kind": kind,
        "digests": names.iter().map(|(what, digest)| (what.replace(' ', "_"), json!(digest.to_string())))
            .collect::<serde_json::Map<_, _>>(),
        "domain": in_domain,
    });
    output.result(&text, &json);
    Ok(())
}
