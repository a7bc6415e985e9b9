//! Declarations as plain values, whether they come from TOML or from canonical JSON. Integers, floats and booleans stay
//! three different things.

use super::ArtifactError;
use crate::toml;
use cacheon_identity::{Int, Json};
use num_bigint::BigInt;
use std::collections::BTreeMap;

/// A declared value.
#[derive(Debug, Clone, PartialEq)]
pub enum Val {
    /// JSON's `null`; TOML has none.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of any size.
    Int(BigInt),
    /// A float.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Val>),
    /// A table or object.
    Table(BTreeMap<String, Val>),
    /// A date or time: never admitted.
    Moment,
}

impl From<&toml::Value> for Val {
    fn from(value: &toml::Value) -> Self {
        match value {
            toml::Value::Text(text) => Self::Text(text.clone()),
            toml::Value::Int(value) => Self::Int(value.clone()),
            toml::Value::Float(value) => Self::Float(*value),
            toml::Value::Bool(value) => Self::Bool(*value),
            toml::Value::Moment(_) => Self::Moment,
            toml::Value::Array(items) => {
                Self::Array(items.iter().map(|item| Self::from(&item.value)).collect())
            }
            toml::Value::Table(table) => {
                Self::Table(table.iter().map(|(key, item)| (key.clone(), Self::from(&item.value))).collect())
            }
        }
    }
}

impl From<&Json> for Val {
    fn from(value: &Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Int(value) => Self::Int(value.to_big()),
            Json::Str(text) => Self::Text(text.clone()),
            Json::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Json::Object(members) => {
                Self::Table(members.iter().map(|(key, item)| (key.clone(), Self::from(item))).collect())
            }
        }
    }
}

impl Val {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Moment => "a date or time",
        }
    }
}

/// A value and how to find it, such as `aot_exports[0].bindings[2].axis`.
#[derive(Debug, Clone)]
pub(super) struct Node<'v> {
    pub(super) value: &'v Val,
    pub(super) path: String,
}

pub(super) type Checked<T> = Result<T, ArtifactError>;

impl<'v> Node<'v> {
    pub(super) fn new(value: &'v Val, path: impl Into<String>) -> Self {
        Self { value, path: path.into() }
    }

    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Checked<T> {
        Err(ArtifactError { path: self.path.clone(), problem: problem.into() })
    }

    fn expected<T>(&self, what: &str) -> Checked<T> {
        self.fail(format!("expected {what}, found {}", self.value.kind()))
    }

    pub(super) fn items(&self, least: usize, most: usize) -> Checked<Vec<Node<'v>>> {
        let Val::Array(items) = self.value else { return self.expected("an array") };
        if !(least..=most).contains(&items.len()) {
            return self.fail(format!("expected {least} to {most} entries, found {}", items.len()));
        }
        Ok(items
            .iter()
            .enumerate()
            .map(|(index, item)| Node::new(item, format!("{}[{index}]", self.path)))
            .collect())
    }

    pub(super) fn table(&self) -> Checked<Members<'v>> {
        match self.value {
            Val::Table(table) => Ok(Members { table, path: self.path.clone() }),
            _ => self.expected("a table"),
        }
    }

    pub(super) fn text(&self) -> Checked<&'v str> {
        if let Val::Text(text) = self.value { Ok(text) } else { self.expected("a string") }
    }

    pub(super) fn boolean(&self) -> Checked<bool> {
        if let Val::Bool(value) = self.value { Ok(*value) } else { self.expected("true or false") }
    }

    pub(super) fn integer(&self, low: i64, high: i64) -> Checked<i64> {
        let Val::Int(value) = self.value else { return self.expected("an integer") };
        match Int::try_from(value.clone()).ok().and_then(|value| value.to_i64()) {
            Some(value) if (low..=high).contains(&value) => Ok(value),
            _ => self.fail(format!("the integer must be {low} to {high}")),
        }
    }

    /// One of a closed list.
    pub(super) fn one_of(&self, choices: &[&'static str]) -> Checked<&'static str> {
        let text = self.text()?;
        match choices.iter().find(|choice| **choice == text) {
            Some(choice) => Ok(choice),
            None => {
                let shown: String = text.chars().take(80).collect();
                self.fail(format!("`{}` is none of {}", shown.escape_debug(), choices.join(" ")))
            }
        }
    }

    /// As [`Self::one_of`]; null reads as absent.
    pub(super) fn optional_one_of(&self, choices: &[&'static str]) -> Checked<Option<&'static str>> {
        if *self.value == Val::Null { Ok(None) } else { self.one_of(choices).map(Some) }
    }

    pub(super) fn power_of_two(&self, low: i64) -> Checked<i64> {
        let value = self.integer(low.max(1), 1 << 20)?;
        if value.count_ones() == 1 { Ok(value) } else { self.fail("the value must be a power of two") }
    }
}

/// The members of a table.
#[derive(Debug, Clone)]
pub(super) struct Members<'v> {
    table: &'v BTreeMap<String, Val>,
    pub(super) path: String,
}

impl<'v> Members<'v> {
    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Checked<T> {
        Err(ArtifactError { path: self.path.clone(), problem: problem.into() })
    }

    /// Refuses members outside the two lists and the absence of a required one.
    pub(super) fn only(&self, required: &[&str], optional: &[&str]) -> Checked<()> {
        if let Some(missing) = required.iter().find(|key| !self.table.contains_key(**key)) {
            return self.fail(format!("`{missing}` is missing"));
        }
        let known = |key: &str| required.contains(&key) || optional.contains(&key);
        match self.table.keys().find(|key| !known(key)) {
            Some(extra) => {
                let shown: String = extra.chars().take(80).collect();
                self.fail(format!("`{}` does not belong here", shown.escape_debug()))
            }
            None => Ok(()),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Node<'v>> {
        self.table.get(key).map(|value| Node::new(value, format!("{}.{key}", self.path)))
    }

    pub(super) fn need(&self, key: &str) -> Checked<Node<'v>> {
        match self.get(key) {
            Some(node) => Ok(node),
            None => self.fail(format!("`{key}` is missing")),
        }
    }

    /// A member that may be absent or null.
    pub(super) fn given(&self, key: &str) -> Option<Node<'v>> {
        self.get(key).filter(|node| *node.value != Val::Null)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        self.table.iter().map(|(key, value)| (key.as_str(), Node::new(value, format!("{}.{key}", self.path))))
    }
}

/// `[a-z0-9][a-z0-9._-]{0,n-1}`.
pub(super) fn is_id(text: &str, longest: usize) -> bool {
    let tail =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    let mut bytes = text.bytes();
    text.len() <= longest
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && bytes.all(tail)
}

pub(super) fn int(value: i64) -> Json {
    Json::Int(Int::from(value))
}

pub(super) fn text(value: &str) -> Json {
    Json::Str(value.to_owned())
}
