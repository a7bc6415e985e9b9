//! One finalized reveal, as admission takes it (spec 30 §5.2).

use crate::error::Refused;
use crate::policy::is_block_hash;
use cacheon_identity::{Digest, Domain, Json};
use cacheon_settlement::ids::ReservationDigest;

const ARRIVAL: Domain = Domain::new("cacheon.chain.finalized-arrival");
const PAYLOAD: Domain = Domain::new("cacheon.chain.finalized-payload");

/// Most characters of a reason.
pub const REASON_CHARACTERS: usize = 2048;

/// A fee payment's place: block and extrinsic index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PaymentPointer {
    /// The block; 0 means that no payment is cited.
    pub block: u64,
    /// The extrinsic in it; 0 without a block.
    pub extrinsic_index: u64,
}

/// What a reveal said, before it is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivalFacts {
    /// Who revealed: 1..=256 characters without edge white space, NUL, CR or LF.
    pub hotkey: String,
    /// 64 hex digits, or empty for an invalid payload.
    pub content_hash: String,
    /// Any non-empty text, or empty together with the hash.
    pub url: String,
    /// The block of the reveal.
    pub block: u64,
    /// `0x` and 64 hex digits.
    pub block_hash: String,
    /// Position among the block's events.
    pub event_index: u64,
    /// Always 0 today.
    pub event_subindex: u64,
    /// SHA-256 of the payload text; derived from hash and URL when absent.
    pub payload_digest: Option<Digest>,
    /// Why the payload is no submission; empty for a valid one.
    pub invalid_reason: String,
    /// The cited payment.
    pub payment: PaymentPointer,
}

/// A checked arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    facts: ArrivalFacts,
    payload_digest: Digest,
}

/// The order of arrivals everywhere: finalized order.
pub type ArrivalKey<'a> = (u64, u64, u64, &'a str, &'a str);

impl std::ops::Deref for Arrival {
    type Target = ArrivalFacts;

    fn deref(&self) -> &ArrivalFacts {
        &self.facts
    }
}

impl Arrival {
    /// Checks the facts.
    ///
    /// # Errors
    /// The first that breaks its rule.
    pub fn new(facts: ArrivalFacts) -> Result<Self, Refused> {
        if !is_hotkey(&facts.hotkey) {
            return Err(Refused::text(
                "hotkey",
                &facts.hotkey,
                "1 to 256 characters, no edge space, NUL, CR or LF",
            ));
        }
        if !is_block_hash(&facts.block_hash) {
            return Err(Refused::text("block hash", &facts.block_hash, "0x and 64 lower-case hex digits"));
        }
        let numbers = [
            ("block", facts.block),
            ("event index", facts.event_index),
            ("event subindex", facts.event_subindex),
            ("payment block", facts.payment.block),
            ("payment extrinsic index", facts.payment.extrinsic_index),
        ];
        if let Some((what, value)) = numbers.into_iter().find(|(_, value)| i64::try_from(*value).is_err()) {
            return Err(Refused::bounds(what, value, "below 2^63"));
        }
        if facts.payment.block == 0 && facts.payment.extrinsic_index != 0 {
            return Err(Refused::bounds(
                "payment extrinsic index",
                facts.payment.extrinsic_index,
                "0 without a block",
            ));
        }
        if facts.invalid_reason.chars().count() > REASON_CHARACTERS {
            return Err(Refused::text("invalid reason", &facts.invalid_reason, "at most 2048 characters"));
        }
        let (hash, url) = (!facts.content_hash.is_empty(), !facts.url.is_empty());
        if hash && Digest::parse(&facts.content_hash).is_err() {
            return Err(Refused::text("content hash", &facts.content_hash, "64 lower-case hex digits"));
        }
        if hash != url || (facts.invalid_reason.is_empty() && !hash) {
            return Err(Refused::guard(
                &facts.hotkey,
                "a valid arrival carries hash and URL, an invalid one both or none",
            ));
        }
        let payload_digest = facts.payload_digest.unwrap_or_else(|| {
            PAYLOAD.digest(&Json::object([
                ("content_hash", Json::from(facts.content_hash.as_str())),
                ("url", Json::from(facts.url.as_str())),
            ]))
        });
        Ok(Self { facts, payload_digest })
    }

    /// Whether the payload is a submission.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.facts.invalid_reason.is_empty()
    }

    /// SHA-256 of the payload text.
    #[must_use]
    pub fn payload_digest(&self) -> Digest {
        self.payload_digest
    }

    /// The finalized order of arrivals.
    #[must_use]
    pub fn key(&self) -> ArrivalKey<'_> {
        let f = &self.facts;
        (f.block, f.event_index, f.event_subindex, &f.hotkey, &f.content_hash)
    }

    /// The reservation id: domain `cacheon.chain.finalized-arrival`. Payment and validity are not in it.
    #[must_use]
    pub fn reservation_id(&self) -> ReservationDigest {
        let f = &self.facts;
        ReservationDigest::new(ARRIVAL.digest(&Json::object([
            ("block", Json::from(f.block)),
            ("block_hash", Json::from(f.block_hash.as_str())),
            ("content_hash", Json::from(f.content_hash.as_str())),
            ("event_index", Json::from(f.event_index)),
            ("event_subindex", Json::from(f.event_subindex)),
            ("hotkey", Json::from(f.hotkey.as_str())),
            ("payload_digest", Json::from(self.payload_digest.to_string())),
            ("url", Json::from(f.url.as_str())),
        ])))
    }
}

/// White space as the deployed reader sees it: Unicode's property and U+001C to U+001F.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// A hotkey of a reveal.
pub(crate) fn is_hotkey(text: &str) -> bool {
    let edges = [text.chars().next(), text.chars().next_back()];
    !text.is_empty()
        && text.chars().count() <= 256
        && !edges.into_iter().flatten().any(is_space)
        && !text.contains(['\0', '\r', '\n'])
}
