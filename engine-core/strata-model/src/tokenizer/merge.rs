//! Merging neighbours, best pair first: the heart of both kinds of BPE.
//!
//! A list of symbols is linked, a heap holds the pairs that may merge, and each merge looks at two
//! new pairs: n log n for any text, where scanning for the best pair again after each merge would
//! be n². It knows nothing of vocabularies; what may merge is the caller's function.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol: the list's ends, and the id of a symbol that is no token.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of the text that is one symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    /// What the caller names it; [`NONE`] when it has no name.
    pub id: u32,
    /// Where it starts and ends in the text, in the caller's unit.
    pub start: u32,
    pub end: u32,
}

/// What may become of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    /// Smaller is sooner. Of equal ones the leftmost is first.
    pub order: u32,
    /// The id of the product.
    pub id: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    symbol: Symbol,
    previous: u32,
    next: u32,
}

/// A pair as it was when it entered the heap. Its fields are in the order that it is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    order: u32,
    left: u32,
    right: u32,
    /// Length of both together: if it is another by now, one of them has changed.
    length: u32,
    product: u32,
}

/// Buffers kept from word to word.
#[derive(Debug, Default)]
pub(super) struct Merger {
    links: Vec<Link>,
    heap: BinaryHeap<Reverse<Pair>>,
}

impl Merger {
    /// Merges until no pair may; `symbols` is replaced by what is left of it.
    pub(super) fn merge(&mut self, symbols: &mut Vec<Symbol>, lookup: impl Fn(Symbol, Symbol) -> Option<Merge>) {
        self.heap.clear();
        self.links.clear();
        let last = symbols.len().saturating_sub(1);
        self.links.extend(symbols.iter().enumerate().map(|(at, symbol)| Link {
            symbol: *symbol,
            previous: if at == 0 { NONE } else { at as u32 - 1 },
            next: if at == last { NONE } else { at as u32 + 1 },
        }));
        for left in 0..last as u32 {
            self.consider(left, left + 1, &lookup);
        }
        if self.heap.is_empty() {
            return;
        }
        while let Some(Reverse(pair)) = self.heap.pop() {
            let (left, right) = (self.links[pair.left as usize], self.links[pair.right as usize]);
            // A symbol that was merged into its left neighbour has no length any more.
            let (left_length, right_length) = (length(left.symbol), length(right.symbol));
            if left_length == 0 || right_length == 0 || left_length + right_length != pair.length {
                continue;
            }
            let merged = &mut self.links[pair.left as usize];
            merged.symbol.id = pair.product;
            merged.symbol.end = right.symbol.end;
            merged.next = right.next;
            let dead = &mut self.links[pair.right as usize].symbol;
            dead.start = dead.end;
            if right.next != NONE {
                self.links[right.next as usize].previous = pair.left;
                self.consider(pair.left, right.next, &lookup);
            }
            if left.previous != NONE {
                self.consider(left.previous, pair.left, &lookup);
            }
        }
        symbols.clear();
        symbols.extend(self.links.iter().map(|link| link.symbol).filter(|symbol| length(*symbol) > 0));
    }

    fn consider(&mut self, left: u32, right: u32, lookup: &impl Fn(Symbol, Symbol) -> Option<Merge>) {
        let (first, second) = (self.links[left as usize].symbol, self.links[right as usize].symbol);
        if let Some(merge) = lookup(first, second) {
            let length = length(first) + length(second);
            self.heap.push(Reverse(Pair { order: merge.order, left, right, length, product: merge.id }));
        }
    }
}

fn length(symbol: Symbol) -> u32 {
    symbol.end - symbol.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The definition: of all pairs that may merge take the best, leftmost, until there is none.
    fn naive(symbols: &mut Vec<Symbol>, lookup: impl Fn(Symbol, Symbol) -> Option<Merge>) {
        loop {
            let best = (1..symbols.len())
                .filter_map(|at| lookup(symbols[at - 1], symbols[at]).map(|merge| (merge.order, at, merge.id)))
                .min();
            let Some((_, at, id)) = best else { return };
            symbols[at - 1].id = id;
            symbols[at - 1].end = symbols[at].end;
            symbols.remove(at);
        }
    }

    fn symbols_of(ids: &[u32]) -> Vec<Symbol> {
        ids.iter().zip(0..).map(|(id, at)| Symbol { id: *id, start: at, end: at + 1 }).collect()
    }

    proptest! {
        /// Any table of merges, sensible or not: products may be cheaper than their parts.
        #[test]
        fn equals_the_definition(
            table in proptest::collection::hash_map((0u32..12, 0u32..12), (0u32..30, 0u32..12), 0..80),
            ids in proptest::collection::vec(0u32..12, 0..60),
        ) {
            // An id stands for one text, so that no symbol keeps its id while it grows: ids of
            // products are made distinct by the length of what they stand for.
            let table: HashMap<(u32, u32), (u32, u32)> = table;
            let lookup = |left: Symbol, right: Symbol| {
                let (order, id) = *table.get(&(left.id % 12, right.id % 12))?;
                Some(Merge { order, id: id + 12 * (right.end - left.start) })
            };
            let mut fast = symbols_of(&ids);
            let mut slow = fast.clone();
            Merger::default().merge(&mut fast, lookup);
            naive(&mut slow, lookup);
            prop_assert_eq!(fast, slow);
        }
    }

    #[test]
    fn nothing_and_one_symbol_stay_as_they_are() {
        for count in 0..2 {
            let mut symbols = symbols_of(&vec![1; count]);
            Merger::default().merge(&mut symbols, |_, _| Some(Merge { order: 0, id: 1 }));
            assert_eq!(symbols.len(), count);
        }
    }
}
