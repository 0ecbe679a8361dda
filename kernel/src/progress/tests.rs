//! Rules of the minimum, and a model that random histories are held against.

use super::{Advance, Progress};

/// EV-2: the minimum over active inputs, and it never goes back.
#[test]
fn minimum_never_goes_back() {
    let mut progress = Progress::new(2);
    progress.raise(0, 10);
    assert_eq!(progress.advance(), Advance::Same, "the other input has none yet");
    progress.raise(1, 5);
    assert_eq!(progress.advance(), Advance::Watermark(5));
    progress.raise(1, 3);
    assert_eq!(progress.advance(), Advance::Same);
    progress.raise(1, 20);
    assert_eq!(progress.advance(), Advance::Watermark(10));
    progress.add(i64::MIN, false);
    assert_eq!(progress.advance(), Advance::Same);
    assert_eq!(progress.forwarded(), 10);
}

/// C08: an idle input is left out; when it comes back the forwarded value waits.
#[test]
fn idle_input_is_left_out() {
    let mut progress = Progress::new(2);
    progress.raise(0, 100);
    progress.set_idle(1, true);
    assert_eq!(progress.advance(), Advance::Watermark(100));
    progress.set_idle(1, false);
    progress.raise(1, 50);
    assert_eq!(progress.advance(), Advance::Same);
    progress.raise(0, 200);
    assert_eq!(progress.advance(), Advance::Same, "held by the returned input");
    progress.raise(1, 150);
    assert_eq!(progress.advance(), Advance::Watermark(150));
}

/// EV-8: all idle, the watermark stays; an ended input does not let the end of time through.
#[test]
fn all_idle_stays_and_end_needs_all() {
    let mut progress = Progress::new(2);
    progress.raise(0, 7);
    progress.raise(1, 9);
    assert_eq!(progress.advance(), Advance::Watermark(7));
    progress.end(0);
    assert_eq!(progress.advance(), Advance::Watermark(9));
    progress.set_idle(1, true);
    assert_eq!(progress.advance(), Advance::Idle(None));
    assert_eq!(progress.advance(), Advance::Same);
    progress.set_idle(1, false);
    progress.raise(1, 11);
    assert_eq!(progress.advance(), Advance::Active(Some(11)));
    progress.end(1);
    assert_eq!(progress.advance(), Advance::End(None));
    assert_eq!(progress.advance(), Advance::Same);
}

/// C08: rows in one partition and none in the other close their windows whichever goes idle first.
#[test]
fn order_of_going_idle_does_not_matter() {
    for order in [[0, 1], [1, 0]] {
        let mut progress = Progress::new(2);
        progress.raise(0, 100);
        let told: Vec<Advance> = order
            .into_iter()
            .map(|input| {
                progress.set_idle(input, true);
                progress.advance()
            })
            .collect();
        assert_eq!(progress.forwarded(), 100, "order {order:?} told {told:?}");
    }
}

/// EV-6: whichever input ends last, the greatest watermark of all comes before the end of time;
/// so it is whether those that did not end yet were idle or active.
#[test]
fn every_order_of_ends_tells_the_greatest() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (order, idle) in orders.into_iter().flat_map(|order| (0..8u32).map(move |idle| (order, idle))) {
        let mut progress = Progress::new(3);
        let mut seen = Seen::default();
        for (input, watermark) in [(0, 30), (1, 10), (2, 20)] {
            progress.raise(input, watermark);
            progress.set_idle(input, idle >> input & 1 == 1);
            seen.hear(progress.advance());
        }
        for input in order {
            assert!(!seen.ended);
            progress.end(input);
            seen.hear(progress.advance());
        }
        assert_eq!((seen.watermark, seen.ended), (30, true), "order {order:?}, idle {idle:03b}");
    }
    let mut none = Progress::new(0);
    assert_eq!(none.advance(), Advance::Idle(None), "a task without a split is idle from the start (C08)");
    assert_eq!(none.finish(), Advance::End(None));
    assert_eq!(none.finish(), Advance::Same);
}

/// EV-8: the clock moves the watermark only while all is idle; what returns behind it waits.
#[test]
fn the_clock_lifts_what_is_idle() {
    let mut progress = Progress::new(2);
    progress.raise(0, 100);
    progress.raise(1, 50);
    assert_eq!(progress.advance(), Advance::Watermark(50));
    assert_eq!(progress.lift(500), Advance::Same, "both are active");
    progress.set_idle(1, true);
    assert_eq!(progress.advance(), Advance::Watermark(100));
    assert_eq!(progress.lift(500), Advance::Same, "one is active");
    progress.set_idle(0, true);
    assert_eq!(progress.advance(), Advance::Idle(None));
    assert_eq!(progress.lift(90), Advance::Same, "never back");
    assert_eq!(progress.lift(500), Advance::Watermark(500));
    assert!(progress.all_idle());
    progress.set_idle(1, false);
    progress.raise(1, 400);
    assert_eq!(progress.advance(), Advance::Active(None));
    assert_eq!((progress.holder(), progress.forwarded()), (Some(1), 500));
    progress.raise(1, 501);
    assert_eq!(progress.advance(), Advance::Watermark(501));
}

