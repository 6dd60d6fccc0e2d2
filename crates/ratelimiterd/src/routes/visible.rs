//! The limits and leases that a caller may see (`OPS-04`).

use ratelimiter::{
    Backend, KeyPattern, LEASE_PAGE_MAX, LeasePage, LeasesError, LimitState, OpenLease, Page,
    StateError,
};

use crate::auth::Caller;

/// The fewest limits that are read at a time to fill the page of a caller that may not see all.
const READ_COUNT_MIN: usize = 100;

/// A page of the limits that a caller may see.
pub(super) async fn visible_states(
    backend: &impl Backend,
    caller: &Caller,
    page: &Page,
) -> Result<Vec<LimitState>, StateError> {
    let Some(patterns) = caller.keys() else { return backend.states(page).await };
    let mut visible = Vec::new();
    for prefix in prefixes(patterns, &page.prefix) {
        let count_max = page.count_max.map(|count_max| count_max.max(READ_COUNT_MIN));
        let mut part = Page { prefix, count_max, ..page.clone() };
        loop {
            let states = backend.states(&part).await?;
            let is_full = count_max.is_some_and(|count_max| states.len() >= count_max);
            part.after = states.last().map(|state| state.limit.key.clone());
            visible.extend(states.into_iter().filter(|state| caller.may_use(&state.limit.key)));
            if let Some(count_max) = page.count_max
                && visible.len() >= count_max
            {
                visible.truncate(count_max);
                return Ok(visible);
            }
            if !is_full {
                break;
            }
        }
    }
    Ok(visible)
}

/// A page of the open leases of which a caller may see something, with the amounts that it may see.
pub(super) async fn visible_leases(
    backend: &impl Backend,
    caller: &Caller,
    page: &LeasePage,
) -> Result<Vec<OpenLease>, LeasesError> {
    if caller.keys().is_none() {
        return backend.leases(page).await;
    }
    let mut visible = Vec::new();
    let mut part = LeasePage { count_max: LEASE_PAGE_MAX, ..page.clone() };
    loop {
        let leases = backend.leases(&part).await?;
        let is_last = leases.len() < LEASE_PAGE_MAX;
        part.after = leases.last().map(|lease| lease.lease);
        for mut lease in leases {
            lease.amounts.retain(|held| caller.may_use(&held.key));
            if visible.len() < page.len_max() && !lease.amounts.is_empty() {
                visible.push(lease);
            }
        }
        if is_last || visible.len() == page.len_max() {
            return Ok(visible);
        }
    }
}

/// Prefixes of all keys that begin with `asked` and match a pattern: sorted, and none begins with another one, so that the keys
/// of one come before those of the next.
fn prefixes(patterns: &[KeyPattern], asked: &str) -> Vec<String> {
    let both = |pattern: &KeyPattern| {
        let literal = pattern.literal_prefix();
        let (longer, shorter) =
            if literal.len() > asked.len() { (literal, asked) } else { (asked, literal) };
        longer.starts_with(shorter).then(|| longer.to_owned())
    };
    let mut prefixes: Vec<_> = patterns.iter().filter_map(both).collect();
    prefixes.sort();
    prefixes.dedup_by(|later, earlier| later.starts_with(earlier.as_str()));
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OPS-04
    #[test]
    fn ops_04_a_list_reads_only_where_a_pattern_can_match() {
        for (patterns, asked, expected) in [
            ("b:**", "", "b:"),
            ("b:** a:x", "", "a:x b:"),
            ("b:** b:c:* b:d", "", "b:"),
            ("b:** **:z", "", ""),
            ("b:**", "b:c", "b:c"),
            ("b:c:** b:d:**", "b:", "b:c: b:d:"),
            ("b:c:**", "b:c:d", "b:c:d"),
            ("b:c:** a:**", "x", "none"),
            ("b:c", "b:cd", "b:cd"),
        ] {
            let parsed: Vec<_> =
                patterns.split(' ').map(|text| KeyPattern::new(text).unwrap()).collect();
            let prefixes = prefixes(&parsed, asked);
            let shown = if prefixes.is_empty() { "none".to_owned() } else { prefixes.join(" ") };
            assert_eq!(shown, expected, "{patterns} and {asked:?}");
        }
    }
}
