//! How far an engine is from exact arithmetic, and how well a model predicts a text. The
//! arithmetic is pure functions over logits; two drivers feed them from a session.

use crate::error::EngineError;
use crate::reference::{ReferenceCase, ReferencePosition};
use crate::sampler::{greatest, log_sum_exp};
use crate::session::Session;

/// Distance of one position's logits from the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PositionDistance {
    /// KL(exact ‖ ours) in nats, the tokens that the reference lists one by one and all others as one.
    pub kl: f64,
    /// Whether the greatest logit is the same token's.
    pub top1: bool,
}

/// Compares one row of logits. Fails when the reference lists a token that the row lacks.
pub fn distance(exact: &ReferencePosition, logits: &[f32]) -> Result<PositionDistance, EngineError> {
    let ours_total = log_sum_exp(logits);
    if !ours_total.is_finite() {
        return Err(EngineError::NotANumber { token: greatest(logits), value: ours_total as f32 });
    }
    let mut kl = 0.0;
    let (mut exact_rest, mut ours_rest) = (1.0, 1.0);
    for (token, logit) in &exact.top {
        let ours = logits
            .get(*token as usize)
            .ok_or(EngineError::UnknownToken { token: *token, vocabulary: logits.len() as u64 })?;
        let exact_log = logit - exact.log_sum_exp;
        let ours_log = f64::from(*ours) - ours_total;
        let probability = exact_log.exp();
        if probability > 0.0 {
            kl += probability * (exact_log - ours_log);
        }
        exact_rest -= probability;
        ours_rest -= ours_log.exp();
    }
    // The reference is rounded, so a rest that is nearly nothing may come out below zero.
    if exact_rest > 0.0 {
        kl += exact_rest * (exact_rest / ours_rest.max(f64::MIN_POSITIVE)).ln();
    }
    let top1 = exact.top.first().is_some_and(|(token, _)| *token == greatest(logits));
    Ok(PositionDistance { kl: kl.max(0.0), top1 })
}

/// Distances of many positions in short.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DistanceSummary {
    pub positions: u64,
    pub kl_mean: f64,
    pub kl_max: f64,
    /// Share of positions with the same greatest logit.
    pub top1: f64,
}

/// Sums distances up.
pub fn summarise(distances: &[PositionDistance]) -> DistanceSummary {
    let n = distances.len() as f64;
    if distances.is_empty() {
        return DistanceSummary::default();
    }
    DistanceSummary {
        positions: distances.len() as u64,
        kl_mean: distances.iter().map(|distance| distance.kl).sum::<f64>() / n,
        kl_max: distances.iter().map(|distance| distance.kl).fold(0.0, f64::max),
        top1: distances.iter().filter(|distance| distance.top1).count() as f64 / n,
    }
}

/// Runs one case, teacher-forced, and compares each of its positions.
pub fn compare(session: &mut Session, case: &ReferenceCase) -> Result<Vec<PositionDistance>, EngineError> {
    session.truncate(0);
    let mut distances = Vec::with_capacity(case.positions.len());
    session.logits_for_all(&case.tokens[..case.positions.len()], |position, logits| {
        distances.push(distance(&case.positions[position as usize], logits)?);
        Ok(())
    })?;
    Ok(distances)
}

/// How well a text was predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perplexity {
    pub chunks: u64,
    /// Tokens that were scored.
    pub tokens: u64,
    /// Mean negative log-likelihood of a token, nats.
    pub nll: f64,
    pub perplexity: f64,
    /// Standard error of `perplexity`.
    pub stderr: f64,
}

