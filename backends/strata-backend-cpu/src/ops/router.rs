//! The router of a mixture of experts: scores, groups, the k best and their weights.

use strata_backend_abi::StrataRouterScore;
use strata_backend_sdk::{Failure, Result};

use super::math::{exp, reduce, sigmoid, softplus};
use super::{Access, Op, RowOp, RowPlan, Run, Scratch, ScratchNeeds};
use crate::memory::View;

struct Router {
    ids: View,
    weights: View,
    logits: View,
    bias: Option<View>,
    score: StrataRouterScore,
    /// Divide the weights by their sum, which counts as at least this.
    normalise: Option<f32>,
    factor: f32,
    groups: usize,
    groups_kept: usize,
}

/// The score function with this number.
pub(crate) fn score(number: i64) -> Result<StrataRouterScore> {
    const ALL: [StrataRouterScore; 4] = [
        StrataRouterScore::Softmax,
        StrataRouterScore::SoftmaxOfChosen,
        StrataRouterScore::Sigmoid,
        StrataRouterScore::SqrtSoftplus,
    ];
    let found = ALL.into_iter().find(|score| *score as i64 == number);
    found.ok_or_else(|| Failure::unsupported(format!("router score {number} is not known to this plugin")))
}

pub(crate) fn plan(op: &Op<'_>) -> Result<RowPlan> {
    let (ids, weights, logits, bias) = (op.view(0)?, op.view(1)?, op.view(2)?, op.optional(3));
    let n_experts = logits.ne[0];
    let mut accesses = vec![Access::write(ids, 1), Access::write(weights, 1), Access::read(logits, 1)];
    accesses.extend(bias.map(|bias| Access::anywhere(bias, false)));
    Ok(RowPlan {
        units: logits.extent(1),
        weight: n_experts * (ids.ne[0] + 4),
        accesses,
        scratch: ScratchNeeds::floats(2 * n_experts + ids.ne[0] + op.int(2).max(0) as usize),
        op: Box::new(Router {
            ids: ids.clone(),
            weights: weights.clone(),
            logits: logits.clone(),
            bias: bias.cloned(),
            score: score(op.int(0))?,
            normalise: (op.int(1) == 1).then(|| op.float(1)),
            factor: op.float(0),
            groups: op.int(2).max(0) as usize,
            groups_kept: op.int(3).max(0) as usize,
        }),
    })
}

/// Index of the greatest value, the lowest of equal ones. Chosen ones are marked by NaN, which no comparison takes.
fn best(values: &[f32]) -> usize {
    let mut best = None;
    for (index, value) in values.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, most)| *value > most) {
            best = Some((index, *value));
        }
    }
    best.map_or(0, |(index, _)| index)
}

impl Router {
    /// Turns logits into scores in place. Scores of the chosen alone come later.
    fn scores(&self, run: &Run<'_>, values: &mut [f32]) {
        match self.score {
            StrataRouterScore::Softmax => softmax(run, values),
            StrataRouterScore::SoftmaxOfChosen => {}
            StrataRouterScore::Sigmoid => values.iter_mut().for_each(|value| *value = sigmoid(*value)),
            StrataRouterScore::SqrtSoftplus => values.iter_mut().for_each(|value| *value = softplus(*value).sqrt()),
        }
    }

    /// Takes the experts of all but the best groups out of the choice. A group is as good as the sum of its two best.
    fn drop_groups(&self, choice: &mut [f32], group_scores: &mut [f32]) {
        let size = choice.len() / self.groups;
        for (score, group) in group_scores.iter_mut().zip(choice.chunks(size)) {
            let mut two = [f32::NEG_INFINITY; 2];
            for value in group.iter().copied() {
                if value > two[0] {
                    two = [value, two[0]];
                } else if value > two[1] {
                    two[1] = value;
                }
            }
            *score = if group.len() == 1 { two[0] } else { two[0] + two[1] };
        }
        for _ in 0..self.groups_kept.min(self.groups) {
            let kept = best(group_scores);
            group_scores[kept] = f32::NAN;
        }
        for (score, group) in group_scores.iter().zip(choice.chunks_mut(size)) {
            if !score.is_nan() {
                // Still behind every expert of a kept group, so that k experts can always be found.
                group.fill(f32::NEG_INFINITY);
            }
        }
    }
}

fn softmax(run: &Run<'_>, values: &mut [f32]) {
    let most = (run.kernels.greatest)(values);
    let mut lanes = [0.0; 16];
    (run.kernels.exp_sum)(values, most, &mut lanes);
    (run.kernels.scale)(values, 1.0 / reduce(&lanes), 0.0);
}

