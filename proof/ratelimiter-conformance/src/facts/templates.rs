//! `TPL-01` to `TPL-07`: limits that are made from templates.

use ratelimiter::{KeyPattern, Page};

use crate::context::TestContext;

scripts! {
    /// TPL-01
    fn tpl_01_a_template_is_defined_and_deleted_like_any_limit: "
        limit t:*:rpm rolling 60s 5
        defined t:*:rpm rolling 60s 5
        status t:*:rpm -> active; used t:*:rpm=0; debt t:*:rpm=0
        limit t:*:rpm rolling 30s 3 deny
        defined t:*:rpm rolling 30s 3 deny
        limit t:*:rpm concurrency 60s 3 -> t:*:rpm is rolling
        limit t:**:slots concurrency 60s 0 -> paused
        status t:**:slots -> paused
        delete t:*:rpm
        undefined t:*:rpm
        delete t:*:rpm -> unknown t:*:rpm
    ";

    /// TPL-01
    fn tpl_01_a_wildcard_is_a_whole_segment: "
        limit t:a*b rolling 60s 1 -> refused
        limit t:***:c rolling 60s 1 -> refused
        limit t:**:b:** rolling 60s 1 -> refused
        undefined t:a*b
        undefined t:**:b:**
        reserve A t:a*b=1 -> unknown t:a*b
    ";

    /// TPL-02
    fn tpl_02_each_key_that_a_template_matches_has_a_limit_of_its_own: "
        limit t:*:rpm rolling 60s 2
        reserve A t:a:rpm=2; reserve B t:b:rpm=1
        reserve C t:a:rpm=1 -> denied t:a:rpm
        reserve D t:b:rpm=2 -> denied t:b:rpm
        used t:a:rpm=2 t:b:rpm=1; available t:a:rpm=0 t:b:rpm=1
        reserve E t:a:rpm=3 -> exceeds t:a:rpm
        reserve F t:a:b:rpm=1 -> unknown t:a:b:rpm
        reserve G t:a=1 -> unknown t:a
        complete A t:a:rpm=1
        reserve H t:a:rpm=1
    ";

    /// TPL-02
    fn tpl_02_a_key_that_is_not_in_use_has_the_state_of_a_new_limit: "
        limit t:*:rpm rolling 60s 7 deny
        defined t:a:rpm rolling 60s 7 deny
        used t:a:rpm=0; available t:a:rpm=7; status t:a:rpm -> active
        undefined t:a
        undefined t:a:b:rpm
        forgive t:a:rpm -> 0
        forgive t:a -> unknown t:a
    ";

    /// TPL-02
    fn tpl_02_the_most_specific_template_wins: "
        limit t:**:rpm rolling 60s 1; limit t:*:rpm rolling 60s 2
        limit t:a:*:rpm rolling 60s 3; limit t:*:b:rpm rolling 60s 4
        capacity t:x:rpm=2 t:x:y:z:rpm=1 t:a:x:rpm=3 t:x:b:rpm=4 t:a:b:rpm=4
        reserve A t:x:rpm=2 t:x:y:z:rpm=1 t:a:x:rpm=3 t:x:b:rpm=4 t:a:b:rpm=4
        used t:x:rpm=2 t:x:y:z:rpm=1 t:a:x:rpm=3 t:x:b:rpm=4 t:a:b:rpm=4
    ";

    /// TPL-02, RES-01
    fn tpl_02_a_call_that_is_not_admitted_makes_no_limit: "
        limit t:*:rpm rolling 60s 2; limit full rolling 60s 1; limit off rolling 60s 0 -> paused
        reserve A full=1
        reserve B t:a:rpm=1 full=1 -> denied full
        reserve C t:b:rpm=1 off=1 -> paused off
        reserve D t:c:rpm=3 -> exceeds t:c:rpm
        reserve E t:d:rpm=1 unknown=1 -> unknown unknown
        instances t:*:rpm ->
        reserve F t:e:rpm=1 t:f:rpm=2
        instances t:*:rpm -> t:e:rpm t:f:rpm
    ";

    /// TPL-02, RES-06
    fn tpl_02_the_first_unknown_key_is_named: "
        limit t:* rolling 60s 2
        reserve A t:a=1 x=1 t:b=1 y=1 -> unknown x
        reserve B y=1 t:a=1 x=1 -> unknown y
        instances t:* ->
    ";

    /// TPL-02, COM-01, COM-02, COM-03
    fn tpl_02_the_limits_of_a_template_are_reconciled: "
        limit t:*:tokens rolling 60s 10; limit t:*:slots concurrency 60s 1
        reserve A t:a:tokens=4 t:a:slots=1
        reserve B t:a:slots=1 -> denied t:a:slots
        complete A t:a:tokens=7
        used t:a:tokens=7 t:a:slots=0
        reserve C t:a:tokens=3 t:a:slots=1
        complete C t:a:tokens=5
        used t:a:tokens=10; debt t:a:tokens=2 t:b:tokens=0
    ";

    /// TPL-02, RES-04, RES-05, RES-09
    fn tpl_02_leases_of_a_template_are_known: "
        limit t:* concurrency 60s 1
        reserve A t:a=1
        reserve A t:a=1 -> allowed as before
        reserve B t:a=1 -> denied t:a
        complete A
        reserve A t:a=1 -> ended
        reserve B t:a=1 -> denied t:a
        reserve C t:a=1
        used t:a=1
    ";

    /// TPL-02, SHD-01, PAUSE-01
    fn tpl_02_a_limit_has_the_mode_and_the_capacity_of_its_template: "
        limit t:*:try rolling 60s 1 shadow; limit t:*:off rolling 60s 0 -> paused
        reserve A t:a:try=2 -> shadow denied t:a:try
        used t:a:try=2
        reserve B t:a:off=1 -> paused t:a:off, retry 10s
        instances t:*:off ->
    ";

    /// TPL-02, CAL-01
    fn tpl_02_a_template_may_be_a_calendar_limit: "
        limit t:* calendar hour@00:00 3
        reserve A t:a=3
        reserve B t:a=1 -> denied t:a
        reserve C t:b=1
        outlast 1600s
        reserve D t:a=1
        used t:a=1 t:b=0
    ";

    /// TPL-02, CAL-01
    fn tpl_02_a_limit_that_is_made_anew_has_the_schedule_of_its_template: "
        limit t:* calendar day@06:00/UTC 3; resets t:a -> in 1600s
        reserve A t:a=1; complete A t:a=0
        limit t:* calendar day@05:50/UTC 3; resets t:a -> in 1000s
        reserve B t:a=1; limit t:* calendar day@05:55/UTC 3
        resets t:a -> in 1000s
        complete B t:a=0; resets t:a -> in 1300s
        reserve C t:a=1; resets t:a -> in 1300s
    ";

    /// TPL-05, CAL-04
    fn tpl_05_an_excess_after_the_period_is_owed_by_a_limit_that_has_gone: "
        limit t:* calendar hour@00:34 5; limit slots concurrency 86400s 9
        reserve A t:a=2 slots=1
        outlast 40s; pass 30s
        instances t:* ->
        complete A t:a=7
        debt t:a=5; used t:a=0
        instances t:* -> t:a
    ";

    /// TPL-03
    fn tpl_03_a_definition_of_the_key_wins: "
        limit t:vip rolling 60s 9; limit t:* rolling 60s 2
        capacity t:vip=9
        reserve A t:vip=9; reserve B t:a=2
        instances t:* -> t:a
        limit t:* rolling 60s 1
        capacity t:vip=9; status t:vip -> active
    ";

    /// TPL-03
    fn tpl_03_a_definition_takes_over_a_limit_in_use: "
        limit t:* rolling 60s 2
        reserve A t:a=2
        limit t:a rolling 60s 5
        used t:a=2; available t:a=3
        reserve B t:a=3
        reserve C t:a=1 -> denied t:a
        complete A t:a=1
        used t:a=4
        instances t:* ->
        limit t:* rolling 60s 1; capacity t:a=5
    ";

    /// TPL-03, DEF-07
    fn tpl_03_a_lower_definition_is_a_decrease: "
        limit t:* concurrency 60s 4
        reserve A t:a=3; reserve B t:a=1
        limit t:a concurrency 60s 1 -> decreasing to 1
        reserve C t:a=1 -> decreasing t:a
        complete A; wait t:a
        status t:a -> active; capacity t:a=1; used t:a=1
    ";

    /// TPL-03, DEF-04
    fn tpl_03_the_kind_cannot_change_while_units_are_in_use: "
        limit t:* concurrency 60s 4
        reserve A t:a=3
        limit t:a rolling 60s 5 -> t:a is concurrency
        used t:a=3
        complete A
        limit t:a rolling 60s 5
        reserve B t:a=5
        used t:a=5
    ";

    /// TPL-03, DEF-09
    fn tpl_03_a_key_whose_definition_is_deleted_is_left_to_the_template: "
        limit t:* rolling 60s 2; limit t:a rolling 60s 9
        reserve A t:a=5
        delete t:a
        delete t:a -> unknown t:a
        capacity t:a=2; used t:a=0
        reserve B t:a=2
        delete t:a -> unknown t:a
        complete A t:a=5
        used t:a=2
    ";

    /// TPL-04, DEF-06
    fn tpl_04_a_higher_capacity_holds_at_once_for_every_limit: "
        limit t:* rolling 60s 2
        reserve A t:a=2; reserve B t:b=2
        limit t:* rolling 60s 5
        capacity t:a=5 t:b=5 t:c=5; used t:a=2 t:b=2
        reserve C t:a=3; reserve D t:b=3; reserve E t:c=5
    ";

    /// TPL-04, DEF-07
    fn tpl_04_a_lower_capacity_holds_when_enough_was_returned: "
        limit t:* concurrency 60s 4
        reserve A t:a=3; reserve B t:b=1
        limit t:* concurrency 60s 2
        status t:a -> decreasing to 2; status t:b -> active; capacity t:b=2 t:c=2
        reserve C t:a=1 -> decreasing t:a, retry 10s
        reserve D t:b=1; reserve E t:c=2
        complete A; wait t:a
        status t:a -> active; capacity t:a=2
        reserve F t:a=2
        limit t:* concurrency 60s 0 -> paused
        reserve G t:a=1 -> paused t:a
        reserve H t:d=1 -> paused t:d
    ";

    /// TPL-04, DEF-10
    fn tpl_04_a_window_is_for_new_reservations: "
        limit t:* rolling 60s 5
        reserve A t:a=3
        limit t:* rolling 2s 5
        reserve B t:a=2
        outlast 2s
        used t:a=3
    ";

    /// TPL-04
    fn tpl_04_a_limit_that_has_gone_follows: "
        limit t:* concurrency 2s 4
        reserve A t:a=4; complete A
        reserve B t:b=4; outlast 2s
        limit t:* concurrency 2s 1
        capacity t:a=1 t:b=1
        reserve C t:a=2 -> exceeds t:a
        reserve D t:b=1
    ";

    /// TPL-04
    fn tpl_04_a_more_specific_template_takes_over: "
        limit t:** rolling 60s 9
        reserve A t:a:x=4; reserve B t:b:y=4
        limit t:*:x rolling 60s 3
        status t:a:x -> decreasing to 3; status t:b:y -> active
        capacity t:b:x=3 t:b:y=9
        instances t:** -> t:b:y
        instances t:*:x -> t:a:x
        complete A t:a:x=1
        wait t:a:x; capacity t:a:x=3; used t:a:x=1
    ";

    /// TPL-04
    fn tpl_04_a_template_of_another_kind_takes_over_with_a_new_limit: "
        limit t:** rolling 60s 9
        reserve A t:a:x=4
        limit t:*:x concurrency 60s 2
        used t:a:x=0; capacity t:a:x=2
        reserve B t:a:x=2
        complete A t:a:x=1
        used t:a:x=2
    ";

    /// TPL-04
    fn tpl_04_a_deleted_template_leaves_its_keys_to_the_next: "
        limit t:** rolling 60s 3; limit t:* rolling 60s 9
        reserve A t:a=4; reserve B t:b=1
        delete t:*
        status t:a -> decreasing to 3; capacity t:b=3 t:c=3
        instances t:** -> t:a t:b
        complete A t:a=2; wait t:a
        used t:a=2; capacity t:a=3
    ";

    /// TPL-04, DEF-09
    fn tpl_04_without_another_template_its_keys_are_unknown: "
        limit t:* concurrency 60s 3; limit u:* rolling 60s 3
        reserve A t:a=3 u:a=1
        delete t:*
        undefined t:a
        reserve B t:a=1 -> unknown t:a
        forgive t:a -> unknown t:a
        complete A u:a=2
        used u:a=2
        limit t:* concurrency 60s 3
        used t:a=0
        reserve C t:a=3
        reserve A t:a=3 u:a=1 -> ended
    ";

    /// TPL-05
    fn tpl_05_a_limit_that_is_not_in_use_goes: "
        limit t:*:rate rolling 2s 3; limit t:*:slots concurrency 60s 3
        reserve A t:a:rate=1 t:a:slots=1
        instances t:*:rate -> t:a:rate
        instances t:*:slots -> t:a:slots
        complete A
        instances t:*:slots ->
        outlast 2s
        instances t:*:rate ->
        used t:a:rate=0 t:a:slots=0
    ";

    /// TPL-05, TPL-03, OPS-02
    fn tpl_05_a_limit_that_owes_a_debt_stays_until_it_is_forgiven: "
        limit t:* rolling 2s 3
        reserve A t:a=3; complete A t:a=8
        outlast reconciled 2s; pass 20s
        limit t:a concurrency 60s 4 -> t:a is rolling
        debt t:a=5; used t:a=0
        instances t:* -> t:a
        limit t:* rolling 2s 4
        debt t:a=5; capacity t:a=4
        forgive t:a -> 5
        forgive t:a -> 0
        instances t:* ->
        debt t:a=0
    ";

    /// TPL-06, COM-03
    fn tpl_06_uncovered_use_is_counted_for_the_template: "
        limit t:* rolling 60s 2 deny; limit u:* rolling 60s 2
        reserve A t:a=2 u:a=2; reserve B t:b=2
        complete A t:a=5 u:a=3; complete B t:b=3
        uncovered t:*=4 u:*=1; uncovered t:a=0 u:a=0; debt u:a=1 u:*=0
        limit t:* rolling 60s 3 deny; uncovered t:*=4
    ";

    /// TPL-01, DEF-08
    fn def_08_a_template_survives_a_restart: "
        limit t:** rolling 60s 9 shadow; limit t:*:x concurrency 60s 2
        limit t:gone:* rolling 60s 1; delete t:gone:*
        restart
        defined t:** rolling 60s 9 shadow
        defined t:*:x concurrency 60s 2
        undefined t:gone:*
        capacity t:a:x=2 t:gone:y=9
        reserve A t:a:x=2
        reserve B t:a:x=1 -> denied t:a:x
    ";
}

