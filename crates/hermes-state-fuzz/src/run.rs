//! Feeds one target until its time is over or it fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::mutation::Mutator;
use crate::targets::Target;

/// How much a target has seen.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) inputs: usize,
    pub(crate) far: usize,
}

/// Where a target failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) input: String,
}

pub(crate) fn feed(target: &Target, seed: u64, time: Duration) -> Result<Tally, Failure> {
    let mut mutator = Mutator::new(seed, target.seeds, target.words);
    let mut check = (target.begin)();
    let mut tally = Tally { inputs: 0, far: 0 };
    let started = Instant::now();
    while started.elapsed() < time || tally.inputs < target.seeds.len() {
        let input = mutator.next(tally.inputs);
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&input)))
            .unwrap_or_else(|panic| Err(format!("it panicked: {}", text_of(&*panic))));
        match outcome {
            Ok(far) => {
                tally.inputs += 1;
                if far {
                    tally.far += 1;
                    mutator.keep(&input);
                }
            }
            Err(what) => return Err(Failure { what, input }),
        }
    }
    Ok(tally)
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with something that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TARGETS;

    fn planted(begin: fn() -> Box<crate::targets::Check>) -> Target {
        Target { name: "planted", seeds: &["{\"id\": 1}", "plain"], words: &["needle"], begin }
    }

    #[test]
    fn what_is_wrong_is_found_and_named_with_its_input() {
        let time = Duration::from_secs(20);
        let answering = planted(|| {
            Box::new(|input| if input.contains("needle\0") { Err("found".to_owned()) } else { Ok(input.len() > 5) })
        });
        let failure = feed(&answering, 1, time).expect_err("it is found");
        assert!(failure.input.contains("needle\0") && failure.what == "found", "{failure:?}");
        let panicking = planted(|| {
            Box::new(|input| {
                assert!(!input.contains("\u{10ffff}\""), "a planted panic");
                Ok(true)
            })
        });
        let failure = feed(&panicking, 1, time).expect_err("it is found");
        assert!(failure.what.contains("a planted panic"), "{failure:?}");
    }

    #[test]
    fn a_seed_makes_a_run_again() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, TARGETS[0].seeds, TARGETS[0].words);
            (0..200).map(|round| mutator.next(round)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }

    #[test]
    fn each_target_takes_its_seeds_and_more() {
        for target in &TARGETS {
            let tally = feed(target, 7, Duration::from_millis(500)).unwrap_or_else(|failure| panic!("{failure:?}"));
            assert!(tally.inputs > target.seeds.len() && tally.far > 0, "{}: {tally:?}", target.name);
        }
    }
}
