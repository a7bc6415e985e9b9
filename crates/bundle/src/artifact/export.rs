//! Exports: one device program each, with its role in the life of a plan.

use super::abi::{CallAbi, ResourceKind};
use super::binding::{self, Binding, Scope};
use super::plain::{Members, Plain, Row};
use super::plan::{DevicePlan, MAX_BINDINGS};
use super::provider::{self, Provider};
use super::{ArtifactError, Class, is_float_type, is_integer_type};
use std::collections::BTreeMap;

const MAX_EXPORTS: usize = 16;
const MAX_PROFILE_INPUTS: usize = 16;
const MAX_PRELAUNCH: usize = 16;
const MAX_FACTORY: usize = 128;

/// What an export is run for; within a plan they stand in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Once, when the engine starts.
    Init,
    /// Once per prepared weight.
    Prepare,
    /// Before a run, when state must be cleared.
    Reset,
    /// The call.
    Run,
    /// Once, at the end.
    Destroy,
}

impl Role {
    const ALL: [Self; 5] = [Self::Init, Self::Prepare, Self::Reset, Self::Run, Self::Destroy];

    /// As it is spelled.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Prepare => "prepare",
            Self::Reset => "reset",
            Self::Run => "run",
            Self::Destroy => "destroy",
        }
    }
}

/// A checked export.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// The provider.
    pub provider: String,
    /// Its name within the row.
    pub name: String,
    /// The Python function that builds it.
    pub factory: String,
    /// The plan it belongs to.
    pub plan: String,
    /// Its place in the plan.
    pub step: i128,
    /// Its role.
    pub role: Role,
    /// The device plan.
    pub device_plan: DevicePlan,
    pub(super) bindings: Vec<Binding>,
    pub(super) prelaunch: Vec<(String, Plain)>,
    pub(super) specializes: Members,
    profile_inputs: Vec<String>,
    provider_requirements: Vec<Plain>,
    specialization_requirements: Vec<Plain>,
}

/// `[a-z0-9][a-z0-9._-]*`, at most `longest` bytes.
fn is_label(text: &str, longest: usize) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= longest
        && text.bytes().next().is_some_and(lower)
        && text.bytes().all(|b| lower(b) || b"._-".contains(&b))
}

fn is_factory(text: &str) -> bool {
    text.len() <= MAX_FACTORY && text.is_ascii() && crate::text::is_identifier(text) && !is_keyword(text)
}

/// A word that Python reserves.
fn is_keyword(text: &str) -> bool {
    const KEYWORDS: [&str; 35] = [
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
        "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in",
        "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    ];
    KEYWORDS.contains(&text)
}

impl Export {
    /// The members of the canonical row, in the order a manifest writes them.
    pub(super) fn members(&self) -> Vec<(&'static str, Plain)> {
        let texts = |items: &[String]| Plain::Array(items.iter().map(|it| it.as_str().into()).collect());
        let prelaunch = self.prelaunch.iter().map(|(target, value)| {
            Plain::table([
                ("op", "fill".into()),
                ("target", target.as_str().into()),
                ("value", value.clone()),
            ])
        });
        let bindings = self.bindings.iter().map(|binding| binding.canonical().clone());
        vec![
            ("provider", self.provider.as_str().into()),
            ("name", self.name.as_str().into()),
            ("factory", self.factory.as_str().into()),
            ("profile_inputs", texts(&self.profile_inputs)),
            ("role", self.role.as_str().into()),
            ("plan", self.plan.as_str().into()),
            ("step", Plain::Int(self.step)),
            ("specializes", Plain::Table(self.specializes.clone())),
            ("prelaunch", Plain::Array(prelaunch.collect())),
            ("bindings", Plain::Array(bindings.collect())),
            ("provider_capability_requirements", Plain::Array(self.provider_requirements.clone())),
            (
                "specialization_capability_requirements",
                Plain::Array(self.specialization_requirements.clone()),
            ),
            ("device_plan", self.device_plan.canonical().clone()),
        ]
    }

    /// Every resource the export mentions in any way.
    pub(super) fn mentions(&self) -> impl Iterator<Item = &str> {
        let bound = self.bindings.iter().flat_map(|it| it.mentions().iter().map(String::as_str));
        bound.chain(self.prelaunch.iter().map(|(target, _)| target.as_str()))
    }

    /// What its bindings need of the provider: rows of source, projection and capability.
    #[must_use]
    pub fn provider_requirements(&self) -> &[Plain] {
        &self.provider_requirements
    }

    /// What its specialisation needs of metadata: rows of source and capability field.
    #[must_use]
    pub fn specialization_requirements(&self) -> &[Plain] {
        &self.specialization_requirements
    }

    /// The registered profile inputs, sorted.
    #[must_use]
    pub fn profile_inputs(&self) -> &[String] {
        &self.profile_inputs
    }
}

/// Reads the exports of a row, sorted by (provider, plan, step, name).
pub(super) fn read(value: &Plain, path: &str, scope: Scope<'_>) -> Result<Vec<Export>, ArtifactError> {
    let refuse = |class, at: &str, problem: String| Err(ArtifactError::new(class, at, problem));
    let Plain::Array(items) = value else {
        let problem = format!("expected an array of tables, found {}", value.kind());
        return refuse(Class::Export, path, problem);
    };
    if items.len() > MAX_EXPORTS {
        let problem = format!("{} exports, where at most {MAX_EXPORTS} are allowed", items.len());
        return refuse(Class::Export, path, problem);
    }
    let mut exports: Vec<Export> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let export = one(item, &at, scope)?;
        for other in &exports {
            if other.name == export.name {
                return refuse(Class::Duplicate, &at, format!("two exports are named `{}`", export.name));
            }
            if (&other.plan, other.step) == (&export.plan, export.step) {
                let problem = format!("two exports of plan `{}` have step {}", export.plan, export.step);
                return refuse(Class::Duplicate, &at, problem);
            }
            if other.provider != export.provider {
                return refuse(Class::Export, &at, "the exports of a row share one provider".to_owned());
            }
        }
        exports.push(export);
    }
    exports.sort_by(|a, b| {
        (&a.provider, &a.plan, a.step, &a.name).cmp(&(&b.provider, &b.plan, b.step, &b.name))
    });
    Ok(exports)
}

