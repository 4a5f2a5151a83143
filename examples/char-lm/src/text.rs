//! The text: where it comes from, its characters as numbers, and the part that is held out.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

/// Crates that this program is built from, so that cargo has downloaded them, with Rust source enough to learn
/// from. The last ones are held out.
const CRATES: [&str; 10] = [
    "burn-core",
    "burn-nn",
    "burn-optim",
    "burn-autodiff",
    "burn-fusion",
    "burn-cubecl",
    "burn-flex",
    "burn-backend",
    "burn-std",
    "burn-tensor",
];

/// The lock file that this program was built with, which says the version of each crate.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Characters that get a number of their own; rarer ones share one.
const LARGEST_VOCABULARY: usize = 256;

/// One in this many characters is held out, at the end of the text.
const HELD_OUT: usize = 20;

/// Shown for the number that rare characters share.
const RARE: char = '\u{fffd}';

/// A text as numbers.
#[derive(Clone, Debug)]
pub struct Text {
    /// What to call it.
    pub name: String,
    /// Its characters, the number of a character being its place.
    pub vocabulary: Vocabulary,
    /// The numbers of the text but its end.
    pub training: Vec<i32>,
    /// Those of its end.
    pub held_out: Vec<i32>,
    /// Tells this text from others.
    pub fingerprint: u64,
}

/// The characters that have a number; the first stands for all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vocabulary(Vec<char>);

impl Text {
    /// Reads `file`, or the source of the Burn crates.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not UTF-8 or is too short to train on, or if cargo's copy of the crates
    /// cannot be found.
    pub fn load(file: Option<&Path>) -> Result<Self> {
        match file {
            Some(file) => Self::new(file.display().to_string(), &read(file)?),
            None => {
                let (name, text) = burn_sources()?;
                Self::new(name, &text)
            }
        }
    }

    /// Numbers the characters of `text`.
    ///
    /// # Errors
    ///
    /// If the text is too short to train on.
    pub fn new(name: String, text: &str) -> Result<Self> {
        let characters: Vec<char> = text.chars().collect();
        let training = characters.len() - characters.len() / HELD_OUT;
        let vocabulary = Vocabulary::of(&characters[..training]);
        let numbers = vocabulary.numbers(&characters);
        let (training, held_out) = numbers.split_at(training);
        if held_out.len() < 2 {
            bail!("{name} has {} characters; training takes at least {}", characters.len(), 2 * HELD_OUT);
        }
        Ok(Self {
            name,
            vocabulary,
            training: training.to_vec(),
            held_out: held_out.to_vec(),
            fingerprint: fingerprint(text.as_bytes()),
        })
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, vocabulary, training, held_out, .. } = self;
        write!(
            f,
            "{name}: {} characters, {} more held out, {} kinds",
            training.len(),
            held_out.len(),
            vocabulary.len()
        )
    }
}

impl Vocabulary {
    /// The most frequent characters of a text, in the order of their code points.
    fn of(text: &[char]) -> Self {
        let mut counts: HashMap<char, usize> = HashMap::new();
        for &character in text {
            *counts.entry(character).or_default() += 1;
        }
        counts.remove(&RARE);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(character, count)| (std::cmp::Reverse(count), character));
        counts.truncate(LARGEST_VOCABULARY - 1);
        let mut characters: Vec<char> = counts.into_iter().map(|(character, _)| character).collect();
        characters.sort();
        characters.insert(0, RARE);
        Self(characters)
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none, which no text has.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of some characters.
    pub fn numbers(&self, characters: &[char]) -> Vec<i32> {
        let numbers: HashMap<char, i32> =
            self.0.iter().enumerate().map(|(number, &character)| (character, number as i32)).collect();
        characters.iter().map(|character| numbers.get(character).copied().unwrap_or(0)).collect()
    }

    /// The character with a number.
    pub fn character(&self, number: usize) -> char {
        self.0[number]
    }
}

