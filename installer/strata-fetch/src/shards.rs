//! Which files of a listing make up the model that is meant: one file, or all shards of a split one.

use crate::FetchError;
use std::collections::{BTreeMap, BTreeSet};

/// Why a listing does not say what to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A set that cannot be used as it is.
    Incomplete(String),
    /// Nothing fits, or several do; the labels of what there is.
    Unclear { why: String, labels: Vec<String> },
}

impl Choice {
    pub(crate) fn of(self, source: &str) -> FetchError {
        let source_text = source.to_owned();
        match self {
            Choice::Incomplete(why) => FetchError::Incomplete { source_text, why },
            Choice::Unclear { why, labels } => FetchError::Unclear { source_text, why, labels },
        }
    }
}

/// `name-00002-of-00003.gguf` in pieces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// What stands before the number.
    pub name: String,
    pub number: u32,
    pub count: u32,
}

impl Shard {
    /// `None` for a name that only looks like one: `best-of-breed.gguf`.
    pub fn parse(file: &str) -> Option<Shard> {
        let number = |text: &str| {
            let digits = text.len() == 5 && text.bytes().all(|c| c.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| digits)
        };
        let (head, count) = stem(file)?.rsplit_once("-of-")?;
        let (name, part) = head.rsplit_once('-')?;
        Some(Shard { name: name.to_owned(), number: number(part)?, count: number(count)? })
    }

    /// File names of the whole set.
    pub fn set(&self) -> Vec<String> {
        (1..=self.count).map(|number| self.file(number)).collect()
    }

    fn file(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.name, self.count)
    }
}

fn stem(file: &str) -> Option<&str> {
    let at = file.len().checked_sub(".gguf".len())?;
    file.get(at..)?.eq_ignore_ascii_case(".gguf").then(|| &file[..at])
}

/// The files of a model in a list of paths: of the one that is named, or whose name holds `want`.
pub fn choose(files: &[&str], path: Option<&str>, want: Option<&str>) -> Option<Vec<String>> {
    match path {
        Some(path) => set_of(files, path).ok(),
        None => of_listing(files, want).ok(),
    }
}

/// The file that is named, or the set that it belongs to.
pub(crate) fn set_of(files: &[&str], path: &str) -> Result<Vec<String>, Choice> {
    let Some(shard) = Shard::parse(path) else {
        if files.contains(&path) {
            return Ok(vec![path.to_owned()]);
        }
        let labels = models(files)?.into_keys().collect();
        return Err(Choice::Unclear { why: format!("it has no file `{path}`"), labels });
    };
    whole(&shard, &numbers(files, &shard))
}

/// The model whose name holds `want`, or the only one that there is.
pub(crate) fn of_listing(files: &[&str], want: Option<&str>) -> Result<Vec<String>, Choice> {
    let models = models(files)?;
    let fitting: Vec<&String> = match want {
        Some(want) => fitting(models.keys(), want),
        // A picture encoder or a table of weights' importance is no model by itself.
        None => models.keys().filter(|label| !is_companion(label)).collect(),
    };
    match fitting[..] {
        [one] => match &models[one] {
            Model::File(file) => Ok(vec![file.clone()]),
            Model::Set(shard, numbers) => whole(shard, numbers),
        },
        [] => {
            let why = match want {
                Some(want) => format!("no model in it has `{want}` in its name"),
                None => "it holds no GGUF file".to_owned(),
            };
            Err(Choice::Unclear { why, labels: differences(&models.keys().collect::<Vec<_>>()) })
        }
        _ => {
            let labels = differences(&fitting);
            Err(Choice::Unclear { why: format!("it holds {} models", labels.len()), labels })
        }
    }
}

enum Model {
    File(String),
    Set(Shard, BTreeSet<u32>),
}

/// Models of a listing by their name without number and ending.
fn models(files: &[&str]) -> Result<BTreeMap<String, Model>, Choice> {
    let mut models = BTreeMap::new();
    let mut pieces = None;
    for file in files {
        match (stem(file), Shard::parse(file)) {
            (Some(_), Some(shard)) => {
                let numbers = numbers(files, &shard);
                models.entry(shard.name.clone()).or_insert(Model::Set(shard, numbers));
            }
            (Some(stem), None) => {
                models.insert(stem.to_owned(), Model::File((*file).to_owned()));
            }
            (None, _) if file.to_ascii_lowercase().contains(".gguf.") || file.contains(".gguf-") => {
                pieces.get_or_insert(*file);
            }
            (None, _) => {}
        }
    }
    match pieces {
        Some(piece) if models.is_empty() => Err(Choice::Incomplete(format!(
            "`{piece}` is a raw piece of a file: all pieces have to be fetched and joined before it is a model"
        ))),
        _ => Ok(models),
    }
}