const FIELDS: [&str; 13] = [
    "bindings",
    "device_plan",
    "factory",
    "name",
    "plan",
    "prelaunch",
    "profile_inputs",
    "provider",
    "provider_capability_requirements",
    "role",
    "specialization_capability_requirements",
    "specializes",
    "step",
];

fn one(item: &Plain, path: &str, scope: Scope<'_>) -> Result<Export, ArtifactError> {
    let row = Row::open(item, path, Class::Export, &FIELDS)?;
    let provider = row.text("provider")?;
    let Some(registered) = is_label(provider, 128).then(|| provider::find(provider)).flatten() else {
        return row.refuse("provider", "no such registered provider");
    };
    let label = |key: &str, text: &str| -> Result<String, ArtifactError> {
        if is_label(text, 64) {
            return Ok(text.to_owned());
        }
        row.refuse(key, "a lowercase letter or digit, then at most 63 of [a-z0-9._-]")
    };
    let name = label("name", row.text("name")?)?;
    let plan = label("plan", row.optional_text("plan")?.unwrap_or("default"))?;
    let factory = row.text("factory")?;
    if !is_factory(factory) {
        return row
            .refuse("factory", "a factory is an ASCII identifier of at most 128 characters, no keyword");
    }
    let step = row.optional_int("step", 0, 255)?.unwrap_or(0);
    let spelled = row.optional_text("role")?.unwrap_or("run");
    let Some(role) = Role::ALL.into_iter().find(|role| role.as_str() == spelled) else {
        return row.refuse("role", "a role is init, prepare, reset, run or destroy");
    };
    let profile_inputs = profile_inputs(&row, registered)?;
    let mut bindings = Vec::new();
    for (index, value) in row.array("bindings", 1, MAX_BINDINGS)?.iter().enumerate() {
        bindings.push(binding::read(value, &format!("{}[{index}]", row.at("bindings")), scope)?);
    }
    let missing = || ArtifactError::new(Class::DevicePlan, row.at("device_plan"), "the field is missing");
    let device_plan = row.get("device_plan").ok_or_else(missing)?;
    let device_plan = DevicePlan::read(device_plan, &row.at("device_plan"))?;
    device_plan.join(&bindings)?;
    let specializes = specializes(&row, scope.abi)?;
    let prelaunch = prelaunch(&row, scope)?;
    let provider_requirements = provider_rows(&bindings);
    let specialization_requirements = specialization_rows(&specializes, scope.abi);
    for (key, derived) in [
        ("provider_capability_requirements", &provider_requirements),
        ("specialization_capability_requirements", &specialization_requirements),
    ] {
        if row.get(key).is_some_and(|stated| *stated != Plain::Array(derived.clone())) {
            return row.refuse(key, "the list differs from the one the export implies");
        }
    }
    Ok(Export {
        provider: provider.to_owned(),
        name,
        factory: factory.to_owned(),
        plan,
        step,
        role,
        device_plan,
        bindings,
        prelaunch,
        specializes,
        profile_inputs,
        provider_requirements,
        specialization_requirements,
    })
}

