//! The closed words of a reservation's life (spec 30 §5.6, `30-intake-tables.json`).

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Reads the word.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Where a reservation stands.
    Status {
        /// Admitted in order, waiting for a queue slot.
        Deferred = "deferred",
        /// Admitted, not yet fetched.
        Reserved = "reserved",
        /// Transport, inspection or publication in progress.
        Fetching = "fetching",
        /// Waiting for another transport attempt.
        TransportRetry = "transport_retry",
        /// The immutable carrier exists.
        Published = "published",
        /// One screen in progress.
        Screening = "screening",
        /// The screen receipt promotes.
        Promoted = "promoted",
        /// A qualification authority is bound.
        Qualifying = "qualifying",
        /// Exactly one retained PASS.
        ReproductionPending = "reproduction_pending",
        /// Validator-side stop; needs release.
        Held = "held",
        /// Legacy terminal NO_DECISION; no current operation enters it.
        NoDecision = "no_decision",
        /// Terminal (a copy of an earlier row still reaches it from qualified).
        Failed = "failed",
        /// Terminal, except for a downtime requeue.
        Expired = "expired",
        /// Two retained PASSes.
        Qualified = "qualified",
    }
}

impl Status {
    /// Whether the row occupies a slot of the pending queue.
    #[must_use]
    pub const fn counts_against_queue(self) -> bool {
        !matches!(self, Self::Deferred | Self::Failed | Self::Expired | Self::Qualified)
    }

    /// Whether the sweep and an explicit expiry may end the row.
    #[must_use]
    pub const fn expirable(self) -> bool {
        matches!(
            self,
            Self::Deferred
                | Self::Reserved
                | Self::TransportRetry
                | Self::Published
                | Self::Promoted
                | Self::ReproductionPending
                | Self::Held
                | Self::NoDecision
        )
    }

    /// Whether a copy mark may end the row.
    #[must_use]
    pub const fn copyable(self) -> bool {
        matches!(
            self,
            Self::Published
                | Self::Screening
                | Self::Promoted
                | Self::Qualifying
                | Self::ReproductionPending
                | Self::Qualified
                | Self::Held
                | Self::NoDecision
        )
    }
}

words! {
    /// The decision column; the empty word is "none yet".
    Decision {
        /// No decision is recorded.
        None = "",
        /// Attributable evidence against the candidate.
        Fail = "FAIL",
        /// Two retained PASSes.
        Pass = "PASS",
        /// Neither.
        NoDecision = "NO_DECISION",
    }
}

words! {
    /// Which of the two looks a screen or qualification belongs to.
    Lane {
        /// The first.
        Primary = "primary",
        /// The independent reproduction.
        Reproduction = "reproduction",
    }
}

impl Lane {
    /// The queue a row of this lane returns to.
    #[must_use]
    pub const fn queue(self) -> Status {
        match self {
            Self::Primary => Status::Published,
            Self::Reproduction => Status::ReproductionPending,
        }
    }
}

words! {
    /// What a screen receipt decides.
    ScreenDecision {
        /// Five passes.
        Promote = "promote",
        /// A failing stage.
        Reject = "reject",
        /// Undecided; once more.
        Retry = "retry",
        /// Undecided; stop.
        Hold = "hold",
    }
}

words! {
    /// What an evaluation lease is for.
    Stage {
        /// One screen.
        Screen = "screen",
        /// One qualification cohort.
        Qualification = "qualification",
    }
}

words! {
    /// Where an evaluation lease stands.
    LeaseState {
        /// It fences its members.
        Active = "active",
        /// Its blocks ran out.
        Expired = "expired",
        /// Its owner or an operator gave it up.
        Released = "released",
        /// Its result was accepted.
        Completed = "completed",
    }
}
