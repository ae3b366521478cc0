//! Chat templates from the GGUF: messages in, the prompt's text out.
//!
//! A template is a program that somebody else wrote for Hugging Face's tokenizers, so the
//! environment is made to look like theirs: Jinja with trimmed blocks and loop controls, Python's
//! methods on strings and dictionaries, `raise_exception`, `strftime_now`, `tojson` as Python
//! writes JSON. It runs on a budget and in a process apart, since the program may also be a hostile
//! one.
//!
//! It does not tokenize, and knows nothing of where messages come from; strata-engine and the
//! server call it.

#[cfg(unix)]
mod apart;
mod clock;
mod message;
mod python_json;
mod python_text;

use crate::TextError;
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};
use std::time::SystemTime;

pub use message::{Content, Message};

/// The templates of a model: the usual one, and variants by name.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// `default` and the variants' names, in file order.
    names: Vec<String>,
    /// The usual template's text.
    source: String,
    bos: Option<String>,
    eos: Option<String>,
    unk: Option<String>,
}

/// What to render beside messages and tools.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Whether the text ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// More variables: `enable_thinking`, `documents`, `date_string`. They win over the standard ones.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// A template variant to take instead of the usual one.
    pub variant: Option<String>,
    /// What `strftime_now` tells, in UTC. Some templates put the date into the prompt.
    pub now: SystemTime,
}

impl RenderOptions {
    /// For a prompt that is to be answered, now.
    pub fn answer() -> Self {
        RenderOptions {
            add_generation_prompt: true,
            extra: serde_json::Map::new(),
            variant: None,
            now: SystemTime::now(),
        }
    }
}

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
const KEY: &str = "tokenizer.chat_template";

/// Longer templates are refused. The longest published ones have some 20 KiB.
const LONGEST_SOURCE: usize = 64 << 10;
/// Work that a template may do whatever its messages: instructions, and 64 bytes of data each.
/// The longest published templates need some thousands for a short chat.
const FUEL: u64 = 500_000;
/// More for each message, and for each four bytes of text: templates walk over all messages, and
/// through their texts, several times.
const FUEL_PER_MESSAGE: u64 = 2_000;
const BYTES_PER_FUEL: u64 = 4;
/// The most in all, for the sake of the stack that goes with it.
const MOST_FUEL: u64 = 2_500_000;
/// Stack for parsing the longest source. A source is an expression as deep as it is long at worst,
/// and minijinja walks it by recursion; at most 512 bytes for each byte of source were measured.
const PARSING_STACK: usize = 64 << 20;
/// Stack for each unit of fuel. A program can nest a list once more with 1.6 units, and comparing,
/// printing or dropping it takes up to 560 bytes of stack a level (measured). It is reserved only;
/// no memory is used until a template does that.
const STACK_PER_FUEL: usize = 400;
/// Heap for a template whatever its messages, and more for each byte of their text. The fuel pays
/// for everything that a template makes, but for sums of lists.
const HEAP: u64 = 128 << 20;
const HEAP_PER_BYTE: u64 = 8;
/// Processor time of a render: this, and a second for so much fuel. Published templates take some
/// milliseconds.
const SECONDS: u64 = 1;
const FUEL_PER_SECOND: u64 = 1_000_000;
/// How much slower the interpreter is when it is built without optimisation.
const SLOWER: u64 = if cfg!(debug_assertions) { 4 } else { 1 };
/// Depth of macro calls.
const RECURSION: usize = 100;

