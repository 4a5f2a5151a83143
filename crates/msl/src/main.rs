//! Writes the text of every kernel in Metal Shading Language.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use rnn_msl::{kernels::problems, server::Device, text::Form};

/// Writes the text of every kernel that the crate can launch: as CubeCL compiles it with Burn's `metal` feature
/// (`NAME.msl.metal`), its WGSL (`NAME.wgsl`), and what naga makes of that, which wgpu hands to Metal without the
/// feature (`NAME.naga.metal`). Kernels with bf16 have no WGSL.
#[derive(Parser)]
struct Options {
    /// The folder to write to; made if need be.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match write(&Options::parse()) {
        Ok(count) => {
            println!("{count} kernels written");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("msl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(options: &Options) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", options.out.display());
    fs::create_dir_all(&options.out).map_err(failed)?;
    let device = Device::new(None);
    let mut written = 0;
    for problem in problems() {
        problem.launch(&device.client);
        if let Some(failure) = device.failure() {
            return Err(format!("{}: {failure}", problem.name));
        }
        // Kernels that an earlier problem has launched are not new.
        for (number, text) in device.kernels().iter().skip(written).enumerate() {
            let name = format!("{}.{number}.{}", problem.name, text.name);
            for form in Form::ALL {
                if let Some(text) = text.form(form) {
                    fs::write(options.out.join(format!("{name}.{}.metal", form.name())), text)
                        .map_err(failed)?;
                }
            }
            if let Some(wgsl) = &text.wgsl {
                fs::write(options.out.join(format!("{name}.wgsl")), wgsl).map_err(failed)?;
            }
        }
        written = device.kernels().len();
    }
    Ok(written)
}
