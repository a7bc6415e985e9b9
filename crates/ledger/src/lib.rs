//! The SQLite authority: reservations, leases, qualifications and the settlement transaction (spec 30 §5, spec 20 §9).
//!
//! One writer ([`Ledger`]) holds an exclusive lock; each operation is one IMMEDIATE transaction with full sync, and a
//! refusal changes nothing. People read through [`reader`], which never takes the writer's lock.
//!
//! | Module | Holds |
//! |---|---|
//! | [`store`], [`schema`], [`policy`] | opening, transactions, the deployed schema, limits, scope |
//! | [`arrival`], [`admission`], [`status`], [`row`] | what is admitted, and the words of its life |
//! | [`ops`] | every typed operation |
//! | [`screen`], [`qualify`], [`lease`], [`recovery`], [`queue`] | the way to two retained PASSes |
//! | [`settle`], [`stack`] | candidates to crowns |
//! | [`copies`], [`fingerprint`], [`expiry`], [`transport`] | copies, expiry, transport and holds |
//! | [`reader`], [`audit`] | reports for people, the redacted log |
//! | [`local`] | one machine's bundles: scope `local` |
//! | [`attempts`] | charged attempts and their cap (a table of ours) |

pub mod admission;
pub mod arrival;
pub mod attempts;
pub mod audit;
pub mod copies;
mod error;
pub mod expiry;
mod fence;
pub mod fingerprint;
pub mod lease;
pub mod local;
pub mod ops;
pub mod policy;
pub mod qualify;
pub mod queue;
pub mod reader;
pub mod recovery;
mod restart;
pub mod row;
pub mod schema;
pub mod screen;
pub mod settle;
pub mod stack;
pub mod status;
pub mod store;
pub mod transport;

pub use admission::Head;
pub use arrival::{Arrival, ArrivalFacts, PaymentPointer};
pub use error::{LedgerError, Refused, Result};
pub use fingerprint::Fingerprint;
pub use policy::{IntakePolicy, Scope};
pub use reader::Reader;
pub use row::{Reservation, ReservationId};
pub use status::{Decision, Lane, Stage, Status};
pub use store::{Ledger, OpenOptions, Tx};
