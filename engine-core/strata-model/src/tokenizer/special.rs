//! Finding the tokens that are matched as a whole before the rest of a text is split: control
//! tokens on request, user-defined ones always.
//!
//! The longest text wins wherever it stands, then the one further left; that is llama.cpp's rule.
//! It differs from "leftmost first" only where two such texts overlap.

use super::merge::NONE;
use super::vocabulary::Vocabulary;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// One token that is matched as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Special {
    pub id: u32,
    /// Matched only when the caller wants special tokens parsed.
    pub on_request: bool,
    /// Takes the white space before it along.
    pub strip_left: bool,
    /// Takes the white space behind it along.
    pub strip_right: bool,
}

/// A stretch of a text: to be tokenized, or a token already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// All such tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct Specials {
    /// By text.
    sorted: Vec<Special>,
    /// Their texts as a trie. The root is the first; its children are looked up by `roots`.
    nodes: Vec<Node>,
    /// For each first byte the node behind it, or [`NONE`].
    roots: Box<[u32; 256]>,
}

/// What is reached by one byte from its parent. The children of a node lie side by side, in the
/// order of their bytes.
#[derive(Debug, Clone, Copy)]
struct Node {
    byte: u8,
    children: u32,
    count: u32,
    /// The one whose text ends here, or [`NONE`].
    special: u32,
}

/// A place that one of them takes: where it ends, with the white space it took along.
struct Taken {
    end: usize,
    id: u32,
}

impl Specials {
    pub(super) fn new(mut specials: Vec<Special>, vocabulary: &Vocabulary) -> Self {
        let text = |special: &Special| vocabulary.text(special.id).unwrap_or_default();
        specials.retain(|special| !text(special).is_empty());
        specials.sort_by(|a, b| text(a).cmp(text(b)).then(a.id.cmp(&b.id)));
        specials.dedup_by(|later, first| text(later) == text(first));
        let mut nodes = vec![Node { byte: 0, children: 0, count: 0, special: NONE }];
        // Each entry is a node, and the part of the sorted texts that begin with its bytes.
        let mut open = std::collections::VecDeque::from([(0, 0..specials.len(), 0)]);
        while let Some((at, mut part, depth)) = open.pop_front() {
            let bytes = |special: &Special| &text(special).as_bytes()[depth..];
            if specials.get(part.start).is_some_and(|first| !part.is_empty() && bytes(first).is_empty()) {
                nodes[at].special = part.start as u32;
                part.start += 1;
            }
            nodes[at].children = nodes.len() as u32;
            for same in specials[part.clone()].chunk_by(|a, b| bytes(a)[0] == bytes(b)[0]) {
                let end = part.start + same.len();
                open.push_back((nodes.len(), part.start..end, depth + 1));
                nodes.push(Node { byte: bytes(&same[0])[0], children: 0, count: 0, special: NONE });
                nodes[at].count += 1;
                part.start = end;
            }
        }
        let mut roots = Box::new([NONE; 256]);
        for at in 1..=nodes[0].count {
            roots[nodes[at as usize].byte as usize] = at;
        }
        Specials { sorted: specials, nodes, roots }
    }

