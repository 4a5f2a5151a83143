//! Training on Flex: that a resumed run goes on exactly, and that both kinds of layers train the same.
#![cfg(feature = "flex")]

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use burn::tensor::Device;
use char_lm::{LayerChoice, Settings, Text, Trainer};

/// Held by each test: they seed the device, which all of the process share.
fn alone() -> MutexGuard<'static, ()> {
    static DEVICE: Mutex<()> = Mutex::new(());
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Some text with something to learn in it.
fn text() -> Text {
    let text: String =
        (0..400).map(|line| format!("fn line_{}(value: u{}) {{}}\n", line % 7, 8 << (line % 4))).collect();
    Text::new("a test's text".into(), &text).unwrap()
}

fn settings(layer: LayerChoice) -> Settings {
    Settings {
        layer,
        steps: 14,
        batch: 8,
        window: 16,
        hidden: 12,
        layers: 2,
        embedding: 6,
        learning_rate: 0.01,
        evaluate_every: 5,
        checkpoint_every: 7,
        ..Default::default()
    }
}

/// An empty folder of the test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("char-lm-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs to step `until`.
fn run(trainer: &mut Trainer<'_>, until: usize) {
    while trainer.step() < until {
        trainer.advance().unwrap();
    }
}

/// All that a run measures, but the time it takes.
fn measured(trainer: &Trainer<'_>) -> Vec<(usize, usize, f32, Option<f32>)> {
    trainer.points().iter().map(|point| (point.step, point.characters, point.loss, point.held_out)).collect()
}

#[test]
fn a_resumed_run_goes_on_exactly() {
    let _alone = alone();
    let text = text();
    for layer in [LayerChoice::Fused, LayerChoice::Burn] {
        let mut whole = Trainer::new(settings(layer), &text, Device::flex()).unwrap();
        run(&mut whole, 14);
        assert_eq!(whole.points().len(), 14);
        assert!(whole.points()[13].held_out.is_some() && whole.points()[4].held_out.is_some());

        let folder = folder(&format!("resume-{layer:?}"));
        let mut first = Trainer::new(settings(layer), &text, Device::flex()).unwrap();
        run(&mut first, 7);
        first.save(&folder).unwrap();
        // Drawing other numbers in between must not matter.
        Device::flex().seed(99);
        let mut second = Trainer::resume(&folder, settings(layer), &text, Device::flex()).unwrap();
        assert_eq!(second.step(), 7);
        // A checkpoint on top of the one read, and on from there.
        second.save(&folder).unwrap();
        run(&mut second, 14);
        assert_eq!(measured(&second), measured(&whole));
        assert_eq!(
            second.sample("fn ", 50, 0.8).unwrap(),
            whole.sample("fn ", 50, 0.8).unwrap(),
            "the models must be equal"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn the_text_starts_over_at_its_end() {
    let _alone = alone();
    let text = text();
    // 9 windows a place: the run passes the end four times.
    let settings =
        Settings { batch: 64, window: 16, steps: 45, learning_rate: 0.03, ..settings(LayerChoice::Fused) };
    assert_eq!((text.training.len() - 1) / 64 / 16, 9);
    let mut trainer = Trainer::new(settings, &text, Device::flex()).unwrap();
    run(&mut trainer, 45);
    let losses: Vec<f32> = trainer.points().iter().map(|point| point.loss).collect();
    assert!(losses[44] < 0.8 * losses[0], "{losses:?}");
}

#[test]
fn both_layers_train_the_same() {
    let _alone = alone();
    let text = text();
    let losses = |layer| {
        let mut trainer = Trainer::new(settings(layer), &text, Device::flex()).unwrap();
        run(&mut trainer, 14);
        trainer.points().iter().map(|point| point.loss).collect::<Vec<_>>()
    };
    let (fused, burn) = (losses(LayerChoice::Fused), losses(LayerChoice::Burn));
    assert!(burn[13] < burn[0]);
    for (step, (fused, burn)) in fused.iter().zip(&burn).enumerate() {
        assert!((fused - burn).abs() < 1e-4, "step {step}: fused {fused}, burn {burn}");
    }
}

#[test]
fn a_run_is_decided_by_its_seed() {
    let _alone = alone();
    let text = text();
    let losses = |seed| {
        let settings = Settings { seed, ..settings(LayerChoice::Fused) };
        let mut trainer = Trainer::new(settings, &text, Device::flex()).unwrap();
        run(&mut trainer, 7);
        measured(&trainer)
    };
    assert_eq!(losses(3), losses(3));
    assert_ne!(losses(3), losses(4));
}

#[test]
fn what_cannot_be_resumed_is_refused() {
    let _alone = alone();
    let folder = folder("refused");
    let first = text();
    let settings = settings(LayerChoice::Fused);
    let error = |settings: &Settings, text: &Text| match Trainer::resume(
        &folder,
        settings.clone(),
        text,
        Device::flex(),
    ) {
        Ok(_) => panic!("expected an error"),
        Err(error) => format!("{error:#}"),
    };
    let text = error(&settings, &first);
    assert!(text.contains("--resume needs a checkpoint in the --out folder"), "{text}");

    let mut trainer = Trainer::new(settings.clone(), &first, Device::flex()).unwrap();
    run(&mut trainer, 7);
    trainer.save(&folder).unwrap();
    let other = Text::new("another text".into(), &"other ".repeat(1000)).unwrap();
    let text = error(&settings, &other);
    assert_eq!(text, "the text another text is not the one that the checkpoint was trained on");
    let text = error(&Settings { steps: 3, ..settings.clone() }, &first);
    assert_eq!(text, "--steps must be at least the 7 that the checkpoint has done, got 3");
    let text = error(&Settings { hidden: 13, ..settings }, &first);
    assert!(text.starts_with("can't read the checkpoint"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_text_shorter_than_a_step_is_refused() {
    let _alone = alone();
    let text = Text::new("a short text".into(), &"abc".repeat(40)).unwrap();
    let Err(error) = Trainer::new(settings(LayerChoice::Fused), &text, Device::flex()) else {
        panic!("expected an error")
    };
    assert_eq!(
        error.to_string(),
        "a short text has COUNT characters to train on; --batch 8 and --window 16 take more than 128"
            .replace("COUNT", &text.training.len().to_string())
    );
}