async fn page(on: &TestContext, prefix: &str, after: Option<&str>, template: &str) -> String {
    let template = (!template.is_empty())
        .then(|| KeyPattern::new(on.key(template)).expect("facts use valid templates"));
    let page = Page {
        prefix: format!("{}{prefix}", on.prefix),
        after: after.map(|name| on.key(name)),
        count_max: Some(2),
        template,
    };
    let states = on.world.states(&page).await.expect("a working limiter returns its states");
    states.iter().map(|state| on.name(&state.limit.key)).collect::<Vec<_>>().join(" ")
}

/// TPL-06
pub(crate) async fn tpl_06_the_limits_of_a_template_are_listed_page_by_page(on: &mut TestContext) {
    on.run(
        "limit t:* rolling 60s 2; limit t:*:* rolling 60s 2; limit z rolling 60s 2
         reserve A t:c=1 t:a=1 t:e=1 t:b=1 t:d=1 t:a:b=1",
    )
    .await;
    assert_eq!(page(on, "", None, "t:*").await, "t:a t:b");
    assert_eq!(page(on, "", Some("t:b"), "t:*").await, "t:c t:d");
    assert_eq!(page(on, "", Some("t:d"), "t:*").await, "t:e");
    assert_eq!(page(on, "", Some("t:e"), "t:*").await, "");
    assert_eq!(page(on, "t:d", None, "t:*").await, "t:d");
    assert_eq!(page(on, "", None, "t:*:*").await, "t:a:b");
    assert_eq!(page(on, "", None, "u:*").await, "");
    // The list of what is defined has the templates, and none of their limits.
    assert_eq!(page(on, "", None, "").await, "t:* t:*:*");
    assert_eq!(page(on, "", Some("t:*:*"), "").await, "z");
}

