//! CUBIN identities (spec 20 §7, spec 50 §5): what a driver saw in loaded bytes, what a plan may rely on, and the
//! admission that ties both to the bytes. Direct-artifact declarations themselves are read by
//! `cacheon_bundle::artifact`.

use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};

const ABI: Domain = Domain::with_members("cacheon.cuda-cubin-abi", MEMBERS);
const CONTRACT: Domain = Domain::with_members("cacheon.cuda-cubin-contract", MEMBERS);
const ADMISSION: Domain = Domain::with_members("cacheon.device-artifact-admission", Admission::MEMBERS);
const MEMBERS: &[&str] = &["cubin_sha256", "cubin_size", "kernels", "schema"];

const ABI_SCHEMA: &str = "cacheon.cuda-cubin-abi.v1";
const CONTRACT_SCHEMA: &str = "cacheon.cuda-cubin-contract.v1";
const ADMISSION_SCHEMA: &str = "cacheon.device-artifact-admission.v1";

const MIN_BYTES: u64 = 64;
const MAX_BYTES: u64 = 1 << 30;
const MAX_KERNELS: usize = 4096;
const MAX_PARAMETERS: usize = 256;
const MAX_PARAMETER_BUFFER: u64 = 32_764;

/// A rule of this module, as it stands in error messages.
pub mod rule {
    /// Kernels.
    pub const KERNELS: &str = "a cubin has 1 to 4096 kernels, in name order, each once";
    /// Parameters.
    pub const PARAMETERS: &str =
        "a kernel has at most 256 parameters, numbered in order, that do not overlap";
    /// Buffer.
    pub const BUFFER: &str = "a parameter buffer has at most 32764 bytes";
    /// Names.
    pub const NAME: &str = "a kernel name is a letter or one of `_.$`, then those, digits and `@`";
}

cacheon_identity::record! {
    /// One parameter of a loaded kernel.
    #[derive(Copy)]
    pub struct Parameter {
        /// Its place, from 0.
        pub index: u32,
        /// Its first byte in the parameter buffer.
        pub offset: u64,
        /// Its bytes.
        pub size: u64,
    }
}

cacheon_identity::record! {
    /// One kernel as a driver enumerated it.
    pub struct Kernel {
        /// Its symbol.
        pub name: String,
        /// Its parameters, in order.
        pub parameters: Vec<Parameter>,
    }
}

/// What a driver saw after loading exactly these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CubinAbi {
    sha256: Digest,
    size: u64,
    kernels: Vec<Kernel>,
}

/// What a launch plan may rely on: names and widths, without offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CubinContract {
    sha256: Digest,
    size: u64,
    kernels: Vec<(String, Vec<u64>)>,
}

cacheon_identity::record! {
    /// Ties observed ABI and contract to the bytes.
    pub struct Admission {
        /// SHA-256 of the cubin.
        pub cubin_sha256: Digest,
        /// Its bytes.
        pub cubin_size: u64,
        /// The observed ABI.
        pub observed_abi_digest: Digest,
        /// The observed contract.
        pub observed_contract_digest: Digest,
        /// The schema.
        pub schema: String,
    }
}

impl Admission {
    /// The admission's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ADMISSION.digest(self)
    }
}

fn is_symbol(text: &str) -> bool {
    let start = |b: u8| b.is_ascii_alphabetic() || b"_.$".contains(&b);
    text.len() <= 4096
        && text.bytes().next().is_some_and(start)
        && text.bytes().all(|b| start(b) || b.is_ascii_digit() || b == b'@')
}

impl CubinAbi {
    /// An observation; every rule is checked.
    ///
    /// # Errors
    /// A size, kernel or parameter outside the rules.
    pub fn new(sha256: Digest, size: u64, kernels: Vec<Kernel>) -> Result<Self, DecodeError> {
        if !(MIN_BYTES..=MAX_BYTES).contains(&size) {
            let bounds = format!("{MIN_BYTES}..={MAX_BYTES}");
            return Err(DecodeKind::Range { value: size.to_string(), bounds }.into());
        }
        let ordered = kernels.iter().zip(kernels.iter().skip(1)).all(|(a, b)| a.name < b.name);
        if !ordered || !(1..=MAX_KERNELS).contains(&kernels.len()) {
            return Err(DecodeError::invalid(rule::KERNELS, &kernels.len()));
        }
        kernels
            .iter()
            .try_for_each(|kernel| kernel.check().map_err(|error| error.within(kernel.name.as_str())))?;
        Ok(Self { sha256, size, kernels })
    }

    /// The kernels, by name.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The ABI's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ABI.digest(self)
    }

    /// What a plan may rely on.
    #[must_use]
    pub fn contract(&self) -> CubinContract {
        let widths = |kernel: &Kernel| kernel.parameters.iter().map(|parameter| parameter.size).collect();
        CubinContract {
            sha256: self.sha256,
            size: self.size,
            kernels: self.kernels.iter().map(|kernel| (kernel.name.clone(), widths(kernel))).collect(),
        }
    }

    /// The admission of these bytes.
    #[must_use]
    pub fn admission(&self) -> Admission {
        Admission {
            cubin_sha256: self.sha256,
            cubin_size: self.size,
            observed_abi_digest: self.digest(),
            observed_contract_digest: self.contract().digest(),
            schema: ADMISSION_SCHEMA.to_owned(),
        }
    }
}

impl Kernel {
    fn check(&self) -> Result<(), DecodeError> {
        if !is_symbol(&self.name) {
            return Err(DecodeError::invalid(rule::NAME, &self.name));
        }
        let numbered = self.parameters.iter().enumerate().all(|(at, it)| u32::try_from(at) == Ok(it.index));
        let mut spans: Vec<_> =
            self.parameters.iter().map(|it| (it.offset, it.offset.saturating_add(it.size))).collect();
        spans.sort_unstable();
        let apart = spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| a.1 <= b.0);
        let sized = self.parameters.iter().all(|it| it.size > 0);
        if self.parameters.len() > MAX_PARAMETERS || !numbered || !apart || !sized {
            return Err(DecodeError::invalid(rule::PARAMETERS, &self.parameters.len()));
        }
        match spans.last() {
            Some((_, end)) if *end > MAX_PARAMETER_BUFFER => Err(DecodeError::invalid(rule::BUFFER, end)),
            _ => Ok(()),
        }
    }
}

impl CubinContract {
    /// The contract's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        CONTRACT.digest(self)
    }

    /// Parameter widths of every kernel, by name.
    #[must_use]
    pub fn kernels(&self) -> &[(String, Vec<u64>)] {
        &self.kernels
    }
}

impl Canonical for CubinAbi {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("cubin_sha256", &self.sha256)
                .field("cubin_size", &self.size)
                .field("kernels", &self.kernels)
                .field("schema", ABI_SCHEMA);
        });
    }
}

impl Canonical for CubinContract {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("cubin_sha256", &self.sha256).field("cubin_size", &self.size);
            o.field_with("kernels", |w| {
                w.array(|a| {
                    for (name, widths) in &self.kernels {
                        a.item(&crate::text::object(|o| {
                            o.field("name", name).field("parameter_sizes", widths);
                        }));
                    }
                });
            });
            o.field("schema", CONTRACT_SCHEMA);
        });
    }
}

impl Decode for CubinAbi {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, MEMBERS)?;
        fields.take("schema")?.exactly(ABI_SCHEMA)?;
        let kernels = fields.decode("kernels")?;
        Self::new(fields.decode("cubin_sha256")?, fields.take("cubin_size")?.as_u64()?, kernels)
    }
}
