//! Round numbers for an axis.

/// The round steps, 1, 2 or 5 times a power of ten, up to just above the largest value; about five of them.
pub(super) fn ticks(largest: f64) -> Vec<f64> {
    assert!(largest > 0.0, "there is something to show");
    let rough = largest / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
    let mut ticks = vec![0.0];
    while ticks[ticks.len() - 1] < largest {
        ticks.push(step * f64::from(u32::try_from(ticks.len()).expect("a handful of ticks")));
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_steps_and_reaches_the_largest_value() {
        assert_eq!(ticks(870.0), [0.0, 200.0, 400.0, 600.0, 800.0, 1_000.0]);
        assert_eq!(ticks(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(1.3), [0.0, 0.5, 1.0, 1.5]);
    }
}
