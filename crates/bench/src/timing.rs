//! How long a call takes.

use std::time::{Duration, Instant};

use burn::tensor::Device;

/// Calls between two synchronisations, at the least.
const CALLS: usize = 10;
/// Measurements, of which the median counts.
const MEASUREMENTS: usize = 5;
/// A measurement lasts this long at the least, so that neither the clock nor the synchronisation counts.
const MEASUREMENT: Duration = Duration::from_millis(50);
/// The warm-up ends when its last three measurements agree to this share.
const SETTLED: f64 = 0.05;
/// The warm-up lasts this long at the least, so that the device's clocks rise.
const WARM_UP: Duration = Duration::from_millis(500);
/// The warm-up gives up on agreement after this.
const WARM_UP_LIMIT: Duration = Duration::from_secs(20);

/// How long a call takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The median of the measurements' averages, in milliseconds.
    pub milliseconds: f64,
    /// The time that the host took to issue the call, likewise. Close to `milliseconds`, it is the host that
    /// the device waits for.
    pub issue_milliseconds: f64,
    /// The slowest measurement less the fastest, as a share of the median.
    pub spread: f64,
    /// Calls in each measurement.
    pub calls: usize,
    /// Whether the warm-up's times settled.
    pub settled: bool,
}

/// Times `call`, which leaves its result behind, and returns the last result with the time.
pub fn time<R>(device: &Device, mut call: impl FnMut() -> Result<R, String>) -> Result<(Timing, R), String> {
    let mut measure = |calls: usize| -> Result<(Sample, R), String> {
        let start = Instant::now();
        let mut result = call()?;
        for _ in 1..calls {
            result = call()?;
        }
        let issued = start.elapsed();
        device.sync().map_err(|error| format!("the device failed: {error}"))?;
        let finished = start.elapsed();
        let each = |time: Duration| time.as_secs_f64() * 1e3 / calls as f64;
        Ok((Sample { milliseconds: each(finished), issue_milliseconds: each(issued) }, result))
    };

    device.sync().map_err(|error| format!("the device failed: {error}"))?;
    let start = Instant::now();
    let mut calls = 1;
    let mut warm_up = Vec::new();
    let settled = loop {
        let (sample, _) = measure(calls)?;
        warm_up.push(sample.milliseconds);
        let elapsed = start.elapsed();
        let settled = warm_up.len() >= 3 && elapsed >= WARM_UP && agree(&warm_up[warm_up.len() - 3..]);
        if settled || (elapsed >= WARM_UP_LIMIT && warm_up.len() >= 3) {
            break settled;
        }
        // Single calls while they compile and tune, then ever more, up to a measurement's worth.
        calls = (calls * 2).min(calls_for(sample.milliseconds));
    };

    let calls = calls_for(median(warm_up[warm_up.len() - 3..].iter().copied()));
    let mut samples = Vec::with_capacity(MEASUREMENTS);
    let mut last = None;
    for _ in 0..MEASUREMENTS {
        drop(last);
        let (sample, result) = measure(calls)?;
        samples.push(sample);
        last = Some(result);
    }
    let milliseconds = median(samples.iter().map(|sample| sample.milliseconds));
    let slowest = samples.iter().map(|sample| sample.milliseconds).fold(f64::MIN, f64::max);
    let fastest = samples.iter().map(|sample| sample.milliseconds).fold(f64::MAX, f64::min);
    let timing = Timing {
        milliseconds,
        issue_milliseconds: median(samples.iter().map(|sample| sample.issue_milliseconds)),
        spread: (slowest - fastest) / milliseconds,
        calls,
        settled,
    };
    Ok((timing, last.expect("there are several measurements")))
}

/// Averages over the calls of one measurement.
struct Sample {
    milliseconds: f64,
    issue_milliseconds: f64,
}

fn calls_for(milliseconds: f64) -> usize {
    let calls = (MEASUREMENT.as_secs_f64() * 1e3 / milliseconds).ceil();
    (calls as usize).clamp(CALLS, 10_000)
}

fn agree(times: &[f64]) -> bool {
    let slowest = times.iter().copied().fold(f64::MIN, f64::max);
    let fastest = times.iter().copied().fold(f64::MAX, f64::min);
    slowest - fastest <= SETTLED * fastest
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn times_settle_within_a_share_of_the_fastest() {
        assert!(agree(&[1.0, 1.04, 1.02]));
        assert!(!agree(&[1.0, 1.2, 1.0]));
    }

    #[test]
    fn a_measurement_has_ten_calls_and_more_if_they_are_short() {
        assert_eq!(calls_for(1000.0), 10);
        assert_eq!(calls_for(0.1), 500);
    }

    #[test]
    fn a_call_of_known_length_is_timed_after_a_slow_start() {
        let mut first = true;
        let (timing, last) = time(&Device::flex(), || {
            let slow = std::mem::take(&mut first);
            std::thread::sleep(Duration::from_millis(if slow { 60 } else { 6 }));
            Ok("done")
        })
        .expect("nothing fails");
        assert_eq!(last, "done");
        assert!((6.0..12.0).contains(&timing.milliseconds), "{timing:?}");
        assert!(timing.issue_milliseconds <= timing.milliseconds, "{timing:?}");
        assert_eq!(timing.calls, 10);
    }

    #[test]
    fn a_failing_call_is_not_timed() {
        let result = time(&Device::flex(), || Err::<(), _>("no".to_string()));
        assert_eq!(result.unwrap_err(), "no");
    }
}
