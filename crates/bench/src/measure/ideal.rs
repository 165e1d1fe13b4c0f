//! The best that a queue of known jobs could do on one device.

/// When each job would complete, from its submission, if at every moment the one with the least left
/// ran and changing jobs cost nothing. Jobs are their submission and what each takes alone, in order of
/// submission.
pub(crate) fn shortest_remaining_first(jobs: &[(f64, f64)]) -> Vec<f64> {
    let mut left: Vec<f64> = jobs.iter().map(|job| job.1).collect();
    let mut completions = vec![0.0; jobs.len()];
    let mut now = 0.0_f64;
    let mut open = jobs.len();
    while open > 0 {
        let waiting = (0..jobs.len()).filter(|&n| left[n] > 0.0 && jobs[n].0 <= now);
        let chosen = waiting.min_by(|&a, &b| left[a].total_cmp(&left[b]));
        let later = jobs.iter().map(|job| job.0).filter(|&at| at > now);
        let next = later.fold(f64::INFINITY, f64::min);
        let Some(n) = chosen else {
            now = next;
            continue;
        };
        let run = left[n].min(next - now);
        left[n] -= run;
        now += run;
        if left[n] <= f64::EPSILON {
            left[n] = 0.0;
            completions[n] = now - jobs[n].0;
            open -= 1;
        }
    }
    completions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_one_interrupts_and_the_longer_one_goes_on() {
        let jobs = [(0.0, 10.0), (2.0, 1.0), (2.5, 20.0), (40.0, 5.0)];
        assert_eq!(shortest_remaining_first(&jobs), [11.0, 1.0, 28.5, 5.0]);
    }
}
