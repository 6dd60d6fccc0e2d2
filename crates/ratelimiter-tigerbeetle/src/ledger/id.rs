//! IDs of accounts and transfers.

/// Declares an ID: a number that TigerBeetle accepts.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(u128);

        impl $name {
            /// `None` for the two values that TigerBeetle refuses.
            pub const fn new(id: u128) -> Option<Self> {
                if id == 0 || id == u128::MAX { None } else { Some(Self(id)) }
            }

            /// The ID `id`, or with the lowest bit flipped if TigerBeetle refuses it.
            pub const fn nearest(id: u128) -> Self {
                if id == 0 || id == u128::MAX { Self(id ^ 1) } else { Self(id) }
            }

            /// The number itself.
            pub const fn get(self) -> u128 {
                self.0
            }
        }
    };
}

id! {
    /// An account's ID; never 0 or 2^128-1, which TigerBeetle refuses.
    AccountId
}

id! {
    /// A transfer's ID; never 0 or 2^128-1, which TigerBeetle refuses.
    TransferId
}
