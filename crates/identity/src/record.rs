//! The macro that declares a closed record once and derives its writer and reader.

/// Declares a record: a struct whose JSON form is the closed object of its fields.
///
/// Fields stand in code-point order of their keys (checked when written in debug builds). A key that is no Rust name is
/// given with `as "key"`. Records with version or type tags, absent members or rules across fields are written by hand.
///
/// ```
/// cacheon_identity::record! {
///     /// One arm of a transition.
///     #[derive(Copy)]
///     pub struct Arm {
///         /// Stack.
///         pub stack_digest: cacheon_identity::Digest,
///         /// Tree.
///         pub tree_digest: cacheon_identity::Digest,
///     }
/// }
/// assert_eq!(Arm::MEMBERS, ["stack_digest", "tree_digest"]);
/// ```
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident $(as $key:literal)? : $type:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),+
        }

        impl $name {
            /// The member names of the object, in code-point order.
            pub const MEMBERS: &'static [&'static str] = &[$($crate::record!(@key $field $($key)?)),+];
        }

        impl $crate::Canonical for $name {
            fn write(&self, w: &mut $crate::CanonicalWriter<'_>) {
                w.object(|o| {
                    $(o.field($crate::record!(@key $field $($key)?), &self.$field);)+
                });
            }
        }

        impl $crate::Decode for $name {
            fn decode(json: &$crate::Json) -> ::std::result::Result<Self, $crate::DecodeError> {
                let mut fields = $crate::Fields::closed(json, Self::MEMBERS)?;
                ::std::result::Result::Ok(Self {
                    $($field: fields.decode($crate::record!(@key $field $($key)?))?),+
                })
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}
