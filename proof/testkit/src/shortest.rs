//! Shrinking of failing scripts.

/// Removes as many steps as possible, halves first, while what is left still fails.
pub fn shortest<T: Clone>(mut steps: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut part = steps.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        while start < steps.len() {
            let end = (start + part).min(steps.len());
            let shorter = [&steps[..start], &steps[end..]].concat();
            if fails(&shorter) {
                steps = shorter;
            } else {
                start = end;
            }
        }
        part /= 2;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_steps_that_fail_together_are_left() {
        let fails = |steps: &[u32]| [3, 40, 41].iter().all(|step| steps.contains(step));
        assert_eq!(shortest((0..100).collect(), fails), [3, 40, 41]);
        assert_eq!(shortest(vec![1], |_| true), []);
    }
}
