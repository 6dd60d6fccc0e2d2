//! The scenarios on the model, in virtual time.

use std::sync::Arc;

use ratelimiter::clock::FakeClock;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};
use crate::recording_ledger::RecordingLedger;
use crate::scenarios::{
    anywhere, calendar, capacity, complete, once, operate, renew, renew_waited, replay, shadow,
    start, templates, wait,
};

/// A context on a new model.
pub fn on_model() -> TestContext<Arc<ModelLedger>> {
    let clock = Arc::new(FakeClock::new());
    TestContext::new(Arc::new(ModelLedger::new(Arc::clone(&clock))), Some(clock))
}

/// A context on a model that records calls and injects faults.
pub fn on_recording_model() -> TestContext<RecordingLedger<Arc<ModelLedger>>> {
    let TestContext { ledger, fake_clock, .. } = on_model();
    TestContext::new(RecordingLedger::new(ledger), fake_clock)
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
