//! A declared capability domain, as the engine matches it against its own calls.

use cacheon_bundle::capability::{Domain as Declared, Scalar};
use cacheon_model::abi::{Domain, NumericField, NumericSet, TextField};

/// The engine's form of a declared domain. A field that no CPU call has would make the kernel unreachable, so it is
/// refused rather than dropped.
///
/// # Errors
/// Names the field.
pub fn call_domain(declared: &Declared) -> Result<Domain, String> {
    let mut domain = Domain::default();
    for predicate in declared.constraints() {
        let field = predicate.field.as_str();
        if let Some(number) = NumericField::parse(field) {
            let bound = |value: &Option<cacheon_identity::Int>| match value {
                None => Ok(None),
                Some(value) => {
                    value.to_u64().map(Some).ok_or_else(|| format!("{field}: {value} is out of range"))
                }
            };
            let set = if predicate.allowed.is_empty() {
                NumericSet::Range { min: bound(&predicate.min)?, max: bound(&predicate.max)? }
            } else {
                let values = predicate.allowed.iter().map(|scalar| match scalar {
                    Scalar::Int(value) => {
                        value.to_u64().ok_or_else(|| format!("{field}: {value} is out of range"))
                    }
                    _ => Err(format!("{field} is a number")),
                });
                let mut values = values.collect::<Result<Vec<_>, _>>()?;
                values.sort_unstable();
                NumericSet::OneOf(values)
            };
            domain.numeric.insert(number, set);
        } else if let Some(text) = TextField::parse(field) {
            let values = predicate.allowed.iter().map(|scalar| match scalar {
                Scalar::Text(value) => Ok(value.clone()),
                _ => Err(format!("{field} is a text")),
            });
            domain.text.insert(text, values.collect::<Result<Vec<_>, _>>()?);
        } else {
            return Err(format!("no call of the CPU engine has `{field}`"));
        }
    }
    Ok(domain)
}
