//! A cursor over hostile bytes, and its writer. Nothing is allocated before the bytes that fill it are known to be
//! there.

/// Why a frame or a body is not what it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error("frame ends early: {needed} more bytes needed for {what}, {left} left")]
    Short {
        /// What was being read.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// Bytes remain after the last field.
    #[error("{0} bytes follow the end of the body")]
    Trailing(usize),
    /// A count, length or number is outside its closed bound.
    #[error("{what} is {value}, outside {least}..={most}")]
    Bound {
        /// What is out of bounds.
        what: &'static str,
        /// The value found.
        value: u64,
        /// Smallest value allowed.
        least: u64,
        /// Largest value allowed.
        most: u64,
    },
    /// A value that belongs to a closed set is not in it.
    #[error("{what} {value} is not a known value")]
    Unknown {
        /// What is unknown.
        what: &'static str,
        /// The value found.
        value: u64,
    },
    /// A value that must have one spelling has another.
    #[error("{0} is not in its canonical form")]
    NotCanonical(&'static str),
    /// The first four bytes are not the protocol's.
    #[error("bad magic {0:02x?}: the peer does not speak this protocol")]
    Magic([u8; 4]),
    /// The peer speaks another version.
    #[error("protocol version {0}, this build speaks {ours}", ours = crate::wire::VERSION)]
    Version(u16),
    /// The body does not hash to what the header says.
    #[error("body digest differs from the header's")]
    BodyDigest,
}

/// Reads fields off a byte slice, front to back.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Takes the next `len` bytes.
    pub fn bytes(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(DecodeError::Short { what, needed: len as u64, left: self.rest.len() as u64 }),
        }
    }

    /// Takes a fixed-size array.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut out = [0u8; N];
        out.copy_from_slice(self.bytes(what, N)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Big-endian 16-bit number.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    /// Big-endian 32-bit number.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    /// Big-endian 64-bit number.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// A 32-bit float by its bits; finite or not is the message's concern.
    pub fn f32(&mut self, what: &'static str) -> Result<f32, DecodeError> {
        Ok(f32::from_bits(self.u32(what)?))
    }

    /// A 32-bit number within `least..=most`.
    pub fn bounded(&mut self, what: &'static str, least: u32, most: u32) -> Result<u32, DecodeError> {
        let value = self.u32(what)?;
        check(what, u64::from(value), u64::from(least), u64::from(most))?;
        Ok(value)
    }

    /// A count of items that take at least `item_bytes` each: refused when the rest of the body cannot hold them,
    /// so that a vector may be sized from it.
    pub fn count(&mut self, what: &'static str, most: u32, item_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.bounded(what, 0, most)? as usize;
        let needed = count as u64 * item_bytes as u64;
        if needed > self.rest.len() as u64 {
            return Err(DecodeError::Short { what, needed, left: self.rest.len() as u64 });
        }
        Ok(count)
    }

    /// A length-prefixed byte string of at most `most` bytes.
    pub fn blob(&mut self, what: &'static str, most: u32) -> Result<Vec<u8>, DecodeError> {
        let len = self.count(what, most, 1)?;
        Ok(self.bytes(what, len)?.to_vec())
    }

    /// Token ids, each at most 2^31−1.
    pub fn tokens(&mut self, what: &'static str, most: u32) -> Result<Vec<u32>, DecodeError> {
        let count = self.count(what, most, 4)?;
        (0..count).map(|_| self.bounded(what, 0, TOKEN_ID_MAX)).collect()
    }

    /// Bytes not yet read.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Refuses trailing bytes.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }
}

/// Largest token id on the wire (`spec/50-execution.md` §6.1).
pub const TOKEN_ID_MAX: u32 = i32::MAX as u32;

/// Refuses a value outside `least..=most`.
pub fn check(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), DecodeError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(DecodeError::Bound { what, value, least, most })
    }
}

/// Appends fields to a body.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// An empty body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Big-endian 16-bit number.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Big-endian 32-bit number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Big-endian 64-bit number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// A 32-bit float by its bits.
    pub fn f32(&mut self, value: f32) -> &mut Self {
        self.u32(value.to_bits())
    }

    /// A length or count. Saturates: a body that long is refused by its kind's bound when it is framed.
    pub fn count(&mut self, value: usize) -> &mut Self {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// A length-prefixed byte string.
    pub fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len()).bytes(bytes)
    }

    /// Counted token ids.
    pub fn tokens(&mut self, tokens: &[u32]) -> &mut Self {
        self.count(tokens.len());
        for token in tokens {
            self.u32(*token);
        }
        self
    }

    /// The finished body.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