impl ChatTemplate {
    /// Parses all templates of a model. Fails when there is none, and when one is not Jinja.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let mut sources = Vec::new();
        for (key, value) in gguf.keys() {
            let Some(rest) = key.strip_prefix(KEY) else { continue };
            let name = if rest.is_empty() { Some(DEFAULT) } else { rest.strip_prefix('.') };
            if let (Some(name), Some(source)) = (name, value.as_str()) {
                sources.push((name, source));
            }
        }
        ChatTemplate::from_sources(&sources, tokenizer)
    }

    /// As [`ChatTemplate::from_gguf`], from names and texts; the usual template is called `default`.
    pub fn from_sources(sources: &[(&str, &str)], tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let Some((_, source)) = sources.iter().find(|(name, _)| *name == DEFAULT).or(sources.first()) else {
            return Err(TextError::NoChatTemplate { name: None, present: Vec::new() });
        };
        let environment = on_a_stack_of(PARSING_STACK, || {
            let mut environment = environment()?;
            for (name, source) in sources {
                if source.len() > LONGEST_SOURCE {
                    let problem = format!("`{name}` has {} bytes, more than {LONGEST_SOURCE}", source.len());
                    return Err(TextError::BadChatTemplate { line: None, problem });
                }
                let source = without_generation_blocks(source);
                environment.add_template_owned((*name).to_owned(), source).map_err(|error| failure(&error))?;
            }
            Ok(environment)
        })?;
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).map(str::to_owned);
        Ok(ChatTemplate {
            environment,
            names: sources.iter().map(|(name, _)| (*name).to_owned()).collect(),
            source: (*source).to_owned(),
            bos: text(tokenizer.bos()),
            eos: text(tokenizer.eos()),
            unk: text(tokenizer.unk()),
        })
    }

    /// The prompt's text for these messages.
    ///
    /// `tools` is a list of function descriptions as the OpenAI API has them. A model with a
    /// variant of its own for tools gets that one when there are any.
    ///
    /// Fails with `TemplateRefused` when the template says no, for example to two user messages in
    /// a row, and with `BadChatTemplate` when it goes wrong or does not come to an end.
    ///
    /// On Unix it works in a fork of this process, which it waits for; see `chat/apart.rs`.
    pub fn render(
        &self,
        messages: &[Message],
        tools: Option<&serde_json::Value>,
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        let name = self.variant(tools.is_some(), options.variant.as_deref())?;
        let bytes: usize =
            messages.iter().map(Message::text_bytes).sum::<usize>() + tools.map_or(0, message::text_bytes);
        let fuel = FUEL + FUEL_PER_MESSAGE * messages.len() as u64 + bytes as u64 / BYTES_PER_FUEL;
        let fuel = fuel.min(MOST_FUEL);
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let stack = PARSING_STACK + STACK_PER_FUEL * fuel as usize;
        let work = || {
            on_a_stack_of(stack, || {
                let variables = self.variables(messages, tools, options);
                let template = environment.get_template(name).map_err(|error| failure(&error))?;
                template.render(Value::from_pairs(variables)).map_err(|error| failure(&error))
            })
        };
        #[cfg(not(unix))]
        return work();
        #[cfg(unix)]
        apart::run(
            &apart::Limits {
                memory: stack as u64 + HEAP + HEAP_PER_BYTE * bytes as u64,
                seconds: (SECONDS + fuel / FUEL_PER_SECOND) * SLOWER,
            },
            work,
        )
    }

    /// What templates expect to find.
    fn variables<'v>(
        &self,
        messages: &[Message],
        tools: Option<&serde_json::Value>,
        options: &'v RenderOptions,
    ) -> Vec<(&'v str, Value)> {
        let mut variables = Vec::new();
        for (name, token) in [("bos_token", &self.bos), ("eos_token", &self.eos), ("unk_token", &self.unk)] {
            variables.extend(token.as_ref().map(|token| (name, Value::from(token))));
        }
        let now = options.now;
        let strftime_now = move |format: &str| -> Result<String, Error> {
            clock::strftime(now, format).map_err(|problem| Error::new(ErrorKind::InvalidOperation, problem))
        };
        variables.push(("strftime_now", Value::from_function(strftime_now)));
        variables.push(("messages", messages.iter().map(Message::to_value).collect()));
        variables.push(("tools", tools.map_or(Value::from(()), message::to_value)));
        variables.push(("documents", Value::from(())));
        variables.push(("add_generation_prompt", Value::from(options.add_generation_prompt)));
        variables.extend(options.extra.iter().map(|(name, value)| (name.as_str(), message::to_value(value))));
        variables
    }

    /// The template to take.
    fn variant<'s>(&'s self, with_tools: bool, asked: Option<&'s str>) -> Result<&'s str, TextError> {
        let has = |name: &str| self.names.iter().any(|known| known == name);
        let name = asked.unwrap_or(if with_tools && has(TOOL_USE) { TOOL_USE } else { DEFAULT });
        if has(name) {
            return Ok(name);
        }
        Err(TextError::NoChatTemplate { name: Some(name.to_owned()), present: self.names.clone() })
    }

    /// The names of all templates; the usual one is `default`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The text of the usual template, to tell families of models by.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// A Jinja environment as Hugging Face's tokenizers set theirs up.
fn environment() -> Result<Environment<'static>, TextError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| failure(&error))?);
    python_text::install(&mut environment);
    environment.set_debug(false);
    environment.set_recursion_limit(RECURSION);
    environment.add_filter("tojson", python_json::tojson);
    environment.add_function("raise_exception", |text: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(text)))
    });
    Ok(environment)
}

/// Runs `work` on a thread of its own with this much stack, and turns a panic into an error.
fn on_a_stack_of<T: Send>(bytes: usize, work: impl FnOnce() -> Result<T, TextError> + Send) -> Result<T, TextError> {
    let failed = |problem: String| TextError::BadChatTemplate { line: None, problem };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".to_owned()).stack_size(bytes);
        let thread = thread.spawn_scoped(scope, work).map_err(|error| {
            failed(format!("the system gives no thread with {} MiB of stack for it: {error}", bytes >> 20))
        })?;
        thread.join().unwrap_or_else(|_| Err(failed("its interpreter panicked".to_owned())))
    })
}

/// What a template said when it called `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// The typed form of whatever went wrong in a template.
fn failure(error: &Error) -> TextError {
    // Macros and includes wrap the error once more each.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error;
    while let Some(inner) = cause {
        if let Some(Refusal(text)) = inner.downcast_ref() {
            return TextError::TemplateRefused { text: text.clone() };
        }
        innermost = inner.downcast_ref().unwrap_or(innermost);
        cause = inner.source();
    }
    let problem = match innermost.detail() {
        Some(detail) => format!("{}: {detail}", innermost.kind()),
        None => innermost.kind().to_string(),
    };
    TextError::BadChatTemplate { line: innermost.line().or(error.line()), problem }
}

/// `{% generation %}` marks what the model is trained to say, and prints its content as it is. No
/// Jinja but Hugging Face's knows it, so it becomes a block that does nothing.
fn without_generation_blocks(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let inside = start + 2;
        let Some(length) = rest[inside..].find("%}") else { break };
        let tag = &rest[inside..inside + length];
        result.push_str(&rest[..inside]);
        // The signs of white-space control stay where they are.
        let word = tag.trim_matches(|sign: char| sign == '-' || sign == '+' || sign.is_whitespace());
        match word {
            "generation" => result.push_str(&tag.replacen(word, "if true", 1)),
            "endgeneration" => result.push_str(&tag.replacen(word, "endif", 1)),
            _ => result.push_str(tag),
        }
        rest = &rest[inside + length..];
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_become_blocks_that_do_nothing() {
        assert_eq!(
            without_generation_blocks(
                "a{%- generation -%} b {% endgeneration %}{% if generation %}{{ x }}{% endif %}{%"
            ),
            "a{%- if true -%} b {% endif %}{% if generation %}{{ x }}{% endif %}{%"
        );
    }
}
