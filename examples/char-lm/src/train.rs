//! Training: truncated backpropagation through time with the state carried from window to window.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use burn::{
    module::Module,
    nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig},
    optim::{AdamConfig, GradientsParams, ModuleOptimizer},
    tensor::{Device, Int, Tensor, TensorData},
};

use crate::{
    LayerChoice, Model, ModelConfig, Settings, Text,
    checkpoint::{self, Contents, Progress},
    curve::{self, Point, bits},
    sample,
};

/// Steps over which the learning rate rises at the start.
const WARM_UP: usize = 20;

/// What is left of the learning rate at the end, to which it falls along a cosine.
const LAST_LEARNING_RATE: f64 = 0.05;

/// Steps whose losses are read together. Reading waits for the device.
const READ_EVERY: usize = 10;

/// Windows of held-out text in a measurement.
const HELD_OUT_WINDOWS: usize = 8;

/// A run of training.
///
/// The text is read at `batch` places, spread evenly over it. Each step takes the next `window` characters of
/// each place and goes on from the states that the step before left there, without backpropagating into it. At
/// the end of the text the places start over.
pub struct Trainer<'a> {
    settings: Settings,
    text: &'a Text,
    /// With autodiff.
    device: Device,
    loss: CrossEntropyLoss,
    contents: Contents<Model>,
    step: usize,
    /// Time spent in steps.
    trained: Duration,
    points: Vec<Point>,
    /// Losses of the last steps, still on the device.
    unread: Vec<Tensor<1>>,
}

/// What a user wants to see of the last steps.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Mean cross-entropy of the last steps, in nats.
    pub loss: f32,
    /// Mean cross-entropy on held-out text, in nats, if it has just been measured.
    pub held_out: Option<f32>,
    /// Training speed.
    pub characters_per_second: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loss {:.3}, {:.3} bits/char", self.loss, bits(self.loss))?;
        if let Some(held_out) = self.held_out {
            write!(f, " ({:.3} held out)", bits(held_out))?;
        }
        write!(f, ", {:.0} chars/s", self.characters_per_second)
    }
}

impl<'a> Trainer<'a> {
    /// Starts a run.
    ///
    /// # Errors
    ///
    /// If the text is too short for the settings.
    pub fn new(settings: Settings, text: &'a Text, device: Device) -> Result<Self> {
        let device = device.autodiff();
        let (model, optimizer) = start(&settings, text, &device)?;
        Ok(Self {
            loss: CrossEntropyLossConfig::new().init(&device),
            contents: Contents { model, optimizer, state: None },
            settings,
            text,
            device,
            step: 0,
            trained: Duration::ZERO,
            points: Vec::new(),
            unread: Vec::new(),
        })
    }

