//! The metadata JSON of a row: reading its normative keys, writing its canonical text.

use super::field::{Scalar, canonical_name, canonical_text, canonical_value, is_known, is_numeric};
use super::{CapabilityError, Domain, Predicate};
use crate::pyjson::{Item, Value};
use cacheon_identity::{Int, Json};
use std::collections::BTreeSet;

/// The normative keys of a metadata object, canonical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Sets, bounds, graph safety and predicates, before the manifest's lists are intersected.
    pub domain: Domain,
    /// The model profile that the developer's `verify` takes from the file; never identity.
    pub model: Option<String>,
}

fn texts(field: &'static str, item: Option<&Item>, of: &str) -> Result<BTreeSet<String>, CapabilityError> {
    let Some(item) = item else { return Ok(BTreeSet::new()) };
    let refuse = |at: usize, problem: String| CapabilityError::new(field, problem).at(at);
    let Value::Array(items) = &item.value else {
        return Err(refuse(item.at, format!("expected an array of strings, found {}", item.value.kind())));
    };
    let mut set = BTreeSet::new();
    for item in items {
        let Value::Text(text) = &item.value else {
            return Err(refuse(item.at, format!("expected a string, found {}", item.value.kind())));
        };
        set.insert(canonical_text(of, text).map_err(|_| refuse(item.at, "the text is empty".to_owned()))?);
    }
    Ok(set)
}

fn bound(field: &'static str, item: Option<&Item>) -> Result<Option<Int>, CapabilityError> {
    match item.map(|item| (&item.value, item.at)) {
        None | Some((Value::Null, _)) => Ok(None),
        Some((Value::Int(value), _)) if !value.is_negative() => Ok(Some(value.clone())),
        Some((other, at)) => {
            let shown =
                if let Value::Int(value) = other { value.to_string() } else { other.kind().to_owned() };
            Err(CapabilityError::new(field, format!("expected an integer >= 0, found {shown}")).at(at))
        }
    }
}

fn scalar(field: &str, item: &Item) -> Result<Scalar, CapabilityError> {
    let raw = match &item.value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::Int(value) => Scalar::Int(value.clone()),
        Value::Text(value) => Scalar::Text(value.clone()),
        other => {
            let problem = format!("expected a string or integer, found {}", other.kind());
            return Err(CapabilityError::new(field, problem).at(item.at));
        }
    };
    canonical_value(field, &raw).map_err(|error| error.at(item.at))
}

fn set(field: &str, item: &Item) -> Result<Predicate, CapabilityError> {
    let Value::Array(items) = &item.value else {
        let problem = format!("expected an array, found {}", item.value.kind());
        return Err(CapabilityError::new(field, problem).at(item.at));
    };
    if items.is_empty() {
        return Err(CapabilityError::new(field, "an empty set admits no call").at(item.at));
    }
    let allowed = items.iter().map(|item| scalar(field, item)).collect::<Result<_, _>>()?;
    Ok(Predicate::one_of(field, allowed))
}

fn predicate(field: &str, item: &Item) -> Result<Predicate, CapabilityError> {
    let refuse = |problem: &str| CapabilityError::new(field, problem).at(item.at);
    let members = match &item.value {
        Value::Array(_) => return set(field, item),
        Value::Object { members, .. } => members,
        _ => return Ok(Predicate::one_of(field, BTreeSet::from([scalar(field, item)?]))),
    };
    let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    if let Some(unknown) = keys.iter().find(|key| !matches!(**key, "exact" | "one_of" | "min" | "max")) {
        let shown: String = unknown.chars().take(80).collect();
        return Err(refuse(&format!("`{shown}` is no predicate; use exact, one_of, or min and max")));
    }
    match (item.value.get("exact"), item.value.get("one_of")) {
        (Some(exact), None) if members.len() == 1 => {
            Ok(Predicate::one_of(field, BTreeSet::from([scalar(field, exact)?])))
        }
        (None, Some(one_of)) if members.len() == 1 => set(field, one_of),
        (None, None) if !members.is_empty() => {
            if !is_numeric(field) {
                return Err(refuse("only a numeric field takes a range"));
            }
            let end = |key: &str| match item.value.get(key) {
                None => Ok(None),
                Some(item) => match scalar(field, item)? {
                    Scalar::Int(value) => Ok(Some(value)),
                    _ => Err(refuse("a range ends in integers")),
                },
            };
            let (min, max) = (end("min")?, end("max")?);
            if let (Some(min), Some(max)) = (&min, &max)
                && min > max
            {
                return Err(refuse(&format!("min {min} is greater than max {max}")));
            }
            Ok(Predicate::range(field, min, max))
        }
        _ => Err(refuse("use exactly one of exact, one_of, or min and max")),
    }
}

fn predicates(item: Option<&Item>) -> Result<Vec<Predicate>, CapabilityError> {
    let item = match item {
        None => return Ok(Vec::new()),
        Some(item) if item.value == Value::Null => return Ok(Vec::new()),
        Some(item) => item,
    };
    let Value::Object { members, .. } = &item.value else {
        let problem = format!("expected an object, found {}", item.value.kind());
        return Err(CapabilityError::new("capabilities", problem).at(item.at));
    };
    let mut found: Vec<Predicate> = Vec::new();
    for (name, item) in members {
        let rule = || {
            let field = canonical_name(name)?;
            if !is_known(&field) {
                return Err(CapabilityError::new(field, "no capability field has this name"));
            }
            if found.iter().any(|other| other.field == field) {
                return Err(CapabilityError::new(field, "the field is spelled in two ways"));
            }
            predicate(&field, item)
        };
        found.push(rule().map_err(|error| error.at(item.at).within("capabilities"))?);
    }
    found.sort_by(|left, right| left.field.cmp(&right.field));
    Ok(found)
}