    /// The fragments of `text` in order.
    pub(super) fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let taken = self.take(text, parse_special);
        let mut fragments = Vec::with_capacity(2 * taken.len() + 1);
        let mut at = 0;
        for (start, Taken { end, id }) in taken {
            if at < start {
                fragments.push(Fragment::Text(&text[at..start]));
            }
            fragments.push(Fragment::Token(id));
            at = end;
        }
        if at < text.len() {
            fragments.push(Fragment::Text(&text[at..]));
        }
        fragments
    }

    /// The places taken, by where they start.
    fn take(&self, text: &str, parse_special: bool) -> BTreeMap<usize, Taken> {
        // The longest match at each place first; a place that is cut short by a longer match
        // further right comes back with the longest that still fits.
        let longest = |at: usize, limit: usize| {
            let (length, index) = self.longest(&text.as_bytes()[at..limit], parse_special)?;
            Some((length, Reverse(at), index))
        };
        let mut candidates: BinaryHeap<_> = (0..text.len()).filter_map(|at| longest(at, text.len())).collect();
        let mut taken: BTreeMap<usize, Taken> = BTreeMap::new();
        while let Some((length, Reverse(at), index)) = candidates.pop() {
            let floor = taken.range(..=at).next_back().map_or(0, |(_, before)| before.end);
            if floor > at {
                continue;
            }
            let ceiling = taken.range(at..).next().map_or(text.len(), |(start, _)| *start);
            if at + length > ceiling {
                candidates.extend(longest(at, ceiling));
                continue;
            }
            let special = self.sorted[index];
            let (mut start, mut end) = (at, at + length);
            if special.strip_left {
                start = floor + text[floor..start].trim_ascii_end().len();
            }
            if special.strip_right {
                end = ceiling - text[end..ceiling].trim_ascii_start().len();
            }
            taken.insert(start, Taken { end, id: special.id });
        }
        taken
    }

    /// The longest of them that `bytes` starts with: its length, and which it is.
    fn longest(&self, bytes: &[u8], parse_special: bool) -> Option<(usize, usize)> {
        let mut at = self.roots[*bytes.first()? as usize];
        let mut found = None;
        for length in 1.. {
            if at == NONE {
                break;
            }
            let node = self.nodes[at as usize];
            if let Some(special) = self.sorted.get(node.special as usize)
                && (parse_special || !special.on_request)
            {
                found = Some((length, node.special as usize));
            }
            let Some(next) = bytes.get(length) else { break };
            let children = &self.nodes[node.children as usize..(node.children + node.count) as usize];
            let child = children.binary_search_by_key(next, |child| child.byte);
            at = child.map_or(NONE, |child| node.children + child as u32);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::vocabulary::{TokenKind, Writing};
    use proptest::prelude::*;

    fn specials(texts: &[&str], change: impl Fn(&mut Special)) -> Specials {
        let kinds = vec![TokenKind::UserDefined; texts.len()];
        let vocabulary = Vocabulary::new(texts, kinds, Writing::Blanks).unwrap();
        let all = (0..texts.len() as u32).map(|id| {
            let mut special = Special { id, on_request: false, strip_left: false, strip_right: false };
            change(&mut special);
            special
        });
        Specials::new(all.collect(), &vocabulary)
    }

    /// The rule as it is said: text by text, longest first, each from the left in what is free.
    fn naive<'t>(texts: &[&str], text: &'t str) -> Vec<Fragment<'t>> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|at| Reverse(texts[*at].len()));
        let mut fragments = vec![Fragment::Text(text)];
        for at in order {
            fragments = fragments
                .into_iter()
                .flat_map(|fragment| match fragment {
                    Fragment::Token(_) => vec![fragment],
                    Fragment::Text(part) => {
                        let mut pieces = Vec::new();
                        for (index, between) in part.split(texts[at]).enumerate() {
                            if index > 0 {
                                pieces.push(Fragment::Token(at as u32));
                            }
                            pieces.push(Fragment::Text(between));
                        }
                        pieces.retain(|piece| *piece != Fragment::Text(""));
                        pieces
                    }
                })
                .collect();
        }
        fragments
    }

    proptest! {
        /// Texts that overlap in all ways. Those of one length do not share a letter, since which
        /// of two equally long ones goes first is not said.
        #[test]
        fn equals_the_rule(text in "[abx]{0,40}") {
            let texts = ["a", "ab", "bab", "aabb", "b", "ababa"];
            let texts: Vec<&str> = texts.iter().copied().filter(|special| *special != "b").collect();
            let specials = specials(&texts, |_| ());
            prop_assert_eq!(specials.split(&text, false), naive(&texts, &text));
        }
    }

    #[test]
    fn the_longest_wins_even_further_right() {
        let specials = specials(&["<ab", "b>>>"], |_| ());
        assert_eq!(specials.split("<ab>>>", false), [Fragment::Text("<a"), Fragment::Token(1)]);
    }

    #[test]
    fn some_are_matched_on_request_only() {
        let specials = specials(&["<s>", "<s><s>"], |special| special.on_request = special.id == 1);
        assert_eq!(specials.split("<s><s>", false), [Fragment::Token(0), Fragment::Token(0)]);
        assert_eq!(specials.split("<s><s>", true), [Fragment::Token(1)]);
    }

    #[test]
    fn white_space_is_taken_along_up_to_the_next_token() {
        let left = specials(&["<m>"], |special| special.strip_left = true);
        assert_eq!(left.split("a \n<m> b", false), [Fragment::Text("a"), Fragment::Token(0), Fragment::Text(" b")]);
        assert_eq!(left.split("  <m>", false), [Fragment::Token(0)]);
        let right = specials(&["<m>", " "], |special| special.strip_right = special.id == 0);
        assert_eq!(right.split("a<m> \n b", false), [Fragment::Text("a"), Fragment::Token(0), Fragment::Text("b")]);
        assert_eq!(right.split("<m> <m>", false), [Fragment::Token(0), Fragment::Token(0)]);
    }

    #[test]
    fn a_run_of_runs_takes_linear_time() {
        let runs: Vec<String> = (1..=31).map(|count| "\n".repeat(count)).collect();
        let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
        let specials = specials(&runs, |_| ());
        let text = "\n".repeat(1 << 20);
        let fragments = specials.split(&text, false);
        assert_eq!(fragments.len(), (1 << 20) / 31 + 1);
    }
}