fn read(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("can't read the text {}", file.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        anyhow!(
            "the text {} must be UTF-8, but its byte {} is not",
            file.display(),
            error.utf8_error().valid_up_to()
        )
    })
}

/// The source of the Burn crates, from cargo's registry.
fn burn_sources() -> Result<(String, String)> {
    let folders = registries()?;
    let mut text = String::new();
    let mut version = "";
    for name in CRATES {
        version = locked_version(name).ok_or_else(|| {
            anyhow!("the lock file does not name {name}; give a text of your own with --text FILE")
        })?;
        let package = format!("{name}-{version}");
        let source =
            folders.iter().map(|folder| folder.join(&package).join("src")).find(|path| path.is_dir());
        let Some(source) = source else {
            bail!(
                "can't find the source of {package} in cargo's registry under {}; give a text of your own with \
                 --text FILE, or set CARGO_HOME",
                folders[0].parent().unwrap_or(&folders[0]).display()
            )
        };
        let mut files = Vec::new();
        rust_files(&source, &mut files)?;
        files.sort();
        for file in files {
            text.push_str(&read(&file)?);
        }
    }
    Ok((format!("Rust source of {} Burn crates, version {version}", CRATES.len()), text))
}

/// Cargo's folders of unpacked crates.
fn registries() -> Result<Vec<PathBuf>> {
    let home = env::var_os("CARGO_HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("can't tell where cargo's registry is: set CARGO_HOME, or give a text with --text FILE")?;
    let sources = home.join("registry").join("src");
    let help = "give a text of your own with --text FILE, or set CARGO_HOME";
    let folders = fs::read_dir(&sources)
        .with_context(|| format!("can't read cargo's registry {}; {help}", sources.display()))?;
    let mut folders: Vec<PathBuf> =
        folders.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.sort();
    match folders.is_empty() {
        true => bail!("cargo's registry {} is empty; {help}", sources.display()),
        false => Ok(folders),
    }
}

fn locked_version(name: &str) -> Option<&'static str> {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let start = LOCK.find(&entry)? + entry.len();
    LOCK[start..].split('"').next()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("can't read {}", folder.display()))?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, whose value does not depend on the machine or the version of Rust.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_get_numbers_and_the_end_is_held_out() {
        let text = Text::new("a text".into(), &"abca".repeat(25)).unwrap();
        assert_eq!(text.vocabulary, Vocabulary(vec![RARE, 'a', 'b', 'c']));
        assert_eq!(text.training.len(), 95);
        assert_eq!(text.held_out, [1, 1, 2, 3, 1]);
        assert_eq!(text.vocabulary.numbers(&['c', 'z']), [3, 0]);
        assert_eq!(text.vocabulary.character(3), 'c');
    }

    #[test]
    fn rare_characters_share_a_number() {
        let mut text: String = (0..300).map(|code| char::from_u32(0x4e00 + code).unwrap()).collect();
        text.push_str(&"x".repeat(5700));
        let text = Text::new("a text".into(), &text).unwrap();
        assert_eq!(text.vocabulary.len(), LARGEST_VOCABULARY);
        assert_eq!(text.training[..300].iter().filter(|&&number| number == 0).count(), 300 - 254);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = env::temp_dir().join(format!("char-lm-text-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("text");
        let error = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            format!("{:#}", Text::load(Some(&file)).unwrap_err())
        };
        assert_eq!(
            error(b"abc\xffdef"),
            format!("the text {} must be UTF-8, but its byte 3 is not", file.display())
        );
        assert_eq!(
            error(b"short"),
            format!("{} has 5 characters; training takes at least 40", file.display())
        );
        let missing = folder.join("missing");
        let error = format!("{:#}", Text::load(Some(&missing)).unwrap_err());
        assert!(error.starts_with(&format!("can't read the text {}: ", missing.display())), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_lock_file_says_each_version() {
        for name in CRATES {
            let version = locked_version(name).unwrap();
            assert_eq!(version.split('.').count(), 3, "{name} {version}");
        }
        assert_eq!(locked_version("no-such-crate"), None);
    }
}
