//! `cargo xtask bench-metal`: conformance and benchmark on a Mac.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use clap::Args;

use crate::workspace::{cargo, root, status};

/// Runs the conformance suite and the benchmark on a Mac's GPU, beside MPSGraph and PyTorch on MPS.
///
/// Writes the times of each as JSON, and table.md, to be filled into docs/metal.md. Needs the command line tools of
/// Xcode; PyTorch is installed into the folder if python3 has none.
#[derive(Args)]
pub struct BenchMetal {
    /// The folder to write to; made if need be.
    #[arg(long, value_name = "DIR", default_value = "bench-metal")]
    out: PathBuf,
    /// Only these sizes, N,T,I,H; may be given more than once. Default: the ten of `bench --set grid`.
    #[arg(long, value_name = "N,T,I,H")]
    shape: Vec<String>,
}

/// Cells and element types, as bench names them, with the type's name to PyTorch.
const CELLS: [&str; 2] = ["gru", "rnn"];
const TYPES: [(&str, &str); 2] = [("f32", "float32"), ("f16", "float16")];

impl BenchMetal {
    pub fn run(self) -> Result<ExitCode, String> {
        if !cfg!(target_os = "macos") {
            return Err(format!(
                "bench-metal needs a Mac with macOS 13 or later; this is {}",
                env::consts::OS
            ));
        }
        fs::create_dir_all(&self.out)
            .map_err(|error| format!("{} cannot be made: {error}", self.out.display()))?;
        let peers = root().join("crates/bench/peers");

        println!("Conformance on Metal");
        let features = ["--features", "bench/metal,rnn-conformance/metal"];
        let cases = root().join("tests/data/cases");
        let mut wrong = Vec::new();
        for dtype in ["f32", "f16"] {
            let mut conformance = cargo("run");
            conformance.args(["--quiet", "--release", "--bin", "conformance"]).args(features).arg("--");
            conformance.arg("--cases").arg(&cases).args(["--device", "metal", "--dtype", dtype]);
            if !status(&mut conformance)?.success() {
                wrong.push(format!("conformance in {dtype}"));
            }
        }

        println!("\nMPSGraph");
        let program = self.out.join("mpsgraph");
        let mut swift = Command::new("swiftc");
        swift.arg("-O").arg(peers.join("mpsgraph.swift")).arg("-o").arg(&program);
        succeed(&mut swift, "install the command line tools of Xcode with `xcode-select --install`")?;
        let mpsgraph = self.out.join("mpsgraph.json");
        // Called by its path, not looked up as a command.
        let program = fs::canonicalize(program).map_err(|error| format!("mpsgraph: {error}"))?;
        succeed(&mut self.peer(Command::new(program), &mpsgraph), "MPSGraph cannot be timed")?;

        println!("\nPyTorch on MPS");
        let pytorch = self.out.join("pytorch.json");
        let mut files = vec![mpsgraph];
        let timed = python(&self.out).and_then(|python| {
            let mut command = Command::new(python);
            command.arg(peers.join("peers.py")).args(["--device", "mps"]);
            succeed(&mut self.peer(command, &pytorch), "PyTorch cannot be timed")
        });
        match timed {
            Ok(()) => files.push(pytorch),
            // The rest is worth having without it.
            Err(error) => wrong.push(error),
        }

        println!("\nburn-rnn");
        let mut ours = Vec::new();
        for cell in CELLS {
            for (dtype, _) in TYPES {
                let file = self.out.join(format!("{cell}_{dtype}.json"));
                let mut bench = cargo("run");
                bench.args(["--quiet", "--release", "--bin", "bench"]).args(features).arg("--");
                bench.args(["--device", "metal", "--cell", cell, "--dtype", dtype]);
                bench.args(self.shapes()).arg("--json").arg(&file);
                for peer in &files {
                    bench.arg("--peer").arg(peer);
                }
                if !status(&mut bench)?.success() {
                    wrong.push(format!("bench with {cell} in {dtype}"));
                }
                if file.exists() {
                    ours.push(file);
                }
            }
        }

        let table = self.out.join("table.md");
        let mut write = cargo("run");
        write.args(["--quiet", "--release", "--bin", "bench"]).args(features).args(["--", "table"]);
        write.args(ours).arg("--out").arg(&table);
        succeed(&mut write, "the table cannot be written")?;
        println!("\n{} is the table for docs/metal.md", table.display());
        match wrong.is_empty() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(format!("not all went well: {}", wrong.join("; "))),
        }
    }

    /// The sizes, as bench and the peers take them.
    fn shapes(&self) -> Vec<&str> {
        match self.shape.is_empty() {
            true => vec!["--set", "grid"],
            false => self.shape.iter().flat_map(|shape| ["--shape", shape]).collect(),
        }
    }

    /// A peer's command with what it is to time.
    fn peer(&self, mut command: Command, out: &Path) -> Command {
        command.arg("--cell").args(CELLS).arg("--dtype").args(TYPES.map(|(_, name)| name));
        command.args(self.shapes()).arg("--out").arg(out);
        command
    }
}

/// A python3 with PyTorch: the one that is there, or one of its own in the folder.
fn python(folder: &Path) -> Result<PathBuf, String> {
    let has_pytorch = |python: &Path| {
        let mut command = Command::new(python);
        command.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let own = folder.join("python");
    for python in ["python3".into(), own.join("bin/python3")] {
        if has_pytorch(&python) {
            return Ok(python);
        }
    }
    println!("python3 has no PyTorch: installing it into {}", own.display());
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&own), "python3 cannot be used")?;
    let mut install = Command::new(own.join("bin/python3"));
    install.args(["-m", "pip", "install", "--quiet", "torch", "numpy"]);
    succeed(&mut install, "PyTorch cannot be installed")?;
    Ok(own.join("bin/python3"))
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command, otherwise: &str) -> Result<(), String> {
    match status(command).map_err(|error| format!("{error}: {otherwise}"))?.success() {
        true => Ok(()),
        false => Err(format!("{} failed: {otherwise}", command.get_program().to_string_lossy())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn peers_time_what_bench_times() {
        let of = |shape: &[&str]| BenchMetal {
            out: "out".into(),
            shape: shape.iter().map(|shape| shape.to_string()).collect(),
        };
        let all = of(&[]).peer(Command::new("mpsgraph"), Path::new("a.json"));
        let expected =
            ["--cell", "gru", "rnn", "--dtype", "float32", "float16", "--set", "grid", "--out", "a.json"];
        assert_eq!(words(&all), expected);
        let one = of(&["1,2,3,4"]).peer(Command::new("mpsgraph"), Path::new("a.json"));
        assert!(words(&one).windows(2).any(|words| words == ["--shape", "1,2,3,4"]));
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn elsewhere_it_says_what_it_needs() {
        let error = BenchMetal { out: "out".into(), shape: Vec::new() }.run().unwrap_err();
        assert!(error.starts_with("bench-metal needs a Mac"), "{error}");
        assert!(!error.contains('\n'));
    }
}
