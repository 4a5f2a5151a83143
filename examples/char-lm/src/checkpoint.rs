//! What a run leaves on disk to go on from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use burn::{
    module::{Module, Param},
    optim::{ModuleOptimizer, OptimizerRecord},
    store::ModuleRecord,
    tensor::{Bytes, Tensor},
};
use serde::{Deserialize, Serialize};

use crate::{Settings, curve::Point};

const MODEL: &str = "model.bpk";
const OPTIMIZER: &str = "optimizer.bpk";
const STATE: &str = "state.bpk";
const PROGRESS: &str = "progress.json";

/// How far a run has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Its settings.
    pub settings: Settings,
    /// Tells its text from others.
    pub fingerprint: u64,
    /// Optimiser steps done.
    pub step: usize,
    /// Seconds of training.
    pub seconds: f64,
    /// What each step measured.
    pub points: Vec<Point>,
}

/// All that changes from step to step.
pub struct Contents<M> {
    pub model: M,
    pub optimizer: ModuleOptimizer,
    /// The states that the next window starts from, `[L, N, H]`; `None` at the start of the text.
    pub state: Option<Tensor<3>>,
}

/// A tensor as a module, which is what Burn saves.
#[derive(Module, Debug)]
struct Saved {
    state: Param<Tensor<3>>,
}

/// Where the checkpoint of a run is.
pub fn folder(out: &Path) -> PathBuf {
    out.join("checkpoint")
}

/// Reads how far the run in `out` has come.
///
/// # Errors
///
/// If there is no checkpoint, or it can't be read.
pub fn read_progress(out: &Path) -> Result<Progress> {
    let file = existing(out).join(PROGRESS);
    let json = fs::read(&file).with_context(|| {
        format!("can't read {}: --resume needs a checkpoint in the --out folder", file.display())
    })?;
    serde_json::from_slice(&json)
        .with_context(|| format!("{} is not a checkpoint of this program", file.display()))
}

/// Writes a checkpoint in place of the last one, which stays until the new one is complete.
///
/// # Errors
///
/// If it can't be written.
pub fn write<M: Module>(out: &Path, progress: &Progress, contents: &Contents<M>) -> Result<()> {
    let (new, current, old) = (out.join("checkpoint.new"), folder(out), out.join("checkpoint.old"));
    let write = || -> Result<()> {
        remove(&new)?;
        fs::create_dir_all(&new)?;
        contents.model.clone().into_record().save(new.join(MODEL))?;
        contents.optimizer.save(new.join(OPTIMIZER))?;
        if let Some(state) = &contents.state {
            let saved = Saved { state: Param::from_tensor(state.clone()) };
            saved.into_record().save(new.join(STATE))?;
        }
        fs::write(new.join(PROGRESS), serde_json::to_vec(progress)?)?;
        remove(&old)?;
        if current.exists() {
            fs::rename(&current, &old)?;
        }
        fs::rename(&new, &current)?;
        remove(&old)
    };
    write().with_context(|| format!("can't write the checkpoint {}", current.display()))
}

/// Reads the checkpoint in `out` into a model and an optimiser of the same kind, with states of `state_shape`.
///
/// # Errors
///
/// If it can't be read, or is of another model.
pub fn read<M: Module>(
    out: &Path,
    model: M,
    optimizer: ModuleOptimizer,
    state_shape: [usize; 3],
) -> Result<Contents<M>> {
    let folder = existing(out);
    // Read at once: Burn would read a file when a value is first needed, and the next checkpoint replaces it.
    let bytes = |name: &str| -> Result<Bytes> { Ok(Bytes::from_bytes_vec(fs::read(folder.join(name))?)) };
    let read = || -> Result<Contents<M>> {
        let device = model.devices().into_iter().next().context("a model has a device")?;
        let model = model.try_load_record(ModuleRecord::from_bytes(bytes(MODEL)?)?)?;
        let optimizer = optimizer.load_record(OptimizerRecord::from_bytes(bytes(OPTIMIZER)?)?);
        let record = ModuleRecord::from_bytes(bytes(STATE).context(STATE)?)?;
        let empty = Saved { state: Param::from_tensor(Tensor::zeros(state_shape, &device)) };
        let state = empty.try_load_record(record)?.state.val().detach();
        Ok(Contents { model, optimizer, state: Some(state) })
    };
    read().with_context(|| format!("can't read the checkpoint {}", folder.display()))
}

/// The checkpoint, or, if writing one was cut off between the two renames, the one before.
fn existing(out: &Path) -> PathBuf {
    let (current, old) = (folder(out), out.join("checkpoint.old"));
    if !current.exists() && old.exists() { old } else { current }
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
