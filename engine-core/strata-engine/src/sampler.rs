//! From logits to a token. The chain, in this order:
//!
//! 1. logit bias: added to the logit of each listed token;
//! 2. repetition penalty: a token among the last `repeat_window` of prompt and answer has a positive
//!    logit divided and a negative one multiplied by it;
//! 3. frequency and presence penalty: for each token of the answer, `frequency · count + presence`
//!    is subtracted;
//! 4. temperature 0 takes the greatest logit, of equal ones the lowest id, and stops here;
//! 5. min-p drops what is less probable than `min_p` times the most probable; of the rest, top-k
//!    keeps the k greatest; of those, top-p keeps the fewest that have at least p of their sum;
//! 6. the rest is divided by the temperature and one token drawn.
//!
//! Cuts come before the temperature, so that it changes how daring the choice among the candidates
//! is, not which tokens are candidates.

use crate::error::EngineError;
use crate::random::Xoshiro256;

/// What a request asks for. `Default` is greedy, without penalties.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerSettings {
    /// 0: greedy. 0 to 100.
    pub temperature: f32,
    /// 0: off.
    pub top_k: u32,
    /// 1: off. Above 0, up to 1.
    pub top_p: f32,
    /// 0: off. From 0, below or equal 1.
    pub min_p: f32,
    /// 1: off. Above 0, up to 100.
    pub repeat_penalty: f32,
    /// Tokens that the repetition penalty looks back over; 0: none.
    pub repeat_window: u32,
    /// −2 to 2.
    pub presence_penalty: f32,
    /// −2 to 2.
    pub frequency_penalty: f32,
    /// Token and what is added to its logit, −100 to 100, or −∞ to ban it.
    pub logit_bias: Vec<(u32, f32)>,
    /// `None`: a new one for each sampler; [`Sampler::seed`] tells.
    pub seed: Option<u64>,
}

