//! The tree. It mirrors the interpreters' own, apart from `elif` chains, which are flat here.

use super::string::PyString;
use num_bigint::BigUint;

/// Nesting of expressions (and of patterns) beyond which a source is refused; statements nest at most 99 deep.
pub const MAX_DEPTH: usize = 320;

/// Byte offsets into the translated source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Module {
    /// The statements.
    pub body: Vec<Stmt>,
    /// How deep statements and expressions nest at most.
    pub depth: u16,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Where it stands, its own parentheses not included.
    pub span: Span,
    /// Nodes on the longest way down, itself included.
    pub depth: u16,
    /// What it is.
    pub kind: ExprKind,
}

/// `and` or `or`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoolOp {
    /// `and`
    And,
    /// `or`
    Or,
}

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mult,
    /// `@`
    MatMult,
    /// `/`
    Div,
    /// `%`
    Mod,
    /// `**`
    Pow,
    /// `<<`
    LShift,
    /// `>>`
    RShift,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
    /// `//`
    FloorDiv,
}

/// A prefix operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnaryOp {
    /// `~`
    Invert,
    /// `not`
    Not,
    /// `+`
    Plus,
    /// `-`
    Minus,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmpOp {
    /// `==`
    Eq,
    /// `!=`
    NotEq,
    /// `<`
    Lt,
    /// `<=`
    LtE,
    /// `>`
    Gt,
    /// `>=`
    GtE,
    /// `is`
    Is,
    /// `is not`
    IsNot,
    /// `in`
    In,
    /// `not in`
    NotIn,
}

/// A literal value.
#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// `...`
    Ellipsis,
    /// An integer.
    Int(BigUint),
    /// A float.
    Float(f64),
    /// An imaginary number.
    Complex(f64),
    /// Text; `unicode` when its first part was written with a `u`.
    Str {
        /// The text.
        value: PyString,
        /// Whether `u` stays in front.
        unicode: bool,
    },
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A part of an f-string.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Literal text.
    Text(PyString),
    /// A replacement field.
    Field {
        /// The expression.
        value: Box<Expr>,
        /// `s`, `r` or `a`.
        conversion: Option<char>,
        /// The format specification.
        spec: Option<Vec<Part>>,
    },
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `a and b`, flat.
    BoolOp(BoolOp, Vec<Expr>),
    /// `t := v`
    Named(Box<Expr>, Box<Expr>),
    /// `a + b`
    BinOp(Box<Expr>, BinOp, Box<Expr>),
    /// `-a`
    UnaryOp(UnaryOp, Box<Expr>),
    /// `lambda x: e`
    Lambda(Box<Parameters>, Box<Expr>),
    /// `body if test else other`
    If {
        /// The condition.
        test: Box<Expr>,
        /// The value when it holds.
        body: Box<Expr>,
        /// The value when it does not.
        other: Box<Expr>,
    },
    /// `{k: v, **m}`: `**` entries have no key.
    Dict(Vec<(Option<Expr>, Expr)>),
    /// `{a, b}`
    Set(Vec<Expr>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `(a, b)`
    Tuple(Vec<Expr>),
    /// `[e for ...]`
    ListComp(Box<Expr>, Vec<Generator>),
    /// `{e for ...}`
    SetComp(Box<Expr>, Vec<Generator>),
    /// `{k: v for ...}`
    DictComp(Box<Expr>, Box<Expr>, Vec<Generator>),
    /// `(e for ...)`
    GeneratorExp(Box<Expr>, Vec<Generator>),
    /// `await v`
    Await(Box<Expr>),
    /// `yield v`
    Yield(Option<Box<Expr>>),
    /// `yield from v`
    YieldFrom(Box<Expr>),
    /// `a < b < c`
    Compare(Box<Expr>, Vec<(CmpOp, Expr)>),
    /// `f(a, k=v)`
    Call {
        /// The callee.
        func: Box<Expr>,
        /// Positional and `*` arguments.
        args: Vec<Expr>,
        /// Keyword and `**` arguments.
        keywords: Vec<Keyword>,
    },
    /// An f-string.
    Joined(Vec<Part>),
    /// A literal.
    Constant(Constant),
    /// `v.a`
    Attribute(Box<Expr>, String),
    /// `v[i]`
    Subscript(Box<Expr>, Box<Expr>),
    /// `*v`
    Starred(Box<Expr>),
    /// A name.
    Name(String),
    /// `a:b:c`
    Slice(Option<Box<Expr>>, Option<Box<Expr>>, Option<Box<Expr>>),
}

