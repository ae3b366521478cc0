//! The steps of an installation by name. The journal, the plan and the tests that end the program at
//! each of them all use this list; a new step without a place in them does not compile or fails a test.

/// One step, in the order in which they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Clear away what a stopped run left.
    Recover,
    /// Unpack every component beside what is installed.
    Stage,
    /// Let the packages' verifier read everything back.
    Verify,
    /// Let each plugin compute something known on each device, in a child process.
    Prove,
    /// Write the receipt into the staged generation.
    Receipt,
    /// Give the staged folder its number.
    Commit,
    /// Put models in their place and list them.
    Models,
    /// Point `current` at the new generation: the one step that changes what runs.
    Switch,
    /// Remember key and counter of the release.
    Pin,
    /// The link in the user's folder of programs.
    Link,
    /// Close the journal.
    Finish,
}

impl Step {
    pub const ALL: [Step; 11] = [
        Step::Recover,
        Step::Stage,
        Step::Verify,
        Step::Prove,
        Step::Receipt,
        Step::Commit,
        Step::Models,
        Step::Switch,
        Step::Pin,
        Step::Link,
        Step::Finish,
    ];

    /// The word of the journal.
    pub fn name(self) -> &'static str {
        match self {
            Step::Recover => "recover",
            Step::Stage => "stage",
            Step::Verify => "verify",
            Step::Prove => "prove",
            Step::Receipt => "receipt",
            Step::Commit => "commit",
            Step::Models => "models",
            Step::Switch => "switch",
            Step::Pin => "pin",
            Step::Link => "link",
            Step::Finish => "finish",
        }
    }

    /// For the plan.
    pub fn text(self) -> &'static str {
        match self {
            Step::Recover => "clear away what a stopped run left",
            Step::Stage => "unpack beside what is installed, digests checked while unpacking",
            Step::Verify => "read everything back with the packages' verifier: files, versions, libraries, GPU code",
            Step::Prove => "let the plugins compute something known, in a child process",
            Step::Receipt => "write the receipt",
            Step::Commit => "give the new generation its number",
            Step::Models => "put models in their place",
            Step::Switch => "point `current` at the new generation",
            Step::Pin => "remember the release's key and counter",
            Step::Link => "link the program into the user's folder of programs",
            Step::Finish => "close the journal",
        }
    }
}

/// Who watches an installation: told what happens, asked whether to go on.
pub trait Observer: Sync {
    /// A step begins. A test ends the process here.
    fn step(&self, _step: Step) {}

    /// A step is done. A test ends the process here.
    fn done(&self, _step: Step) {}

    /// `bytes` more of `total` are done in the current step.
    fn bytes(&self, _what: &str, _done: u64, _total: u64) {}

    /// Something that a person should read.
    fn note(&self, _text: &str) {}

    /// Whether the user wants to stop; asked between pieces of work that can be left out.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Observer for Unwatched {}