impl Default for SamplerSettings {
    fn default() -> SamplerSettings {
        SamplerSettings {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_window: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplerSettings {
    /// Whether the text depends on nothing but model and prompt.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Refuses what is out of range, naming it.
    pub fn check(&self) -> Result<(), EngineError> {
        let ranges: [(&'static str, f32, bool, &'static str); 6] = [
            ("temperature", self.temperature, (0.0..=100.0).contains(&self.temperature), "0 to 100"),
            ("top-p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0, up to 1"),
            ("min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), "0 to 1"),
            (
                "repeat-penalty",
                self.repeat_penalty,
                self.repeat_penalty > 0.0 && self.repeat_penalty <= 100.0,
                "above 0, up to 100",
            ),
            ("presence-penalty", self.presence_penalty, (-2.0..=2.0).contains(&self.presence_penalty), "-2 to 2"),
            ("frequency-penalty", self.frequency_penalty, (-2.0..=2.0).contains(&self.frequency_penalty), "-2 to 2"),
        ];
        if let Some((setting, value, _, allowed)) = ranges.into_iter().find(|range| !range.2) {
            return Err(EngineError::BadSampling { setting, value: value.to_string(), allowed });
        }
        let bad = |bias: &f32| !((-100.0..=100.0).contains(bias) || *bias == f32::NEG_INFINITY);
        match self.logit_bias.iter().find(|(_, bias)| bad(bias)) {
            Some((token, bias)) => Err(EngineError::BadSampling {
                setting: "logit-bias",
                value: format!("{bias} for token {token}"),
                allowed: "-100 to 100, or -inf",
            }),
            None => Ok(()),
        }
    }

    /// The same, and refuses a bias of a token that a model of so many does not have.
    pub(crate) fn check_for(&self, vocabulary: u64) -> Result<(), EngineError> {
        self.check()?;
        match self.logit_bias.iter().find(|(token, _)| u64::from(*token) >= vocabulary) {
            Some((token, _)) => Err(EngineError::UnknownToken { token: *token, vocabulary }),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    logit: f32,
}

/// Candidates that are sorted first when a cut needs an order; most cuts end within them.
const FIRST_SORTED: usize = 256;

/// Draws the tokens of one request.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: SamplerSettings,
    random: Xoshiro256,
    seed: u64,
    /// Prompt and answer so far.
    history: Vec<u32>,
    n_prompt: usize,
    /// Occurrences of each token in the answer, sorted by token.
    counts: Vec<(u32, u32)>,
    recent: Vec<u32>,
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
    weights: Vec<f64>,
}

impl Sampler {
    /// `prompt` is what the repetition penalty sees before the answer.
    pub fn new(settings: &SamplerSettings, prompt: &[u32]) -> Result<Sampler, EngineError> {
        settings.check()?;
        let seed = settings.seed.unwrap_or_else(Xoshiro256::fresh_seed);
        Ok(Sampler {
            settings: settings.clone(),
            random: Xoshiro256::new(seed),
            seed,
            history: prompt.to_vec(),
            n_prompt: prompt.len(),
            counts: Vec::new(),
            recent: Vec::new(),
            logits: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
        })
    }

    /// The seed in use: with it the same request gives the same text.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Notes a token of the answer. Called for each that [`Sampler::sample`] gave, if it is kept.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
        match self.counts.binary_search_by_key(&token, |count| count.0) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (token, 1)),
        }
    }

    /// Chooses a token. Fails when a logit is no number or nothing is left to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, EngineError> {
        check_logits(logits)?;
        if self.is_plain_greedy() {
            return Ok(greatest(logits));
        }
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        self.bias();
        self.penalise();
        let greatest_logit = greatest_value(&self.logits);
        if greatest_logit == f32::NEG_INFINITY {
            return Err(EngineError::BadSampling {
                setting: "logit-bias",
                value: "every token banned".to_owned(),
                allowed: "at least one token left",
            });
        }
        if self.settings.is_greedy() {
            return Ok(index_of(&self.logits, greatest_logit));
        }
        Ok(self.draw(greatest_logit))
    }

    /// Whether each token is just the one with the greatest logit.
    pub(crate) fn is_plain_greedy(&self) -> bool {
        self.settings.is_greedy() && !self.changes_logits()
    }

    fn changes_logits(&self) -> bool {
        let SamplerSettings { repeat_penalty, presence_penalty, frequency_penalty, logit_bias, .. } = &self.settings;
        *repeat_penalty != 1.0 || *presence_penalty != 0.0 || *frequency_penalty != 0.0 || !logit_bias.is_empty()
    }

    fn bias(&mut self) {
        for (token, bias) in &self.settings.logit_bias {
            if let Some(logit) = self.logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
    }

    fn penalise(&mut self) {
        let SamplerSettings { repeat_penalty, repeat_window, presence_penalty, frequency_penalty, .. } = self.settings;
        if repeat_penalty != 1.0 {
            let window = self.history.len().saturating_sub(repeat_window as usize);
            self.recent.clear();
            self.recent.extend_from_slice(&self.history[window..]);
            self.recent.sort_unstable();
            self.recent.dedup();
            for token in &self.recent {
                if let Some(logit) = self.logits.get_mut(*token as usize) {
                    *logit = if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty };
                }
            }
        }
        for (token, count) in &self.counts {
            if let Some(logit) = self.logits.get_mut(*token as usize) {
                *logit -= frequency_penalty * *count as f32 + presence_penalty;
            }
        }
    }

    /// Steps 5 and 6.
    fn draw(&mut self, greatest_logit: f32) -> u32 {
        self.candidates.clear();
        // A bound on the ratio of two probabilities is one on the difference of their logits.
        let least =
            if self.settings.min_p > 0.0 { greatest_logit + self.settings.min_p.ln() } else { f32::NEG_INFINITY };
        let candidates =
            self.logits.iter().enumerate().filter(|(_, logit)| **logit >= least && **logit > f32::NEG_INFINITY);
        self.candidates.extend(candidates.map(|(token, logit)| Candidate { token: token as u32, logit: *logit }));
        self.cut();
        let inverse = 1.0 / f64::from(self.settings.temperature);
        self.weights.clear();
        let weight = |candidate: &Candidate| (f64::from(candidate.logit - greatest_logit) * inverse).exp();
        self.weights.extend(self.candidates.iter().map(weight));
        let total: f64 = self.weights.iter().sum();
        let mut left = self.random.uniform() * total;
        for (candidate, weight) in self.candidates.iter().zip(&self.weights) {
            left -= weight;
            if left < 0.0 {
                return candidate.token;
            }
        }
        // Rounding can leave a little: it belongs to the last one that has any weight.
        let last = self.weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
        self.candidates[last].token
    }

    /// Top-k and top-p, leaving the candidates in falling order. Without either they keep the
    /// order of their ids, which is as good for drawing.
    fn cut(&mut self) {
        let SamplerSettings { top_k, top_p, .. } = self.settings;
        let top_k = if top_k == 0 { usize::MAX } else { top_k as usize };
        if top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(top_k - 1, order);
            self.candidates.truncate(top_k);
        }
        if top_p < 1.0 {
            self.cut_by_sum(f64::from(top_p));
        } else if top_k != usize::MAX {
            self.candidates.sort_unstable_by(order);
        }
    }

