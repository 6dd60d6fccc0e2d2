//! The scenarios on the model, in virtual time.

use std::sync::Arc;

use ratelimiter::clock::FakeClock;
use tigerbeetle_model::ModelLedger;

use crate::scenarios::{anywhere, capacity, complete, once, replay, start};
use crate::scene::{Scene, run};
use crate::watched_ledger::WatchedLedger;

/// A scene on a model of its own.
pub fn on_model() -> Scene<Arc<ModelLedger>> {
    let clock = Arc::new(FakeClock::new());
    Scene::new(Arc::new(ModelLedger::new(Arc::clone(&clock))), Some(clock))
}

/// A scene on a model that can be watched and troubled.
pub fn on_watched_model() -> Scene<WatchedLedger<Arc<ModelLedger>>> {
    let Scene { ledger, hand, .. } = on_model();
    Scene::new(WatchedLedger::new(ledger), hand)
}

macro_rules! tests_on_model {
    ($($module:ident :: $scenario:ident,)*) => {
        $(
            #[test]
            fn $scenario() {
                run(async { $module::$scenario(on_model()).await });
            }
        )*
    };
}

crate::scenarios::all! { tests_on_model }