fn numbers(files: &[&str], of: &Shard) -> BTreeSet<u32> {
    let shards = files.iter().filter_map(|file| Shard::parse(file));
    shards.filter(|shard| shard.name == of.name && shard.count == of.count).map(|shard| shard.number).collect()
}

fn whole(shard: &Shard, numbers: &BTreeSet<u32>) -> Result<Vec<String>, Choice> {
    let count = shard.count;
    if let Some(bad) = numbers.iter().find(|number| !(1..=count).contains(number)) {
        return Err(Choice::Incomplete(format!("it has a shard {bad}, and shards are numbered from 1 to {count}")));
    }
    let missing: Vec<String> =
        (1..=count).filter(|number| !numbers.contains(number)).take(10).map(|number| number.to_string()).collect();
    if count == 0 || !missing.is_empty() {
        return Err(Choice::Incomplete(format!("shard {} of {count} is missing", missing.join(", "))));
    }
    Ok(shard.set())
}

fn is_companion(label: &str) -> bool {
    let name = label.rsplit('/').next().unwrap_or(label).to_ascii_lowercase();
    name.starts_with("mmproj") || name.contains("imatrix")
}

/// Words of a name, as people write them with `want`.
fn words(label: &str) -> Vec<String> {
    label.split(['-', '.', '/']).map(str::to_ascii_lowercase).collect()
}

/// Labels that hold a word, else those with a word that begins with it.
fn fitting<'a>(labels: impl Iterator<Item = &'a String> + Clone, want: &str) -> Vec<&'a String> {
    let want = want.to_ascii_lowercase();
    let same: Vec<&String> =
        labels.clone().filter(|label| words(label).contains(&want) || label.to_ascii_lowercase() == want).collect();
    if !same.is_empty() {
        return same;
    }
    labels.filter(|label| words(label).iter().any(|word| word.starts_with(&want))).collect()
}

/// What tells names apart: `m-Q4`, `m-Q8` are `Q4`, `Q8`.
fn differences(labels: &[&String]) -> Vec<String> {
    let Some(first) = labels.first() else { return Vec::new() };
    let common = labels.iter().fold(first.len(), |common, label| {
        first.bytes().zip(label.bytes()).take(common).take_while(|(a, b)| a == b).count()
    });
    let cut = first.get(..common).and_then(|head| head.rfind(['-', '.', '/'])).map_or(0, |at| at + 1);
    labels.iter().map(|label| if labels.len() < 2 { (*label).clone() } else { label[cut..].to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(files: &[&str], want: Option<&str>) -> Result<Vec<String>, Choice> {
        of_listing(files, want)
    }

    #[test]
    fn words_choose_and_companions_do_not_confuse() {
        let files = ["m-Q4_K_M.gguf", "m-Q4_0.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf"];
        assert_eq!(chosen(&files, Some("q4_k_m")).unwrap(), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen(&files, Some("Q8")).unwrap(), ["m-Q8_0.gguf"]);
        let Err(Choice::Unclear { labels, .. }) = chosen(&files, Some("Q4")) else { panic!("two fit") };
        assert_eq!(labels, ["Q4_0", "Q4_K_M"]);
        assert_eq!(chosen(&["m.gguf", "mmproj-m.gguf", "x.imatrix.gguf"], None).unwrap(), ["m.gguf"]);
        assert_eq!(set_of(&files, "m-Q8_0.gguf").unwrap(), ["m-Q8_0.gguf"]);
        assert!(set_of(&files, "m-Q5.gguf").is_err());
        assert_eq!(Shard::parse("é-00001-of-00002.gguf").unwrap().set().len(), 2);
        assert_eq!(Shard::parse("gguf"), None);
        assert_eq!(Shard::parse("Ж.gguf"), None);
    }
}