impl Metadata {
    /// Reads the normative keys of a parsed metadata file; every other key is ignored.
    ///
    /// # Errors
    /// A file that is no object, or a normative key with a bad value.
    pub fn read(item: &Item) -> Result<Self, CapabilityError> {
        let Value::Object { .. } = &item.value else {
            let problem = format!("expected an object, found {}", item.value.kind());
            return Err(CapabilityError::new("metadata", problem).at(item.at));
        };
        let get = |key: &str| item.value.get(key);
        let graph_safe = match get("graph_safe").map(|item| (&item.value, item.at)) {
            None => false,
            Some((Value::Bool(value), _)) => *value,
            Some((other, at)) => {
                let problem = format!("expected true or false, found {}", other.kind());
                return Err(CapabilityError::new("graph_safe", problem).at(at));
            }
        };
        let domain = Domain {
            dtypes: texts("dtypes", get("dtypes"), "dtype")?,
            architectures: texts("architectures", get("architectures"), "architecture")?,
            quant: texts("quant", get("quant"), "quant")?,
            max_last_dim: bound("max_last_dim", get("max_last_dim"))?,
            min_num_tokens: bound("min_num_tokens", get("min_num_tokens"))?,
            max_num_tokens: bound("max_num_tokens", get("max_num_tokens"))?,
            graph_safe,
            predicates: predicates(get("capabilities"))?,
        };
        if let (Some(min), Some(max)) = (&domain.min_num_tokens, &domain.max_num_tokens)
            && min > max
        {
            let problem = format!("{min} is greater than max_num_tokens {max}");
            return Err(
                CapabilityError::new("min_num_tokens", problem).at(get("min_num_tokens").map_or(0, |i| i.at))
            );
        }
        let model =
            ["model", "model_profile"].into_iter().find_map(|key| match get(key).map(|item| &item.value) {
                Some(Value::Text(text)) => Some(text.clone()),
                _ => None,
            });
        Ok(Self { domain, model })
    }

    /// The effective domain together with the manifest's own lists.
    ///
    /// # Errors
    /// Blank entries, or lists on both sides that share nothing.
    pub fn effective(&self, dtypes: &[String], architectures: &[String]) -> Result<Domain, CapabilityError> {
        let mut domain = self.domain.clone();
        domain.dtypes = meet("dtypes", "dtype", dtypes, &domain.dtypes)?;
        domain.architectures = meet("architectures", "architecture", architectures, &domain.architectures)?;
        Ok(domain)
    }

    /// The normative keys as JSON, in the form that enters identity.
    #[must_use]
    pub fn projection(&self) -> Json {
        let domain = &self.domain;
        let mut members: Vec<(&str, Json)> = Vec::new();
        for (key, values) in
            [("architectures", &domain.architectures), ("dtypes", &domain.dtypes), ("quant", &domain.quant)]
        {
            if !values.is_empty() {
                members.push((key, Json::Array(values.iter().cloned().map(Json::Str).collect())));
            }
        }
        if domain.graph_safe {
            members.push(("graph_safe", Json::Bool(true)));
        }
        for (key, value) in [
            ("max_last_dim", &domain.max_last_dim),
            ("max_num_tokens", &domain.max_num_tokens),
            ("min_num_tokens", &domain.min_num_tokens),
        ] {
            members.extend(value.iter().map(|value| (key, Json::Int(value.clone()))));
        }
        if !domain.predicates.is_empty() {
            let fields =
                domain.predicates.iter().map(|predicate| (predicate.field.clone(), emitted(predicate)));
            members.push(("capabilities", Json::object(fields)));
        }
        Json::object(members)
    }

    /// The canonical metadata text that enters identity: the projection with 2-space indent and a final newline.
    #[must_use]
    pub fn canonical_text(&self) -> String {
        crate::pretty::pretty(&self.projection()) + "\n"
    }
}

fn emitted(predicate: &Predicate) -> Json {
    let value = |scalar: &Scalar| match scalar {
        Scalar::Bool(value) => Json::Bool(*value),
        Scalar::Int(value) => Json::Int(value.clone()),
        Scalar::Text(value) => Json::Str(value.clone()),
    };
    let mut values: Vec<Json> = predicate.allowed.iter().map(value).collect();
    values.sort_by_key(Json::to_canonical);
    let ends = [("max", &predicate.max), ("min", &predicate.min)];
    match values.len() {
        0 => Json::object(ends.into_iter().filter_map(|(key, end)| Some((key, Json::Int(end.clone()?))))),
        1 => Json::object(values.into_iter().map(|value| ("exact", value))),
        _ => Json::object([("one_of", Json::Array(values))]),
    }
}

fn meet(
    name: &str,
    field: &str,
    manifest: &[String],
    metadata: &BTreeSet<String>,
) -> Result<BTreeSet<String>, CapabilityError> {
    let stated: BTreeSet<String> =
        manifest.iter().map(|text| canonical_text(field, text)).collect::<Result<_, _>>()?;
    if stated.is_empty() || metadata.is_empty() {
        return Ok(if stated.is_empty() { metadata.clone() } else { stated });
    }
    let both: BTreeSet<String> = stated.intersection(metadata).cloned().collect();
    if both.is_empty() {
        let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
        let problem = format!("manifest ({}) and metadata ({}) share nothing", list(&stated), list(metadata));
        return Err(CapabilityError::new(name, problem));
    }
    Ok(both)
}
