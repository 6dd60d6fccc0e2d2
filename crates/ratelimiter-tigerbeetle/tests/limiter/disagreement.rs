//! Two servers with different definitions on one cluster: reported, not overwritten.

use std::time::Duration;

use ratelimiter::Backend;

use crate::context::run;
use crate::on_model::on_model;

#[test]
fn servers_with_different_definitions_report_it_and_do_not_oscillate() {
    run(async {
        let on = on_model();
        let (first, second) = (on.limiter(), on.limiter());
        first.define(on.rolling("tokens", 60, 10)).await.unwrap();
        first.define(on.rolling("agreed", 60, 10)).await.unwrap();
        second.define(on.rolling("tokens", 60, 20)).await.unwrap();
        second.define(on.rolling("agreed", 60, 10)).await.unwrap();
        on.pass(Duration::from_secs(2)).await;
        assert_eq!(first.observations().limits_disagreeing, 0, "it may be on its way");
        on.pass(Duration::from_secs(5)).await;
        assert_eq!(first.observations().limits_disagreeing, 1);
        assert_eq!(second.observations().limits_disagreeing, 0);
        assert_eq!(on.state(&first, "tokens").await.usage.available, 20, "the last change holds");
        let changes = first.observations().capacity_changes;

        first.define(on.rolling("tokens", 60, 20)).await.unwrap();
        on.pass(Duration::from_secs(1)).await;
        assert_eq!(first.observations().limits_disagreeing, 0);
        assert_eq!(first.observations().capacity_changes, changes, "there was nothing to change");
    });
}
