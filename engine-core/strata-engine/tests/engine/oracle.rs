//! The decoders once more, in double precision and as plainly as can be: no cache, no batches, one
//! loop after another over the formulas. Shares no code with the engine but the file reader.

use std::collections::BTreeMap;

use strata_model::gguf::{Gguf, Value};
use strata_model::quant;

type Rows = Vec<Vec<f64>>;

struct Model<'g> {
    gguf: &'g Gguf,
    architecture: &'g str,
    /// Decoded tensors: rows of the contiguous dimension.
    tensors: BTreeMap<&'g str, Rows>,
}

/// Logits after each token.
pub(crate) fn forward(gguf: &Gguf, tokens: &[u32]) -> Rows {
    let mut tensors = BTreeMap::new();
    for tensor in gguf.tensors() {
        let mut values = vec![0.0f32; tensor.elements() as usize];
        quant::dequantise_row(tensor.dtype, gguf.tensor_data(tensor), &mut values).unwrap();
        let rows = values.chunks(tensor.ne[0] as usize).map(|row| row.iter().map(|x| f64::from(*x)).collect());
        tensors.insert(tensor.name.as_str(), rows.collect());
    }
    Model { gguf, architecture: gguf.architecture().unwrap(), tensors }.forward(tokens)
}

fn rms(x: &[f64], gamma: &[f64], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(gamma).map(|(x, gamma)| x / (mean + eps).sqrt() * gamma).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &mut [f64], b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = scores.iter().map(|score| (score - greatest).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|exp| exp / sum).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

impl Model<'_> {
    fn number(&self, suffix: &str) -> Option<f64> {
        self.gguf.arch_value(suffix).and_then(Value::as_f64)
    }

    fn count(&self, suffix: &str) -> usize {
        self.number(suffix).unwrap_or(0.0) as usize
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn vector(&self, name: &str) -> &[f64] {
        &self.tensors[name][0]
    }

    /// `W x (+ b)` by tensor name.
    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mut y: Vec<f64> = self.tensors[format!("{name}.weight").as_str()].iter().map(|row| dot(row, x)).collect();
        if let Some(bias) = self.tensors.get(format!("{name}.bias").as_str()) {
            add(&mut y, &bias[0]);
        }
        y
    }

    fn forward(&self, tokens: &[u32]) -> Rows {
        let gemma = self.architecture == "gemma3";
        let eps = self.number("attention.layer_norm_rms_epsilon").unwrap();
        let width = self.count("embedding_length");
        let scale = if gemma { f64::from((width as f64).sqrt() as f32) } else { 1.0 };
        let row = |token: &u32| self.tensors["token_embd.weight"][*token as usize].iter().map(|x| x * scale).collect();
        let mut x: Rows = tokens.iter().map(row).collect();
        for layer in 0..self.count("block_count") {
            let name = |stem: &str| format!("blk.{layer}.{stem}");
            let norm = |x: &[f64], stem: &str| rms(x, self.vector(&name(stem)), eps);
            let normed: Rows = x.iter().map(|x| norm(x, "attn_norm.weight")).collect();
            for (x, mut out) in x.iter_mut().zip(self.attention(layer, &normed, eps)) {
                if gemma {
                    out = norm(&out, "post_attention_norm.weight");
                }
                add(x, &out);
                let normed = norm(x, "ffn_norm.weight");
                let mut out = if self.has(&name("ffn_gate_inp.weight")) {
                    self.experts(layer, &normed)
                } else {
                    let act = if gemma { gelu_tanh } else { silu };
                    let gate = self.linear(&name("ffn_gate"), &normed);
                    let up = self.linear(&name("ffn_up"), &normed);
                    let inner: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| act(*gate) * up).collect();
                    self.linear(&name("ffn_down"), &inner)
                };
                if gemma {
                    out = norm(&out, "post_ffw_norm.weight");
                }
                add(x, &out);
            }
        }
        let head = if self.has("output.weight") { "output" } else { "token_embd" };
        let cap = self.number("final_logit_softcapping");
        let logits = |x: &Vec<f64>| {
            let logits = self.linear(head, &rms(x, self.vector("output_norm.weight"), eps));
            logits.into_iter().map(|logit| cap.map_or(logit, |cap| cap * (logit / cap).tanh())).collect()
        };
        x.iter().map(logits).collect()
    }

    fn is_local(&self, layer: usize) -> bool {
        if self.number("attention.sliding_window").is_none() {
            return false;
        }
        let pattern = self.gguf.arch_value("attention.sliding_window_pattern");
        if let Some(list) = pattern.and_then(Value::as_array) {
            return list.bool_at(layer).unwrap();
        }
        let period = pattern.and_then(Value::as_u64).unwrap_or(6) as usize;
        layer % period < period - 1
    }

    fn attention(&self, layer: usize, x: &Rows, eps: f64) -> Rows {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let heads = self.count("attention.head_count");
        let heads_kv = self.count("attention.head_count_kv");
        let dim = self.count("attention.key_length");
        let local = self.is_local(layer);
        let project = |x: &Vec<f64>, stem: &str, first: usize, n: usize| -> Rows {
            let y = if self.has(&name("attn_qkv.weight")) {
                self.linear(&name("attn_qkv"), x)[first * dim..(first + n) * dim].to_vec()
            } else {
                self.linear(&name(stem), x)
            };
            y.chunks(dim).map(<[f64]>::to_vec).collect()
        };
        let place = |position: usize, rows: Rows, stem: &str| -> Rows {
            let gamma = self.tensors.get(name(stem).as_str());
            let norm = |row: Vec<f64>| gamma.map_or(row.clone(), |gamma| rms(&row, &gamma[0], eps));
            rows.into_iter().map(|row| self.rotate(norm(row), position, local)).collect()
        };
        let queries = |(t, x): (usize, &Vec<f64>)| place(t, project(x, "attn_q", 0, heads), "attn_q_norm.weight");
        let keys = |(t, x): (usize, &Vec<f64>)| place(t, project(x, "attn_k", heads, heads_kv), "attn_k_norm.weight");
        let q: Vec<Rows> = x.iter().enumerate().map(queries).collect();
        let k: Vec<Rows> = x.iter().enumerate().map(keys).collect();
        let v: Vec<Rows> = x.iter().map(|x| project(x, "attn_v", heads + heads_kv, heads_kv)).collect();
        let scale = self.number("attention.scale").unwrap_or(1.0 / (dim as f64).sqrt());
        let window = if local { self.count("attention.sliding_window") } else { usize::MAX };
        let attend = |t: usize| {
            let mut out = Vec::new();
            for (head, q) in q[t].iter().enumerate() {
                let kv = head / (heads / heads_kv);
                let seen = (t + 1).saturating_sub(window)..=t;
                let scores: Vec<f64> = seen.clone().map(|s| scale * dot(q, &k[s][kv])).collect();
                let mut mixed = vec![0.0; dim];
                for (s, weight) in seen.zip(softmax(&scores)) {
                    mixed.iter_mut().zip(&v[s][kv]).for_each(|(mixed, v)| *mixed += weight * v);
                }
                out.extend(mixed);
            }
            self.linear(&name("attn_output"), &out)
        };
        (0..x.len()).map(attend).collect()
    }

    fn rotate(&self, mut x: Vec<f64>, position: usize, local: bool) -> Vec<f64> {
        let n_rot = self.number("rope.dimension_count").map_or(x.len(), |n| n as usize);
        let base = match (local, self.number("rope.freq_base")) {
            (true, _) => self.number("rope.freq_base_swa").unwrap_or(10_000.0),
            (false, base) => base.unwrap_or(10_000.0),
        };
        let linear = self.gguf.arch_value("rope.scaling.type").and_then(Value::as_str) == Some("linear");
        let factor = if linear && !local { self.number("rope.scaling.factor").unwrap() } else { 1.0 };
        for pair in 0..n_rot / 2 {
            let mut angle = position as f64 * base.powf(-2.0 * pair as f64 / n_rot as f64) / factor;
            if let Some(divisors) = self.tensors.get("rope_freqs.weight") {
                angle /= divisors[0][pair];
            }
            let (i, j) = if self.architecture == "llama" { (2 * pair, 2 * pair + 1) } else { (pair, pair + n_rot / 2) };
            let (a, b) = (x[i], x[j]);
            x[i] = a * angle.cos() - b * angle.sin();
            x[j] = b * angle.cos() + a * angle.sin();
        }
        x
    }

    fn experts(&self, layer: usize, x: &[f64]) -> Vec<f64> {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let used = self.count("expert_used_count");
        let count = self.count("expert_count");
        let scores = softmax(&self.linear(&name("ffn_gate_inp"), x));
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let sum: f64 = order[..used].iter().map(|expert| scores[*expert]).sum();
        let rows = |stem: &str, expert: usize| {
            let all = &self.tensors[name(stem).as_str()];
            let n = all.len() / count;
            &all[expert * n..(expert + 1) * n]
        };
        let product = |rows: &[Vec<f64>], x: &[f64]| -> Vec<f64> { rows.iter().map(|row| dot(row, x)).collect() };
        let mut out = vec![0.0; x.len()];
        for expert in &order[..used] {
            let (gate, up) = if self.has(&name("ffn_gate_up_exps.weight")) {
                let both = product(rows("ffn_gate_up_exps.weight", *expert), x);
                (both[..both.len() / 2].to_vec(), both[both.len() / 2..].to_vec())
            } else {
                (product(rows("ffn_gate_exps.weight", *expert), x), product(rows("ffn_up_exps.weight", *expert), x))
            };
            let inner: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| silu(*gate) * up).collect();
            let weight = scores[*expert] / sum * self.number("expert_weights_scale").unwrap_or(1.0);
            let down = product(rows("ffn_down_exps.weight", *expert), &inner);
            out.iter_mut().zip(&down).for_each(|(out, down)| *out += weight * down);
        }
        out
    }
}
