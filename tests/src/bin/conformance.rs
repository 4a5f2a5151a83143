//! Runs a folder of conformance cases on a device, or on several.

use std::{
    collections::BTreeMap,
    env,
    fmt::Display,
    io::{Write, stdout},
    num::NonZero,
    panic,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Instant,
};

use burn::tensor::DType;
use burn_rnn::{KernelOptions, Strategy, force_strategy};
use clap::{Parser, ValueEnum};
use rnn_conformance::{TestDevice, case_files};

/// Runs every case file of a folder and says which fail, and by how much.
///
/// Ends with the line `N passed, N failed`, which counts case files: a case passes if it passes on every device
/// and in every element type it is run with. The exit code is 1 if a case failed or could not be read, or
/// if none was found.
#[derive(Parser)]
#[command(name = "conformance", version)]
struct Arguments {
    /// The folder of case files, `*.safetensors`. Default: the folder `cases` beside this program.
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Where to run them. Default: on flex, and on wgpu if there is an adapter. NAME-unfused leaves out fusion.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The element type. Default: f32, on flex and ndarray f64 as well.
    #[arg(long)]
    dtype: Option<Element>,
    /// How the kernels of a GPU run, instead of what suits each problem: cube, grid or steps.
    #[arg(long, value_name = "NAME")]
    strategy: Option<Strategy>,
    /// How many steps one launch of a kernel walks at most, instead of as many as stay short.
    #[arg(long, value_name = "N")]
    steps_per_launch: Option<NonZero<usize>>,
    /// Says which devices there are, or whether there is the one asked for, and exits. The exit code is 1 if
    /// that one is missing.
    #[arg(long)]
    list_devices: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Element {
    F64,
    F32,
    F16,
    Bf16,
}

impl From<Element> for DType {
    fn from(element: Element) -> Self {
        match element {
            Element::F64 => DType::F64,
            Element::F32 => DType::F32,
            Element::F16 => DType::F16,
            Element::Bf16 => DType::BF16,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.list_devices {
        true => list_devices(arguments.device.as_deref()),
        false => run(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: {problem}");
            if !arguments.list_devices {
                // If this can't be written either, the line above has said why.
                let _ = say("0 passed, 0 failed");
            }
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard output; unlike `println!` it doesn't panic where the reader of a pipe has gone.
fn say(line: impl Display) -> Result<(), String> {
    writeln!(stdout(), "{line}").map_err(|error| format!("cannot write to standard output: {error}"))
}

/// A case's panic is part of the report, which says more of it in one line than the panic's own text.
fn silence_panics_of_cases() {
    let main = thread::current().id();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != main {
            hook(info);
        }
    }));
}

/// Whether there is the device asked for.
fn list_devices(asked: Option<&str>) -> Result<bool, String> {
    let names = match asked {
        Some(name) => vec![name],
        None => TestDevice::names(),
    };
    let mut missing = false;
    for name in names {
        match TestDevice::open(name) {
            Ok(device) => say(device)?,
            Err(error) => {
                missing = true;
                say(error)?;
            }
        }
    }
    Ok(!missing || asked.is_none())
}

/// Whether all cases passed.
fn run(arguments: &Arguments) -> Result<bool, String> {
    silence_panics_of_cases();
    force_strategy(KernelOptions {
        strategy: arguments.strategy.unwrap_or_default(),
        steps_per_launch: arguments.steps_per_launch,
    });
    let folder = match &arguments.cases {
        Some(folder) => folder.clone(),
        None => {
            let program = env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
            program.with_file_name("cases")
        }
    };
    let files = case_files(&folder).map_err(|error| error.to_string())?;
    if files.is_empty() {
        return Err(format!("no case found: {} holds no *.safetensors file", folder.display()));
    }

    let mut failed = BTreeMap::new();
    for (device, dtype) in runs(arguments)? {
        let start = Instant::now();
        say(format_args!("{} cases on {device} in {dtype:?}", files.len()))?;
        let report = device.run_folder(&folder, dtype).map_err(|error| error.to_string())?;
        for outcome in &report.outcomes {
            *failed.entry(outcome.case.clone()).or_default() |= outcome.failure.is_some();
        }
        for outcome in report.failures() {
            say(outcome)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        say(format_args!("  {} of them passed, {seconds:.1} s", report.passed()))?;
    }
    let failures = failed.values().filter(|&&failed| failed).count();
    say(format_args!("{} passed, {failures} failed", failed.len() - failures))?;
    Ok(failures == 0)
}

/// The devices and element types asked for.
fn runs(arguments: &Arguments) -> Result<Vec<(TestDevice, DType)>, String> {
    let devices = match &arguments.device {
        Some(name) => vec![TestDevice::open(name).map_err(|error| error.to_string())?],
        None => {
            let flex = TestDevice::open("flex").map_err(|error| error.to_string())?;
            match TestDevice::open("wgpu") {
                Ok(wgpu) => vec![flex, wgpu],
                Err(error) => {
                    say(error)?;
                    vec![flex]
                }
            }
        }
    };
    let mut runs = Vec::new();
    for device in devices {
        let dtypes = match arguments.dtype {
            Some(dtype) => vec![dtype.into()],
            None if ["flex", "ndarray"].contains(&device.name()) => vec![DType::F32, DType::F64],
            None => vec![DType::F32],
        };
        for dtype in dtypes {
            match device.device().supports_dtype(dtype) {
                true => runs.push((device.clone(), dtype)),
                false if arguments.device.is_none() => {
                    say(format_args!("{device} does not compute in {dtype:?}"))?
                }
                false => return Err(format!("{device} does not compute in {dtype:?}")),
            }
        }
    }
    match runs.is_empty() {
        true => Err("no device computes in this element type".into()),
        false => Ok(runs),
    }
}
