//! Takes an answer's text apart while it comes: reasoning, text, tool calls.
//!
//! Models write all of it as one text, with marks that their chat templates teach them. Which marks
//! those are is read off the template ([`Style::of_template`]); what cannot be told yet, such as half
//! a mark, is held back, and everything that turns out to be no mark comes out as text. It does not
//! judge tool calls: arguments go out as the model writes them.

mod call;
mod function;

use call::CallReader;
use serde_json::Value;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Reasoning(String),
    Text(String),
    /// A call of this tool begins.
    Call {
        name: String,
    },
    /// JSON text; joined, the arguments of the call that began last.
    Arguments(String),
    CallEnd,
}

/// How the model writes what is not plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Marks around reasoning, when the template has them.
    pub(crate) thinks: bool,
    pub(crate) calls: CallStyle,
    /// The template shows tools to the model itself.
    pub(crate) knows_tools: bool,
}

/// How tool calls are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStyle {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`; instead of JSON also `<function=…>`.
    Tagged,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}]`, or `[TOOL_CALLS]name[ARGS]{…}`.
    Listed,
    /// The whole answer is `{"name": …, "parameters": …}`, perhaps after `<|python_tag|>`.
    Bare,
}

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
pub(crate) const LISTED: &str = "[TOOL_CALLS]";
const ARGS: &str = "[ARGS]";
pub(crate) const PYTHON: &str = "<|python_tag|>";

impl Style {
    /// What a template teaches. `None`: there is no template.
    pub(crate) fn of_template(template: Option<&str>) -> Style {
        let text = template.unwrap_or("");
        let knows_tools = has_word(text, "tools");
        let calls = match text {
            _ if !knows_tools || text.contains(CALL) => CallStyle::Tagged,
            _ if text.contains(LISTED) => CallStyle::Listed,
            _ if text.contains(PYTHON) || text.contains("parameters") => CallStyle::Bare,
            _ => CallStyle::Tagged,
        };
        Style { thinks: text.contains(THINK_END), calls, knows_tools }
    }

    /// Whether a prompt that ends so has already begun the reasoning.
    pub(crate) fn begins_in_reasoning(self, tail: &str) -> bool {
        self.thinks && tail.trim_end().ends_with(THINK)
    }
}

/// Whether the text has the word, and not only as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = text.as_bytes();
    text.match_indices(word).any(|(at, _)| {
        !is_part(at.checked_sub(1).and_then(|before| bytes.get(before))) && !is_part(bytes.get(at + word.len()))
    })
}

/// What is expected of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) style: Style,
    /// The tools that may be called. Empty: marks of calls are text like any other.
    pub(crate) tools: Vec<Value>,
    /// The answer has to be a call, whose marks the grammar may leave out.
    pub(crate) forced: bool,
    pub(crate) in_reasoning: bool,
    /// The text is taken as it is.
    pub(crate) plain: bool,
}

impl Expected {
    /// A text that is taken as it is.
    pub(crate) fn plain() -> Expected {
        let style = Style { thinks: false, calls: CallStyle::Tagged, knows_tools: false };
        Expected { style, tools: Vec::new(), forced: false, in_reasoning: false, plain: true }
    }
}

#[derive(Debug)]
enum State {
    /// Nothing but blanks so far.
    Start,
    Reasoning,
    Text,
    /// Behind a mark of a call; what follows tells how it is written.
    Mark,
    /// In the JSON of a call.
    Call(CallReader),
    /// In `<function=…>`, which is read as a whole.
    Function,
    /// Behind a call: its closing mark, or the next call of a list.
    CallDone,
}

/// Takes one answer apart.
#[derive(Debug)]
pub(crate) struct Splitter {
    expected: Expected,
    state: State,
    /// Text that is not told apart yet.
    held: String,
    /// Reasoning began, and its first blanks are gone.
    reasons: bool,
    /// Blanks behind reasoning are no text.
    reasoned: bool,
    calls: usize,
    parts: Vec<Part>,
}

impl Splitter {
    pub(crate) fn new(expected: Expected) -> Splitter {
        let state = match (&expected.style.calls, expected.in_reasoning) {
            _ if expected.plain => State::Text,
            (_, true) => State::Reasoning,
            (CallStyle::Listed, false) if expected.forced => State::Mark,
            _ => State::Start,
        };
        Splitter { expected, state, held: String::new(), reasons: false, reasoned: false, calls: 0, parts: Vec::new() }
    }

    /// Calls that are whole.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Takes more text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        while self.step(false) {}
        std::mem::take(&mut self.parts)
    }

    /// The end: what was held back is what it looks like.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        while self.step(true) {}
        if let State::Call(reader) = &mut self.state {
            let (parts, is_call) = reader.finish();
            self.parts.extend(parts);
            self.calls += usize::from(is_call);
        }
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Reasoning => self.reasoning(rest.trim_end()),
            State::CallDone => {}
            State::Start if self.reasoned => {}
            State::Function => self.function(&rest),
            _ if self.calls > 0 && rest.trim().is_empty() => {}
            _ => self.text(&rest),
        }
        std::mem::take(&mut self.parts)
    }

    fn reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(Part::Reasoning(text.to_owned()));
        }
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(Part::Text(text.to_owned()));
        }
    }

    fn has_tools(&self) -> bool {
        !self.expected.tools.is_empty()
    }

    /// One step; whether another may follow at once.
    fn step(&mut self, last: bool) -> bool {
        match &mut self.state {
            State::Start => self.at_start(last),
            State::Reasoning => self.in_reasoning(),
            State::Text => self.in_text(last),
            State::Mark => self.behind_mark(last),
            State::Call(_) => self.in_call(),
            State::Function => self.in_function(),
            State::CallDone => self.behind_call(last),
        }
    }

    /// The first thing that is no blank decides: reasoning, a bare call, or text.
    fn at_start(&mut self, last: bool) -> bool {
        let trimmed = self.held.trim_start();
        if trimmed.is_empty() {
            return false;
        }
        if self.expected.style.thinks {
            if let Some(rest) = trimmed.strip_prefix(THINK) {
                self.held = rest.to_owned();
                self.state = State::Reasoning;
                return true;
            }
            if !last && THINK.starts_with(trimmed) {
                return false;
            }
        }
        if self.has_tools() && self.expected.style.calls == CallStyle::Bare {
            let rest = trimmed.strip_prefix(PYTHON).map_or(trimmed, str::trim_start);
            if rest.starts_with('{') {
                self.held = rest.to_owned();
                self.state = State::Call(CallReader::default());
                return true;
            }
            if !last && (PYTHON.starts_with(trimmed) || rest.is_empty()) {
                return false;
            }
        }
        if self.reasoned {
            self.held = trimmed.to_owned();
        }
        self.state = State::Text;
        true
    }

    fn in_reasoning(&mut self) -> bool {
        if !self.reasons {
            self.held = self.held.trim_start().to_owned();
            self.reasons = !self.held.is_empty();
        }
        if let Some(at) = self.held.find(THINK_END) {
            let rest = self.held.split_off(at + THINK_END.len());
            let reasoning = std::mem::replace(&mut self.held, rest);
            self.reasoning(reasoning[..at].trim_end());
            self.state = State::Start;
            self.reasoned = true;
            self.expected.style.thinks = false;
            return true;
        }
        // Blanks before the closing mark belong to the mark.
        let certain = self.held[..self.certain(&[THINK_END])].trim_end().len();
        let rest = self.held.split_off(certain);
        let reasoning = std::mem::replace(&mut self.held, rest);
        self.reasoning(&reasoning);
        false
    }

    fn marks(&self) -> &'static [&'static str] {
        match self.expected.style.calls {
            _ if !self.has_tools() => &[],
            CallStyle::Tagged => &[CALL],
            CallStyle::Listed => &[LISTED],
            CallStyle::Bare => &[PYTHON],
        }
    }

    fn in_text(&mut self, last: bool) -> bool {
        let marks = self.marks();
        let found = marks.iter().filter_map(|mark| Some((self.held.find(mark)?, mark.len()))).min();
        if let Some((at, length)) = found {
            let rest = self.held.split_off(at + length);
            let text = std::mem::replace(&mut self.held, rest);
            self.text(text[..at].trim_end());
            self.state = State::Mark;
            return true;
        }
        // Blanks before a mark are no text; without tools there is no mark.
        let mut certain = if last { self.held.len() } else { self.certain(marks) };
        if !marks.is_empty() && !last {
            certain = self.held[..certain].trim_end().len();
        }
        let rest = self.held.split_off(certain);
        let text = std::mem::replace(&mut self.held, rest);
        self.text(&text);
        false
    }

    /// How many bytes of the held text can be no beginning of a mark.
    fn certain(&self, marks: &[&str]) -> usize {
        let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0).saturating_sub(1);
        let from = self.held.len().saturating_sub(longest);
        let begins =
            |at: &usize| self.held.get(*at..).is_some_and(|end| marks.iter().any(|mark| mark.starts_with(end)));
        (from..self.held.len()).find(begins).unwrap_or(self.held.len())
    }

    fn behind_mark(&mut self, last: bool) -> bool {
        let trimmed = self.held.trim_start();
        let Some(first) = trimmed.chars().next() else { return false };
        let listed = self.expected.style.calls == CallStyle::Listed;
        match first {
            '{' => self.state = State::Call(CallReader::default()),
            '[' if listed => {
                self.held = trimmed[1..].to_owned();
                return true;
            }
            '<' if !listed => self.state = State::Function,
            _ if listed => {
                // `name[ARGS]{…}` or `name{…}`.
                let Some(end) = trimmed.find('{') else { return false };
                let name = trimmed[..end].trim_end().trim_end_matches(ARGS).trim();
                self.state = State::Call(CallReader::of(name));
                self.held = trimmed[end..].to_owned();
                return true;
            }
            _ if last => return false,
            _ => {
                // No call after all.
                self.held = format!("{}{}", self.marks().first().unwrap_or(&""), self.held);
                let text = std::mem::take(&mut self.held);
                self.text(&text);
                self.state = State::Text;
                return false;
            }
        }
        self.held = trimmed.to_owned();
        true
    }

    fn in_call(&mut self) -> bool {
        let State::Call(reader) = &mut self.state else { return false };
        let text = std::mem::take(&mut self.held);
        let (parts, end) = reader.push(&text);
        self.parts.extend(parts);
        let Some(end) = end else { return false };
        text[end.used..].clone_into(&mut self.held);
        if end.is_call {
            self.calls += 1;
            self.state = State::CallDone;
        } else {
            self.state = State::Text;
        }
        true
    }

    fn in_function(&mut self) -> bool {
        let ends = [CALL_END, "</function>"];
        let Some((at, length)) = ends.iter().filter_map(|end| Some((self.held.find(end)?, end.len()))).min() else {
            return false;
        };
        let rest = self.held.split_off(at + length);
        let text = std::mem::replace(&mut self.held, rest);
        self.function(&text[..at]);
        self.state = State::CallDone;
        true
    }

    fn function(&mut self, text: &str) {
        match function::read(text, &self.expected.tools) {
            Some((name, arguments)) => {
                self.calls += 1;
                self.parts.extend([Part::Call { name }, Part::Arguments(arguments), Part::CallEnd]);
            }
            None => self.text(&format!("{CALL}{text}")),
        }
    }

    fn behind_call(&mut self, last: bool) -> bool {
        let listed = self.expected.style.calls == CallStyle::Listed;
        let bare = self.expected.style.calls == CallStyle::Bare;
        let trimmed =
            self.held.trim_start_matches(|c: char| c.is_whitespace() || (listed && c == ',') || (bare && c == ';'));
        if trimmed.is_empty() {
            self.held.clear();
            return false;
        }
        if let Some(rest) = [CALL_END, "]", CALL, LISTED, PYTHON].iter().find_map(|mark| {
            let rest = trimmed.strip_prefix(mark)?;
            Some((rest.to_owned(), [CALL, LISTED, PYTHON].contains(mark)))
        }) {
            self.held = rest.0;
            if rest.1 {
                self.state = State::Mark;
            }
            return true;
        }
        if trimmed.starts_with('{') && (listed || bare) {
            self.held = trimmed.to_owned();
            self.state = State::Call(CallReader::default());
            return true;
        }
        if !last && [CALL_END, CALL, LISTED, PYTHON].iter().any(|mark| mark.starts_with(trimmed)) {
            return false;
        }
        self.held = trimmed.to_owned();
        self.state = State::Text;
        true
    }
}

#[cfg(test)]
mod tests;
