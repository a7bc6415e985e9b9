//! The closed list of rules and what each asks of an author.

use std::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $help:literal;)*) => {
        /// A rule that can speak about a bundle. The code is what machines read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule { $($(#[$doc])* $name,)* }

        impl Rule {
            /// Every rule, in the order people read them.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// The stable code.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Rule::$name => $code,)* }
            }

            /// What to do about it.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self { $(Rule::$name => $help,)* }
            }
        }
    };
}

rules! {
    /// The bundle root is absent or not a directory.
    Root = "root", "name the directory that holds manifest.toml";
    /// A link where only plain files count.
    Symlink = "symlink", "replace the link by a copy of the file it names";
    /// A FIFO, socket or device.
    SpecialNode = "special_node", "a bundle holds regular files only: delete the node";
    /// A file or directory name that identity cannot carry.
    Name = "name", "rename it: UTF-8, no control characters, no backslash";
    /// A size, count or depth limit.
    Limit = "limit", "make the bundle smaller; the limits are listed in spec/10-contribution.md section 2.2";
    /// The bundle changed while it was read.
    Unstable = "unstable", "read the bundle again when nothing writes to it";
    /// No file counts towards identity.
    Empty = "empty", "add manifest.toml and the sources it names";
    /// Text that is not UTF-8.
    Unreadable = "unreadable", "save the file as UTF-8 without a byte-order mark";
    /// No manifest, or not a regular file.
    ManifestMissing = "manifest_missing", "add a regular file manifest.toml at the bundle root (`cacheon new` makes one)";
    /// The manifest is not TOML.
    ManifestSyntax = "manifest_syntax", "correct the TOML at that place";
    /// A manifest field is absent, of the wrong type or value.
    ManifestField = "manifest_field", "correct the field; the guide for kernel authors lists every one";
    /// The ABI id is not one this reader knows.
    Abi = "abi", "write cacheon-c-abi-v1 for C kernels or cacheon-op-abi-v0 for Python ones";
    /// A path in the manifest.
    Path = "path", "name a regular file inside the bundle by its plain relative path, such as kernels/k.c";
    /// Two rows of one slot do not tell themselves apart.
    Variant = "variant", "give every row of the slot its own `variant` and domains that do not overlap";
    /// Capability metadata.
    Metadata = "metadata", "correct the metadata JSON; see the guide's section on domains";
    /// Domains that are empty or contradict each other.
    Domain = "domain", "make manifest and metadata agree on at least one call";
    /// A direct-artifact declaration.
    Artifact = "artifact", "correct the aot_exports or artifact_resources entry";
    /// An include a CUDA closure does not allow.
    CudaInclude = "cuda_include", "include declared .cuh files or toolchain headers by their literal name";
    /// Two native sources would build one module.
    CudaStem = "cuda_stem", "give every .cu file its own stem";
    /// An include a C kernel does not allow.
    CInclude = "c_include", "include cacheon_kernel.h, headers listed in c_sources, or a header of the allowed list";
    /// A construct that a C kernel may not use.
    CConstruct = "c_construct", "remove the construct: a kernel is plain functions over its arguments";
    /// A C kernel lacks a symbol its row promises.
    CSymbol = "c_symbol", "define `<entry>_run` (and every other symbol of the entry that you use) in the row's sources";
    /// Something in C source that the sandbox will deny.
    CAdvice = "c_advice", "the sandbox denies it at run time; remove it unless it is dead code";
    /// A dependency patch.
    DepPatch = "dep_patch", "write a plain unified diff with exact counts, paths under a/ and b/";
    /// The rebuild plan.
    Rebuild = "rebuild", "list registered patchers as {\"type\":\"repo_python\",\"path\":\"<name>\"} under \"steps\"";
    /// The bundle resolves to no registered target.
    Target = "target", "see `cacheon targets` for members, kinds and allowed features";
    /// An import whose root is outside the kernel vocabulary.
    Import = "import", "remove the import";
    /// A from-import whose root is outside the kernel vocabulary.
    ImportFrom = "import_from", "remove the import";
    /// A call of a builtin that reaches outside the kernel.
    BuiltinCall = "builtin_call", "remove the call";
    /// Attribute access by a computed name.
    DynamicAttr = "dynamic_attr", "write the attribute name as a plain string literal, or use a dot";
    /// Subscript of a reflection name.
    Subscript = "subscript", "remove the subscript";
    /// A call of a process, permission or loader attribute.
    AttrCall = "attr_call", "remove the call";
    /// Any mention of a process, permission or loader attribute.
    AttrAlias = "attr_alias", "remove the attribute; renaming an own attribute is enough";
    /// A call that unpickles.
    DeserializeCall = "deserialize_call", "pass tensors through the kernel's arguments instead of loading them";
    /// Any mention of an unpickling attribute.
    DeserializeAlias = "deserialize_alias", "pass tensors through the kernel's arguments instead of loading them";
    /// A reflection attribute.
    Dunder = "dunder", "remove the attribute access";
    /// Source the pinned grammar does not parse.
    Syntax = "syntax", "correct the source; the grammar is that of Python 3.12";
    /// Source beyond the depth or size budget.
    Budget = "budget", "split the expression or file: the nesting limit is fixed and the same for everybody";
    /// A compiled file.
    Binary = "binary", "ship source only; the referee builds it";
    /// A CUDA file no row declares.
    UndeclaredCuda = "undeclared_cuda", "list the file in the row's cuda_sources, or delete it";
    /// A C file no row declares.
    UndeclaredC = "undeclared_c", "list the file in the row's c_sources, or delete it";
    /// A patch no row declares.
    UndeclaredPatch = "undeclared_patch", "declare the file under [[dep_patches]], or delete it";
    /// A file of no allowed kind.
    UnsanctionedFile = "unsanctioned_file", "delete the file, or move JSON beneath metadata/";
    /// Dynamic loading or compilation of Python.
    PythonDynamic = "python_dynamic", "remove it; only `cute.compile(obj, ...)` on one clean import is admitted";
    /// An import that mixes bundle files and the outside, or names nothing.
    PythonImport = "python_import", "import a module that the bundle holds, by its whole name";
    /// A Python source path that is no module path.
    PythonPath = "python_path", "use identifiers for directories and files, with the suffix .py";
    /// An operation this build of the crate cannot identify.
    Identity = "identity", "remove the value that canonical JSON cannot carry";
    /// `triton.next_power_of_2` inside a jit function.
    TritonHostHelper = "triton_host_helper", "compute the value on the host and pass it as a constexpr (advice only)";
    /// An archive that breaks the extraction rules.
    Archive = "archive", "make the archive with `cacheon chain-package`";
}

impl Rule {
    /// Whether the rule only advises and never decides.
    #[must_use]
    pub fn advisory(self) -> bool {
        matches!(self, Self::TritonHostHelper | Self::CAdvice | Self::CSymbol)
    }

    /// The rule with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.code() == code)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.code())
    }
}
