//! What a Python source may not name (`spec/10-contribution.md` §9.1).

use crate::finding::{Finding, Place};
use crate::python::ast::{Constant, Expr, ExprKind, Module, Stmt, StmtKind};
use crate::python::visit::{self, Visitor};
use crate::python::{Source, ast};
use crate::rule::Rule;

const IMPORTS: [&str; 48] = [
    "socket",
    "ssl",
    "asyncio",
    "selectors",
    "subprocess",
    "multiprocessing",
    "concurrent",
    "ctypes",
    "cffi",
    "_ctypes",
    "builtins",
    "requests",
    "urllib",
    "urllib2",
    "urllib3",
    "http",
    "httplib",
    "ftplib",
    "smtplib",
    "telnetlib",
    "poplib",
    "imaplib",
    "xmlrpc",
    "pickle",
    "dill",
    "marshal",
    "shelve",
    "cloudpickle",
    "importlib",
    "imp",
    "runpy",
    "pkg_resources",
    "pkgutil",
    "shutil",
    "tempfile",
    "pathlib",
    "glob",
    "fileinput",
    "pty",
    "fcntl",
    "termios",
    "resource",
    "signal",
    "mmap",
    "webbrowser",
    "wsgiref",
    "paramiko",
    "fabric",
];

const BUILTINS: [&str; 10] =
    ["eval", "exec", "compile", "__import__", "open", "input", "breakpoint", "globals", "vars", "locals"];

const SUBSCRIPTS: [&str; 3] = ["__builtins__", "__globals__", "__dict__"];

const ATTRIBUTES: [&str; 31] = [
    "system",
    "popen",
    "fork",
    "forkpty",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "execlpe",
    "spawnv",
    "spawnve",
    "spawnl",
    "spawnle",
    "spawnlp",
    "spawnlpe",
    "kill",
    "killpg",
    "putenv",
    "setuid",
    "setgid",
    "dlopen",
    "LoadLibrary",
    "WinDLL",
    "CDLL",
    "check_output",
    "check_call",
    "Popen",
    "urlopen",
];

const UNPICKLERS: [&str; 8] =
    ["pickle", "cpickle", "_pickle", "dill", "marshal", "cloudpickle", "joblib", "torch"];

const DUNDERS: [&str; 12] = [
    "__globals__",
    "__builtins__",
    "__subclasses__",
    "__bases__",
    "__mro__",
    "__code__",
    "__loader__",
    "__dict__",
    "__class__",
    "__subclasshook__",
    "__getattribute__",
    "__base__",
];

/// Every place where a parsed source names something the policy refuses.
#[must_use]
pub fn policy(path: &str, source: &Source, module: &Module) -> Vec<Finding> {
    let mut scan = Scan { path, source, findings: Vec::new() };
    visit::statements(&mut scan, &module.body);
    scan.findings
}

struct Scan<'a> {
    path: &'a str,
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Scan<'_> {
    fn say(&mut self, rule: Rule, span: ast::Span, subject: &str, problem: &str) {
        let place = Place::at(self.path, self.source.position(span.start));
        self.findings.push(Finding::new(rule, place, format!("`{subject}` {problem}")).about(subject));
    }

    fn import(&mut self, rule: Rule, span: ast::Span, module: &str) {
        let root = module.split('.').next().unwrap_or_default();
        if IMPORTS.contains(&root) {
            self.say(rule, span, module, "is outside what a kernel may import");
        }
    }

    fn call(&mut self, call: &Expr, func: &Expr, args: &[Expr]) {
        match &func.kind {
            ExprKind::Name(name) if BUILTINS.contains(&name.as_str()) => {
                self.say(Rule::BuiltinCall, call.span, name, "may not be called");
            }
            ExprKind::Name(name) if matches!(name.as_str(), "getattr" | "setattr" | "delattr") => {
                let literal = |expr: &Expr| matches!(expr.kind, ExprKind::Constant(Constant::Str { .. }));
                if args.get(1).is_some_and(|second| !literal(second)) {
                    self.say(
                        Rule::DynamicAttr,
                        call.span,
                        name,
                        "needs a plain string literal as second argument",
                    );
                }
            }
            ExprKind::Attribute(value, attribute) => {
                if ATTRIBUTES.contains(&attribute.as_str()) {
                    self.say(Rule::AttrCall, call.span, attribute, "may not be called");
                }
                if let Some(subject) = unpickler(value, attribute) {
                    self.say(Rule::DeserializeCall, call.span, &subject, "may not be called");
                }
            }
            _ => {}
        }
    }
}

/// `name.load` or `name.loads` of a module that unpickles.
fn unpickler(value: &Expr, attribute: &str) -> Option<String> {
    let name = value.name().filter(|name| UNPICKLERS.contains(name))?;
    matches!(attribute, "load" | "loads").then(|| format!("{name}.{attribute}"))
}

impl Visitor for Scan<'_> {
    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Import(names) => {
                for alias in names {
                    self.import(Rule::Import, stmt.span, &alias.name);
                }
            }
            StmtKind::ImportFrom { module: Some(module), .. } => {
                self.import(Rule::ImportFrom, stmt.span, module);
            }
            _ => {}
        }
        visit::statement(self, stmt);
    }

    fn expression(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Call { func, args, .. } => self.call(expr, func, args),
            ExprKind::Subscript(value, _) => {
                if let Some(name) = value.name().filter(|name| SUBSCRIPTS.contains(name)) {
                    self.say(Rule::Subscript, expr.span, name, "may not be subscripted");
                }
            }
            ExprKind::Attribute(value, attribute) => {
                let name = attribute.as_str();
                if ATTRIBUTES.contains(&name) {
                    self.say(Rule::AttrAlias, expr.span, name, "may not be named");
                }
                if DUNDERS.contains(&name) {
                    self.say(Rule::Dunder, expr.span, name, "may not be named");
                }
                if let Some(subject) = unpickler(value, attribute) {
                    self.say(Rule::DeserializeAlias, expr.span, &subject, "may not be named");
                }
            }
            _ => {}
        }
        visit::expression(self, expr);
    }
}