    /// Goes on from the checkpoint in `out`, as if the run had not stopped.
    ///
    /// # Errors
    ///
    /// If there is no checkpoint of such a run, or the text is not the one it was trained on.
    pub fn resume(out: &Path, settings: Settings, text: &'a Text, device: Device) -> Result<Self> {
        let progress = checkpoint::read_progress(out)?;
        ensure!(
            progress.fingerprint == text.fingerprint,
            "the text {} is not the one that the checkpoint was trained on",
            text.name
        );
        ensure!(
            progress.step <= settings.steps,
            "--steps must be at least the {} that the checkpoint has done, got {}",
            progress.step,
            settings.steps
        );
        let mut trainer = Self::new(settings, text, device)?;
        let Contents { model, optimizer, .. } = trainer.contents;
        let Settings { layers, batch, hidden, .. } = trainer.settings;
        trainer.contents = checkpoint::read(out, model, optimizer, [layers, batch, hidden])?;
        trainer.step = progress.step;
        trainer.trained = Duration::from_secs_f64(progress.seconds);
        trainer.points = progress.points;
        Ok(trainer)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Optimiser steps done.
    pub fn step(&self) -> usize {
        self.step
    }

    /// What each step has measured.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The model in a line.
    pub fn description(&self) -> String {
        let Settings { layers, hidden, layer, .. } = self.settings;
        let layer = match layer {
            LayerChoice::Fused => "burn_rnn::Gru",
            LayerChoice::Burn => "burn::nn::gru::Gru",
        };
        format!("{layers} × {layer} with {hidden} units, {} parameters", self.contents.model.num_params())
    }

    /// Takes steps up to the next that is worth a report, and reports on them.
    ///
    /// # Errors
    ///
    /// If the loss can't be read from the device, or is no number.
    pub fn advance(&mut self) -> Result<Report> {
        let started = Instant::now();
        let Settings { steps, evaluate_every, checkpoint_every, .. } = self.settings;
        loop {
            self.train_step();
            let due = [READ_EVERY, evaluate_every, checkpoint_every];
            if self.step >= steps || due.into_iter().any(|every| self.step.is_multiple_of(every)) {
                break;
            }
        }
        let losses = read(std::mem::take(&mut self.unread))?;
        let elapsed = started.elapsed();

        let count = losses.len();
        let characters = self.settings.batch * self.settings.window;
        for (index, &loss) in losses.iter().enumerate() {
            let step = self.step - count + index + 1;
            let seconds = self.trained + elapsed.mul_f64((index + 1) as f64 / count as f64);
            let seconds = seconds.as_secs_f64();
            self.points.push(Point { step, characters: step * characters, seconds, loss, held_out: None });
            ensure!(
                loss.is_finite(),
                "the loss of step {step} is {loss}: a smaller --learning-rate than {} may help",
                self.settings.learning_rate
            );
        }
        self.trained += elapsed;
        let characters_per_second = (count * characters) as f64 / elapsed.as_secs_f64();

        let held_out = match self.step.is_multiple_of(evaluate_every) || self.step == steps {
            true => Some(self.held_out()?),
            false => None,
        };
        self.points.last_mut().expect("at least one step").held_out = held_out;
        let loss = losses.iter().sum::<f32>() / count as f32;
        Ok(Report { loss, held_out, characters_per_second })
    }

    fn train_step(&mut self) {
        let Settings { batch, window, .. } = self.settings;
        let Contents { model, optimizer, state } = &mut self.contents;
        let places = Places::new(self.text.training.len(), batch, window);
        let index = self.step % places.windows;
        if index == 0 {
            *state = None;
        }
        let (input, target) = places.window(&self.text.training, index, &self.device);

        let (scores, last) = model.forward(input, state.take());
        let loss = cross_entropy(&self.loss, scores, target);
        self.unread.push(loss.clone().inner());
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        let rate = learning_rate(&self.settings, self.step);
        *model = optimizer.step(rate, model.clone(), gradients);
        *state = Some(last.detach());
        self.step += 1;
    }

    /// Mean cross-entropy on the start of each place of the held-out text, in nats.
    ///
    /// # Errors
    ///
    /// If it can't be read from the device.
    fn held_out(&self) -> Result<f32> {
        let device = self.device.clone().inner();
        let model = self.contents.model.valid();
        let loss = CrossEntropyLossConfig::new().init(&device);
        let text = &self.text.held_out;
        let (batch, window) = fitting(text.len(), self.settings.batch, self.settings.window);
        let places = Places::new(text.len(), batch, window);
        let mut state = None;
        let mut losses = Vec::new();
        for index in 0..places.windows.min(HELD_OUT_WINDOWS) {
            let (input, target) = places.window(text, index, &device);
            let (scores, last) = model.forward(input, state.take());
            losses.push(cross_entropy(&loss, scores, target));
            state = Some(last);
        }
        let losses = read(losses)?;
        Ok(losses.iter().sum::<f32>() / losses.len() as f32)
    }

    /// Writes the checkpoint and the learning curve into `out`.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    pub fn save(&self, out: &Path) -> Result<()> {
        let progress = Progress {
            settings: self.settings.clone(),
            fingerprint: self.text.fingerprint,
            step: self.step,
            seconds: self.trained.as_secs_f64(),
            points: self.points.clone(),
        };
        checkpoint::write(out, &progress, &self.contents)?;
        curve::write(&self.points, &format!("char-lm: {}", self.description()), out)
    }

    /// Text that the model writes, `length` characters after `prompt`.
    ///
    /// # Errors
    ///
    /// If a score can't be read from the device.
    pub fn sample(&self, prompt: &str, length: usize, temperature: f64) -> Result<String> {
        let model = self.contents.model.valid();
        let device = self.device.clone().inner();
        let Self { text, settings, .. } = self;
        sample::sample(&model, &text.vocabulary, prompt, length, temperature, settings.seed, &device)
    }
}