fn profile_inputs(row: &Row<'_>, provider: &Provider) -> Result<Vec<String>, ArtifactError> {
    let row = Row { class: Class::ProfileInput, ..row.clone() };
    let mut inputs: Vec<String> = Vec::new();
    for value in row.array("profile_inputs", 0, MAX_PROFILE_INPUTS)? {
        let Plain::Text(text) = value else {
            return row.refuse("profile_inputs", format!("expected strings only, found {}", value.kind()));
        };
        if !provider.profile_inputs.contains(&text.as_str()) {
            return row.refuse("profile_inputs", "no such registered profile input");
        }
        if inputs.contains(text) {
            return row.refuse("profile_inputs", format!("`{text}` is named twice"));
        }
        inputs.push(text.clone());
    }
    inputs.sort();
    Ok(inputs)
}

/// Checks each specialised value against its scalar's own type.
fn specializes(row: &Row<'_>, abi: &CallAbi) -> Result<Members, ArtifactError> {
    let row = Row { class: Class::SpecializationType, ..row.clone() };
    let members = match row.get("specializes") {
        None => return Ok(BTreeMap::new()),
        Some(Plain::Table(members)) => members,
        Some(other) => return row.refuse("specializes", format!("expected a table, found {}", other.kind())),
    };
    for (source, value) in members {
        let key = format!("specializes.{source}");
        let Some(resource) = abi.resource(source).filter(|it| it.kind == ResourceKind::Scalar) else {
            return row.refuse(&key, "only scalars of the slot are specialised");
        };
        if resource.capability_field.is_none() {
            return row.refuse(&key, "the scalar has no capability field");
        }
        let own = resource.scalar_type.as_deref().unwrap_or_default();
        let exact = match value {
            Plain::Bool(_) => own == "bool",
            Plain::Int(value) => is_integer_type(own) && in_range(own, *value),
            Plain::Float(value) => is_float_type(own) && value.is_finite(),
            _ => false,
        };
        if !exact {
            return row.refuse(&key, format!("the value is no {own}"));
        }
    }
    Ok(members.clone())
}

/// Whether an integer type, `i8` to `u64`, holds the value.
fn in_range(scalar: &str, value: i128) -> bool {
    let bits = scalar.get(1..).and_then(|bits| bits.parse::<u32>().ok()).unwrap_or(64);
    if scalar.starts_with('u') {
        (0..1i128 << bits).contains(&value)
    } else {
        (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&value)
    }
}

fn prelaunch(row: &Row<'_>, scope: Scope<'_>) -> Result<Vec<(String, Plain)>, ArtifactError> {
    let mut out = Vec::new();
    for (index, value) in row.optional_array("prelaunch", MAX_PRELAUNCH)?.iter().enumerate() {
        let at = format!("{}[{index}]", row.at("prelaunch"));
        let row = Row::open(value, &at, Class::Export, &["op", "target", "value"])?;
        row.choice("op", &["fill"])?;
        let target = row.text("target")?;
        if !scope.fillable(target) {
            return row.refuse("target", "only writable tensors are filled");
        }
        let value = row.need("value")?;
        let fills = match value {
            Plain::Bool(_) => true,
            Plain::Int(value) => i64::try_from(*value).is_ok(),
            Plain::Float(value) => value.is_finite(),
            Plain::Text(text) => matches!(text.as_str(), "-inf" | "+inf" | "nan"),
            _ => false,
        };
        if !fills {
            let problem = "a boolean, a 64-bit integer, a finite float, \"-inf\", \"+inf\" or \"nan\"";
            return row.refuse("value", problem);
        }
        out.push((target.to_owned(), value.clone()));
    }
    Ok(out)
}

/// One row per group binding that needs a capability, sorted, each once.
fn provider_rows(bindings: &[Binding]) -> Vec<Plain> {
    let mut rows: Vec<_> = bindings.iter().filter_map(Binding::requirement).collect();
    rows.sort_unstable();
    rows.dedup();
    let row = |(source, projection): (&str, &'static str)| {
        Plain::table([
            ("source", source.into()),
            ("projection", projection.into()),
            ("capability", super::group_capability(projection).into()),
        ])
    };
    rows.into_iter().map(row).collect()
}

fn specialization_rows(specializes: &Members, abi: &CallAbi) -> Vec<Plain> {
    let field = |source: &String| abi.resource(source)?.capability_field.as_deref();
    let row = |source: &String| {
        Plain::table([
            ("source", source.as_str().into()),
            ("capability_field", field(source).unwrap_or_default().into()),
        ])
    };
    specializes.keys().map(row).collect()
}
