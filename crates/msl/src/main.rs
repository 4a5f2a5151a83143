//! Writes the text of every kernel in Metal Shading Language.

#[cfg(feature = "spirv")]
mod spirv_val;

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use rnn_msl::{kernels::problems, server::Device, text::Form};
#[cfg(feature = "spirv")]
use spirv_val::Verdict;

/// Writes the text of every kernel that the crate can launch: as CubeCL compiles it with Burn's `metal` feature
/// (`NAME.msl.metal`), its WGSL (`NAME.wgsl`), and what naga makes of that, which wgpu hands to Metal without the
/// feature (`NAME.naga.metal`). Kernels with bf16 have no WGSL.
#[derive(Parser)]
struct Options {
    /// The folder to write to; made if need be.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Also writes `NAME.spv` and hands each to spirv-val; the exit code is 1 if it rejects one.
    #[cfg(feature = "spirv")]
    #[arg(long)]
    spirv: bool,
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
    let device = Device::new(&Form::ALL, None);
    let mut written = 0;
    #[cfg(feature = "spirv")]
    let (mut rejected, mut too_new) = (0, 0);
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
            #[cfg(feature = "spirv")]
            if options.spirv {
                let path = options.out.join(format!("{name}.spv"));
                let bytes: Vec<u8> = text.spirv.iter().flat_map(|word| word.to_le_bytes()).collect();
                fs::write(&path, bytes).map_err(failed)?;
                match spirv_val::validate(&path)? {
                    Verdict::Valid => {}
                    Verdict::TooNew => too_new += 1,
                    Verdict::Wrong(error) => {
                        eprintln!("{name}.spv: {error}");
                        rejected += 1;
                    }
                }
            }
        }
        written = device.kernels().len();
    }
    #[cfg(feature = "spirv")]
    if options.spirv {
        match rejected {
            0 if too_new == 0 => println!("spirv-val accepts the SPIR-V of each"),
            0 => println!(
                "spirv-val accepts the SPIR-V of each but {too_new} with bf16, for which it is too old"
            ),
            count => return Err(format!("spirv-val rejects {count} of {written} kernels")),
        }
    }
    Ok(written)
}
