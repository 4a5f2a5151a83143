//! The command line, and the settings of a run.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::DeviceChoice;

/// Which recurrent layers the model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerChoice {
    /// `burn_rnn::Gru`
    Fused,
    /// Burn's own `nn::gru::Gru`, starting from the same weights
    Burn,
}

/// Trains a character-level language model with a GRU and writes a sample of what it has learnt.
#[derive(Clone, Debug, Parser)]
#[command(version, about)]
pub struct Arguments {
    /// The text, UTF-8 [default: the Rust source of the Burn crates that cargo has downloaded]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Where the checkpoint and the learning curve go
    #[arg(long, value_name = "FOLDER", default_value = "char-lm-out")]
    pub out: PathBuf,
    /// Continue from the checkpoint in the --out folder, with its settings
    #[arg(long)]
    pub resume: bool,
    /// Where to compute; auto: a GPU where there is one, else Flex
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// The model's recurrent layers [default: fused]
    #[arg(long, value_enum)]
    pub layer: Option<LayerChoice>,
    /// Seed of the model's first weights and of the sample [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Optimiser steps in all [default: 2400]
    #[arg(long)]
    pub steps: Option<usize>,
    /// Places in the text that are read side by side [default: 32]
    #[arg(long)]
    pub batch: Option<usize>,
    /// Characters that each place goes on by in a step [default: 64]
    #[arg(long)]
    pub window: Option<usize>,
    /// Hidden units of each GRU layer [default: 192]
    #[arg(long)]
    pub hidden: Option<usize>,
    /// GRU layers [default: 1]
    #[arg(long)]
    pub layers: Option<usize>,
    /// Size of the characters' embedding [default: 48]
    #[arg(long)]
    pub embedding: Option<usize>,
    /// Largest learning rate of Adam [default: 0.005]
    #[arg(long)]
    pub learning_rate: Option<f64>,
    /// Steps between measurements on held-out text [default: 100]
    #[arg(long)]
    pub evaluate_every: Option<usize>,
    /// Steps between checkpoints [default: 100]
    #[arg(long)]
    pub checkpoint_every: Option<usize>,
    /// Characters of the sample
    #[arg(long, default_value_t = 600)]
    pub sample: usize,
    /// What the sample begins with
    #[arg(long, default_value = "/// Returns the ")]
    pub prompt: String,
    /// How freely the sample is drawn; 0 takes the likeliest character
    #[arg(long, default_value_t = 0.7)]
    pub temperature: f64,
}

/// What decides the course of a run, and is saved with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The text's file; `None`: the source of the Burn crates.
    pub text: Option<PathBuf>,
    /// The model's recurrent layers.
    pub layer: LayerChoice,
    /// Seed of the model's first weights and of the sample.
    pub seed: u64,
    /// Optimiser steps in all.
    pub steps: usize,
    /// Places in the text that are read side by side.
    pub batch: usize,
    /// Characters that each place goes on by in a step.
    pub window: usize,
    /// Hidden units of each GRU layer.
    pub hidden: usize,
    /// GRU layers.
    pub layers: usize,
    /// Size of the characters' embedding.
    pub embedding: usize,
    /// Largest learning rate.
    pub learning_rate: f64,
    /// Steps between measurements on held-out text.
    pub evaluate_every: usize,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
}

impl Default for Settings {
    /// One to two minutes on two CPU cores.
    fn default() -> Self {
        Self {
            text: None,
            layer: LayerChoice::Fused,
            seed: 1,
            steps: 2400,
            batch: 32,
            window: 64,
            hidden: 192,
            layers: 1,
            embedding: 48,
            learning_rate: 0.005,
            evaluate_every: 100,
            checkpoint_every: 100,
        }
    }
}

/// Larger sizes are typing errors.
const LARGEST_SIZE: usize = 65_536;

/// With Adam's moments and gradients these fill 4 GiB.
const MOST_WEIGHTS: u128 = 1 << 28;

impl Settings {
    /// Weights of the GRU layers.
    fn weights(&self) -> u128 {
        let (hidden, layers, embedding) = (self.hidden as u128, self.layers as u128, self.embedding as u128);
        3 * hidden * (embedding + hidden + (layers - 1) * 2 * hidden)
    }
}

impl Arguments {
    /// The settings of the run: as given, else as `saved` with a checkpoint, else the defaults.
    ///
    /// # Errors
    ///
    /// If a number is out of its range, or differs from the checkpoint's where it must not.
    pub fn settings(&self, saved: Option<&Settings>) -> Result<Settings> {
        let defaults = Settings::default();
        let base = saved.unwrap_or(&defaults);
        let settings = Settings {
            text: match (&self.text, saved) {
                (Some(text), _) => Some(text.clone()),
                (None, Some(saved)) => saved.text.clone(),
                (None, None) => None,
            },
            layer: fixed("layer", self.layer, base.layer, saved)?,
            seed: fixed("seed", self.seed, base.seed, saved)?,
            // The learning rate's course follows the number of steps, so this alone may go on from what was saved.
            steps: self.steps.unwrap_or(base.steps),
            batch: fixed("batch", self.batch, base.batch, saved)?,
            window: fixed("window", self.window, base.window, saved)?,
            hidden: fixed("hidden", self.hidden, base.hidden, saved)?,
            layers: fixed("layers", self.layers, base.layers, saved)?,
            embedding: fixed("embedding", self.embedding, base.embedding, saved)?,
            learning_rate: fixed("learning-rate", self.learning_rate, base.learning_rate, saved)?,
            evaluate_every: self.evaluate_every.unwrap_or(base.evaluate_every),
            checkpoint_every: self.checkpoint_every.unwrap_or(base.checkpoint_every),
        };
        let counts = [
            ("steps", settings.steps),
            ("batch", settings.batch),
            ("window", settings.window),
            ("hidden", settings.hidden),
            ("layers", settings.layers),
            ("embedding", settings.embedding),
            ("evaluate-every", settings.evaluate_every),
            ("checkpoint-every", settings.checkpoint_every),
        ];
        for (name, count) in counts {
            if count == 0 {
                bail!("--{name} must be from 1 up, got 0");
            }
        }
        for (name, size) in &counts[1..6] {
            if *size > LARGEST_SIZE {
                bail!("--{name} must be at most {LARGEST_SIZE}, got {size}");
            }
        }
        let weights = settings.weights();
        if weights > MOST_WEIGHTS {
            bail!(
                "--hidden {}, --layers {} and --embedding {} make {weights} weights, more than {MOST_WEIGHTS}",
                settings.hidden,
                settings.layers,
                settings.embedding
            );
        }
        for (name, number) in [("learning-rate", settings.learning_rate), ("temperature", self.temperature)] {
            if !(number.is_finite() && number >= 0.0) {
                bail!("--{name} must be a number from 0 up, got {number}");
            }
        }
        Ok(settings)
    }
}

/// A setting that must not change between a checkpoint and what goes on from it.
fn fixed<T: PartialEq + std::fmt::Debug>(
    name: &str,
    given: Option<T>,
    base: T,
    saved: Option<&Settings>,
) -> Result<T> {
    match given {
        Some(given) if saved.is_some() && given != base => {
            bail!("--{name} must be the checkpoint's {base:?} with --resume, got {given:?}")
        }
        given => Ok(given.unwrap_or(base)),
    }
}