/// Running sums of negative log-likelihoods.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NllSums {
    n: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl NllSums {
    /// Scores the token that really came after the position of these logits.
    pub fn add(&mut self, logits: &[f32], next: u32) {
        let logit = logits.get(next as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let nll = log_sum_exp(logits) - f64::from(logit);
        self.n += 1;
        self.sum += nll;
        self.sum_of_squares += nll * nll;
    }

    /// `None` until something was scored.
    pub fn perplexity(&self, chunks: u64) -> Option<Perplexity> {
        let n = self.n as f64;
        if self.n == 0 {
            return None;
        }
        let nll = self.sum / n;
        let variance = (self.sum_of_squares / n - nll * nll).max(0.0);
        let stderr_nll = if self.n > 1 { (variance / (n - 1.0)).sqrt() } else { 0.0 };
        let perplexity = nll.exp();
        Some(Perplexity { chunks, tokens: self.n, nll, perplexity, stderr: stderr_nll * perplexity })
    }
}

/// Perplexity of a tokenized text: chunks of `chunk` tokens that do not overlap, each read with an
/// empty context, its second half scored; a last piece that fills no chunk is left out. With `bos`
/// (the model's own flag asks for one) the first token of each chunk is replaced by it. `each` is
/// told the perplexity so far after every chunk.
pub fn perplexity(
    session: &mut Session,
    tokens: &[u32],
    bos: Option<u32>,
    chunk: usize,
    mut each: impl FnMut(&Perplexity),
) -> Result<Perplexity, EngineError> {
    let too_short =
        || EngineError::BadReference { what: format!("a text of {} tokens fills no chunk of {chunk}", tokens.len()) };
    if chunk < 4 || tokens.len() < chunk {
        return Err(too_short());
    }
    let first_scored = chunk / 2;
    let mut sums = NllSums::default();
    let mut result = None;
    let mut read = Vec::with_capacity(chunk);
    for (number, piece) in tokens.chunks_exact(chunk).enumerate() {
        session.truncate(0);
        read.clear();
        read.extend_from_slice(piece);
        if let Some(bos) = bos {
            read[0] = bos;
        }
        session.evaluate(&read[..first_scored])?;
        session.logits_for_all(&read[first_scored..chunk - 1], |position, logits| {
            sums.add(logits, piece[position as usize + 1]);
            Ok(())
        })?;
        result = sums.perplexity(number as u64 + 1);
        if let Some(so_far) = &result {
            each(so_far);
        }
    }
    result.ok_or_else(too_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two listed tokens of four, worked out by hand: p = (1/2, 1/4, rest 1/4), q = (1/4, 1/4, rest 1/2).
    #[test]
    fn kl_takes_listed_tokens_one_by_one_and_the_rest_as_one() {
        let exact = ReferencePosition { log_sum_exp: 0.0, top: vec![(0, 0.5f64.ln()), (1, 0.25f64.ln())] };
        let logits = [0.25f32.ln(), 0.25f32.ln(), 0.25f32.ln(), 0.25f32.ln()];
        let distance = distance(&exact, &logits).unwrap();
        let expected = 0.5 * 2f64.ln() + 0.25 * 0.5f64.ln();
        assert!((distance.kl - expected).abs() < 1e-7, "{} {expected}", distance.kl);
        assert!(distance.top1);
    }

    #[test]
    fn equal_logits_have_no_distance_whatever_their_offset() {
        let logits = [3.0f32, 1.0, -2.0, 0.5];
        let total = log_sum_exp(&logits);
        let exact = ReferencePosition { log_sum_exp: total, top: vec![(0, 3.0), (1, 1.0)] };
        let shifted = logits.map(|logit| logit + 8.0);
        assert!(distance(&exact, &shifted).unwrap().kl < 1e-12);
        assert!(!distance(&exact, &[0.0, 1.0, 0.0, 0.0]).unwrap().top1);
    }

    #[test]
    fn a_flat_model_has_the_perplexity_of_its_vocabulary() {
        let mut sums = NllSums::default();
        for next in 0..10 {
            sums.add(&[0.7; 32], next);
        }
        let result = sums.perplexity(1).unwrap();
        assert!((result.perplexity - 32.0).abs() < 1e-4 && result.stderr < 1e-4, "{result:?}");
    }

    /// Likelihoods 1/2 and 1/8: mean nll 2 ln 2, perplexity 4; deviation ln 2, over sqrt(n − 1) = 1.
    #[test]
    fn the_standard_error_is_that_of_the_mean_times_the_perplexity() {
        let mut sums = NllSums::default();
        sums.add(&[0.0, 0.0], 0);
        sums.add(&[0.0; 8], 0);
        let result = sums.perplexity(1).unwrap();
        assert!((result.perplexity - 4.0).abs() < 1e-9);
        assert!((result.stderr - 4.0 * 2f64.ln()).abs() < 1e-9, "{}", result.stderr);
    }
}