    fn cut_by_sum(&mut self, top_p: f64) {
        let greatest = self.candidates.iter().map(|candidate| candidate.logit).fold(f32::NEG_INFINITY, f32::max);
        let weight = |candidate: &Candidate| f64::from(candidate.logit - greatest).exp();
        let goal = top_p * self.candidates.iter().map(weight).sum::<f64>();
        let mut sorted = 0;
        let mut sum = 0.0;
        loop {
            let next =
                (sorted * 16).clamp(FIRST_SORTED, self.candidates.len().max(FIRST_SORTED)).min(self.candidates.len());
            if next < self.candidates.len() {
                self.candidates[sorted..].select_nth_unstable_by(next - sorted, order);
            }
            self.candidates[sorted..next].sort_unstable_by(order);
            for i in sorted..next {
                sum += weight(&self.candidates[i]);
                if sum >= goal {
                    self.candidates.truncate(i + 1);
                    return;
                }
            }
            sorted = next;
            if sorted == self.candidates.len() {
                return;
            }
        }
    }

    /// Tokens of the answer so far.
    pub fn answer(&self) -> &[u32] {
        &self.history[self.n_prompt..]
    }
}

/// Falling logits, equal ones by rising id: the same on every machine.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that sorting takes")]
fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// Lanes that passes over a whole vocabulary go in, so that they become vector instructions.
const LANES: usize = 16;

/// Index of the greatest; of equal ones the lowest. Numbers that are none are passed over.
pub(crate) fn greatest(logits: &[f32]) -> u32 {
    index_of(logits, greatest_value(logits))
}

fn greatest_value(logits: &[f32]) -> f32 {
    // Written out, since `f32::max` is bound to more than one instruction by what it says of NaN.
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        lanes = std::array::from_fn(|i| larger(lanes[i], chunk[i]));
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, larger)
}

/// Where this value is first; 0 when it is nowhere.
fn index_of(logits: &[f32], value: f32) -> u32 {
    // Counted, not searched: a count has no branch in it.
    let count = |chunk: &[f32]| chunk.iter().map(|logit| u32::from(*logit == value)).sum::<u32>();
    let chunk = logits.chunks(LANES).position(|chunk| count(chunk) > 0);
    let start = chunk.map_or(0, |chunk| chunk * LANES);
    let within = logits[start..].iter().take(LANES).position(|logit| *logit == value);
    (start + within.unwrap_or(0)) as u32
}

/// −∞ bans a token; anything else that is no finite number means that the step went wrong.
pub(crate) fn check_logits(logits: &[f32]) -> Result<(), EngineError> {
    // One pass without a branch; which one it was is only looked for when there is one.
    let is_bad = |logit: &f32| logit.is_nan() || *logit == f32::INFINITY;
    if !logits.iter().fold(false, |bad, logit| bad | is_bad(logit)) && logits.iter().any(|logit| logit.is_finite()) {
        return Ok(());
    }
    let token = logits.iter().position(is_bad).unwrap_or(0);
    Err(EngineError::NotANumber { token: token as u32, value: logits.get(token).copied().unwrap_or(f32::NAN) })
}

/// ln Σ exp(logit), in double precision.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let greatest = f64::from(greatest_value(logits));
    if !greatest.is_finite() {
        return greatest;
    }
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - greatest).exp()).sum();
    greatest + sum.ln()
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
