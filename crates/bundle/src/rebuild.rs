//! `rebuild.json`: which of the referee's own build steps a bundle asks for (`spec/10-contribution.md` §6.4).

use crate::finding::{Place, Ruled, refuse};
use crate::pyjson::{self, Value};
use crate::rule::Rule;
use crate::tree::{Node, Tree};
use cacheon_identity::{Digest, Int, Json};

/// The plan's path.
pub const PATH: &str = "rebuild.json";

/// A registered build step, in the order in which steps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Patcher {
    /// Applies the declared dependency patches.
    ApplyDepPatch,
    /// Builds the declared CUDA sources.
    BuildCudaExt,
    /// Builds the declared direct artifacts.
    BuildCuteCubin,
}

impl Patcher {
    /// Every patcher, in order.
    pub const ALL: [Self; 3] = [Self::ApplyDepPatch, Self::BuildCudaExt, Self::BuildCuteCubin];

    /// The name that bundles state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApplyDepPatch => "apply_dep_patch.py",
            Self::BuildCudaExt => "build_cuda_ext.py",
            Self::BuildCuteCubin => "build_cute_cubin.py",
        }
    }

    /// The identity of the step's contract.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::ApplyDepPatch => "cacheon.apply-dep-patch.v1",
            Self::BuildCudaExt => "cacheon.build-cuda-ext.v1",
            Self::BuildCuteCubin => "cacheon.build-cute-cubin.v1",
        }
    }

    /// The hash of the deployed step's source text. It enters payload digests, so it is a constant of the authority
    /// epoch, whatever the step is written in here.
    #[must_use]
    pub fn sha256(self) -> Digest {
        const APPLY: Digest =
            Digest::from_static("e0e019b342ab78b725aa4d032cc790455fbf17627dd05c109f49527ed4fc619d");
        const CUDA: Digest =
            Digest::from_static("77bf763135705e7b80082a8ffde001a13fdbe646b7412927d60b5f154c9cd180");
        const CUBIN: Digest =
            Digest::from_static("48b7a7617a046976abc5e00534f086196f689ef99047b27a1e827ec99b5908c0");
        match self {
            Self::ApplyDepPatch => APPLY,
            Self::BuildCudaExt => CUDA,
            Self::BuildCuteCubin => CUBIN,
        }
    }

    /// The path that enters identity.
    #[must_use]
    pub fn path(self) -> String {
        format!("cacheon/patchers/{}", self.name())
    }

    /// The feature that a plan with this step shows.
    #[must_use]
    pub fn feature(self) -> &'static str {
        match self {
            Self::ApplyDepPatch => "rebuild:apply_dep_patch",
            Self::BuildCudaExt => "rebuild:build_cuda_ext",
            Self::BuildCuteCubin => "rebuild:build_cute_cubin",
        }
    }
}

/// A plan: distinct steps in running order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Patcher>,
}

impl Plan {
    /// The plan as it enters payload digests; an absent plan reads as one without steps.
    #[must_use]
    pub fn identity(&self) -> Json {
        let step = |patcher: &Patcher| {
            Json::object([
                ("patcher_id", Json::Str(patcher.id().to_owned())),
                ("patcher_sha256", Json::Str(patcher.sha256().to_string())),
                ("path", Json::Str(patcher.path())),
                ("type", Json::Str("repo_python".to_owned())),
            ])
        };
        Json::object([
            ("schema_version", Json::Int(Int::from(1))),
            ("steps", Json::Array(self.steps.iter().map(step).collect())),
        ])
    }

    /// The plan as an engine tree emits it.
    #[must_use]
    pub fn canonical(&self) -> Json {
        let step = |patcher: &Patcher| {
            Json::object([("path", Json::Str(patcher.path())), ("type", Json::Str("repo_python".to_owned()))])
        };
        Json::object([("steps", Json::Array(self.steps.iter().map(step).collect()))])
    }

    /// Reads a tree's plan; `None` when it has none.
    ///
    /// # Errors
    /// A plan that is no regular file, no such JSON, or asks for a step that is not registered.
    pub fn read(tree: &Tree) -> Ruled<Option<Self>> {
        let no = |problem: &str| refuse(Rule::Rebuild, Place::file(PATH), problem);
        let bytes = match tree.node(PATH) {
            None => return Ok(None),
            Some(Node::File(bytes)) => bytes,
            Some(Node::Link(_)) => return no("the plan may not be a link"),
            Some(_) => return no("the plan must be a regular file"),
        };
        let item = match pyjson::parse(bytes) {
            Ok(item) => item,
            Err(error) => {
                return refuse(Rule::Rebuild, Place::at(PATH, (error.line, error.column)), error.problem);
            }
        };
        exact(&item.value, &["steps"], "the plan")?;
        let Some(Value::Array(items)) = item.value.get("steps").map(|item| &item.value) else {
            return no("`steps` must be an array");
        };
        let mut steps = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let patcher = step(&item.value, index)?;
            if steps.contains(&patcher) {
                return no(&format!("the step {} appears twice", patcher.name()));
            }
            steps.push(patcher);
        }
        steps.sort_unstable();
        Ok(Some(Self { steps }))
    }
}

/// An object with exactly these keys, none twice.
fn exact(value: &Value, keys: &[&str], what: &str) -> Ruled<()> {
    let no = |problem: String| refuse(Rule::Rebuild, Place::file(PATH), problem);
    let Value::Object { members, repeated } = value else {
        return no(format!("{what} must be an object, not {}", value.kind()));
    };
    if let Some(key) = repeated {
        return no(format!("the key `{}` appears twice", key.chars().take(80).collect::<String>()));
    }
    let same = members.len() == keys.len() && keys.iter().all(|key| value.get(key).is_some());
    if same { Ok(()) } else { no(format!("{what} must have exactly the keys {}", keys.join(", "))) }
}

fn step(value: &Value, index: usize) -> Ruled<Patcher> {
    let no =
        |problem: String| refuse(Rule::Rebuild, Place::file(PATH).field(format!("steps[{index}]")), problem);
    exact(value, &["type", "path"], "a step")?;
    let text = |key: &str| match value.get(key).map(|item| &item.value) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    match text("type") {
        Some("repo_python") => {}
        Some("bundle_python") => return no("a bundle may not bring its own build steps".to_owned()),
        _ => return no("`type` must be `repo_python`".to_owned()),
    }
    let Some(path) = text("path") else { return no("`path` must be a string".to_owned()) };
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let bare = match parts.as_slice() {
        _ if path.starts_with('/') => None,
        [name] | ["cacheon", "patchers", name] => Some(*name),
        _ => None,
    };
    let shown: String = path.chars().take(80).collect();
    match Patcher::ALL.into_iter().find(|patcher| Some(patcher.name()) == bare) {
        Some(patcher) => Ok(patcher),
        None => no(format!("`{}` is no registered step", shown.escape_debug())),
    }
}
