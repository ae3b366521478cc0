//! An answer as a row of blocks, each of one kind: how Anthropic's interface and OpenAI's responses
//! tell it. Parts go in, openings, additions and closings come out.

use crate::output::Part;

/// What a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Reasoning,
    Text,
    Call { name: String },
}

/// A block with what it holds so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// What happens to the block of this index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Open(usize),
    Add(usize, String),
    Close(usize),
}

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: Vec<Block>,
    is_open: bool,
}

impl Blocks {
    /// What a part changes.
    pub(crate) fn part(&mut self, part: Part) -> Vec<Change> {
        let mut changes = Vec::new();
        match part {
            Part::Reasoning(text) => self.add(Kind::Reasoning, text, &mut changes),
            Part::Text(text) => self.add(Kind::Text, text, &mut changes),
            Part::Call { name } => self.open(Kind::Call { name }, &mut changes),
            Part::Arguments(text) => {
                if let Some(block) = self.all.last_mut() {
                    block.text.push_str(&text);
                    changes.push(Change::Add(self.all.len() - 1, text));
                }
            }
            Part::CallEnd => {
                // A call without arguments has an empty object of them.
                if let Some(block) = self.all.last_mut().filter(|block| block.text.trim().is_empty()) {
                    "{}".clone_into(&mut block.text);
                    changes.push(Change::Add(self.all.len() - 1, "{}".to_owned()));
                }
                self.close(&mut changes);
            }
        }
        changes
    }

    /// What the end of the answer changes.
    pub(crate) fn end(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.close(&mut changes);
        changes
    }

    fn add(&mut self, kind: Kind, text: String, changes: &mut Vec<Change>) {
        if !self.is_open || self.all.last().is_none_or(|block| block.kind != kind) {
            self.open(kind, changes);
        }
        if let Some(block) = self.all.last_mut() {
            block.text.push_str(&text);
            changes.push(Change::Add(self.all.len() - 1, text));
        }
    }

    fn open(&mut self, kind: Kind, changes: &mut Vec<Change>) {
        self.close(changes);
        self.all.push(Block { kind, text: String::new() });
        self.is_open = true;
        changes.push(Change::Open(self.all.len() - 1));
    }

    fn close(&mut self, changes: &mut Vec<Change>) {
        if std::mem::replace(&mut self.is_open, false) {
            changes.push(Change::Close(self.all.len() - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_blocks() {
        let mut blocks = Blocks::default();
        let parts = [
            Part::Reasoning("a".to_owned()),
            Part::Text("b".to_owned()),
            Part::Text("c".to_owned()),
            Part::Call { name: "f".to_owned() },
            Part::CallEnd,
        ];
        let changes: Vec<Change> = parts.into_iter().flat_map(|part| blocks.part(part)).collect();
        assert_eq!(
            changes,
            [
                Change::Open(0),
                Change::Add(0, "a".to_owned()),
                Change::Close(0),
                Change::Open(1),
                Change::Add(1, "b".to_owned()),
                Change::Add(1, "c".to_owned()),
                Change::Close(1),
                Change::Open(2),
                Change::Add(2, "{}".to_owned()),
                Change::Close(2),
            ]
        );
        assert_eq!(blocks.end(), []);
        assert_eq!(blocks.all[1], Block { kind: Kind::Text, text: "bc".to_owned() });
    }
}