/// `for t in i if c` inside a comprehension.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator {
    /// The target.
    pub target: Expr,
    /// What is iterated.
    pub iter: Expr,
    /// The conditions.
    pub ifs: Vec<Expr>,
    /// Whether it is `async for`.
    pub is_async: bool,
}

/// `k=v`, or `**v` without a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Keyword {
    /// The name.
    pub arg: Option<String>,
    /// The value.
    pub value: Expr,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its annotation; a starred one only for `*args`.
    pub annotation: Option<Expr>,
    /// Its default.
    pub default: Option<Expr>,
}

/// A parameter list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// Before `/`.
    pub positional_only: Vec<Parameter>,
    /// Ordinary ones.
    pub positional: Vec<Parameter>,
    /// `*args`.
    pub vararg: Option<Parameter>,
    /// After `*`.
    pub keyword_only: Vec<Parameter>,
    /// `**kwargs`.
    pub kwarg: Option<Parameter>,
}

impl Parameters {
    /// Every parameter, in the order of the text.
    pub fn all(&self) -> impl Iterator<Item = &Parameter> {
        self.positional_only
            .iter()
            .chain(&self.positional)
            .chain(&self.vararg)
            .chain(&self.keyword_only)
            .chain(&self.kwarg)
    }
}

/// A type parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeParam {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: TypeParamKind,
    /// Its bound.
    pub bound: Option<Expr>,
    /// Its default (3.13).
    pub default: Option<Expr>,
}

/// What a type parameter stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeParamKind {
    /// `T`
    Var,
    /// `*Ts`
    Tuple,
    /// `**P`
    Spec,
}

/// `a.b as c`, or one name of a from-import (`*` included).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Where it stands.
    pub span: Span,
    /// The name as imported.
    pub name: String,
    /// The name it gets.
    pub asname: Option<String>,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// Where it stands; decorators are not included.
    pub span: Span,
    /// What it is.
    pub kind: StmtKind,
}

/// A function definition.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionDef {
    /// Its name.
    pub name: String,
    /// Its type parameters.
    pub type_params: Vec<TypeParam>,
    /// Its parameters.
    pub parameters: Parameters,
    /// The annotation of its result.
    pub returns: Option<Expr>,
    /// Its statements.
    pub body: Vec<Stmt>,
    /// Its decorators.
    pub decorators: Vec<Expr>,
    /// Whether it is `async def`.
    pub is_async: bool,
}

/// A class definition.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassDef {
    /// Its name.
    pub name: String,
    /// Its type parameters.
    pub type_params: Vec<TypeParam>,
    /// Positional and `*` arguments.
    pub bases: Vec<Expr>,
    /// Keyword and `**` arguments.
    pub keywords: Vec<Keyword>,
    /// Its statements.
    pub body: Vec<Stmt>,
    /// Its decorators.
    pub decorators: Vec<Expr>,
}

/// An `except` arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Handler {
    /// What it catches.
    pub kind: Option<Expr>,
    /// The name it binds.
    pub name: Option<String>,
    /// Its statements.
    pub body: Vec<Stmt>,
}

/// A `case` arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The pattern.
    pub pattern: Pattern,
    /// The guard.
    pub guard: Option<Expr>,
    /// Its statements.
    pub body: Vec<Stmt>,
}