/// EV-8: an idle edge on which a clock upstream moves time, moves it here too, while all are idle.
#[test]
fn an_idle_input_that_moves_on_is_followed() {
    let mut progress = Progress::new(2);
    progress.raise(0, 10);
    progress.set_idle(0, true);
    progress.set_idle(1, true);
    assert_eq!(progress.advance(), Advance::Idle(Some(10)));
    progress.raise(1, 40);
    assert_eq!(progress.advance(), Advance::Watermark(40));
    progress.set_idle(0, false);
    assert_eq!(progress.advance(), Advance::Active(None));
    progress.raise(1, 90);
    assert_eq!(progress.advance(), Advance::Same, "an active input is waited for");
}

/// What a receiver makes of what it is told.
#[derive(Debug)]
struct Seen {
    watermark: i64,
    idle: bool,
    ended: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Seen { watermark: i64::MIN, idle: false, ended: false }
    }
}

impl Seen {
    fn hear(&mut self, advance: Advance) {
        assert!(!self.ended || advance == Advance::Same, "{advance:?} after the end");
        let grown = match advance {
            Advance::Same => None,
            Advance::Watermark(watermark) => Some(watermark),
            Advance::Idle(grown) => {
                assert!(!std::mem::replace(&mut self.idle, true), "idle twice");
                grown
            }
            Advance::Active(grown) => {
                assert!(std::mem::replace(&mut self.idle, false), "active twice");
                grown
            }
            Advance::End(grown) => {
                self.ended = true;
                grown
            }
        };
        if let Some(watermark) = grown {
            assert!(watermark > self.watermark, "{watermark} after {}", self.watermark);
            self.watermark = watermark;
        }
    }
}

/// The rules in as few words as they take: what is forwarded is the greatest that the inputs ever
/// came to; they come to the least of the active ones, and where none is active to the greatest of all.
struct Model {
    inputs: Vec<(i64, bool, bool)>,
    forwarded: i64,
}

impl Model {
    fn all_ended(&self) -> bool {
        !self.inputs.is_empty() && self.inputs.iter().all(|(_, _, ended)| *ended)
    }

    fn active(&self) -> impl Iterator<Item = i64> + '_ {
        self.inputs.iter().filter(|(_, idle, ended)| !idle && !ended).map(|(watermark, _, _)| *watermark)
    }

    fn settle(&mut self) {
        let all = self.inputs.iter().map(|(watermark, _, _)| *watermark);
        let now = self.active().min().or(all.max()).unwrap_or(i64::MIN);
        self.forwarded = self.forwarded.max(now);
    }
}

/// E4: random histories of inputs that raise, go idle, come back, end, appear and are lifted tell
/// what the model says at every point, never stall, and end with the greatest of all.
#[test]
fn random_histories_follow_the_model() {
    for seed in 0..2_000u64 {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let count = random(4) as usize;
        let (mut progress, mut model, mut seen) = (Progress::new(0), Model { inputs: Vec::new(), forwarded: i64::MIN }, Seen::default());
        for _ in 0..count {
            progress.add(0, false);
            model.inputs.push((0, false, false));
        }
        for step in 0..40 {
            let input = random(model.inputs.len().max(1) as u64) as usize;
            let watermark = random(1_000) as i64;
            let was_ended = model.all_ended() && seen.ended;
            match random(12) {
                0..=5 if input < model.inputs.len() && !model.inputs[input].2 => {
                    model.inputs[input].0 = model.inputs[input].0.max(watermark);
                    progress.raise(input, watermark);
                }
                6 | 7 if input < model.inputs.len() => {
                    model.inputs[input].1 = true;
                    progress.set_idle(input, true);
                }
                8 if input < model.inputs.len() => {
                    model.inputs[input].1 = false;
                    progress.set_idle(input, false);
                }
                9 if input < model.inputs.len() && random(3) == 0 => {
                    model.inputs[input].2 = true;
                    progress.end(input);
                }
                10 if !was_ended && random(3) == 0 => {
                    let ended = random(4) == 0;
                    model.inputs.push((watermark, false, ended));
                    progress.add(watermark, ended);
                }
                11 if !was_ended && step > 0 && model.active().next().is_none() && !model.all_ended() => {
                    model.forwarded = model.forwarded.max(watermark);
                    seen.hear(progress.lift(watermark));
                }
                _ => {}
            }
            seen.hear(progress.advance());
            if was_ended {
                continue;
            }
            model.settle();
            let idle = !model.all_ended() && model.active().next().is_none();
            let context = format!("seed {seed}, step {step}: {:?}, {seen:?}", model.inputs);
            assert_eq!((seen.watermark, seen.ended), (model.forwarded, model.all_ended()), "{context}");
            assert!(seen.ended || seen.idle == idle, "{context}");
            assert_eq!(progress.holder().map(|holder| model.inputs[holder].0), model.active().min(), "{context}");
        }
        if !seen.ended {
            // Nothing stalls: all active and past everything, the watermark is there.
            for input in (0..model.inputs.len()).filter(|input| !model.inputs[*input].2) {
                progress.set_idle(input, false);
                progress.raise(input, 5_000);
            }
            seen.hear(progress.advance());
            if model.active().next().is_some() {
                assert_eq!(seen.watermark, 5_000, "seed {seed}");
            }
            seen.hear(progress.finish());
            assert!(seen.ended);
        }
        let greatest = model.inputs.iter().map(|(watermark, _, _)| *watermark).max().unwrap_or(i64::MIN);
        assert!(seen.watermark >= greatest, "seed {seed}");
    }
}