/// TPL-07
pub(crate) async fn tpl_07_there_are_only_so_many_limits(on: &mut TestContext) {
    let instances_max = on.capabilities.instances_at_most.expect("the fact needs it");
    on.run("limit t:* concurrency 60s 1; limit slots concurrency 60s 1").await;
    for n in 0..instances_max {
        on.run(&format!("reserve {n} t:{n}=1\npass 1s")).await;
    }
    on.run(
        "reserve more t:more=1 slots=1 -> too many t:*, retry 10s
         reserve more t:more=1 slots=1 -> too many t:*, retry 10s
         used slots=0
         reserve other slots=1; complete other
         reserve again t:0=1 -> denied t:0
         reserve unknown t:more=1 unknown=1 -> unknown unknown
         complete 0
         reserve 0 t:more=1 -> ended
         pass 20s
         reserve more t:more=1 slots=1
         used t:more=1 slots=1",
    )
    .await;
}

/// TPL-07
pub(crate) async fn tpl_07_there_are_only_so_many_new_limits_in_a_second(on: &mut TestContext) {
    let new_max = on.capabilities.new_instances_per_second.expect("the fact needs it");
    on.run("limit t:* concurrency 60s 1; limit full concurrency 60s 1; reserve A full=1").await;
    // A call that is not admitted makes no limit.
    for n in 0..=new_max {
        on.run(&format!("reserve denied{n} t:{n}=1 full=1 -> denied full")).await;
    }
    for n in 0..new_max {
        on.run(&format!("reserve {n} t:{n}=1")).await;
    }
    on.run(
        "reserve more t:more=1 -> too many t:*, retry 10s
         complete 0; reserve again t:0=1
         pass 1s
         reserve more t:more=1
         used t:more=1 t:0=1",
    )
    .await;
}