impl RowOp for Router {
    fn unit(&self, run: &Run<'_>, unit: usize, scratch: &mut Scratch) {
        let n_experts = self.logits.ne[0];
        let (scores, rest) = scratch.floats.split_at_mut(n_experts);
        let (choice, rest) = rest.split_at_mut(n_experts);
        let (weights, rest) = rest.split_at_mut(self.ids.ne[0]);
        self.logits.load([unit, 0, 0], 0, scores);
        self.scores(run, scores);
        choice.copy_from_slice(scores);
        if let Some(bias) = &self.bias {
            (run.kernels.add_scaled)(choice, bias.floats([0, 0, 0]), 1.0);
        }
        // A logit that is no number ranks last; the mark for "already chosen" is ours alone.
        choice.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = f32::NEG_INFINITY);
        if self.groups > 1 && self.groups_kept < self.groups {
            self.drop_groups(choice, &mut rest[..self.groups]);
        }
        for (slot, weight) in weights.iter_mut().enumerate() {
            let expert = best(choice);
            choice[expert] = f32::NAN;
            *weight = scores[expert];
            self.ids.store_i32([unit, 0, 0], slot, expert as i32);
        }
        if self.score == StrataRouterScore::SoftmaxOfChosen {
            let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = weights.iter().map(|weight| exp(weight - most)).sum();
            for weight in weights.iter_mut() {
                *weight = exp(*weight - most) / sum;
            }
        }
        if let Some(least) = self.normalise {
            let sum: f32 = weights.iter().sum();
            let sum = if sum < least { least } else { sum };
            for weight in weights.iter_mut() {
                *weight /= sum;
            }
        }
        for weight in weights.iter_mut() {
            *weight *= self.factor;
        }
        self.weights.store([unit, 0, 0], 0, weights);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Machine, Operand};
    use strata_backend_abi::StrataOpKind;

    fn route(logits: &[f32], bias: Option<&[f32]>, k: u64, floats: &[f32], ints: &[i64]) -> (Vec<i32>, Vec<f32>) {
        let mut machine = Machine::new();
        let input = machine.floats_with([logits.len() as u64, 1, 1, 1], |i| logits[i]);
        let ids = machine.indices_2d(k, &vec![-1; k as usize]);
        let weights = machine.floats([k, 1, 1, 1]);
        let bias = bias.map(|bias| machine.floats_with([bias.len() as u64, 1, 1, 1], |i| bias[i]));
        let mut operands: Vec<&Operand> = vec![&ids, &weights, &input];
        operands.extend(bias.as_ref());
        machine.op(StrataOpKind::RouterTopK, &operands, floats, ints).unwrap();
        (machine.read_indices(&ids), machine.read(&weights))
    }

    fn close(got: &[f32], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-6, "{got} {expected}");
        }
    }

    const LOGITS: [f32; 8] = [0.1, 2.0, -1.0, 2.0, 0.5, 1.0, 3.0, -2.0];

    #[test]
    fn softmax_of_all_divided_by_the_sum() {
        let (ids, weights) = route(&LOGITS, None, 3, &[1.5, 6e-5], &[0, 1, 0, 0]);
        assert_eq!(ids, [6, 1, 3]);
        let e = |x: f64| x.exp();
        let sum = e(3.0) + 2.0 * e(2.0);
        close(&weights, &[1.5 * e(3.0) / sum, 1.5 * e(2.0) / sum, 1.5 * e(2.0) / sum]);
    }

    #[test]
    fn softmax_of_the_chosen() {
        let (ids, weights) = route(&LOGITS, None, 2, &[1.0, 0.0], &[1, 0, 0, 0]);
        assert_eq!(ids, [6, 1]);
        let sum = 1.0_f64.exp() + 1.0;
        close(&weights, &[1.0_f64.exp() / sum, 1.0 / sum]);
    }

    #[test]
    fn bias_counts_for_the_choice_only() {
        let bias = [0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let (ids, weights) = route(&LOGITS, Some(&bias), 2, &[1.0, 0.0], &[2, 0, 0, 0]);
        assert_eq!(ids, [2, 6]);
        close(&weights, &[1.0 / (1.0 + 1.0_f64.exp()), 1.0 / (1.0 + (-3.0_f64).exp())]);
    }

    #[test]
    fn only_the_best_groups_are_asked() {
        // Groups of two: sums 2.1, 1.0, 1.5, 1.0 in logits; the third holds neither of the two greatest.
        let logits = [0.1, 2.0, -1.0, 2.0, 0.7, 0.8, 3.0, -2.5];
        let (ids, _) = route(&logits, None, 3, &[1.0, 0.0], &[1, 0, 4, 2]);
        assert_eq!(ids, [1, 5, 4]);
    }

    #[test]
    fn square_root_of_softplus_and_no_numbers() {
        let mut logits = LOGITS;
        logits[6] = f32::NAN;
        let (ids, weights) = route(&logits, None, 2, &[1.0, 0.0], &[3, 0, 0, 0]);
        assert_eq!(ids, [1, 3]);
        let expected = 2.0_f64.exp().ln_1p().sqrt();
        close(&weights, &[expected, expected]);
    }
}
