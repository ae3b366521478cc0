//! Tests of the sampler: each step of the chain, ranges, and that the same seed draws the same.

use super::*;
use proptest::prelude::*;
use strata_diag::Diagnose;
use strata_diag::catalogue::engine;

fn sampler(settings: &SamplerSettings) -> Sampler {
    Sampler::new(settings, &[]).unwrap()
}

fn seeded(seed: u64) -> SamplerSettings {
    SamplerSettings { temperature: 1.0, seed: Some(seed), ..SamplerSettings::default() }
}

/// Share of draws of each token, over many.
fn shares(settings: &SamplerSettings, logits: &[f32]) -> Vec<f64> {
    let mut sampler = sampler(settings);
    let mut counts = vec![0.0; logits.len()];
    for _ in 0..20_000 {
        counts[sampler.sample(logits).unwrap() as usize] += 1.0 / 20_000.0;
    }
    counts
}

#[test]
fn greedy_takes_the_greatest_and_of_equal_ones_the_first() {
    let mut greedy = sampler(&SamplerSettings::default());
    assert_eq!(greedy.sample(&[0.0, 3.0, 3.0, -1.0]).unwrap(), 1);
}

#[test]
fn draws_follow_the_softmax_at_the_temperature() {
    let logits = [0.0f32, 1.0, 2.0, f32::NEG_INFINITY];
    for temperature in [0.5f64, 1.0, 2.0] {
        let settings = SamplerSettings { temperature: temperature as f32, ..seeded(11) };
        let weights: Vec<f64> = logits.iter().map(|logit| (f64::from(*logit) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (share, weight) in shares(&settings, &logits).iter().zip(&weights) {
            assert!((share - weight / total).abs() < 0.012, "{temperature}: {share} {}", weight / total);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_tokens_and_another_one_others() {
    let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin()).collect();
    let draw = |seed| {
        let mut sampler = sampler(&seeded(seed));
        (0..20).map(|_| sampler.sample(&logits).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(5), draw(5));
    assert_ne!(draw(5), draw(6));
}

#[test]
fn top_k_top_p_and_min_p_cut_where_they_say() {
    // Probabilities 0.5, 0.3, 0.15, 0.05.
    let logits = [0.15f32.ln(), 0.5f32.ln(), 0.05f32.ln(), 0.3f32.ln()];
    let drawn = |settings: SamplerSettings| {
        let shares = shares(&settings, &logits);
        (0..4).filter(|token| shares[*token] > 0.0).collect::<Vec<_>>()
    };
    assert_eq!(drawn(seeded(1)), [0, 1, 2, 3]);
    assert_eq!(drawn(SamplerSettings { top_k: 2, ..seeded(1) }), [1, 3]);
    assert_eq!(drawn(SamplerSettings { top_p: 0.79, ..seeded(1) }), [1, 3]);
    assert_eq!(drawn(SamplerSettings { top_p: 0.81, ..seeded(1) }), [0, 1, 3]);
    assert_eq!(drawn(SamplerSettings { top_p: 0.01, ..seeded(1) }), [1]);
    assert_eq!(drawn(SamplerSettings { min_p: 0.29, ..seeded(1) }), [0, 1, 3]);
    assert_eq!(drawn(SamplerSettings { min_p: 0.31, ..seeded(1) }), [1, 3]);
    // Of the two that top-k leaves, the first has 0.5/0.8 of the sum.
    assert_eq!(drawn(SamplerSettings { top_k: 2, top_p: 0.6, ..seeded(1) }), [1]);
}

#[test]
fn penalties_see_prompt_and_answer_as_documented() {
    let settings = SamplerSettings { repeat_penalty: 2.0, repeat_window: 3, ..SamplerSettings::default() };
    let mut repeat = Sampler::new(&settings, &[0, 1]).unwrap();
    // 4 halved is less than 3; 1 is in the window, too, and negative logits double.
    assert_eq!(repeat.sample(&[4.0, -1.0, 3.0, -1.5]).unwrap(), 2);
    for token in [2, 2, 2] {
        repeat.accept(token);
    }
    // 0 has left the window of three.
    assert_eq!(repeat.sample(&[4.0, -1.0, 7.0, -1.5]).unwrap(), 0);

    let settings = SamplerSettings { presence_penalty: 0.5, frequency_penalty: 0.25, ..SamplerSettings::default() };
    let mut counted = Sampler::new(&settings, &[1]).unwrap();
    assert_eq!(counted.sample(&[1.0, 1.1]).unwrap(), 1, "the prompt does not count");
    counted.accept(1);
    counted.accept(1);
    // 2 − 0.5 − 2·0.25 = 1.
    assert_eq!(counted.sample(&[1.01, 2.0]).unwrap(), 0);
    assert_eq!(counted.sample(&[0.99, 2.0]).unwrap(), 1);
}

#[test]
fn bias_bans_and_forces() {
    let banned = SamplerSettings { logit_bias: vec![(1, f32::NEG_INFINITY)], ..SamplerSettings::default() };
    assert_eq!(sampler(&banned).sample(&[0.0, 9.0, 1.0]).unwrap(), 2);
    let forced = SamplerSettings { logit_bias: vec![(0, 100.0), (77, 5.0)], ..seeded(3) };
    assert_eq!(sampler(&forced).sample(&[0.0, 9.0, 1.0]).unwrap(), 0);
}

#[test]
fn banning_every_token_is_refused() {
    let all = (0..3).map(|token| (token, f32::NEG_INFINITY)).collect();
    let settings = SamplerSettings { logit_bias: all, ..SamplerSettings::default() };
    assert_eq!(sampler(&settings).sample(&[0.0, 1.0, 2.0]).unwrap_err().code(), engine::BAD_SAMPLING);
}

#[test]
fn what_is_no_number_is_an_error() {
    for bad in [f32::NAN, f32::INFINITY] {
        for settings in [SamplerSettings::default(), seeded(1)] {
            let error = sampler(&settings).sample(&[0.0, bad]).unwrap_err();
            assert_eq!(error.code(), engine::NOT_A_NUMBER);
            assert!(matches!(error, EngineError::NotANumber { token: 1, .. }));
        }
    }
    assert!(sampler(&SamplerSettings::default()).sample(&[f32::NEG_INFINITY; 3]).is_err());
}

#[test]
fn settings_out_of_range_are_named() {
    let base = SamplerSettings::default;
    for (settings, name) in [
        (SamplerSettings { temperature: -0.1, ..base() }, "temperature"),
        (SamplerSettings { temperature: f32::NAN, ..base() }, "temperature"),
        (SamplerSettings { top_p: 0.0, ..base() }, "top-p"),
        (SamplerSettings { top_p: 1.1, ..base() }, "top-p"),
        (SamplerSettings { min_p: 1.5, ..base() }, "min-p"),
        (SamplerSettings { repeat_penalty: 0.0, ..base() }, "repeat-penalty"),
        (SamplerSettings { presence_penalty: 3.0, ..base() }, "presence-penalty"),
        (SamplerSettings { frequency_penalty: -3.0, ..base() }, "frequency-penalty"),
        (SamplerSettings { logit_bias: vec![(3, 101.0)], ..base() }, "logit-bias"),
        (SamplerSettings { logit_bias: vec![(3, f32::NAN)], ..base() }, "logit-bias"),
    ] {
        let error = Sampler::new(&settings, &[]).unwrap_err();
        assert_eq!(error.code(), engine::BAD_SAMPLING);
        assert!(error.to_string().starts_with(name), "{error}");
    }
}

#[test]
fn log_sum_exp_is_exact_for_large_and_few() {
    assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2f64.ln())).abs() < 1e-12);
    assert_eq!(log_sum_exp(&[f32::NEG_INFINITY, 3.0]), 3.0);
}

proptest! {
    #[test]
    fn the_fast_scan_finds_what_a_plain_one_finds(
        logits in proptest::collection::vec((-20i8..20).prop_map(f32::from), 1..200)
    ) {
        let mut best = 0;
        for (index, logit) in logits.iter().enumerate() {
            if *logit > logits[best] {
                best = index;
            }
        }
        prop_assert_eq!(greatest(&logits), best as u32);
    }

    /// Partial sorting must keep exactly what a full sort keeps, over many sizes and ties.
    #[test]
    fn top_p_equals_its_definition(
        logits in proptest::collection::vec((-40i8..40).prop_map(|x| f32::from(x) / 8.0), 1..2000),
        top_p in 0.01f32..0.999,
        seed: u64,
    ) {
        let mut all: Vec<Candidate> =
            logits.iter().enumerate().map(|(i, logit)| Candidate { token: i as u32, logit: *logit }).collect();
        all.sort_by(order);
        let weight = |candidate: &Candidate| f64::from(candidate.logit - all[0].logit).exp();
        // Summed as the sampler sums it, so that rounding does not move the border.
        let goal = f64::from(top_p) * logits.iter().map(|l| f64::from(l - all[0].logit).exp()).sum::<f64>();
        let mut sum = 0.0;
        let kept = all.iter().position(|candidate| { sum += weight(candidate); sum >= goal }).unwrap_or(all.len() - 1) + 1;
        let mut sampler = sampler(&SamplerSettings { top_p, ..seeded(seed) });
        let token = sampler.sample(&logits).unwrap();
        prop_assert_eq!(sampler.candidates.len(), kept);
        prop_assert!(all[..kept].iter().any(|candidate| candidate.token == token));
    }
}
