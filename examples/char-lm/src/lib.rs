//! A character-level language model: the text, the model, its training, and what is left of it on disk.

mod arguments;
mod checkpoint;
mod curve;
mod device;
mod model;
mod sample;
mod text;
mod train;

pub use arguments::{Arguments, LayerChoice, Settings};
pub use device::{DeviceChoice, choose};
pub use model::{Model, ModelConfig};
pub use text::Text;
pub use train::Trainer;

use std::{
    io::{Write, stdout},
    time::Instant,
};

use anyhow::{Context, Result};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Trains and samples as the command line says.
///
/// # Errors
///
/// One that says what was wrong with an argument, a file or the device.
pub fn run(arguments: Arguments) -> Result<()> {
    let saved = match arguments.resume {
        true => Some(checkpoint::read_progress(&arguments.out)?),
        false => None,
    };
    let settings = arguments.settings(saved.as_ref().map(|progress| &progress.settings))?;
    let text = Text::load(settings.text.as_deref())?;
    let (device, device_name) = choose(arguments.device)?;
    // Not `println!`, which panics where the reader of a pipe has gone.
    let mut out = stdout();
    writeln!(out, "device:  {device_name}")?;
    writeln!(out, "text:    {text}")?;

    let started = Instant::now();
    let mut trainer = match saved {
        Some(_) => Trainer::resume(&arguments.out, settings, &text, device)?,
        None => Trainer::new(settings, &text, device)?,
    };
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("can't make the folder {}", arguments.out.display()))?;
    writeln!(out, "model:   {}", trainer.description())?;
    if trainer.step() > 0 {
        writeln!(out, "resumed: after step {} of {}", trainer.step(), trainer.settings().steps)?;
    }

    let steps = trainer.settings().steps;
    let bar = ProgressBar::new(steps as u64).with_position(trainer.step() as u64).with_style(
        ProgressStyle::with_template("{bar:24} {pos}/{len} steps, {eta} left, {msg}")
            .expect("a valid template"),
    );
    while trainer.step() < steps {
        let report = trainer.advance()?;
        bar.set_position(trainer.step() as u64);
        bar.set_message(report.to_string());
        if trainer.step() == steps || trainer.step().is_multiple_of(trainer.settings().checkpoint_every) {
            trainer.save(&arguments.out)?;
        }
        if report.held_out.is_some() {
            bar.suspend(|| writeln!(out, "step {:>6}  {report}", trainer.step()))?;
        }
    }
    bar.finish_and_clear();

    writeln!(out, "trained in {}", HumanDuration(started.elapsed()))?;
    writeln!(
        out,
        "written: {} and {}, checkpoint in {}",
        arguments.out.join("curve.svg").display(),
        arguments.out.join("curve.csv").display(),
        checkpoint::folder(&arguments.out).display(),
    )?;
    writeln!(
        out,
        "\nA sample of {} characters at temperature {}:\n",
        arguments.sample, arguments.temperature
    )?;
    writeln!(out, "{}", trainer.sample(&arguments.prompt, arguments.sample, arguments.temperature)?)?;
    Ok(())
}
