//! Reads the JSON of a tool call while it is being written: the arguments go on as soon as the
//! tool's name is known, so that a client sees a long file grow.

use super::Part;

/// Where in the object the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the object.
    Before,
    /// Where a key may begin.
    Key,
    /// In the text of a key.
    InKey,
    /// Between a key and its value.
    Colon,
    /// In a value, which begins with the next character that is no blank.
    Value,
    /// Behind the object.
    After,
}

/// What the value that is being read is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Other,
}

/// One call's object.
#[expect(clippy::struct_excessive_bools, reason = "a reader's state: none excludes another")]
#[derive(Debug)]
pub(super) struct CallReader {
    place: Place,
    field: Field,
    /// All text, until it is certain that this is a call.
    raw: String,
    key: String,
    value: String,
    name: Option<String>,
    /// Arguments that wait for the name.
    arguments: String,
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// The call was announced.
    begun: bool,
    /// The object is the arguments themselves.
    is_arguments: bool,
    /// The arguments are an object, which goes on as it comes.
    streams: bool,
}

/// The end of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Bytes of the last text that belong to it.
    pub(super) used: usize,
    /// It named a tool. Otherwise it came out as text.
    pub(super) is_call: bool,
}

impl Default for CallReader {
    fn default() -> Self {
        CallReader {
            place: Place::Before,
            field: Field::Other,
            raw: String::new(),
            key: String::new(),
            value: String::new(),
            name: None,
            arguments: String::new(),
            depth: 0,
            in_text: false,
            escaped: false,
            begun: false,
            is_arguments: false,
            streams: false,
        }
    }
}

impl CallReader {
    /// Of a call whose name came before its arguments.
    pub(super) fn of(name: &str) -> CallReader {
        CallReader {
            name: Some(name.to_owned()),
            place: Place::Value,
            field: Field::Arguments,
            is_arguments: true,
            ..CallReader::default()
        }
    }

    /// Takes more text: what is certain of the call, and its end if this has it.
    pub(super) fn push(&mut self, text: &str) -> (Vec<Part>, Option<End>) {
        let mut used = text.len();
        for (at, character) in text.char_indices() {
            self.raw.push(character);
            self.take(character);
            if self.place == Place::After {
                used = at + character.len_utf8();
                break;
            }
        }
        let mut parts = Vec::new();
        self.give_out(&mut parts);
        if self.place != Place::After {
            return (parts, None);
        }
        let is_call = self.begun;
        if is_call {
            parts.push(Part::CallEnd);
        } else {
            parts.push(Part::Text(std::mem::take(&mut self.raw)));
        }
        (parts, Some(End { used, is_call }))
    }

    /// The text ended within the object.
    pub(super) fn finish(&mut self) -> (Vec<Part>, bool) {
        let mut parts = Vec::new();
        self.give_out(&mut parts);
        if self.begun {
            parts.push(Part::CallEnd);
        } else if !self.raw.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut self.raw)));
        }
        (parts, self.begun)
    }

    fn give_out(&mut self, parts: &mut Vec<Part>) {
        let Some(name) = &self.name else { return };
        // Without arguments it is a call too, but only its end tells that there are none.
        if !self.begun && (self.place == Place::After || !self.arguments.is_empty()) {
            self.begun = true;
            parts.push(Part::Call { name: name.clone() });
        }
        if self.begun {
            self.raw.clear();
            if !self.arguments.is_empty() {
                parts.push(Part::Arguments(std::mem::take(&mut self.arguments)));
            }
        }
    }

    fn take(&mut self, character: char) {
        match self.place {
            Place::Before if character == '{' => self.place = Place::Key,
            Place::Before | Place::After => {}
            Place::Key => match character {
                '"' => {
                    self.key.clear();
                    self.place = Place::InKey;
                }
                '}' => self.place = Place::After,
                _ => {}
            },
            Place::InKey => match character {
                _ if self.escaped => {
                    self.escaped = false;
                    self.key.push(character);
                }
                '\\' => self.escaped = true,
                '"' => self.place = Place::Colon,
                other => self.key.push(other),
            },
            Place::Colon => {
                if character == ':' {
                    self.place = Place::Value;
                    self.value.clear();
                    self.field = match self.key.as_str() {
                        "name" => Field::Name,
                        "arguments" | "parameters" => Field::Arguments,
                        _ => Field::Other,
                    };
                }
            }
            Place::Value => self.take_value(character),
        }
    }

    fn take_value(&mut self, character: char) {
        let at_top = self.depth == 0 && !self.in_text;
        if at_top && matches!(character, ',' | '}') {
            self.end_value();
            self.place = if character == '}' { Place::After } else { Place::Key };
            return;
        }
        if at_top && character.is_whitespace() {
            return;
        }
        if self.in_text {
            match character {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => self.in_text = false,
                _ => {}
            }
        } else {
            match character {
                '"' => self.in_text = true,
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        // An object goes on at once. A string may hold the object in quotes, which is seen at its end.
        if self.field == Field::Arguments && self.value.is_empty() && character == '{' {
            self.streams = true;
        }
        if self.streams {
            self.arguments.push(character);
        } else {
            self.value.push(character);
        }
        if self.streams && self.depth == 0 {
            self.streams = false;
            if self.is_arguments {
                self.place = Place::After;
            }
        }
    }

    fn end_value(&mut self) {
        match self.field {
            Field::Name => self.name = serde_json::from_str(&self.value).ok(),
            Field::Arguments if !self.value.is_empty() => {
                let text = serde_json::from_str::<String>(&self.value);
                self.arguments.push_str(text.as_deref().unwrap_or(&self.value));
            }
            Field::Arguments | Field::Other => {}
        }
    }
}
