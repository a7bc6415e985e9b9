//! References into the store; the record itself is shared (`cacheon-records`).

pub use cacheon_records::evidence::*;