/// The model and the optimiser before the first step.
fn start(settings: &Settings, text: &Text, device: &Device) -> Result<(Model, ModuleOptimizer)> {
    let Settings { batch, window, .. } = *settings;
    ensure!(
        text.training.len() > batch * window,
        "{} has {} characters to train on; --batch {batch} and --window {window} take more than {}",
        text.name,
        text.training.len(),
        batch * window
    );
    device.seed(settings.seed);
    let config = ModelConfig {
        vocabulary: text.vocabulary.len(),
        embedding: settings.embedding,
        hidden: settings.hidden,
        layers: settings.layers,
    };
    // Burn's default of 1e-5 for epsilon is above many of the gradients here.
    let optimizer = AdamConfig::new().with_epsilon(1e-8).init();
    Ok((config.init(settings.layer, device)?, optimizer))
}

fn learning_rate(settings: &Settings, step: usize) -> f64 {
    let warm_up = ((step + 1) as f64 / WARM_UP as f64).min(1.0);
    let progress = step as f64 / settings.steps as f64;
    let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
    settings.learning_rate * warm_up * (LAST_LEARNING_RATE + (1.0 - LAST_LEARNING_RATE) * cosine)
}

/// `[N, T, V]` and `[N, T]`
fn cross_entropy(loss: &CrossEntropyLoss, scores: Tensor<3>, target: Tensor<2, Int>) -> Tensor<1> {
    let [batch, window, vocabulary] = scores.dims();
    loss.forward(scores.reshape([batch * window, vocabulary]), target.reshape([batch * window]))
}

/// Reads some scalars at once.
fn read(losses: Vec<Tensor<1>>) -> Result<Vec<f32>> {
    Ok(Tensor::cat(losses, 0).try_into_data()?.iter::<f32>().collect())
}

/// The largest batch and window, up to those given, for which a text has a character to predict after each.
fn fitting(characters: usize, batch: usize, window: usize) -> (usize, usize) {
    let window = window.min(characters - 1);
    (batch.min((characters - 1) / window), window)
}

/// Places spread evenly over a text, each with a whole number of windows.
struct Places {
    batch: usize,
    window: usize,
    /// Windows of each place.
    windows: usize,
    /// Characters from one place to the next.
    stride: usize,
}

impl Places {
    fn new(characters: usize, batch: usize, window: usize) -> Self {
        // The last character is only ever predicted.
        let stride = (characters - 1) / batch;
        Self { batch, window, windows: stride / window, stride }
    }

    /// Window `index` of each place, and the characters that come one later, both `[N, T]`.
    fn window(&self, text: &[i32], index: usize, device: &Device) -> (Tensor<2, Int>, Tensor<2, Int>) {
        let gather = |shift: usize| {
            let numbers: Vec<i32> = (0..self.batch)
                .flat_map(|place| {
                    let start = place * self.stride + index * self.window + shift;
                    text[start..start + self.window].iter().copied()
                })
                .collect();
            Tensor::from_data(TensorData::new(numbers, [self.batch, self.window]), device)
        };
        (gather(0), gather(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_on_window_by_window_and_never_past_the_end() {
        let device = Device::flex();
        let text: Vec<i32> = (0..23).collect();
        let places = Places::new(text.len(), 2, 5);
        assert_eq!((places.windows, places.stride), (2, 11));
        let (input, target) = places.window(&text, 1, &device);
        let read = |tensor: Tensor<2, Int>| tensor.into_data().iter::<i32>().collect::<Vec<_>>();
        assert_eq!(read(input), [5, 6, 7, 8, 9, 16, 17, 18, 19, 20]);
        assert_eq!(read(target), [6, 7, 8, 9, 10, 17, 18, 19, 20, 21]);
    }

    #[test]
    fn a_short_text_has_fewer_places_and_smaller_windows() {
        assert_eq!(fitting(1000, 4, 64), (4, 64));
        assert_eq!(fitting(100, 4, 64), (1, 64));
        assert_eq!(fitting(2, 4, 64), (1, 1));
        for characters in 2..300 {
            let (batch, window) = fitting(characters, 4, 64);
            assert!(Places::new(characters, batch, window).windows >= 1);
        }
    }

    #[test]
    fn the_learning_rate_rises_and_falls() {
        let settings = Settings { learning_rate: 1.0, steps: 1000, ..Default::default() };
        let rate = |step: usize| learning_rate(&settings, step);
        assert!(rate(0) < 0.06 && rate(19) > 0.99);
        assert!((rate(500) - 0.525).abs() < 1e-9);
        assert!(rate(999) > 0.05 && rate(999) < 0.051);
    }
}