/// What a statement is.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// `def`
    Function(Box<FunctionDef>),
    /// `class`
    Class(Box<ClassDef>),
    /// `return`
    Return(Option<Expr>),
    /// `del`
    Delete(Vec<Expr>),
    /// `t1 = t2 = v`
    Assign(Vec<Expr>, Expr),
    /// `type X[T] = v`
    TypeAlias {
        /// The name.
        name: String,
        /// Its type parameters.
        type_params: Vec<TypeParam>,
        /// The value.
        value: Expr,
    },
    /// `t += v`
    AugAssign(Expr, BinOp, Expr),
    /// `t: a = v`
    AnnAssign {
        /// The target.
        target: Expr,
        /// The annotation.
        annotation: Expr,
        /// The value.
        value: Option<Expr>,
        /// Whether the target is a name without parentheses.
        simple: bool,
    },
    /// `for`
    For {
        /// The target.
        target: Expr,
        /// What is iterated.
        iter: Expr,
        /// The loop.
        body: Vec<Stmt>,
        /// The `else` block.
        orelse: Vec<Stmt>,
        /// Whether it is `async for`.
        is_async: bool,
    },
    /// `while`
    While {
        /// The condition.
        test: Expr,
        /// The loop.
        body: Vec<Stmt>,
        /// The `else` block.
        orelse: Vec<Stmt>,
    },
    /// `if` with all its `elif`; an `else` that holds exactly one `if` counts as `elif`.
    If {
        /// Conditions and blocks; at least one.
        arms: Vec<(Expr, Vec<Stmt>)>,
        /// The `else` block.
        orelse: Vec<Stmt>,
    },
    /// `with`
    With {
        /// Contexts and targets.
        items: Vec<(Expr, Option<Expr>)>,
        /// The block.
        body: Vec<Stmt>,
        /// Whether it is `async with`.
        is_async: bool,
    },
    /// `match`
    Match {
        /// The subject.
        subject: Expr,
        /// The arms.
        cases: Vec<Case>,
    },
    /// `raise`
    Raise(Option<Expr>, Option<Expr>),
    /// `try`
    Try {
        /// The block.
        body: Vec<Stmt>,
        /// The `except` arms.
        handlers: Vec<Handler>,
        /// The `else` block.
        orelse: Vec<Stmt>,
        /// The `finally` block.
        finalbody: Vec<Stmt>,
        /// Whether the arms are `except*`.
        star: bool,
    },
    /// `assert`
    Assert(Expr, Option<Expr>),
    /// `import`
    Import(Vec<Alias>),
    /// `from ... import`
    ImportFrom {
        /// The module; `None` when only dots name it.
        module: Option<String>,
        /// The names.
        names: Vec<Alias>,
        /// The dots.
        level: usize,
    },
    /// `global`
    Global(Vec<String>),
    /// `nonlocal`
    Nonlocal(Vec<String>),
    /// An expression.
    Expr(Expr),
    /// `pass`
    Pass,
    /// `break`
    Break,
    /// `continue`
    Continue,
}

/// A pattern of a `case`.
#[derive(Debug, Clone, PartialEq)]
pub enum Pattern {
    /// A value compared with `==`.
    Value(Expr),
    /// `None`, `True` or `False`, compared with `is`.
    Singleton(Constant),
    /// `[a, *r]`
    Sequence(Vec<Pattern>),
    /// `{k: p, **r}`
    Mapping {
        /// Keys and patterns.
        items: Vec<(Expr, Pattern)>,
        /// The name of the rest.
        rest: Option<String>,
    },
    /// `C(p, k=p)`
    Class {
        /// The class.
        class: Expr,
        /// Positional patterns.
        positional: Vec<Pattern>,
        /// Keyword patterns.
        keywords: Vec<(String, Pattern)>,
    },
    /// `*r`, or `*_` without a name.
    Star(Option<String>),
    /// `p as n`, `n`, or `_` with neither.
    As(Option<Box<Pattern>>, Option<String>),
    /// `p | q`
    Or(Vec<Pattern>),
}

impl Expr {
    /// The name, if it is a bare one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        if let ExprKind::Name(name) = &self.kind { Some(name) } else { None }
    }
}
