//! Text that comes token by token: whole characters only, and nothing of a stop string.

use super::Tokenizer;

/// Turns tokens into text as they come, holding the bytes of a character back until it is whole.
///
/// What it gives, joined, equals [`Tokenizer::decode`] of the same ids.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    special: bool,
    /// The next visible token is the text's first, and loses the blank that encoding put there.
    strip_blank: bool,
    /// At most three bytes: the beginning of a character.
    pending: Vec<u8>,
}

impl StreamDecoder {
    pub(super) fn new(tokenizer: Tokenizer, special: bool, strip_blank: bool) -> Self {
        StreamDecoder { tokenizer, special, strip_blank, pending: Vec::new() }
    }

    /// The text that this token makes certain. Bytes that can be no character come out as U+FFFD,
    /// as does an id outside the vocabulary.
    pub fn push(&mut self, id: u32) -> String {
        let Some(mut piece) = self.tokenizer.shown_bytes(id, self.special) else {
            return self.take_text(&[], false) + "\u{fffd}";
        };
        if self.strip_blank && !piece.is_empty() {
            self.strip_blank = false;
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
        }
        // The borrow of the tokenizer ends here; pieces are short.
        let piece = piece.to_vec();
        self.take_text(&piece, true)
    }

    /// What is left when no more tokens come: U+FFFD for a character that was cut short.
    pub fn finish(&mut self) -> String {
        self.take_text(&[], false)
    }

    /// Appends bytes and takes out what is certain; `more` says that an unfinished character may go on.
    fn take_text(&mut self, bytes: &[u8], more: bool) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut kept = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            kept += chunk.valid().len();
            let invalid = chunk.invalid();
            let unfinished = kept + invalid.len() == self.pending.len() && is_unfinished(invalid);
            if unfinished && more {
                break;
            }
            kept += invalid.len();
            if !invalid.is_empty() {
                text.push('\u{fffd}');
            }
        }
        self.pending.drain(..kept);
        text
    }
}

/// Whether more bytes could make this a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// What a stop matcher lets through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopOutput {
    /// Text that may be shown now.
    pub text: String,
    /// The stop string (its index) that ended the text, if one did.
    pub stop: Option<usize>,
}

/// Ends a text at the first stop string, and never shows a part of one.
///
/// Text that may be the beginning of a stop string is held back until it is certain; when the text
/// ends in another way, [`StopMatcher::finish`] gives it out. The result does not depend on how the
/// text is cut into pieces: of several stop strings the one that is complete first counts, and of
/// those that are complete at the same character the longest.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

impl StopMatcher {
    /// Empty stop strings never match.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        StopMatcher { stops: stops.into_iter().map(Into::into).collect(), held: String::new(), stopped: None }
    }

    /// Takes more text. Once a stop string has matched, nothing comes out any more.
    pub fn push(&mut self, piece: &str) -> StopOutput {
        if self.stopped.is_some() {
            return StopOutput { text: String::new(), stop: self.stopped };
        }
        self.held.push_str(piece);
        if let Some((_, start, index)) = self.first_match() {
            self.stopped = Some(index);
            let mut text = std::mem::take(&mut self.held);
            text.truncate(start);
            return StopOutput { text, stop: self.stopped };
        }
        let certain = self.held.len() - self.longest_beginning();
        let rest = self.held.split_off(certain);
        StopOutput { text: std::mem::replace(&mut self.held, rest), stop: None }
    }

    /// What was held back, when the text ends without a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The stop string that ended the text.
    pub fn stopped(&self) -> Option<usize> {
        self.stopped
    }

    /// End, start and index of the match that is complete first.
    fn first_match(&self) -> Option<(usize, usize, usize)> {
        let matches = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty()).filter_map(|(index, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, index))
        });
        matches.min()
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn longest_beginning(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0).saturating_sub(1);
        let from = self.held.len().saturating_sub(longest);
        let begins = |at: &usize| {
            let end = self.held.get(*at..);
            end.is_some_and(|end| self.stops.iter().any(|stop| stop.len() > end.len() && stop.starts_with(end)))
        };
        (from..self.held.len()).find(begins).map_or(0, |at| self.held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(pieces: &[&str], stops: &[&str]) -> (String, Option<usize>) {
        let mut matcher = StopMatcher::new(stops.iter().copied());
        let mut text = String::new();
        for piece in pieces {
            let output = matcher.push(piece);
            text.push_str(&output.text);
            if output.stop.is_some() {
                break;
            }
        }
        text.push_str(&matcher.finish());
        (text, matcher.stopped())
    }

    #[test]
    fn what_was_held_back_comes_out_in_the_end() {
        assert_eq!(run(&["tall", "!\n"], &["\n"]), ("tall!".into(), Some(0)));
        assert_eq!(run(&["sum", "m"], &["mmap"]), ("summ".into(), None));
        assert_eq!(run(&["x [", "/EN"], &["[/END]"]), ("x [/EN".into(), None));
        assert_eq!(run(&["ok\n\n"], &["\n\nQ:"]), ("ok\n\n".into(), None));
    }

    #[test]
    fn nothing_more_is_held_than_may_begin_a_stop() {
        let mut matcher = StopMatcher::new(["<end>", ""]);
        assert_eq!(matcher.push("a<en").text, "a");
        assert_eq!(matcher.push("x<").text, "<enx");
        assert_eq!(matcher.push("<end").text, "<");
        let output = matcher.push(">tail");
        assert_eq!((output.text.as_str(), output.stop), ("", Some(0)));
        assert_eq!(matcher.push("more"), StopOutput { text: String::new(), stop: Some(0) });
        assert_eq!(matcher.finish(), "");
    }

    proptest! {
        /// However the text is cut, the result is that of pushing one character at a time.
        #[test]
        fn the_cut_does_not_matter(
            text in "[abé]{0,30}",
            stops in proptest::collection::vec("[abé]{1,5}", 0..4),
            cuts in proptest::collection::vec(0usize..31, 0..6),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut from = 0;
            let pieces: Vec<&str> = cuts.into_iter().map(|cut| { let piece = &text[from..cut]; from = cut; piece }).collect();
            let singles: Vec<&str> = text.split("").collect();
            let result = run(&pieces, &stops);
            prop_assert_eq!(&result, &run(&singles, &stops));
            // By definition: the text before the earliest end of any stop string.
            let expected = (0..=text.len()).filter(|end| text.is_char_boundary(*end)).find_map(|end| {
                let ended = stops.iter().filter(|stop| text[..end].ends_with(**stop)).map(|stop| end - stop.len());
                ended.min()
            });
            prop_assert_eq!(result.0.as_str(), &text[..expected.unwrap_or(text.len())]);
            prop_assert_eq!(result.1.is_some(), expected.is_some());
        }
    }
}
