//! Expert choice.

use super::elementwise::{sigmoid, softplus};
use super::rows::softmax_of;
use super::{Call, Element, Expected, largest};
use strata_backend_abi::StrataRouterScore;

/// A router's choice for one token.
#[derive(Debug, PartialEq)]
pub(crate) struct Choice {
    pub experts: Vec<usize>,
    pub weights: Vec<f64>,
    /// Smallest difference, other than an exact tie, between what was taken and what was left at
    /// any step: a plugin's f32 scores may not swap over it.
    pub margin: f64,
}

/// What the op's parameters ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Router {
    pub score: i64,
    pub k: usize,
    pub normalise: bool,
    pub factor: f64,
    pub least_sum: f64,
    pub n_groups: usize,
    pub n_kept: usize,
}

impl Router {
    pub(crate) fn choose(&self, logits: &[f64], bias: Option<&[f64]>) -> Choice {
        let scores: Vec<f64> = match self.score {
            n if n == StrataRouterScore::Softmax as i64 => softmax_of(logits),
            n if n == StrataRouterScore::SoftmaxOfChosen as i64 => logits.to_vec(),
            n if n == StrataRouterScore::Sigmoid as i64 => logits.iter().map(|logit| sigmoid(*logit)).collect(),
            n if n == StrataRouterScore::SqrtSoftplus as i64 => {
                logits.iter().map(|logit| softplus(*logit).sqrt()).collect()
            }
            other => unreachable!("no router score {other}"),
        };
        let biased: Vec<f64> =
            scores.iter().enumerate().map(|(e, score)| score + bias.map_or(0.0, |bias| bias[e])).collect();
        let mut margin = f64::INFINITY;
        let allowed = self.allowed(&biased, &mut margin);
        let experts = best(&biased, &allowed, self.k, &mut margin);
        let mut weights: Vec<f64> = experts.iter().map(|e| scores[*e]).collect();
        if self.score == StrataRouterScore::SoftmaxOfChosen as i64 {
            weights = softmax_of(&weights);
        }
        if self.normalise {
            let sum = weights.iter().sum::<f64>().max(self.least_sum);
            for weight in &mut weights {
                *weight /= sum;
            }
        }
        for weight in &mut weights {
            *weight *= self.factor;
        }
        Choice { experts, weights, margin }
    }

    /// Which experts lie in a kept group. A group's score is the sum of its two best experts.
    fn allowed(&self, biased: &[f64], margin: &mut f64) -> Vec<bool> {
        if self.n_groups == 0 {
            return vec![true; biased.len()];
        }
        let size = biased.len() / self.n_groups;
        let scores: Vec<f64> = biased
            .chunks(size)
            .map(|group| {
                let mut sorted = group.to_vec();
                sorted.sort_by(|a, b| b.total_cmp(a));
                sorted.iter().take(2).sum()
            })
            .collect();
        let kept = best(&scores, &vec![true; self.n_groups], self.n_kept, margin);
        (0..biased.len()).map(|e| kept.contains(&(e / size))).collect()
    }
}

/// The `k` best allowed indices, best first, equal scores by lower index.
fn best(scores: &[f64], allowed: &[bool], k: usize, margin: &mut f64) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    let mut left: Vec<usize> = (0..scores.len()).filter(|i| allowed[*i]).collect();
    for _ in 0..k {
        let mut winner = 0;
        for place in 1..left.len() {
            if scores[left[place]] > scores[left[winner]] {
                winner = place;
            }
        }
        let chosen = left.remove(winner);
        for other in &left {
            let difference = scores[chosen] - scores[*other];
            if difference > 0.0 {
                *margin = margin.min(difference);
            }
        }
        taken.push(chosen);
    }
    taken
}

pub(super) fn top_k(call: &Call<'_>) -> Vec<Expected> {
    let (ids, weights, logits) = (call.view(0), call.view(1), call.view(2));
    let bias = call.optional(3).map(|view| call.row(&view, [0; 3]));
    let router = Router {
        score: call.int(0),
        k: ids.ne[0] as usize,
        normalise: call.int(1) == 1,
        factor: call.float(0),
        least_sum: call.float(1),
        n_groups: call.int(2) as usize,
        n_kept: call.int(3) as usize,
    };
    let mut expected_ids = Expected::new(ids, 1);
    let mut expected_weights = Expected::new(weights, logits.ne[0] as usize);
    for t in 0..logits.ne[1] {
        let row = call.row(&logits, [t, 0, 0]);
        let choice = router.choose(&row, bias.as_deref());
        let size = 1.0 + largest(&row);
        expected_ids.rows.push(([t, 0, 0], choice.experts.iter().map(|e| Element::exact(*e as f64)).collect()));
        let elements = choice.weights.iter().map(|weight| Element::float(*weight, weight.abs() * size));
        expected_weights.rows.push(([t, 0, 0], elements.collect()));
    }
    vec![expected_ids, expected_weights]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(score: StrataRouterScore) -> Router {
        Router { score: score as i64, k: 2, normalise: false, factor: 1.0, least_sum: 0.0, n_groups: 0, n_kept: 0 }
    }

    #[test]
    fn equal_scores_go_to_the_lower_index() {
        let choice = router(StrataRouterScore::Softmax).choose(&[1.0, 3.0, 3.0, 3.0], None);
        assert_eq!(choice.experts, [1, 2]);
        let e = (-2.0_f64).exp();
        assert!((choice.weights[0] - 1.0 / (3.0 + e)).abs() < 1e-15);
    }

    #[test]
    fn bias_moves_the_choice_and_not_the_weight() {
        let choice = router(StrataRouterScore::Sigmoid).choose(&[0.0, 0.1, 0.2], Some(&[1.0, 0.0, 0.0]));
        assert_eq!(choice.experts, [0, 2]);
        assert!((choice.weights[0] - 0.5).abs() < 1e-15);
    }

    #[test]
    fn groups_are_kept_by_the_sum_of_their_two_best() {
        let mut router = router(StrataRouterScore::SoftmaxOfChosen);
        (router.n_groups, router.n_kept) = (2, 1);
        // Group 0 holds the single best expert, group 1 the better pair.
        let choice = router.choose(&[5.0, 0.0, 3.0, 2.5], None);
        assert_eq!(choice.experts, [2, 3]);
        assert!((choice.weights[0] - 1.0 / (1.0 + (-0.5_f64).exp())).abs() < 1e-15);
        assert!((choice.margin - 0.5).abs() < 1e-12);
    }

    #[test]
    fn normalised_weights_divide_by_at_least_the_floor() {
        let mut router = router(StrataRouterScore::Sigmoid);
        (router.normalise, router.least_sum, router.factor) = (true, 4.0, 2.0);
        let choice = router.choose(&[0.0, -1.0, 0.0], None);
        assert_eq!(choice.experts, [0, 2]);
        assert!((choice.weights[0] - 0.25).abs() < 1e-15, "0.5 / 4 · 2");
    }
}
