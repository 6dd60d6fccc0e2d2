//! The facts: a file per family of rules, a function per fact.

/// Makes each script a fact; see [`crate::script`].
macro_rules! scripts {
    ($($(#[$doc:meta])* fn $name:ident: $script:literal;)+) => {$(
        $(#[$doc])*
        pub(crate) async fn $name(on: &mut crate::context::TestContext) {
            on.run($script).await;
        }
    )+};
}

pub(crate) mod batches;
pub(crate) mod calendar;
pub(crate) mod capacity;
pub(crate) mod complete;
pub(crate) mod definitions;
pub(crate) mod durability;
pub(crate) mod hints;
pub(crate) mod listing;
pub(crate) mod operate;
pub(crate) mod overage;
pub(crate) mod pause;
pub(crate) mod renew;
pub(crate) mod replay;
pub(crate) mod reserve;
pub(crate) mod shadow;
pub(crate) mod templates;
pub(crate) mod waiting;
